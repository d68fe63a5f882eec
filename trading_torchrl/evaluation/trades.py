"""Trades as round trips: from leaving zero to returning to it, or to the other side."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class RoundTrips(NamedTuple):
    """Trades ``[..., K]`` in the order they were opened; NaN beyond a path's last."""

    profit: Tensor
    """in money, net of fees"""
    bars: Tensor
    """closes at which the position was held"""


def round_trips(
    equity: Tensor, share: Tensor, value: Tensor, fees: Tensor, unrealised: Tensor
) -> RoundTrips:
    """The trades of paths ``[..., T]``.

    A trade's profit is the change of equity from the close before its first fill to the close
    after its last. Within the bar of a flip one ends and the next begins at the fill, the bar's
    fees split by traded value. A position still held at the end counts as closed at the last close,
    one held at the start as opened there.

    Args:
        equity: at each close.
        share: position at each close; only its sign and its value matter.
        value: signed traded value of each bar.
        fees: costs of each bar.
        unrealised: profit of the open position at each close, before costs.
    """
    side = share.sign()
    before, after = side[..., :-1].clone(), side[..., 1:]
    before[..., 0] = 0.0
    flips = before * after < 0
    # Opened and closed (liquidated, say) between two closes.
    blinks = (before == 0) & (after == 0) & (value[..., 1:] != 0)
    opens = ((after != 0) & (after != before)) | blinks
    closes = ((before != 0) & (after != before)) | blinks

    # What a flip's new position has won on paper at the close, it has won since the fill.
    opened = (share[..., 1:] * equity[..., 1:] - unrealised[..., 1:]).abs()
    part = torch.where(flips, opened / value[..., 1:].abs(), 0.0)
    at_fill = equity[..., 1:] - unrealised[..., 1:] + part * fees[..., 1:]
    start = torch.where(flips, at_fill, equity[..., :-1])
    end = torch.where(flips, at_fill, equity[..., 1:])

    number = opens.long().cumsum(-1)
    count = number[..., -1:]
    most = int(count.max())
    profit = equity.new_zeros(*count.shape[:-1], most + 1)
    bars = torch.zeros_like(profit)

    def add(to: Tensor, where: Tensor, which: Tensor, what: Tensor) -> None:
        """What belongs to no trade goes beyond the last."""
        to.scatter_add_(-1, torch.where(where, which - 1, most), what)

    add(profit, opens, number, -start)
    add(profit, closes, number - flips.long(), end)
    add(profit, after[..., -1:] != 0, count, equity[..., -1:])
    add(bars, after != 0, number, torch.ones_like(start))
    real = torch.arange(most, device=equity.device) < count
    return RoundTrips(
        torch.where(real, profit[..., :most], torch.nan),
        torch.where(real, bars[..., :most], torch.nan),
    )


def win_rate(profit: Tensor) -> Tensor:
    """Share ``[...]`` of trades with a profit above 0, from ``[..., K]``; NaN without a trade."""
    return (profit > 0).sum(-1) / profit.isfinite().sum(-1)


def profit_factor(profit: Tensor) -> Tensor:
    """Sum of the gains over that of the losses, ``[...]``; NaN where no trade lost."""
    gains, losses = profit.clamp(min=0).nansum(-1), -profit.clamp(max=0).nansum(-1)
    return torch.where(losses > 0, gains / losses, torch.nan)


def trade_length(bars: Tensor) -> Tensor:
    """Mean length ``[...]`` of trades ``[..., K]`` in bars; NaN without a trade."""
    return bars.nanmean(-1)
