"""Markets: bars of many symbols as dense tensors, and their features."""

from trading_torchrl.data.features import (
    FEATURES,
    WARMUP,
    FeatureFunction,
    standard_features,
    with_features,
)
from trading_torchrl.data.market import BARS, PRICES, Market, MarketError
from trading_torchrl.data.scaler import Scaler
from trading_torchrl.data.slow import slow_features
from trading_torchrl.data.sources import load_csv, load_frame, load_index_series, load_parquet
from trading_torchrl.data.splits import REGIMES, Splits, regime_labels, split, walk_forward
from trading_torchrl.data.synthetic import Knobs, named_market, synthetic_market
from trading_torchrl.data.validation import validate

__all__ = [
    "BARS",
    "FEATURES",
    "PRICES",
    "REGIMES",
    "WARMUP",
    "FeatureFunction",
    "Knobs",
    "Market",
    "MarketError",
    "Scaler",
    "Splits",
    "load_csv",
    "load_frame",
    "load_index_series",
    "load_parquet",
    "named_market",
    "regime_labels",
    "slow_features",
    "split",
    "standard_features",
    "synthetic_market",
    "validate",
    "walk_forward",
    "with_features",
]
