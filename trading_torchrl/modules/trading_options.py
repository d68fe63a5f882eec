"""Six options of trading, as rules of signals and of the account.

Shapes: ``[*]``, one asset an account.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trading_torchrl.modules.options import Levels, Option, Scene, check_options

FULL = 0.9
"""Share of the cap from which a position counts as full."""

CLOSES = 1.0
"""The action that sells all; its sign is against the position."""


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
        >>> from trading_torchrl.modules.options import SHARES
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
