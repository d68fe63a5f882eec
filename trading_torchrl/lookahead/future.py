"""Other futures for a market, and what it means to see one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trading_torchrl.data.market import Market, MarketError

VARIATIONS = {
    "up": "the bars after it moved up",
    "down": "the bars after it moved down",
    "cut": "the market was cut off behind it",
}
"""What is done to the bars after a bar, and how to say so."""


@dataclass(frozen=True)
class Leak:
    """The first value that moved although only later bars were changed.

    ``before`` equals ``after`` where a value should have moved and did not: a trade at a price, or
    a mark to one, that its decision had already seen.
    """

    what: str
    name: str
    symbol: str
    timestamp: str
    bar: int
    cut: int
    variation: str
    before: float
    after: float

    def __str__(self) -> str:
        where = f"for {self.symbol} at bar {self.bar} ({self.timestamp})"
        change = VARIATIONS[self.variation]
        if self.before == self.after:
            return (
                f"{self.what} {self.name!r} is behind its bar: {where} it was {self.before:.12g}, "
                f"and stayed so once {change} (last unchanged bar: {self.cut}), so the decision "
                "had seen the price it traded or was marked at"
            )
        return (
            f"{self.what} {self.name!r} sees the future: {where} it was {self.before:.12g}, and "
            f"{self.after:.12g} once {change} (last unchanged bar: {self.cut})"
        )


def visible(market: Market) -> Market:
    """The market without what features may not see."""
    if len(market) < 2:
        raise MarketError("a market of one bar has no future to change; give at least 2 bars")
    return replace(market, hidden={}, features=None, feature_names=())


def with_future(market: Market, cut: int, variation: str, generator: torch.Generator) -> Market:
    """The market with other bars after bar ``cut``, or none."""
    if variation == "cut":
        return market.bars(0, cut + 1)
    up = variation == "up"
    bars, symbols = len(market) - cut - 1, len(market.symbols)

    def noise(scale: Tensor | float = 1.0) -> Tensor:
        return torch.randn(bars, symbols, generator=generator, dtype=torch.float64) * scale

    def share() -> Tensor:
        return torch.rand(bars, symbols, generator=generator, dtype=torch.float64)

    close = market.close.double().cpu()
    step = close.log().diff(dim=0).std(0, correction=0).clamp(1e-3, 0.05)
    # Beyond every price there was, so that a maximum, a mean and a rank all move.
    wander = 1 + torch.tanh(noise(step).cumsum(0))
    new_close = close.amax(0) * wander.exp() * 1.1 if up else close.amin(0) / wander.exp() / 1.1
    # The way there lies inside the first new bar: a gap would look like an unadjusted split.
    new_open = torch.cat([close[cut : cut + 1], new_close[:-1]]) * noise(step / 10).exp()
    new_high = torch.maximum(new_open, new_close) * noise(step).abs().exp()
    new_low = torch.minimum(new_open, new_close) / noise(step).abs().exp()
    volume = market.volume.double().cpu()
    new_volume = (volume.amax(0) + 1) * (1 + share()) if up else volume.amin(0) * share()

    def join(old: Tensor, new: Tensor) -> Tensor:
        return torch.cat([old[: cut + 1], new.to(old)])

    def redraw(column: Tensor) -> Tensor:
        # From the column's own values (upper or lower half), so that it stays in its range.
        rank = ((share() + up) / 2 * len(column)).long().clamp(max=len(column) - 1)
        return join(column, column.sort(dim=0).values.gather(0, rank.to(column.device)))

    return replace(
        market,
        open=join(market.open, new_open),
        high=join(market.high, new_high),
        low=join(market.low, new_low),
        close=join(market.close, new_close),
        volume=join(market.volume, new_volume),
        columns={name: redraw(column) for name, column in market.columns.items()},
    )


def equal(old: Tensor, new: Tensor) -> Tensor:
    """Which values are the same; NaN equals NaN."""
    return (old == new) | ((old != old) & (new != new))


def close_to(old: Tensor, new: Tensor, scale: Tensor | float, tolerance: float) -> Tensor:
    """Which values are the same but for a share of ``scale``; in float32 at least 1e-5 of it."""
    allowed = max(tolerance, 1e-5) if tolerance and old.dtype == torch.float32 else tolerance
    same = equal(old, new)
    return same | ((old.double() - new.double()).abs() <= allowed * scale) if tolerance else same


def time_of(market: Market, bar: int) -> str:
    """The timestamp of a bar, to the second."""
    return str(market.dates[bar].astype("datetime64[s]"))
