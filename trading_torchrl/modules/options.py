"""Options: plans of several bars, what they are decided by, and what they do together.

Shapes: ``[*]``, one asset an account.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, exploration_type

SHARE, EQUITY, UNREALISED = ("account", "share"), ("account", "equity"), ("account", "unrealised")


class Scene(NamedTuple):
    """What options decide by, ``[*]`` each."""

    signals: Mapping[str, Tensor]
    """by name: ``trend`` (SMA 10 / SMA 20 - 1), ``volatility`` of a bar, ``volatility_rank`` among
    the last bars in [0, 1], ``momentum``; and, where they are known, ``sentiment`` and
    ``confidence`` in [0, 1]"""
    held: Tensor
    """position, as a share of the cap; negative is short"""
    earned: Tensor
    """price / entry - 1, 0 without a position"""
    steps: Tensor
    """bars that the running option has acted on"""
    entered: Tensor
    """bool: whether there has been a position since it began"""


@dataclass(frozen=True)
class Levels:
    """From where on moves count, in units of a bar's volatility, or as shares of the price.

    Example:
        >>> Levels.fit(torch.tensor([0.01, -0.02, 0.03]), torch.full((3,), 0.01)).trend
        2.0
    """

    trend: float
    """of the moving averages' ratio"""
    stop: float
    """against a position"""
    in_volatility: bool = True

    @property
    def target(self) -> float:
        """For a position."""
        return 2 * self.stop

    @classmethod
    def fit(cls, trend: Tensor, volatility: Tensor, bars: int = 10, often: float = 0.5) -> Levels:
        """In units of volatility, so that the share ``often`` of the bars has a trend.

        The stop is what a price without a trend usually moves in so many bars.
        """
        if not 0 < often < 1:
            raise ValueError(f"often is a share of the bars, in (0, 1), got {often}")
        strength = (trend / volatility.clamp(min=1e-12)).abs().double()
        known = strength[strength.isfinite()]
        least = min(int((1 - often) * len(known)) + 1, len(known))
        return cls(trend=float(known.kthvalue(least).values), stop=0.6745 * math.sqrt(bars))

    def of(self, level: float, scene: Scene) -> Tensor | float:
        """A level where the scene stands."""
        return level * scene.signals["volatility"] if self.in_volatility else level


SHARES = Levels(trend=0.015, stop=0.01, in_volatility=False)
"""As shares of the price: 1.5 % between the averages, a stop at 1 %, a target at 2 %."""


def ending(
    steps: Tensor, least: int, most: int, *, steepness: float = 0.5, likeliest: float = 1.0
) -> Tensor:
    """How likely a plan ends after so many bars: later is likelier.

    0 before ``least``, 1 from ``most`` on; between them ``0.8 x sigmoid(10 x steepness x (steps /
    most - 0.5))``, at most ``likeliest``.

    Example:
        >>> ending(torch.tensor([4, 5, 10, 19, 20]), least=5, most=20)
        tensor([0.0000, 0.1782, 0.4000, 0.7237, 1.0000])
    """
    progress = steps / most
    likely = (0.8 * (10 * steepness * (progress - 0.5)).sigmoid()).clamp(max=likeliest)
    likely = torch.where(steps < most, likely, 1.0)
    return torch.where(steps < least, 0.0, likely)


class Option(ABC):
    """A plan: when it may start, what it does, and when it has what it came for.

    One of one's own has three functions, and says how long it takes.
    """

    name: str
    least: int
    """bars before it may end"""
    most: int = 20
    """bars after which it ends"""
    scale: float = 1.0
    """of an agent's action while it runs"""
    steepness: float = 0.5
    levels: Levels | None = None
    """kept with the policy, where it goes by levels"""
    likeliest: float = 1.0
    """an end for no other reason than time, before ``most``"""

    @abstractmethod
    def may_start(self, scene: Scene) -> Tensor:
        """bool ``[*]``."""

    @abstractmethod
    def act(self, scene: Scene) -> Tensor:
        """The rule's action in [-1, 1], ``[*]``."""

    @abstractmethod
    def met(self, scene: Scene) -> Tensor:
        """How likely it ends here because its purpose is met, ``[*]``; 0 where it is not."""


def check_options(options: Sequence[Option]) -> None:
    """Refuses what cannot be carried out."""
    if not options:
        raise ValueError("there must be at least 1 option")
    for option in options:
        lacking = [name for name in ("name", "least") if not hasattr(option, name)]
        if lacking:
            raise ValueError(f"option {type(option).__name__} has no {lacking[0]}: set it")
        if not 1 <= option.least <= option.most:
            raise ValueError(
                f"{option.name}: least must be at least 1 and no more than most, got"
                f" least={option.least}, most={option.most}"
            )
    names = [option.name for option in options]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"two options are named {twice[0]}")


def allowed(options: Sequence[Option], scene: Scene) -> Tensor:
    """Which of them may start, bool ``[*, K]``."""
    return torch.stack([option.may_start(scene) for option in options], -1)


def acted(options: Sequence[Option], scene: Scene, index: Tensor) -> Tensor:
    """What the rule of the option ``index`` ``[*]`` does, ``[*]``."""
    rules = torch.stack([option.act(scene) for option in options], -1)
    return rules.gather(-1, index[..., None])[..., 0]


class Ends(NamedTuple):
    """How likely running options end, ``[*]`` each, and by what."""

    least: Tensor
    """at least: 0 before the shortest duration, 1 from the longest on, and what purposes met say"""
    most: Tensor
    """at most, where something learns when to end: 0 before the shortest duration, then 1"""
    timed: Tensor
    """by how long they have run, and by their purposes"""
    met: Tensor
    """by their purposes alone"""


def ends(options: Sequence[Option], scene: Scene, index: Tensor) -> Ends:
    """Of the option ``index`` ``[*]``.

    Nothing ends before its shortest duration, met or not; afterwards the likelier of time and
    purpose counts.
    """

    def of_each(value: Callable[[Option], Tensor]) -> Tensor:
        every = torch.stack([value(option) for option in options], -1)
        return every.gather(-1, index[..., None])[..., 0]

    steps = scene.steps
    time = of_each(
        lambda each: ending(
            steps, each.least, each.most, steepness=each.steepness, likeliest=each.likeliest
        )
    )
    met = of_each(lambda each: torch.where(steps < each.least, 0.0, each.met(scene)))
    over = of_each(lambda each: torch.where(steps < each.most, 0.0, 1.0))
    may = of_each(lambda each: torch.where(steps < each.least, 0.0, 1.0))
    return Ends(torch.maximum(over, met), may, torch.maximum(time, met), met)


def explores() -> bool:
    """Whether ends and choices are drawn, as :func:`torchrl.envs.set_exploration_type` has it."""
    return exploration_type() in (None, ExplorationType.RANDOM)


def over(likely: Tensor, lasted: Tensor, drawn: Tensor | None) -> tuple[Tensor, Tensor]:
    """Which options end, bool ``[*]``, and how likely they lasted beyond this bar, ``[*]``.

    Args:
        likely: how likely each ends here.
        lasted: how likely it lasted until here.
        drawn: evenly in [0, 1), while exploring; None where an option ends once it was as likely as
            not to have ended by now.
    """
    lasted = lasted * (1 - likely)
    return (lasted <= 0.5 if drawn is None else drawn < likely), lasted


def draw(like: Tensor) -> Tensor | None:
    """For :func:`over`."""
    return torch.rand_like(like) if explores() else None


def scene_of(
    shown: Mapping[Any, Any] | TensorDictBase, cap: float, steps: Tensor, entered: Tensor
) -> Scene:
    """What options decide by.

    Args:
        shown: ``signals``, and of ``account`` ``share``, ``equity`` and ``unrealised``.
        cap: largest position, as a share of equity.
        steps: bars that the running option has acted on, ``[*]``.
        entered: whether there had been a position since it began, before this bar, ``[*]``.
    """
    signals = {str(key): value[..., 0] for key, value in shown["signals"].items()}
    share, equity, gain = (shown[key][..., 0] for key in (SHARE, EQUITY, UNREALISED))
    paid = share * equity - gain
    earned = torch.where(share != 0, gain / torch.where(paid != 0, paid, 1.0), 0.0)
    return Scene(signals, share / cap, earned.float(), steps, entered | (share != 0))
