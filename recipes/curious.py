"""Curiosity, as the recipes switch it on: models, what trains them, what a surprise is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

import torch
from checks import check_above_0, check_whole, plainly, there
from tasks import Front, FrontTrading, Task, seen_by
from tensordict import TensorDictBase

from trading_torchrl.descent import differentiate
from trading_torchrl.modules import Curiosity
from trading_torchrl.monitoring import broken
from trading_torchrl.objectives import ICMLoss
from trading_torchrl.replay import CuriosityReward

WIDTHS = ("features", "encoder", "change", "between")
OWN = (*WIDTHS, "beta", "every", "rows", "lr", "weight_decay", "max_grad_norm")
"""Settings of the models; the others are those of the reward."""


@dataclass
class Curious:
    """The models of the world beside an agent; its gradients and theirs never meet."""

    reward: CuriosityReward
    loss: ICMLoss
    optimizer: torch.optim.Optimizer
    every: int
    rows: int
    longest: float

    def __post_init__(self) -> None:
        self.trained = list(self.loss.parameters())
        self.rewards: TensorDictBase | None = None
        self.losses: TensorDictBase | None = None
        self.known: dict[str, float] = {}

    def parts(self) -> dict[str, Any]:
        """What has a state."""
        models = {"icm": self.loss, "icm_optimizer": self.optimizer}
        return {**models, "icm_reward": self.reward, "icm_seen": self}

    def state_dict(self) -> dict[str, float]:
        """The figures: where updates are rare, a run that goes on tells those from before."""
        return self.figures()

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        self.rewards, self.losses, self.known = None, None, dict(state)

    def learn(self, sample: TensorDictBase, update: int) -> list[str]:
        """One step of the models, if it is their turn; what is not finite."""
        self.rewards = sample["next"]
        if update % self.every:
            return []
        self.losses = losses = self.loss(sample[: self.rows])
        total = losses["loss_forward"] + losses["loss_inverse"]
        if isnan(differentiate(total, self.trained, self.longest)):
            return broken(losses) or ["curiosity"]
        self.optimizer.step()
        return []

    def figures(self) -> dict[str, float]:
        """Of the last update."""
        if self.rewards is not None:
            added = float(self.rewards["added"].mean())
            rest = float((self.rewards["reward"] - self.rewards["added"]).abs().mean())
            self.known["icm/intrinsic_reward_mean"] = float(self.rewards["intrinsic"].mean())
            self.known["icm/intrinsic_share"] = added / (added + rest) if added else 0.0
        if self.losses is not None:
            named = {"forward_error": "forward", "inverse_error": "inverse"}
            self.known |= {
                f"icm/{said}_loss": float(self.losses[key]) for key, said in named.items()
            }
            both = self.losses["loss_forward"] + self.losses["loss_inverse"]
            self.known["icm/total_loss"] = float(both.detach())
        return dict(self.known)

    def told(self) -> dict[str, float]:
        """What a run says of them at its end: how many numbers they learn, and figures."""
        return {"numbers": sum(each.numel() for each in self.trained), **self.figures()}


@plainly(ValueError, before="icm: ")
def make_curious(
    settings: Mapping[str, Any] | None, task: Task, *, mixes: bool = True
) -> Curious | None:
    """What ``conf/icm`` describes; nothing where it is off.

    Where it does not mix what surprises are worth into the reward, it tells it beside.
    """
    if not settings:
        return None
    if isinstance(task, Front | FrontTrading):
        raise SystemExit("icm: surprises are paid in one reward: icm=off, or objectives=learned")
    own = {name: there("icm", settings, name) for name in OWN}
    given = {name: value for name, value in settings.items() if name not in own}
    check_whole("icm", own, "every", "rows")
    check_above_0("icm", own, "lr", "max_grad_norm")
    seen = seen_by(task)
    models = Curiosity(
        task.inputs, task.actions,
        choices=not task.env.action_spec.dtype.is_floating_point,
        **{name: own[name] for name in WIDTHS},
    )  # fmt: skip
    loss = ICMLoss(models, beta=own["beta"], in_keys=seen)
    given |= {} if mixes else {"share": 0.0}
    reward = CuriosityReward(models, seen, **given)
    optimizer = torch.optim.AdamW(
        loss.parameters(), lr=own["lr"], weight_decay=own["weight_decay"], fused=True
    )
    return Curious(reward, loss, optimizer, own["every"], own["rows"], own["max_grad_norm"])
