"""The market file that every contestant reads: a random walk with features, numpy only."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FEATURES = 23


class MarketArrays(NamedTuple):
    """Bars of several symbols: prices and volume [symbols, bars], features [..., features]."""

    open: NDArray[np.float64]
    high: NDArray[np.float64]
    low: NDArray[np.float64]
    close: NDArray[np.float64]
    volume: NDArray[np.float64]
    features: NDArray[np.float32]

    def first(self, symbols: int) -> "MarketArrays":
        """The market of the first symbols alone."""
        return MarketArrays(
            self.open[:symbols],
            self.high[:symbols],
            self.low[:symbols],
            self.close[:symbols],
            self.volume[:symbols],
            self.features[:symbols],
        )


def random_walk(
    bars: int = 20_000, symbols: int = 30, features: int = FEATURES, seed: int = 0
) -> MarketArrays:
    """Draws geometric random walks; feature k is the scaled log return over k + 1 bars."""
    generator = np.random.default_rng(seed)
    volatility = 0.002
    move = generator.normal(0.0, volatility, (symbols, bars))
    gap = generator.normal(0.0, 0.1 * volatility, (symbols, bars))
    log_close = np.log(100.0) + np.cumsum(move + gap, axis=1)
    log_open = log_close - move
    wick = np.abs(generator.normal(0.0, 0.5 * volatility, (2, symbols, bars)))
    table = np.zeros((symbols, bars, features), dtype=np.float32)
    for k in range(features):
        lag = k + 1
        table[:, lag:, k] = (log_close[:, lag:] - log_close[:, :-lag]) / (volatility * lag**0.5)
    return MarketArrays(
        open=np.exp(log_open),
        high=np.exp(np.maximum(log_open, log_close) + wick[0]),
        low=np.exp(np.minimum(log_open, log_close) - wick[1]),
        close=np.exp(log_close),
        volume=generator.lognormal(10.0, 0.5, (symbols, bars)),
        features=table,
    )


def write_market(path: Path, market: MarketArrays) -> None:
    """Writes the arrays uncompressed, since every contestant reads them at start."""
    np.savez(path, **market._asdict())


def read_market(path: Path) -> MarketArrays:
    """Reads what `write_market` wrote."""
    with np.load(path) as arrays:
        return MarketArrays(**{name: arrays[name] for name in MarketArrays._fields})
