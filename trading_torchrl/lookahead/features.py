"""Looks for features that know bars after their own."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch
from torch import Tensor

from trading_torchrl.data.features import FeatureFunction
from trading_torchrl.data.market import Market, MarketError
from trading_torchrl.lookahead.future import (
    VARIATIONS,
    Leak,
    close_to,
    time_of,
    visible,
    with_future,
)

logger = logging.getLogger(__name__)


def find_lookahead(
    features: FeatureFunction,
    market: Market,
    cuts: int = 8,
    seed: int = 0,
    tolerance: float = 1e-9,
) -> Leak | None:
    """Looks for a feature that knows bars after its own.

    At several bars it changes all that follows, computes the features again and compares every
    value up to that bar. Half of the bars lie early, where windows fill up; the others are spread
    over the market. A leak that shows in few bars only needs more cuts.

    The function sees neither ``market.hidden`` nor features that the market has already. User
    columns are inputs: what they held when they were recorded is taken on trust.

    Args:
        features: a function from a market to named ``[T, S]`` tensors.
        market: bars to try it on.
        cuts: number of bars after which the market is changed.
        seed: of the new paths and the bars.
        tolerance: a change below this share of the column's largest value is no leak, because FFTs
            and matrix products of another length may move last bits. Results in float32 are
            given 1e-5. With 0 every bit counts.

    Returns:
        The first value that moved, None where there is none.

    Raises:
        ValueError: if two calls on the same market differ: then nothing can be proven.

    Example:
        >>> from trading_torchrl.data import synthetic_market
        >>> market = synthetic_market(symbols=1, bars=300)
        >>> find_lookahead(lambda m: {"past": m.close.cummax(0).values}, market) is None
        True
        >>> find_lookahead(lambda m: {"peak": m.close / m.close.amax(0)}, market).name
        'peak'
    """
    market = visible(market)
    expected = _compute(features, market)
    again = _difference(expected, _compute(features, market), len(market) - 1, tolerance)
    if again is not None:
        raise ValueError(
            f"feature {again[0]!r} differs between two calls on the same market; it must be a pure "
            "function: seed its random numbers, keep no state"
        )
    generator = torch.Generator().manual_seed(seed)
    for cut in _cuts(len(market), cuts, generator):
        for variation in VARIATIONS:
            changed = with_future(market, cut, variation, generator)
            try:
                values = _compute(features, changed)
            except Exception as error:
                if variation != "cut":
                    raise
                logger.warning("not checked on the first %d bars alone: %s", cut + 1, error)
                continue
            found = _difference(expected, values, cut, tolerance)
            if found is not None:
                name, bar, symbol, before, after = found
                where = market.symbols[symbol], time_of(market, bar)
                return Leak("feature", name, *where, bar, cut, variation, before, after)
    return None


def _compute(features: FeatureFunction, market: Market) -> dict[str, Tensor]:
    values = {name: torch.as_tensor(value) for name, value in features(market).items()}
    for name, value in values.items():
        if tuple(value.shape) != tuple(market.close.shape):
            raise MarketError(
                f"feature {name!r} has shape {list(value.shape)}, it must be [bars, symbols] = "
                f"{list(market.close.shape)}"
            )
    return values


def _cuts(bars: int, count: int, generator: torch.Generator) -> list[int]:
    """Last unchanged bars: half at 1, 2, 4... like distances from the start, half anywhere."""
    if count < 1:
        raise ValueError(f"cuts must be at least 1, got {count}")
    early, last = count // 2, bars - 2
    exponents = (torch.arange(early) + torch.rand(early, generator=generator)) / max(early, 1)
    anywhere = (torch.arange(count - early) + torch.rand(count - early, generator=generator)) / (
        count - early
    )
    positions = torch.cat([(last + 1) ** exponents - 1, anywhere * (last + 1)])
    return sorted({min(int(position), last) for position in positions})


def _difference(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor], cut: int, tolerance: float
) -> tuple[str, int, int, float, float] | None:
    """The first value up to ``cut`` that differs: name, bar, symbol, before, after."""
    if before.keys() != after.keys():
        raise ValueError(
            f"the features' names change with the bars: {', '.join(before)} became "
            f"{', '.join(after)}; return the same names for every market"
        )
    first: tuple[str, int, int, float, float] | None = None
    for name in before:
        # The whole column sets the scale: its first bars may all be 0.
        scale = torch.where(before[name].isfinite(), before[name], 0).abs().amax(0)
        old, new = before[name][: cut + 1], after[name][: cut + 1]
        same = close_to(old, new, scale, tolerance)
        if not same.all():
            bar, symbol = (~same).nonzero()[0].tolist()
            if first is None or bar < first[1]:
                first = name, bar, symbol, old[bar, symbol].item(), new[bar, symbol].item()
    return first
