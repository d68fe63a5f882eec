"""Weights of objectives that are learned beside an agent, as the recipes switch them on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import torch
from checks import check_above_0, check_rate, check_whole, there
from objectives import Objectives, entropy, told
from tasks import seen_by
from tasks.trading import Trading
from tensordict import TensorDictBase, unravel_key
from tensordict.utils import NestedKey
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import Compose, Transform, TransformedEnv
from torchrl.objectives import LossModule

from trading_torchrl.descent import Adam, differentiate
from trading_torchrl.envs import Signals
from trading_torchrl.envs.goals import ACHIEVED, DESIRED
from trading_torchrl.envs.preferences import WEIGHTS
from trading_torchrl.modules import OptionPolicy, WeightNetwork, make_critics
from trading_torchrl.modules.option_policy import CODE
from trading_torchrl.modules.weights import START
from trading_torchrl.monitoring import broken
from trading_torchrl.objectives import WeightLoss
from trading_torchrl.replay import Novelty, OptionAhead, StoredByIndex, VectorReward
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
    task: Trading
    scale: float
    besides: Sequence[NestedKey] = ()
    """keys to keep, for options"""

    def __post_init__(self) -> None:
        self.batches = iter(self.collector)
        seen = [key for key in self.task.in_keys if key != "window"]  # it is made of other bars
        then = [unravel_key(("next", key)) for key in seen]
        ends = [("next", "reward"), ("next", "terminated")]
        places = ["market", ("next", "market")]
        self.kept = [*dict.fromkeys([*seen, *then, "action", *ends, *places, *self.besides])]

    def collect(self) -> None:
        """One step more of each account, with its result."""
        batch = next(self.batches)
        if self.task.goals is not None:
            then = batch["next"]
            batch["next", "reward"] = self.task.goals.goal.reward(then[ACHIEVED], then[DESIRED])
        self.replay.extend(batch.select(*self.kept).reshape(-1))

    def sample(self) -> TensorDictBase:
        """A batch of all that there are."""
        rows = self.replay.sample()
        rows["next", "reward"].mul_(self.scale)
        return rows

    def state_dict(self) -> dict[str, Any]:
        """Rows, and where accounts stand."""
        return {"collector": collector_state(self.collector), "replay": replay_state(self.replay)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        restore_collector(self.collector, state["collector"])
        restore_replay(self.replay, state["replay"])


class LearnedWeights(Objectives):
    """By a network that learns which of them help, side by side."""

    loss: WeightLoss

    def __init__(
        self,
        task: Trading,
        novelty: Novelty,
        vector: VectorReward,
        loss: WeightLoss,
        rows: MetaRows,
        optimizers: Mapping[str, Adam],
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__(task, novelty)
        self.vector, self.loss, self.rows = vector, loss, rows
        self.optimizers, self.settings = optimizers, settings
        self.losses: TensorDictBase | None = None

    def parts(self) -> dict[str, Any]:
        """What has a state."""
        optimizers = {f"{name}_optimizer": each for name, each in self.optimizers.items()}
        return {**super().parts(), "weights": self.loss, "meta": self.rows, **optimizers}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        super().load_state_dict(state)
        self.losses = None

    def learn(self, update: int, pace: float) -> list[str]:
        """One step of weights and of critics of the result, if it is their turn.

        Weights that went on moving while the agent slows down would leave it behind.
        """
        if not update % self.settings["collect_every"]:
            self.rows.collect()
        if update % self.settings["every"]:
            return []
        self.losses = losses = self.loss(self.rows.sample())
        self.optimizers["weights"].lr = pace * self.settings["lr"]
        for name, optimizer in self.optimizers.items():
            trained, longest = optimizer.parameters, self.settings["max_grad_norm"]
            norm = differentiate(losses[f"loss_{name}"], trained, longest)
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

    def figures(self) -> dict[str, float]:
        """Of the last update: the weights' entropy, and of each objective all there is to tell."""
        if self.sample is not None:
            count = len(START)
            weights = self.sample[WEIGHTS][..., :count]
            parts = weights * self.sample["next", "reward"][..., :count]
            self.known |= told(START, parts, weights)
            largest = zip(START, weights.amax(0).tolist(), strict=True)
            self.known |= {f"reward/{name}_largest": value for name, value in largest}
            self.known["reward/weight_network_entropy"] = entropy(weights)
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
    policy: OptionPolicy | None,
    novelty: Novelty,
    vector: VectorReward,
    *,
    seed: int,
    gamma: float,
    scale: float,
) -> LearnedWeights:
    """What ``conf/objectives/learned.yaml`` describes, of an agent alone or within options."""
    check_above_0("objectives", settings, "lr", "result_lr", "max_grad_norm")
    check_rate("objectives", settings)
    check_whole("objectives", settings, "every", "accounts", "collect_every", "buffer_size")
    env = task.meta(settings["accounts"], seed)
    base = env.base_env if isinstance(env, TransformedEnv) else env
    made: list[Transform] = [StoredByIndex.of(base)]
    inputs, seen = task.inputs, list(task.in_keys)
    besides: Sequence[NestedKey] = ()
    if policy is not None:
        ahead = OptionAhead(policy)
        made += [Signals.of(base), ahead]
        inputs, seen, besides = inputs + len(policy.options) + 1, [*seen, CODE], ahead.stored
    most = there("objectives", settings, "most")
    network = WeightNetwork(task.inputs, START, settings["hidden"], most)
    result = make_critics(inputs, task.actions, [64, 64], seen)
    loss = WeightLoss(
        network, agent.actor_network, agent.qvalue_network, result,
        gamma=gamma, entropy=settings["entropy"], in_keys=seen_by(task),
    )  # fmt: skip
    collector = Collector(
        env, agent.actor_network if policy is None else policy,
        frames_per_batch=settings["accounts"], total_frames=-1, trust_policy=True,
        track_traj_ids=False, auto_register_policy_transforms=False,
    )  # fmt: skip
    replay = ReplayBuffer(
        storage=LazyTensorStorage(settings["buffer_size"]), batch_size=BATCH,
        transform=Compose(*made),
    )  # fmt: skip
    optimizers = {
        "weights": Adam(network.parameters(), lr=settings["lr"]),
        "result": Adam(result.parameters(), lr=settings["result_lr"]),
    }
    rows = MetaRows(collector, replay, task, scale, besides)
    return LearnedWeights(task, novelty, vector, loss, rows, optimizers, settings)
