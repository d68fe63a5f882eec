"""Features with a longer memory than the 23, for policies that see one bar at a time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from trading_torchrl.data.market import Market

LONG = 60
COLUMN_WEIGHT = 0.5


def slow_features(market: Market) -> dict[str, Tensor]:
    """Where the last 60 bars went, how much they moved, and the market's columns smoothed.

    ====================  =====================================================================
    ``return_60``         log return over the last 60 bars, fewer at the start
    ``volatility_60``     standard deviation of their log returns
    ``<column>_mean``     exponential mean of each user column, weight 1/2 on the newest bar
    ====================  =====================================================================

    Args:
        market: the bars.

    Returns:
        Float64 ``[T, S]`` each, for :func:`~trading_torchrl.data.with_features`.

    Example:
        >>> from trading_torchrl.data import synthetic_market
        >>> market = synthetic_market(2, 300, functions=[slow_features])
        >>> market.feature_names[-5:]
        ('return_60', 'volatility_60', 'signal_mean', 'sentiment_mean', 'confidence_mean')
    """
    log = pd.DataFrame(np.log(market.close.cpu().double().numpy()))
    returns = log.diff().fillna(0.0)
    found = {
        "return_60": returns.rolling(LONG, min_periods=1).sum(),
        "volatility_60": returns.rolling(LONG, min_periods=2).std().fillna(0.0),
    }
    for name, column in market.columns.items():
        values = pd.DataFrame(column.cpu().double().numpy())
        found[f"{name}_mean"] = values.ewm(alpha=COLUMN_WEIGHT, adjust=False).mean()
    device = market.close.device
    return {
        name: torch.from_numpy(frame.to_numpy(copy=True)).to(device)
        for name, frame in found.items()
    }
