"""Options of trading: plans of several bars, as rules of signals and of the account.

Shapes: ``[*]``, one asset an account.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, exploration_type

SHARE, EQUITY, UNREALISED = ("account", "share"), ("account", "equity"), ("account", "unrealised")

FULL = 0.9
"""Share of the cap from which a position counts as full."""

CLOSES = 1.0
"""The action that sells all; its sign is against the position."""


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


def _known(scene: Scene, name: str, above: float) -> Tensor:
    """Where a signal is above a level; nowhere, if nobody knows it."""
    value = scene.signals.get(name)
    return torch.zeros_like(scene.held, dtype=torch.bool) if value is None else value > above


def _flat(scene: Scene) -> Tensor:
    return scene.held == 0


class _Levelled(Option):
    """An option that goes by levels."""

    levels: Levels

    def __init__(self, levels: Levels) -> None:
        self.levels = levels


class _Open(_Levelled):
    """Builds a position up to the cap, faster while it has not run away."""

    least, scale = 5, 0.8
    side: int

    def may_start(self, scene: Scene) -> Tensor:
        """Flat, and with confidence where that is known."""
        confidence = scene.signals.get("confidence")
        return _flat(scene) if confidence is None else _flat(scene) & (confidence >= 0.5)

    def act(self, scene: Scene) -> Tensor:
        """A first part, more at the next two bars while the price is near, then a little."""
        near = self.side * scene.earned < self.levels.of(self.levels.stop, scene)
        soon = torch.where(near, 0.5, 0.0)
        later = torch.where(scene.steps <= 2, soon, 0.2)
        return self.side * torch.where(scene.steps == 0, 0.3, later)

    def met(self, scene: Scene) -> Tensor:
        """The position is full."""
        return torch.where(self.side * scene.held >= FULL, 1.0, 0.0)


class OpenLong(_Open):
    """Buys up to the cap."""

    name, side = "OPEN_LONG", 1


class OpenShort(_Open):
    """Sells short up to the cap; done early where sentiment turns."""

    name, side = "OPEN_SHORT", -1

    def met(self, scene: Scene) -> Tensor:
        """The position is full; likely where sentiment is good."""
        turned = torch.where(_known(scene, "sentiment", 0.60), 0.8, 0.0)
        return torch.maximum(super().met(scene), turned)


class ClosePosition(_Levelled):
    """Holds between a stop and a target, and sells beyond them."""

    name, least, likeliest = "CLOSE_POSITION", 3, 0.02

    def may_start(self, scene: Scene) -> Tensor:
        """In a position."""
        return ~_flat(scene)

    def act(self, scene: Scene) -> Tensor:
        """All beyond the stop, most beyond the target, some on the way there."""
        side, levels = scene.held.sign(), self.levels
        won = side * scene.earned
        target = levels.of(levels.target, scene)
        part = torch.where(won > 0.5 * target, 0.3, 0.0)
        part = torch.where(won > target, 0.8, part)
        return -side * torch.where(won < -levels.of(levels.stop, scene), CLOSES, part)

    def met(self, scene: Scene) -> Tensor:
        """Flat."""
        return torch.where(_flat(scene), 1.0, 0.0)


class TrendFollow(_Levelled):
    """Grows with the trend, and leaves what stands against it."""

    name, least, scale, likeliest = "TREND_FOLLOW", 10, 0.6, 0.15

    def __init__(self, levels: Levels, *, short: bool = True) -> None:
        super().__init__(levels)
        self.short = short

    def may_start(self, scene: Scene) -> Tensor:
        """There is a trend, and something that can be done about it."""
        trend = scene.signals["trend"]
        strong = trend.abs() > self.levels.of(self.levels.trend, scene)
        return strong if self.short else strong & ((trend > 0) | (scene.held > 0))

    def act(self, scene: Scene) -> Tensor:
        """More with the trend up to the cap; out of what is against it."""
        way = scene.signals["trend"].sign()
        if not self.short:  # nothing is sold that is not there
            way = torch.where((way < 0) & (scene.held <= 0), 0.0, way)
        with_it = way * scene.held
        more = torch.where(with_it < FULL, 0.4, 0.0)
        return way * torch.where(with_it < 0, 0.6, more)

    def met(self, scene: Scene) -> Tensor:
        """Likely once half of the trend is gone."""
        faded = scene.signals["trend"].abs() < self.levels.of(0.5 * self.levels.trend, scene)
        return torch.where(faded, 0.85, 0.0)


class Scalp(_Levelled):
    """A small position on momentum while prices are lively, with a near target and stop."""

    name, least, most, steepness = "SCALP", 5, 15, 0.6

    near = 0.4
    """of the usual target and stop"""

    def __init__(self, levels: Levels, *, short: bool = True) -> None:
        super().__init__(levels)
        self.short = short

    def may_start(self, scene: Scene) -> Tensor:
        """Volatility is high for these days."""
        lively = scene.signals["volatility_rank"] > 0.7
        return lively if self.short else lively & ((self._way(scene) > 0) | (scene.held > 0))

    def act(self, scene: Scene) -> Tensor:
        """In with the momentum, once; out at target or stop."""
        won, levels = scene.held.sign() * scene.earned, self.levels
        beyond = won > levels.of(self.near * levels.target, scene)
        beyond = beyond | (won < -levels.of(self.near * levels.stop, scene))
        out = torch.where(beyond, -CLOSES * scene.held.sign(), 0.0)
        enter = torch.where(scene.entered, 0.0, 0.3 * self._way(scene))
        return torch.where(_flat(scene), enter, out)

    def met(self, scene: Scene) -> Tensor:
        """In, and out again."""
        return torch.where(_flat(scene) & scene.entered, 1.0, 0.0)

    def _way(self, scene: Scene) -> Tensor:
        way = scene.signals["momentum"].sign()
        return way if self.short else way.clamp(min=0)


class Wait(_Levelled):
    """Does nothing until something happens."""

    name, least, most, scale, likeliest = "WAIT", 5, 30, 0.0, 0.5

    def may_start(self, scene: Scene) -> Tensor:
        """Always."""
        return torch.ones_like(scene.held, dtype=torch.bool)

    def act(self, scene: Scene) -> Tensor:
        """Nothing."""
        return torch.zeros_like(scene.held)

    def met(self, scene: Scene) -> Tensor:
        """Likely on strong sentiment or a strong trend, less so on confidence."""
        sentiment = scene.signals.get("sentiment")
        strong = _known(scene, "sentiment", 0.75)
        strong = strong if sentiment is None else strong | (sentiment < 0.30)
        trend = scene.signals["trend"].abs() > self.levels.of(2 * self.levels.trend, scene)
        sure = torch.where(_known(scene, "confidence", 0.75), 0.65, 0.0)
        return torch.where(strong, 0.85, torch.where(trend, 0.75, sure))


def trading_options(levels: Levels, *, short: bool = True, time_out: int = 20) -> list[Option]:
    """The six; without OPEN_SHORT where positions may not be negative.

    Args:
        levels: from where on moves count.
        short: whether positions may be negative.
        time_out: longest duration, but of SCALP and WAIT, which have their own.

    Example:
        >>> [option.name for option in trading_options(SHARES)]
        ['OPEN_LONG', 'OPEN_SHORT', 'CLOSE_POSITION', 'TREND_FOLLOW', 'SCALP', 'WAIT']
    """
    opens = [OpenLong(levels), OpenShort(levels)] if short else [OpenLong(levels)]
    timed = [*opens, ClosePosition(levels), TrendFollow(levels, short=short)]
    for option in timed:
        option.most = time_out
    found = [*timed, Scalp(levels, short=short), Wait(levels)]
    check_options(found)
    return found


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


def scene_of(tensordict: TensorDictBase, cap: float, steps: Tensor, entered: Tensor) -> Scene:
    """What options decide by.

    Args:
        tensordict: with ``signals``, and of ``account`` ``share``, ``equity`` and ``unrealised``.
        cap: largest position, as a share of equity.
        steps: bars that the running option has acted on, ``[*]``.
        entered: whether there had been a position since it began, before this bar, ``[*]``.
    """
    signals = {str(key): value[..., 0] for key, value in tensordict.get("signals").items()}
    share, equity, gain = (tensordict.get(key)[..., 0] for key in (SHARE, EQUITY, UNREALISED))
    paid = share * equity - gain
    earned = torch.where(share != 0, gain / torch.where(paid != 0, paid, 1.0), 0.0)
    return Scene(signals, share / cap, earned.float(), steps, entered | (share != 0))
