"""Figures of merit from equity, returns and positions. Time is the last dimension.

Each is one number a path ``[...]``: average them over symbols, do not pool the bars.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST_LEFT = 1e-6
"""Share of the money a bar leaves at the least, so that a logarithm survives ruin."""

ROUNDING = 1e-9
"""A deviation below this part of the mean is the mean's rounding."""


def simple_returns(equity: Tensor) -> Tensor:
    """Simple return of each bar, ``[..., T - 1]``, from equity ``[..., T]``.

    Who has nothing left earns nothing.
    """
    before, after = equity[..., :-1], equity[..., 1:]
    return torch.where(before > 0, after / before - 1, 0.0)


def sharpe(returns: Tensor, bars_per_year: float) -> Tensor:
    """Annual Sharpe ratio ``[...]`` of simple returns ``[..., T]``: risk-free 0, ddof 1.

    ``mean(r) / std(r) * sqrt(bars_per_year)``. A path that varies by no more than rounding has a
    ratio of 0.
    """
    returns = returns.double()
    mean, spread = returns.mean(-1), returns.std(-1)
    varies = spread > ROUNDING * mean.abs()
    ratio = mean / torch.where(varies, spread, 1.0)
    return torch.where(varies, ratio, 0.0) * bars_per_year**0.5


def sortino(returns: Tensor, bars_per_year: float) -> Tensor:
    """Annual Sortino ratio ``[...]`` of simple returns ``[..., T]``: target 0.

    ``mean(r) / sqrt(mean(min(r, 0)^2)) * sqrt(bars_per_year)``: bars that win count as 0 in the
    downside deviation, they are not left out. 0 for a path that never moves, NaN for one that only
    wins.
    """
    returns = returns.double()
    downside = returns.clamp(max=0).square().mean(-1).sqrt()
    return _ratio(returns.mean(-1), downside) * bars_per_year**0.5


def growth(returns: Tensor, bars_per_year: float) -> Tensor:
    """Log growth a year ``[...]`` of simple returns ``[..., T]``.

    ``mean(log(1 + r)) * bars_per_year``; a bar that loses everything counts as leaving a millionth.
    """
    return returns.clamp(min=LEAST_LEFT - 1).log1p().mean(-1) * bars_per_year


def total_return(equity: Tensor) -> Tensor:
    """Last equity over the first, less 1, ``[...]``."""
    return equity[..., -1] / equity[..., 0] - 1


def max_drawdown(equity: Tensor) -> Tensor:
    """Largest loss from a peak ``[...]``, as a share of it."""
    return (1 - equity / equity.cummax(-1).values).amax(-1)


def calmar(equity: Tensor, bars_per_year: float) -> Tensor:
    """Compound annual return over the largest drawdown, ``[...]``, from equity ``[..., T]``.

    ``((E_T / E_0)^(bars_per_year / (T - 1)) - 1) / max_drawdown(E)``. 0 for a path that never
    moves, NaN for one that never falls.
    """
    bars = max(equity.shape[-1] - 1, 1)
    left = (1 + total_return(equity)).clamp(min=0)
    return _ratio(left ** (bars_per_year / bars) - 1, max_drawdown(equity))


def turnover(value: Tensor, equity: Tensor, bars_per_year: float) -> Tensor:
    """Traded value a year as a multiple of equity, ``[...]``, from both ``[..., T]``.

    ``mean(|value_t| / E_(t-1)) * bars_per_year``. Of fees in place of values: the costs.
    """
    before = equity[..., :-1]
    part = torch.where(before > 0, value[..., 1:].abs() / before, 0.0)
    return part.mean(-1) * bars_per_year


def exposure(share: Tensor) -> Tensor:
    """Mean absolute position ``[...]`` as a share of equity ``[..., T]``."""
    return share.abs().mean(-1)


def fills(value: Tensor) -> Tensor:
    """Bars ``[...]`` in which something was traded."""
    return (value != 0).sum(-1).double()


def _ratio(won: Tensor, risked: Tensor) -> Tensor:
    """0 where there was neither, NaN where something was won without any risk."""
    risky = risked > ROUNDING * won.abs()
    alone = torch.where(won == 0, 0.0, torch.nan)
    return torch.where(risky, won / torch.where(risky, risked, 1.0), alone)
