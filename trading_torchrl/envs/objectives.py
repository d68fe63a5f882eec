"""The objectives' terms: five views of what a bar was worth, and the short memory they need.

Shapes: ``[N]`` for an account, ``[N, A]`` for its assets, rings of the last W values ``[W, N, K]``
with running sums ``[N, K]``, and the slot ``[N]`` that is written next.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trading_torchrl.envs.terms import Bar, entry_quality, exit_quality, momentum_alignment, var95
from trading_torchrl.risk import drawdown

Fields = dict[str, Tensor]

ACTIVITY_WINDOW = 20
PROFIT_WINDOW = 10
RINGS = ("profit", "action")


def new_memory(activity_window: int, start: Tensor, symbol: Tensor) -> Fields:
    """Fields of accounts that remember nothing yet, for ``start`` [N] and ``symbol`` [N, A]."""
    fields = {
        "slot": torch.zeros_like(start),
        "count": torch.zeros_like(start, dtype=torch.float64),
    }
    longest = max(activity_window, PROFIT_WINDOW)
    for name, like in (("profit", start[:, None]), ("action", symbol)):
        fields[f"{name}_ring"] = torch.zeros_like(like, dtype=torch.float32).repeat(longest, 1, 1)
        fields[f"{name}_sum"] = torch.zeros_like(like, dtype=torch.float64)
        fields[f"{name}_square"] = torch.zeros_like(like, dtype=torch.float64)
    return fields


def rows(ring: Tensor, slot: Tensor) -> Tensor:
    """Where each account's ``slot`` [N] lies in ``ring.flatten(0, 1)``."""
    return slot * ring.shape[1] + torch.arange(len(slot), device=slot.device)


def step_on(state: Fields) -> Fields:
    """The next slot, how many values are remembered, and where the latest are to be written.

    The slot goes round without a remainder, which compiled code takes one account at a time.
    """
    ring = state["profit_ring"]
    return {
        "slot": torch.where(state["slot"] < len(ring) - 1, state["slot"] + 1, 0),
        "count": (state["count"] + 1).clamp(max=len(ring)),
        "row": rows(ring, state["slot"]),
    }


def spread(name: str, window: int, value: Tensor, state: Fields) -> tuple[Tensor, Fields]:
    """Deviation of the last W values [N, K], this one included, and what is to be remembered."""
    ring = state[f"{name}_ring"]
    leaving = state["slot"] - window
    leaving = torch.where(leaving < 0, leaving + len(ring), leaving)
    oldest = ring.flatten(0, 1)[rows(ring, leaving)].double()
    latest = value.float()
    exact = latest.double()
    total = state[f"{name}_sum"] + exact - oldest
    square = state[f"{name}_square"] + exact * exact - oldest * oldest
    share = (1 / (state["count"] + 1).clamp(max=window))[:, None]
    mean = total * share
    deviation = (square * share - mean * mean).clamp(min=0).sqrt()
    return deviation, {f"{name}_sum": total, f"{name}_square": square, f"{name}_latest": latest}


def objectives(
    bar: Bar, state: Fields, idle: Tensor, activity_window: int
) -> tuple[Fields, Fields]:
    """The five terms an environment can know, ``[N]`` each, and what they remember.

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
    wobble, profits = spread("profit", PROFIT_WINDOW, profit[:, None], state)
    varied, actions = spread("action", activity_window, bar.action, state)

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

    lively = worth(varied > 0.2, 0.1) + worth(varied > 0.3, 0.1)
    # Before its first trade an account has been idle for as long as it remembers.
    recent = torch.minimum(state["count"], torch.full_like(state["count"], 3.0))[:, None]
    hasty = torch.where(bar.traded != 0, worth(state["since_trade"] < recent, 0.05), 0.0)
    active = lively - worth(idle > 50, 0.1) - hasty + worth(bar.action.abs() > 0.3, 0.05)
    timing = 0.5 * entry_quality(bar) + 0.5 * exit_quality(bar) + 0.3 * momentum_alignment(bar)

    values = {
        "profit": profit,
        "risk": risk,
        "activity": active.mean(-1),
        "timing": timing.mean(-1),
        "consistency": torch.where(wobble < 0.02, 0.2, -0.1 * wobble)[:, 0],
    }
    return values, {**step_on(state), **profits, **actions}
