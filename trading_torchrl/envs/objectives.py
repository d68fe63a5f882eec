"""The objectives' terms: five views of what a bar was worth.

Shapes: ``[N]`` for an account, ``[N, A]`` for its assets.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trading_torchrl.envs import memory
from trading_torchrl.envs.memory import Window, Windows
from trading_torchrl.envs.terms import Bar, entry_quality, exit_quality, momentum_alignment, var95
from trading_torchrl.risk import drawdown

Fields = dict[str, Tensor]

ACTIVITY_WINDOW = 20
PROFIT_WINDOW = 10


def windows(activity_window: int, assets: int) -> Windows:
    """What the terms remember of every account, and how far back."""
    return {"profit": Window(PROFIT_WINDOW, 1), "action": Window(activity_window, assets)}


def objectives(
    bar: Bar, state: Fields, remembered: Tensor, idle: Tensor, activity_window: int
) -> tuple[Tensor, Fields, Tensor]:
    """The five terms an environment can know ``[N, 5]``, the fields that go with them, and what
    their memory is to take in, ``[1 + A, N]``.

    - profit: (realised + 0.3 x change of unrealised) / capital at work x 100, losses x 1.5;
    - risk: -(exp(10 (drawdown - 0.05)) - 1) beyond 5 %, -50 (VaR95 - 0.02) beyond 2 %,
      -10 (exposure - 0.95) beyond 95 %, -0.5 volatility;
    - activity: deviation of the last 20 actions (> 0.3: +0.2, > 0.2: +0.1), idle for more than 50
      bars -0.1, a trade within 3 bars of the last -0.05, a decisive |action| > 0.3 +0.05;
    - timing: 0.5 entry quality + 0.5 exit quality + 0.3 momentum alignment;
    - consistency: +0.2 while the last 10 profit terms deviate by less than 0.02, else -0.1 x that.

    The sixth, exploration, depends on what a learner has seen and is not the environment's.
    Several assets are averaged (profit: over the capital at work in all of them).
    """
    before = bar.units_before * (bar.price_before - bar.entry_before)
    after = bar.units * (bar.price["close"] - bar.entry)
    earned = (bar.realised + 0.3 * (after - before)).sum(-1)
    held = torch.maximum(bar.units_before.abs(), bar.units.abs()) * bar.fill_price
    profit = earned / held.sum(-1).clamp(min=bar.floor)
    profit = 100 * torch.where(profit < 0, 1.5 * profit, profit)
    latest = torch.cat([profit.float()[None], bar.action.T.float()])
    past = memory.rings(remembered, windows(activity_window, len(latest) - 1))
    count = state["count"] + 1
    n = count.clamp(max=PROFIT_WINDOW)
    wobble = memory.spread(latest[0], past["profit"][:, 0], n).sqrt() / n
    n = count.clamp(max=activity_window)
    swing = memory.spread(latest[1:], past["action"], n)

    fallen = drawdown(bar.equity, bar.peak)
    value = bar.units * bar.price["close"]
    part = 1 / bar.equity.clamp(min=bar.floor)
    volatility = bar.price["volatility"]
    risk = (
        1
        - (10 * (fallen - 0.05).clamp(min=0)).exp()
        - 50 * (var95(value, volatility, part) - 0.02).clamp(min=0)
        - 10 * (value.abs().sum(-1) * part - 0.95).clamp(min=0)
        - 0.5 * volatility.mean(-1)
    )

    def worth(condition: Tensor, amount: float) -> Tensor:
        return torch.where(condition, amount, 0.0)

    lively = worth(swing > 0.2**2 * n * n, 0.1) + worth(swing > 0.3**2 * n * n, 0.1)
    # Before its first trade an account has been idle for as long as it remembers.
    recent = torch.minimum(state["count"], torch.full_like(state["count"], 3.0))[:, None]
    hasty = torch.where(bar.traded != 0, worth(state["since_trade"] < recent, 0.05), 0.0)
    active = lively.T - worth(idle > 50, 0.1) - hasty + worth(bar.action.abs() > 0.3, 0.05)
    timing = 0.5 * entry_quality(bar) + 0.5 * exit_quality(bar) + 0.3 * momentum_alignment(bar)

    consistency = torch.where(wobble < 0.02, 0.2, -0.1 * wobble)
    values = (profit, risk, active.mean(-1), timing.mean(-1), consistency)
    return torch.stack([each.float() for each in values], -1), {"count": count}, latest
