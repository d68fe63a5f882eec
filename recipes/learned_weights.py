"""Weights of objectives that are learned beside an agent, as the recipes switch them on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Any

import torch
from tasks import Task
from tasks.trading import Trading
from tensordict import TensorDictBase, unravel_key
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import TransformedEnv
from torchrl.objectives import LossModule

from trading_torchrl.descent import differentiate
from trading_torchrl.envs.goals import ACHIEVED, DESIRED
from trading_torchrl.envs.preferences import WEIGHTS
from trading_torchrl.modules import WeightNetwork, make_critics
from trading_torchrl.modules.weights import START
from trading_torchrl.monitoring import broken
from trading_torchrl.objectives import WeightLoss
from trading_torchrl.replay import Novelty, StoredByIndex, VectorReward
from trading_torchrl.resume import (
    collector_state,
    replay_state,
    restore_collector,
    restore_replay,
)

BATCH = 256


@dataclass
class MetaRows:
    """What the agent does on bars that it does not learn from."""

    collector: Collector
    replay: ReplayBuffer
    task: Task
    scale: float

    def __post_init__(self) -> None:
        self.batches = iter(self.collector)

    def sample(self) -> TensorDictBase:
        """One step more of each account, and a batch of all that there are, with their result."""
        batch = next(self.batches)
        if self.task.goals is not None:
            then = batch["next"]
            batch["next", "reward"] = self.task.goals.goal.reward(then[ACHIEVED], then[DESIRED])
        self.replay.extend(batch.select(*self.kept).reshape(-1))
        rows = self.replay.sample()
        rows["next", "reward"].mul_(self.scale)
        return rows

    @property
    def kept(self) -> list[NestedKey]:
        """Keys of rows; windows are made of others."""
        seen = [key for key in self.task.in_keys if key != "window"]
        then = [unravel_key(("next", key)) for key in seen]
        ends = [("next", "reward"), ("next", "terminated")]
        return [*dict.fromkeys([*seen, *then, "action", *ends, "market", ("next", "market")])]

    def state_dict(self) -> dict[str, Any]:
        """Rows, and where accounts stand."""
        return {"collector": collector_state(self.collector), "replay": replay_state(self.replay)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        restore_collector(self.collector, state["collector"])
        restore_replay(self.replay, state["replay"])


@dataclass
class LearnedWeights:
    """The network of weights, what trains it, and what it is trained on."""

    task: Task
    loss: WeightLoss
    rows: MetaRows
    novelty: Novelty
    vector: VectorReward
    optimizers: dict[str, torch.optim.Optimizer]
    settings: Mapping[str, Any]
    known: dict[str, float] = field(default_factory=dict)
    sample: TensorDictBase | None = None
    losses: TensorDictBase | None = None
    reads: tuple[NestedKey, ...] = (("next", "objectives"), ("next", "place"))
    """keys that rows must have"""

    def parts(self) -> dict[str, Any]:
        """What has a state."""
        optimizers = {f"{name}_optimizer": each for name, each in self.optimizers.items()}
        parts = {"weights": self.loss, "meta": self.rows, "novelty": self.novelty}
        return {**parts, "objectives_seen": self, **optimizers}

    def state_dict(self) -> dict[str, float]:
        """The figures: where updates are rare, a run that goes on tells those from before."""
        return self.figures()

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        self.sample, self.losses, self.known = None, None, dict(state)

    def see(self, batch: TensorDictBase) -> None:
        """What was collected: each row gets the place where it arrived."""
        place = self.task.place_of(batch)
        self.novelty.see(place)
        batch.set(("next", "place"), place)

    def learn(self, update: int) -> list[str]:
        """One step of weights and of critics of the result, if it is their turn."""
        if update % self.settings["every"]:
            return []
        self.losses = losses = self.loss(self.rows.sample())
        for name, optimizer in self.optimizers.items():
            trained = optimizer.param_groups[0]["params"]
            norm = differentiate(losses[f"loss_{name}"], trained, self.settings["max_grad_norm"])
            if isnan(norm):
                return broken(losses) or [name]
            optimizer.step()
        self.loss.update_targets(self.settings["tau"])
        return []

    @torch.no_grad()
    def weigh(self, sample: TensorDictBase) -> TensorDictBase:
        """A batch with its objectives side by side, and the weights that the agent is to follow.

        What is added to them, of a goal and of shaping, counts once.
        """
        weights = self.loss.weight_network(*(sample.get(key) for key in self.loss.seen))
        more = self.task.rewards - weights.shape[-1]
        weights = torch.cat([weights, torch.ones_like(weights[..., :more])], -1)
        self.sample = self.vector(self.novelty(sample)).set(WEIGHTS, weights)
        return self.sample

    def parts_and_weights(self) -> dict[str, float]:
        """What each objective added and its weight, for the report."""
        shown = ("_component", "_weight")
        return {name: value for name, value in self.figures().items() if name.endswith(shown)}

    def figures(self) -> dict[str, float]:
        """Of the last update: the network's entropy, each objective's part, weight, alignment."""
        if self.sample is not None:
            count = len(START)
            weights = self.sample[WEIGHTS][..., :count]
            parts = (weights * self.sample["next", "reward"][..., :count]).mean(0)
            said = zip(START, parts, weights.mean(0), weights.amax(0), strict=True)
            entropy = -(weights * weights.clamp(min=1e-12).log()).sum(-1).mean()
            self.known["reward/weight_network_entropy"] = float(entropy)
            for name, part, mean, largest in said:
                self.known[f"reward/{name}_component"] = float(part)
                self.known[f"reward/{name}_weight"] = float(mean)
                self.known[f"reward/{name}_largest"] = float(largest)
        if self.losses is not None:
            self.known["reward/loss_weights"] = float(self.losses["loss_weights"].detach())
            self.known["reward/loss_result"] = float(self.losses["loss_result"].detach())
            named = zip(START, self.losses["alignment"].tolist(), strict=True)
            self.known |= {f"reward/{name}_alignment": value for name, value in named}
        return dict(self.known)


def make_learned(
    settings: Mapping[str, Any],
    task: Trading,
    agent: LossModule,
    adds: str | None,
    *,
    seed: int,
    gamma: float,
    scale: float,
) -> LearnedWeights:
    """What ``conf/objectives/learned.yaml`` describes."""
    for name in ("lr", "result_lr", "max_grad_norm"):
        if not settings[name] > 0:
            raise ValueError(f"{name} must be above 0, got {settings[name]}")
    if not 0 < settings["tau"] <= 1:
        raise ValueError(f"tau must be above 0 and at most 1, got {settings['tau']}")
    for name in ("every", "accounts", "buffer_size"):
        if not isinstance(settings[name], int) or settings[name] < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {settings[name]!r}")
    env = task.meta(settings["accounts"], seed)
    stored = StoredByIndex.of(env.base_env if isinstance(env, TransformedEnv) else env)
    seen = [key for key in task.in_keys if key != "action_mask"]
    network = WeightNetwork(task.inputs, START, settings["hidden"])
    result = make_critics(task.inputs, task.actions, [64, 64], task.in_keys)
    loss = WeightLoss(
        network, agent.actor_network, agent.qvalue_network, result,
        gamma=gamma, entropy=settings["entropy"], in_keys=seen,
    )  # fmt: skip
    collector = Collector(
        env, agent.actor_network, frames_per_batch=settings["accounts"], total_frames=-1,
        trust_policy=True, track_traj_ids=False, auto_register_policy_transforms=False,
    )  # fmt: skip
    replay = ReplayBuffer(
        storage=LazyTensorStorage(settings["buffer_size"]), batch_size=BATCH, transform=stored
    )
    trained: dict[str, list[Tensor]] = {
        "weights": list(network.parameters()), "result": list(result.parameters())
    }  # fmt: skip
    rates = {"weights": settings["lr"], "result": settings["result_lr"]}
    optimizers: dict[str, torch.optim.Optimizer] = {
        name: torch.optim.Adam(each, lr=rates[name], fused=True) for name, each in trained.items()
    }
    rows = MetaRows(collector, replay, task, scale)
    novelty = Novelty(task.places, **settings["novelty"])
    vector = VectorReward(tuple(START), adds=adds)
    return LearnedWeights(task, loss, rows, novelty, vector, optimizers, settings)
