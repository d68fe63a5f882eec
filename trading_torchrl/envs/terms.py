"""What a bar of trading was worth beside its reward: the values an environment emits on request.

:data:`EMITTED` names them all with their keys. Shapes: ``[N]`` for an account, ``[N, A]`` for its
assets.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trading_torchrl.risk import drawdown

OBJECTIVES = ("profit", "risk", "activity", "timing", "consistency")
"""In the order of their columns."""

TERMS = ("objectives", "terms")
"""Where they are."""

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
COUNTS = frozenset({"since_trade", "trades", "name", "symbol", "bar", "mode"})
FLOWS = frozenset(
    {"realised", "fees", "entry_quality", "exit_quality", "momentum", "raw_action", "value", "name"}
)

Key = tuple[str, str]
Emitted = dict[Key, Tensor]

EMITTED: dict[str, tuple[tuple[str, str], ...]] = {
    **{name: (("account", name),) for name in ACCOUNT},
    **{name: (("trade", name),) for name in TRADE},
    "achieved": (("goal", "achieved"),),
    "objectives": (TERMS,),
    "index": (("market", "symbol"), ("market", "bar")),
}
"""Name of each emitted value -> its keys in the tensordict."""


def _place(name: str) -> int:
    """What accounts hold, the objectives, what a bar did, the index."""
    return 3 if name == "index" else 2 if name in FLOWS else int(name == "objectives")


NAME_OF = {key: name for name in sorted(EMITTED, key=_place) for key in EMITTED[name]}
ORDER: tuple[Key, ...] = (*NAME_OF, ("account", "mode"))
"""In which all values are handed over, after a reset as after a step."""


def dtype_of(name: str) -> torch.dtype:
    """Money stays float64, counts are int64, the rest is what networks read."""
    if name in MONEY:
        return torch.float64
    return torch.int64 if name in COUNTS else torch.float32


def width_of(key: Key, assets: int) -> int:
    """1 for a value of the account, the number of assets for one of each, five objectives."""
    if key == TERMS:
        return len(OBJECTIVES)
    return assets if NAME_OF[key] in PER_ASSET else 1


def wide(emitted: Emitted) -> Emitted:
    """As they are emitted: ``[N, 1]``, ``[N, A]`` or ``[N, 5]``, each in its type."""
    ordered = {key: emitted[key] for key in ORDER if key in emitted}
    return {
        key: (value if value.ndim == 2 else value[:, None]).to(dtype_of(key[1]))
        for key, value in ordered.items()
    }


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


def holdings(name: str, state: dict[str, Tensor], cash: float, floor: float) -> Tensor:
    """A value that can be read off an account as it stands, after a reset as after a step."""
    if name in state:
        return state[name]
    value = state["units"] * state["price"]
    part = 1 / state["equity"].clamp(min=floor)
    if name == "share":
        return value * part[:, None]
    if name == "unrealised":
        return value - state["units"] * state["entry"]
    if name == "drawdown":
        return drawdown(state["equity"], state["peak"])
    if name == "exposure":
        return value.abs().sum(-1) * part
    if name == "var95":
        return var95(value, state["volatility"], part)
    if name == "achieved":
        return state["equity"] * (1 / cash) - 1
    if name == "smoothed_action":
        return state["smoothed"]
    raise KeyError(name)


def var95(value: Tensor, volatility: Tensor, part: Tensor) -> Tensor:
    """Parametric value at risk of one bar, as a share of equity; all assets fall together."""
    return NORMAL_95 * (volatility * value.abs()).sum(-1) * part


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


def entry_quality(bar: Bar) -> Tensor:
    """Where in the last 20 bars' range a position was opened or grown: 1 best, -1 worst, 0 none."""
    quality = bar.units.sign() * bar.price["cheapness"]
    flipped = torch.where(bar.units * bar.units_before < 0, quality, 0.0)
    return torch.where(bar.units.abs() > bar.units_before.abs(), quality, flipped)


def exit_quality(bar: Bar) -> Tensor:
    """Where in the last 20 bars' range a position was closed or cut: 1 best, -1 worst, 0 none."""
    quality = -bar.units_before.sign() * bar.price["cheapness"]
    flipped = torch.where(bar.units * bar.units_before < 0, quality, 0.0)
    return torch.where(bar.units.abs() < bar.units_before.abs(), quality, flipped)


def momentum_alignment(bar: Bar) -> Tensor:
    """Side of the position times the momentum that was known when it was decided, in [-1, 1]."""
    return bar.units.sign() * bar.price["momentum"]
