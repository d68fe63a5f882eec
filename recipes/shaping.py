"""Potential shaping, as the recipes switch it on: a potential, what trains it, what it adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

from checks import check_above_0, check_rate, check_whole, plainly
from tasks import Front, FrontTrading, Task, seen_by
from tensordict import TensorDictBase
from tensordict.utils import NestedKey

from trading_torchrl.descent import Adam, differentiate
from trading_torchrl.modules import Potential
from trading_torchrl.monitoring import broken
from trading_torchrl.objectives import PotentialLoss
from trading_torchrl.replay import PotentialShaping

OWN = ("potential", "hidden", "every", "lr", "tau", "max_grad_norm")
"""Settings of a learned potential; the others are those of what it adds."""


@dataclass
class Learned:
    """A potential that learns beside an agent; its gradients and the agent's never meet."""

    loss: PotentialLoss
    optimizer: Adam
    every: int
    tau: float
    longest: float

    def __post_init__(self) -> None:
        self.losses: TensorDictBase | None = None

    def learn(self, sample: TensorDictBase, update: int) -> list[str]:
        """One step, if it is its turn; what is not finite."""
        if update % self.every:
            return []
        self.losses = self.loss(sample)
        trained = self.optimizer.parameters
        if isnan(differentiate(self.losses["loss_potential"], trained, self.longest)):
            return broken(self.losses) or ["potential"]
        self.optimizer.step()
        self.loss.update_targets(self.tau)
        return []

    def figures(self) -> dict[str, float]:
        """Of the last step."""
        if self.losses is None:
            return {}
        named = zip(self.loss.potential.names, self.losses["potential"].tolist(), strict=True)
        loss = float(self.losses["loss_potential"].detach())
        return {"shaping/loss": loss, **{f"shaping/{name}": value for name, value in named}}


@dataclass
class Shaped:
    """What a potential adds to rewards, and its learning where it is learned."""

    reward: PotentialShaping
    learned: Learned | None
    known: dict[str, float]
    added: TensorDictBase | None = None

    @property
    def loss(self) -> PotentialLoss | None:
        """What the potential learns by, if it learns."""
        return self.learned.loss if self.learned else None

    @property
    def reads(self) -> tuple[NestedKey, ...]:
        """Keys that its rows must have."""
        return () if self.learned is None else tuple(self.learned.loss.in_keys)

    def parts(self) -> dict[str, Any]:
        """What has a state."""
        parts: dict[str, Any] = {"shaping": self.reward, "shaping_seen": self}
        if self.learned is not None:
            parts |= {"potential": self.learned.loss, "potential_optimizer": self.learned.optimizer}
        return parts

    def state_dict(self) -> dict[str, float]:
        """The figures: where updates are rare, a run that goes on tells those from before."""
        return self.figures()

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        self.added, self.known = None, dict(state)
        if self.learned is not None:
            self.learned.losses = None

    def learn(self, sample: TensorDictBase, update: int) -> list[str]:
        """One step of the potential, if it learns; what is not finite."""
        return self.learned.learn(sample, update) if self.learned else []

    def shape(self, sample: TensorDictBase, frames: int) -> TensorDictBase:
        """The batch with its rewards shaped, after so many frames."""
        self.reward.count(frames)
        sample = self.reward(sample)
        self.added = sample["next"]
        return sample

    def judged(self, figures: Mapping[str, float]) -> None:
        """What an evaluation found moves the weight."""
        self.reward.adapt(
            entropy=figures.get("action_entropy"), sharpe=figures.get("sharpe_ratio_mean")
        )

    def figures(self) -> dict[str, float]:
        """Of the last update."""
        self.known["shaping/weight"] = float(self.reward.weight)
        if self.added is not None:
            self.known["shaping/added"] = float(self.added["shaping"].abs().mean())
        if self.learned is not None:
            self.known |= self.learned.figures()
        return dict(self.known)


@plainly(ValueError, before="shaping: ")
def make_shaping(settings: Mapping[str, Any] | None, task: Task, gamma: float) -> Shaped | None:
    """What ``conf/shaping`` describes; nothing where it is off."""
    if not settings:
        return None
    if isinstance(task, Front | FrontTrading):
        raise SystemExit("shaping is of one reward: shaping=off, or objectives=learned")
    adds = {name: value for name, value in settings.items() if name not in OWN}
    if settings["potential"] == "hand":
        written = task.potential()
        if written is None:
            raise SystemExit(
                f"shaping=hand: nobody wrote a potential for {task.name} as it is; there is one for"
                " mazes and, with window=null, for markets. Take shaping=learned"
            )
        return Shaped(PotentialShaping(written, gamma=gamma, **adds), None, {})
    if settings["potential"] != "learned":
        raise SystemExit(
            f"shaping.potential is learned or hand, got {settings['potential']!r}: take"
            " shaping=learned or shaping=hand"
        )
    check_whole("shaping", settings, "every")
    check_above_0("shaping", settings, "lr", "max_grad_norm")
    check_rate("shaping", settings)
    seen = seen_by(task)
    potential = Potential(
        task.inputs, {name: weight for name, (_, weight) in task.signals.items()},
        settings["hidden"],
    )  # fmt: skip
    signals = {name: key for name, (key, _) in task.signals.items()}
    loss = PotentialLoss(potential, gamma=gamma, signals=signals, in_keys=seen)
    reward = PotentialShaping(potential, seen, gamma=gamma, **adds)
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = Adam(trained, lr=settings["lr"])
    own = {name: settings[name] for name in ("every", "tau")}
    learned = Learned(loss, optimizer, **own, longest=settings["max_grad_norm"])
    return Shaped(reward, learned, {})
