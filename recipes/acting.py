"""The agent that acts within options: what it learns from, by what, and what pays it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Any

from agents import keys_to_store, make_agent, needs_rewards
from hindsight import hindsight_figures, make_hindsight
from learning import Run
from loop import Lately
from rewarding import Paying, make_paying
from tasks.trading import Trading
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import Compose
from torchrl.objectives import LossModule

from trading_torchrl.descent import Adam, differentiate, norm_of
from trading_torchrl.envs import Signals
from trading_torchrl.modules import OptionPolicy, carried_out
from trading_torchrl.modules.option_policy import CODE
from trading_torchrl.monitoring import broken
from trading_torchrl.objectives import CQLLoss, FromTorchRL, IQLLoss
from trading_torchrl.replay import Hindsight, OptionAhead
from trading_torchrl.replay.option_ahead import MADE

BY_DENSITY = (CQLLoss, IQLLoss, FromTorchRL)
"""Losses that ask for densities of stored actions, or of any."""

PARTS = ("icm", "her", "shaping", "objectives")
"""Switches of what pays an agent."""


@dataclass
class Acting:
    """An agent that learns by an off-policy loss from actions as options carried them out."""

    loss: LossModule
    optimizer: Adam
    replay: ReplayBuffer
    kept: tuple[Any, ...]
    hindsight: Hindsight | None
    paying: Paying
    run: Run

    def __post_init__(self) -> None:
        self.summed = [key for key in self.loss.out_keys if key.startswith("loss_")]

    def parts(self) -> dict[str, Any]:
        """What has a state, but for loss and replay."""
        return {"optimizer": self.optimizer, **self.paying.parts()}

    def learn(self, batch: TensorDictBase, count: dict[str, Any], lately: Lately) -> list[str]:
        """Stores a batch, and makes the updates that are owed for it; what is not finite."""
        run, frames = self.run, count["frames"]
        if self.paying.objectives:
            self.paying.objectives.see(batch)
        rows = batch.select(*self.kept)
        self.replay.extend(rows if self.hindsight else rows.reshape(-1))
        self.optimizer.lr = run.learning_rate(frames)
        if frames > run.warmup_frames:
            count["owed"] += batch.numel() * run.updates_per_frame
        while count["owed"] >= 1:
            sample = self.replay.sample()
            sample["next", "reward"].mul_(run.reward_scale)
            pace = self.optimizer.lr / run.lr
            sample, wrong = self.paying.rewarded(sample, count, pace)
            losses = self.loss(sample)
            total = sum(losses[each] for each in self.summed)
            norm = differentiate(total, self.optimizer.parameters, run.max_grad_norm)
            if wrong or isnan(norm):
                return wrong or broken(losses) or ["gradient norm"]
            lately.see(losses, norm, sample)
            self.optimizer.step()
            self.loss.update_targets(run.tau)
            count["updates"] += 1
            count["owed"] -= 1
        return [] if isfinite(norm_of(self.optimizer.parameters)) else ["parameters"]

    def figures(self, batch: TensorDictBase, lately: Lately) -> dict[str, float]:
        """Of what pays it."""
        of_hindsight = hindsight_figures(self.hindsight, batch, lately.sample, self.replay)
        return self.paying.figures() | of_hindsight


def make_agent_within(
    settings: Mapping[str, Any], task: Trading, hidden: Sequence[int], options: int
) -> tuple[TensorDictModule, LossModule] | tuple[None, None]:
    """The actor whose actions options carry out, and its loss; nothing where rules act."""
    if settings.get("replay", {}).get("save"):
        raise SystemExit(
            "replay.save: what an agent did within options teaches none that acts alone; take"
            " recipes/offpolicy.py replay.save=true for recipes/offline.py"
        )
    if settings["options"]["action"] == "rule":
        asked = [name for name in PARTS if settings.get(name)]
        if asked:
            raise SystemExit(
                f"{asked[0]} pays an agent, and options.action=rule has none: take"
                f" options.action=scaled or blend, or {asked[0]}=off"
            )
        return None, None
    actor, loss = make_agent(
        settings["loss"], settings["network"], task, hidden,
        beside={CODE: options + 1}, through=carried_out,
    )  # fmt: skip
    needs_rewards(loss, "recipes/options.py")
    if isinstance(loss, BY_DENSITY):
        raise SystemExit(
            f"{type(loss).__name__} needs to know how likely an action was, and what options made"
            " of one does not say: take loss=sac, td3, redq, tqc or crossq"
        )
    return actor, loss


def make_acting(
    settings: Mapping[str, Any],
    task: Trading,
    run: Run,
    policy: OptionPolicy,
    loss: LossModule | None,
) -> Acting | None:
    """What the agent learns from, and what pays it; nothing where rules act."""
    if loss is None:
        return None
    paying = make_paying(settings, task, loss, run, policy)
    storage = LazyTensorStorage(run.buffer_size, ndim=2 if settings.get("her") else 1)
    hindsight = make_hindsight(settings.get("her"), task, storage)
    ahead = OptionAhead(policy)
    transforms = [hindsight, task.replay_transform(), Signals.of(task.base), ahead]
    replay = ReplayBuffer(
        storage=storage, batch_size=run.batch_size,
        transform=Compose(*(each for each in transforms if each is not None)),
    )  # fmt: skip
    own = ahead.stored
    readers = hindsight, paying.shaping, paying.objectives
    kept = keys_to_store(task, loss, *readers, made=(*own, *MADE))
    kept = tuple(dict.fromkeys((*kept, *own)))
    optimizer = Adam([each for each in loss.parameters() if each.requires_grad], lr=run.lr)
    return Acting(loss, optimizer, replay, kept, hindsight, paying, run)
