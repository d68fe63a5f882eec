"""Rewards: what one bar is worth to the learner.

Each reward is a pure function ``(bar, state, settings) -> (reward [N], changed state fields)``;
:data:`STATE` says which fields of an account's state it remembers, with their start values.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trading_torchrl.envs.actions import winning
from trading_torchrl.envs.terms import Bar

Fields = dict[str, Tensor]
Reward = Callable[[Bar, Fields, float], tuple[Tensor, Fields]]

SHARPE_MEMORY = 0.01
SHARPE_START = 1e-4
"""Start value of the second moment: returns of 1 % a bar, so that the first bars stay tame."""


def log_return(bar: Bar, state: Fields, risk_aversion: float) -> tuple[Tensor, Fields]:
    """Log growth of equity; rewards add up to log(last equity / first)."""
    return (bar.equity.clamp(min=bar.floor) / bar.equity_before).log(), {}


def growth(bar: Bar, state: Fields, risk_aversion: float) -> tuple[Tensor, Fields]:
    """Log growth less ``(risk_aversion - 1) / 2`` times the squared return before costs.

    Log growth alone is a risk aversion of 1, which is all or nothing at these odds.
    """
    gained = (bar.equity - bar.equity_before + bar.fees) / bar.equity_before
    reward, _ = log_return(bar, state, risk_aversion)
    return reward - (risk_aversion - 1) / 2 * gained**2, {}


def differential_sharpe(bar: Bar, state: Fields, risk_aversion: float) -> tuple[Tensor, Fields]:
    """Change of the exponentially weighted Sharpe ratio (Moody & Saffell 2001)."""
    mean, square = state["sharpe_mean"], state["sharpe_square"]
    gained = bar.equity / bar.equity_before - 1
    step, step_square = gained - mean, gained**2 - square
    variance = (square - mean**2).clamp(min=1e-12)
    reward = (square * step - 0.5 * mean * step_square) / variance**1.5
    remembered = {
        "sharpe_mean": mean + SHARPE_MEMORY * step,
        "sharpe_square": square + SHARPE_MEMORY * step_square,
    }
    return reward, remembered


def professional(bar: Bar, state: Fields, risk_aversion: float) -> tuple[Tensor, Fields]:
    """Rewards a desk's habits: 0.62 pnl - 0.20 cost - 0.06 time - 0.08 repeat, in % of equity.

    Several assets add up in what they earn and cost, and are averaged in their habits.

    - pnl of a closed part: realised x (1 + 2 roi, clipped to [0.5, 3]) x 1.2 where |action| > 0.5
      x 1.2 for a conservative position (at most half the cap before the exit), else 0.8
      x 0.8 for a partial exit, 1.1 for the last of several
      x 1.3 for a position that was added to while it won.
      While holding without an exit: -0.01 on winners, -0.005 on losers.
    - cost: fees. time: bars since the position's last trade / 100, at most 1.
    - repeat: 1 for the same trade as the last one in that asset.
    """
    equity = bar.equity_before.clamp(min=bar.floor)[:, None]
    before, after = bar.units_before.abs(), bar.units.abs()
    cut = (before > 0) & ((after < before) | (bar.units * bar.units_before < 0))
    gone = cut & ((bar.units == 0) | (bar.units * bar.units_before < 0))
    same_side = bar.units * bar.units_before > 0
    closed = torch.where(gone, before, (before - after).clamp(min=0)) * bar.entry_before
    roi = bar.realised / closed.clamp(min=bar.floor)
    share = before * bar.price_before / equity

    def where(condition: Tensor, yes: float, no: float) -> Tensor:
        return torch.where(condition, yes, no).double()

    factor = (1 + 2 * roi).clamp(0.5, 3)
    factor = factor * where(bar.smoothed.abs() > 0.5, 1.2, 1.0)
    factor = factor * where(share <= bar.cap / 2, 1.2, 0.8)
    factor = factor * torch.where(gone, where(state["reduced"], 1.1, 1.0), 0.8)
    factor = factor * where(state["boosted"], 1.3, 1.0)
    profit = 100 * bar.realised / equity * factor
    ahead = winning(bar.units, bar.price["close"], bar.entry)
    holding = same_side & ~cut
    patience = torch.where(ahead, 0.01, 0.005) * holding
    idle = torch.where(same_side, (state["since_trade"] / 100).clamp(max=1), 0.0)
    repeated = (bar.traded != 0) & (bar.name == state["last_name"])

    habits = (0.62 * patience + 0.06 * idle + 0.08 * repeated.double()).mean(-1)
    reward = 0.62 * profit.sum(-1) - habits - 0.20 * 100 * bar.fees / equity[:, 0]

    won = winning(bar.units_before, bar.fill_price, bar.entry_before)
    grown = same_side & (after > before)
    return reward, {
        "reduced": same_side & (state["reduced"] | cut),
        "boosted": same_side & (state["boosted"] | (grown & won)),
    }


REWARDS: dict[str, Reward] = {
    "growth": growth,
    "log_return": log_return,
    "differential_sharpe": differential_sharpe,
    "professional": professional,
}

STATE: dict[str, dict[str, float | bool]] = {
    "differential_sharpe": {"sharpe_mean": 0.0, "sharpe_square": SHARPE_START},
    "professional": {"reduced": False, "boosted": False},
}
"""Start values of the fields a reward remembers: numbers ``[N]``, booleans ``[N, A]``."""
