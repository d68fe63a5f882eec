"""Money: fills, buying power, margin. Pure functions over float64 tensors.

Shapes: ``[N]`` for an account, ``[N, A]`` for its assets. A position is ``units`` of an asset,
negative when short; ``entry`` is its average price. Every cost of a trade (commission, slippage,
half the spread) is one share ``cost`` of the traded value, paid in cash.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

TINY = 1e-300
"""Keeps a division by zero finite where its result is not used."""


class Fill(NamedTuple):
    """Accounts after a fill, and what it did."""

    cash: Tensor
    """[N]"""
    units: Tensor
    """[N, A]"""
    entry: Tensor
    """[N, A], 0 when flat"""
    realised: Tensor
    """[N, A], profit of the closed part before costs"""
    traded: Tensor
    """[N, A], signed value"""
    fees: Tensor
    """[N]"""


def fill(
    cash: Tensor, units: Tensor, entry: Tensor, new_units: Tensor, price: Tensor, cost: float
) -> Fill:
    """Trades from ``units`` to ``new_units`` at ``price``; a flip closes and opens in one trade."""
    traded = (new_units - units) * price
    fees = cost * traded.abs().sum(-1)
    held, left = units.abs(), new_units.abs()
    stays = units * new_units > 0
    closed = torch.where(stays, (held - left).clamp(min=0), held)
    realised = closed * units.sign() * (price - entry)
    averaged = (units * entry + traded) / new_units
    kept = torch.where(left > held, averaged, entry)
    opened = torch.where(left > 0, price, 0.0)
    new_entry = torch.where(stays, kept, opened)
    return Fill(cash - traded.sum(-1) - fees, new_units, new_entry, realised, traded, fees)


def after_order(
    units: Tensor, side: Tensor, reduce: Tensor, increase: Tensor, price: Tensor
) -> Tensor:
    """Units once a position gave up the value ``reduce`` and grew by ``increase`` to ``side``.

    Exactly 0 after a full close, exactly ``units`` after no trade.
    """
    held = (units * price).abs()
    left = (held - reduce) / held.clamp(min=TINY)
    return units * left + side * increase / price


def funded(
    reduce: Tensor, increase: Tensor, value: Tensor, equity: Tensor, leverage: float, cost: float
) -> Tensor:
    """Scales ``increase`` down to what the account can carry once every cost is paid.

    After the trades, gross exposure is at most ``leverage`` times equity. Assets that want more
    share what there is in proportion; reductions are never scaled.

    Args:
        reduce: ``[N, A]`` value by which positions shrink, at least 0.
        increase: ``[N, A]`` value by which positions grow, at least 0.
        value: ``[N, A]`` signed value of the positions before.
        equity: ``[N]`` before.
        leverage: largest gross exposure as a multiple of equity.
        cost: share of the traded value.
    """
    reduced, wanted = reduce.sum(-1), increase.sum(-1)
    gross = value.abs().sum(-1) - reduced
    room = leverage * (equity - cost * reduced) - gross
    scale = room / (wanted * (1 + leverage * cost)).clamp(min=TINY)
    return increase * scale.clamp(0, 1)[:, None]


def borrowed(cash: Tensor, units: Tensor, price: Tensor) -> Tensor:
    """Value ``[N]`` an account pays interest on: what it is short, and cash below zero."""
    return (-units * price).clamp(min=0).sum(-1) + (-cash).clamp(min=0)


def margin_excess(cash: Tensor, units: Tensor, price: Tensor, maintenance: float) -> Tensor:
    """Equity ``[N]`` above the maintenance margin; below zero the account is liquidated."""
    value = units * price
    return cash + value.sum(-1) - maintenance * value.abs().sum(-1)


def liquidation(
    cash: Tensor, units: Tensor, opening: Tensor, high: Tensor, low: Tensor, maintenance: float
) -> tuple[Tensor, Tensor]:
    """Where within the bar an account falls below its margin.

    Prices are followed from the open to the bar's worst, low for longs and high for shorts, all
    assets at the same pace; for one asset that is its exact liquidation price. A gap through it is
    filled at the open.

    Returns:
        whether an account is liquidated ``[N]``, and the prices ``[N, A]`` it happens at.
    """
    worst = torch.where(units > 0, low, high)
    first = margin_excess(cash, units, opening, maintenance)
    last = margin_excess(cash, units, worst, maintenance)
    along = first / (first - last).clamp(min=TINY)
    along = along.clamp(0, 1)[:, None]
    return last < 0, opening + along * (worst - opening)


def mark(cash: Tensor, units: Tensor, price: Tensor) -> Tensor:
    """Equity ``[N]``."""
    return cash + (units * price).sum(-1)
