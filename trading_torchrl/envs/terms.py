"""What a bar of trading was worth beside its reward: the values an environment emits on request.

:data:`EMITTED` names them all with their keys; :func:`market_columns` says which columns of the
market they look up. Shapes: ``[N]`` for an account, ``[N, A]`` for its assets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from trading_torchrl.data.market import Market
from trading_torchrl.risk import drawdown

OBJECTIVES = ("profit", "risk", "activity", "timing", "consistency")
RANGE_BARS = 20
MOMENTUM_BARS = 10
VOLATILITY_DECAY = 0.94
NORMAL_95 = 1.645

ACCOUNT = (
    "equity", "cash", "units", "share", "realised", "unrealised", "fees", "drawdown", "exposure",
    "volatility", "var95", "since_trade", "trades",
)  # fmt: skip
TRADE = (
    "entry_quality", "exit_quality", "momentum", "raw_action", "smoothed_action", "value", "name",
)  # fmt: skip
PER_ASSET = frozenset(
    {"units", "share", "realised", "unrealised", "volatility", "since_trade", *TRADE}
)
MONEY = frozenset({"equity", "cash", "units", "realised", "unrealised", "fees", "value"})
COUNTS = frozenset({"since_trade", "trades", "name"})
FLOWS = frozenset(
    {"realised", "fees", "entry_quality", "exit_quality", "momentum", "raw_action", "value", "name"}
)

Key = str | tuple[str, str]

EMITTED: dict[str, tuple[tuple[str, str], ...]] = {
    **{name: (("account", name),) for name in ACCOUNT},
    **{name: (("trade", name),) for name in TRADE},
    "achieved": (("goal", "achieved"),),
    "objectives": tuple(("objectives", name) for name in OBJECTIVES),
    "index": (("market", "symbol"), ("market", "bar")),
}
"""Name of each emitted value -> its keys in the tensordict."""


def dtype_of(name: str) -> torch.dtype:
    """Money stays float64, counts are int64, the rest is what networks read."""
    if name in MONEY:
        return torch.float64
    return torch.int64 if name in COUNTS else torch.float32


def flow_keys(emitted: Sequence[str]) -> list[tuple[str, str]]:
    """Keys of what happens in a bar, as opposed to how an account stands."""
    flows = FLOWS | {"objectives"}
    return [key for name in emitted if name in flows for key in EMITTED[name]]


class Bar(NamedTuple):
    """All that happened to N accounts from one close to the next."""

    action: Tensor
    """[N, A] as asked for; of a discrete name, the continuous action it stands for"""
    smoothed: Tensor
    """[N, A] as carried out"""
    name: Tensor
    """[N, A]"""
    traded: Tensor
    """[N, A] signed value"""
    realised: Tensor
    """[N, A] before costs"""
    fees: Tensor
    """[N] costs of trades, and interest"""
    units_before: Tensor
    units: Tensor
    entry_before: Tensor
    entry: Tensor
    price_before: Tensor
    """[N, A] close of the bar the decision saw"""
    fill_price: Tensor
    """[N, A]"""
    price: dict[str, Tensor]
    """columns of the new bar, [N, A] each"""
    equity_before: Tensor
    equity: Tensor
    peak: Tensor
    floor: float
    """equity counts as at least this where it is divided by or its logarithm taken"""
    cap: float


def market_columns(market: Market, name: str) -> Tensor:
    """One column ``[T, S]`` that values look up by bar, float64; none knows a later bar.

    ``volatility`` is the exponentially weighted deviation of a bar's return (decay 0.94), that bar
    included. ``range_high``, ``range_low`` and ``momentum`` describe the bars *before* it, what was
    known when a trade was decided that filled in it: extremes of the last 20 bars, and the 10-bar
    return in units of its volatility.
    """
    if name in ("open", "high", "low", "close", "volume"):
        return getattr(market, name).double()
    if name == "volatility":
        return _volatility(market)
    if name == "momentum":
        change = (market.close[MOMENTUM_BARS:] / market.close[:-MOMENTUM_BARS]).log()
        change = torch.cat([torch.zeros_like(market.close[:MOMENTUM_BARS]), change])[: len(market)]
        usual = _volatility(market) * MOMENTUM_BARS**0.5
        return _previous((change / usual.clamp(min=1e-12)).clamp(-1, 1))
    extreme = market.high if name == "range_high" else -market.low
    padded = torch.cat([extreme[:1].expand(RANGE_BARS - 1, -1), extreme])
    return _previous(
        padded.unfold(0, RANGE_BARS, 1).amax(-1).mul(1 if name == "range_high" else -1)
    )


def price_column(market: Market, name: str, fill: str) -> Tensor:
    """A column ``[T, S]`` of the environment's price table, float64.

    ``fill_volume`` is that of the bar an order fills in: the bar itself for fills at its open, the
    one before for fills at that one's close.
    """
    if name != "fill_volume":
        return market_columns(market, name)
    return market.volume.double() if fill == "next_open" else _previous(market.volume.double())


def _previous(column: Tensor) -> Tensor:
    return torch.cat([column[:1], column[:-1]])


def _volatility(market: Market) -> Tensor:
    returns = market.close.log().diff(dim=0, prepend=market.close[:1].log())
    frame = pd.DataFrame(returns.cpu().numpy() ** 2)
    variance = frame.ewm(alpha=1 - VOLATILITY_DECAY).mean().to_numpy(copy=True)
    return torch.from_numpy(variance).to(market.close).sqrt()


def columns_for(emitted: frozenset[str]) -> tuple[str, ...]:
    """The market columns these values look up."""
    columns: list[str] = []
    if emitted & {"volatility", "var95", "objectives"}:
        columns.append("volatility")
    if emitted & {"entry_quality", "exit_quality", "objectives"}:
        columns += ["range_high", "range_low"]
    if emitted & {"momentum", "objectives"}:
        columns.append("momentum")
    return tuple(columns)


def holdings(name: str, state: dict[str, Tensor], cash: float, floor: float) -> Tensor:
    """A value that can be read off an account as it stands, after a reset as after a step."""
    if name in state:
        return state[name]
    value = state["units"] * state["price"]
    equity = state["equity"].clamp(min=floor)
    if name == "share":
        return value / equity[:, None]
    if name == "unrealised":
        return state["units"] * (state["price"] - state["entry"])
    if name == "drawdown":
        return drawdown(state["equity"], state["peak"])
    if name == "exposure":
        return value.abs().sum(-1) / equity
    if name == "var95":
        return NORMAL_95 * (state["volatility"] * value.abs()).sum(-1) / equity
    if name == "achieved":
        return state["equity"] / cash - 1
    if name == "smoothed_action":
        return state["smoothed"]
    raise KeyError(name)


def flow(name: str, bar: Bar) -> Tensor:
    """A value of the bar itself; zero after a reset."""
    if name == "entry_quality":
        return entry_quality(bar)
    if name == "exit_quality":
        return exit_quality(bar)
    if name == "momentum":
        return momentum_alignment(bar)
    return {
        "realised": bar.realised,
        "fees": bar.fees,
        "raw_action": bar.action,
        "value": bar.traded,
        "name": bar.name,
    }[name]


def _cheapness(bar: Bar) -> Tensor:
    """1 at the low of the last 20 bars before the fill, -1 at their high."""
    high, low = bar.price["range_high"], bar.price["range_low"]
    place = (bar.fill_price - low) / (high - low).clamp(min=1e-12)
    return 1 - 2 * place.clamp(0, 1)


def entry_quality(bar: Bar) -> Tensor:
    """Where in the last 20 bars' range a position was opened or grown: 1 best, -1 worst, 0 none."""
    quality = bar.units.sign() * _cheapness(bar)
    flipped = torch.where(bar.units * bar.units_before < 0, quality, 0.0)
    return torch.where(bar.units.abs() > bar.units_before.abs(), quality, flipped)


def exit_quality(bar: Bar) -> Tensor:
    """Where in the last 20 bars' range a position was closed or cut: 1 best, -1 worst, 0 none."""
    quality = -bar.units_before.sign() * _cheapness(bar)
    flipped = torch.where(bar.units * bar.units_before < 0, quality, 0.0)
    return torch.where(bar.units.abs() < bar.units_before.abs(), quality, flipped)


def momentum_alignment(bar: Bar) -> Tensor:
    """Side of the position times the momentum that was known when it was decided, in [-1, 1]."""
    return bar.units.sign() * bar.price["momentum"]
