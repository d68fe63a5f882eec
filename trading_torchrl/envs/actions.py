"""What actions mean: the table of discrete names, and orders read from actions.

Every reader returns an :class:`Order` in money at the fill price. Shapes: ``[N, A]``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

NAMES = (
    "HOLD",
    "BUY_SMALL",
    "BUY_MEDIUM",
    "BUY_LARGE",
    "SELL_PARTIAL",
    "SELL_ALL",
    "ADD_TO_WINNER",
)
HOLD, BUY_SMALL, BUY_MEDIUM, BUY_LARGE, SELL_PARTIAL, SELL_ALL, ADD_TO_WINNER = range(7)

SIZES = (0.0, 0.25, 0.55, 0.85, -0.5, -1.0, 0.4)
"""The continuous action each name stands for; ADD_TO_WINNER takes the side of its position."""

EDGE = 3e-8
HOLD_BELOW, MEDIUM_FROM, LARGE_FROM, CLOSE_FROM = (x - EDGE for x in (0.1, 0.4, 0.7, 0.95))
"""Bins of a continuous action: (-.1, .1) HOLD, [.1, .4) SMALL, [.4, .7) MEDIUM, [.7, 1] LARGE,
(-.95, -.1] PARTIAL, [-1, -.95] ALL; an action in float32 that means an edge lies on it."""

CONTINUOUS, DISCRETE = range(2)
"""Modes of an account in a hybrid environment: which of its actions it acts on."""

WINS_FROM = 1e-9
"""Profit, as a share of the position, above which it is more than an average entry's rounding."""

TARGET_BINS = 7
"""Target actions are counted in seven equal bins of [-1, 1]."""


class Order(NamedTuple):
    """A wanted trade, in two parts; a flip has both.

    A reduction by all that is held is a full close, made whatever its size.
    """

    side: Tensor
    """-1 sells, 1 buys, 0 nothing"""
    reduce: Tensor
    """value by which the position shrinks, at least 0"""
    increase: Tensor
    """value by which it grows, at least 0"""


def smooth(previous: Tensor, action: Tensor, window: int) -> Tensor:
    """Exponential moving average: weight 2 / (window + 1) on the newest action; of 1, itself."""
    if window == 1:
        return action
    weight = 2 / (window + 1)
    return previous + weight * (action - previous)


def read_continuous(
    action: Tensor,
    value: Tensor,
    equity: Tensor,
    *,
    cap: float,
    leverage: float,
    short: bool,
    min_trade: float,
) -> Order:
    """Reads a change of position: the sign against the position decides, nothing ever flips.

    Same sign adds |a| x cap of the available capital (up to cap x equity), the opposite sign
    reduces by |a| x position; from flat, a > 0 opens long and a < 0 opens short where that is
    allowed. A reduction with |a| >= 0.95, or one that would leave less than ``min_trade``, closes.
    """
    side, held = action.sign(), value.abs()
    size = action.abs()
    size = torch.where(size < HOLD_BELOW, 0.0, size)
    available = (leverage * equity - held.sum(-1)).clamp(min=0)[:, None]
    room = (cap * equity[:, None] - held).clamp(min=0)
    increase = torch.where(side * value < 0, 0.0, torch.minimum(size * cap * available, room))
    if not short:
        increase = torch.where(side > 0, increase, 0.0)
    reduce = torch.where(size < CLOSE_FROM, size * held, held)
    reduce = torch.where(held - reduce < min_trade, held, reduce)
    reduce = torch.where(side * value < 0, reduce, 0.0)
    return Order(side, torch.where(size > 0, reduce, 0.0), increase)


def read_target(
    action: Tensor, value: Tensor, equity: Tensor, *, cap: float, short: bool, min_trade: float
) -> Order:
    """Reads a wanted share of equity, ``action x cap``; flips are allowed.

    A wanted position below ``min_trade`` is none at all.
    """
    wanted = action * cap * equity[:, None]
    if not short:
        wanted = wanted.clamp(min=0)
    wanted = torch.where(wanted.abs() < min_trade, 0.0, wanted)
    change = wanted - value
    side, size = change.sign(), change.abs()
    reduce = torch.where(side * value < 0, torch.minimum(size, value.abs()), 0.0)
    return Order(side, reduce, size - reduce)


def winning(units: Tensor, price: Tensor, entry: Tensor) -> Tensor:
    """Positions with an unrealised profit, more than the rounding of an average entry price."""
    return units * (price - entry) > WINS_FROM * (units * price).abs()


def continuous_from_discrete(name: Tensor, value: Tensor, winning: Tensor) -> Tensor:
    """The continuous action a name stands for; ADD_TO_WINNER without a winner holds."""
    action = torch.tensor(SIZES, dtype=value.dtype, device=value.device)[name]
    add = torch.where(winning, action * value.sign(), 0.0)
    return torch.where(name == ADD_TO_WINNER, add, action)


def read_names(given: Tensor, value: Tensor, winning: Tensor) -> tuple[Tensor, Tensor]:
    """Names, and the continuous actions they stand for: NaN where there is no such name."""
    name = given.clamp(0, len(NAMES) - 1)
    action = continuous_from_discrete(name, value, winning)
    return name, torch.where(name == given, action, torch.nan)


def name_of(action: Tensor) -> Tensor:
    """The name a continuous action bins to (never ADD_TO_WINNER)."""
    buy = BUY_SMALL + (action >= MEDIUM_FROM).long() + (action >= LARGE_FROM).long()
    sell = SELL_PARTIAL + (action <= -CLOSE_FROM).long()
    return torch.where(action.abs() < HOLD_BELOW, HOLD, torch.where(action > 0, buy, sell))


def target_bin_of(action: Tensor) -> Tensor:
    """Which of the seven equal bins of [-1, 1] a target action falls into."""
    return ((action + 1) * (TARGET_BINS / 2)).long().clamp(0, TARGET_BINS - 1)


def discrete_mask(
    value: Tensor, equity: Tensor, winning: Tensor, *, cap: float, short: bool, min_trade: float
) -> Tensor:
    """Which names would do something, ``[N, A, 7]``: HOLD always does.

    A buy needs room under the cap or a short to reduce, a sell a long to reduce or the right to
    open (or add to) a short, ADD_TO_WINNER a winner and room.
    """
    room = cap * equity[:, None] - value.abs() >= min_trade
    buy = torch.where(value < 0, True, room)
    sell = torch.where(value > 0, True, room) if short else value > 0
    hold = torch.ones_like(winning)
    return torch.stack([hold, buy, buy, buy, sell, sell, winning & room], -1)
