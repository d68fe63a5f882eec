"""Figures of merit from equity and returns. Time is the last dimension."""

from __future__ import annotations

import torch
from torch import Tensor


def simple_returns(equity: Tensor) -> Tensor:
    """Simple return of each bar, ``[..., T - 1]``, from equity ``[..., T]``."""
    return equity[..., 1:] / equity[..., :-1] - 1


def sharpe(returns: Tensor, bars_per_year: float) -> Tensor:
    """Annual Sharpe ratio ``[...]`` of simple returns ``[..., T]``: risk-free 0, ddof 1.

    A path that varies by no more than rounding has a ratio of 0.
    """
    returns = returns.double()
    mean, spread = returns.mean(-1), returns.std(-1)
    varies = spread > 1e-9 * mean.abs()
    ratio = mean / torch.where(varies, spread, 1.0)
    return torch.where(varies, ratio, 0.0) * bars_per_year**0.5


def growth(returns: Tensor, bars_per_year: float) -> Tensor:
    """Log growth a year ``[...]`` of simple returns ``[..., T]``."""
    return returns.log1p().mean(-1) * bars_per_year


def max_drawdown(equity: Tensor) -> Tensor:
    """Largest loss from a peak ``[...]``, as a share of it."""
    return (1 - equity / equity.cummax(-1).values).amax(-1)
