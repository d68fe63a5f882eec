"""Chronological splits, walk-forward windows and regime labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from trading_torchrl.data.market import Market, MarketError
from trading_torchrl.data.validation import when

REGIMES = ("bull", "bear", "sideways", "high_volatility")
UNKNOWN_REGIME = -1

# One bar is no return.
SHORTEST_PART = 2


class Splits(NamedTuple):
    """The parts of a market, earliest first."""

    train: Market
    validation: Market
    meta: Market | None
    """nothing where its share is 0: a market has bars"""
    test: Market


def split(
    market: Market,
    train: float = 0.6,
    validation: float = 0.15,
    meta: float = 0.05,
    test: float = 0.2,
    purge: int = 0,
    embargo: int = 0,
) -> Splits:
    """Cuts a market in time order: train, validation, meta (for learned weights), test.

    Args:
        market: the market; compute its features first, so that each part has its warm-up behind
            it.
        train: share of the bars; the four shares sum to 1.
        validation: likewise.
        meta: likewise; 0 for none.
        test: likewise.
        purge: bars dropped at the end of each part but the last: their outcomes reach into the
            next part (the horizon of targets and returns).
        embargo: bars dropped at the beginning of each part but the first: their features still
            remember the part before (the longest feature window).

    Example:
        >>> from trading_torchrl.data import load_index_series, split
        >>> parts = split(load_index_series("sp500"), purge=1, embargo=60)
        >>> [len(part) for part in parts]
        [3018, 693, 191, 946]
    """
    shares = {"train": train, "validation": validation, "meta": meta, "test": test}
    for name, share in shares.items():
        number = share if isinstance(share, int | float) else math.nan
        if not (number > 0 or (name == "meta" and number == 0)):
            raise MarketError(
                f"the share of {name} must be a positive number"
                f"{' or 0' if name == 'meta' else ''}, got {share!r}"
            )
    if not math.isclose(math.fsum(shares.values()), 1.0, abs_tol=1e-9):
        given = " + ".join(f"{name} {share}" for name, share in shares.items())
        raise MarketError(f"shares must sum to 1, got {given} = {math.fsum(shares.values()):g}")
    _check_counts(0, purge=purge, embargo=embargo)

    parts: dict[str, Market] = {}
    start, total = 0, 0.0
    for name, share in shares.items():
        if not share:
            continue
        total += share
        stop = round(total * len(market))
        first = start if name == "train" else start + embargo
        last = stop if name == "test" else stop - purge
        if last - first < SHORTEST_PART:
            raise MarketError(
                f"{name} gets {stop - start} of {len(market)} bars and keeps "
                f"{max(last - first, 0)} after purge {purge} and embargo {embargo}; "
                f"at least {SHORTEST_PART} are needed: give it a larger share, choose a shorter "
                "embargo or purge, or load more bars"
            )
        parts[name] = market.bars(first, last)
        start = stop
    return Splits(parts["train"], parts["validation"], parts.get("meta"), parts["test"])


def walk_forward(
    market: Market,
    train_days: int = 252,
    test_days: int = 60,
    step_days: int = 20,
    *,
    anchored: bool = False,
    purge: int = 0,
    embargo: int = 0,
) -> Iterator[tuple[Market, Market]]:
    """Pairs of a training window and the test window right after it, moving forward in time.

    Lengths are in trading days, that is dates of the market's timestamps, whatever the bars per
    day. Window k tests on days ``train_days + k * step_days`` and the following, ``test_days`` in
    all; a last window with fewer is left out. Test windows overlap where ``step_days`` is less
    than ``test_days``: their results are not independent. To retrain every n windows, train on
    the first of each n pairs and keep that model for the others.

    Args:
        market: the market, its features computed.
        train_days: length of the training window.
        test_days: length of the test window.
        step_days: how far the next window lies ahead.
        anchored: every training window begins with the market (and the first has ``train_days``),
            instead of rolling along.
        purge: bars dropped at the end of the training window, see :func:`split`.
        embargo: bars dropped at the beginning of the test window, see :func:`split`.

    Example:
        >>> from trading_torchrl.data import load_index_series, walk_forward
        >>> windows = list(walk_forward(load_index_series("sp500")))
        >>> len(windows), [len(part) for part in windows[0]]
        (236, [252, 60])
    """
    _check_counts(1, train_days=train_days, test_days=test_days, step_days=step_days)
    _check_counts(0, purge=purge, embargo=embargo)
    days = market.days.cpu()
    fresh = torch.ones(len(days), dtype=torch.bool)
    fresh[1:] = days[1:] != days[:-1]
    starts = [*fresh.nonzero().squeeze(1).tolist(), len(market)]
    total = len(starts) - 1
    if total < train_days + test_days:
        raise MarketError(
            f"the market has {total} trading days, train_days {train_days} + test_days {test_days} "
            "need more; load more bars or choose shorter windows"
        )
    windows = []
    for cut in range(train_days, total - test_days + 1, step_days):
        bounds = (
            starts[0 if anchored else cut - train_days],
            starts[cut] - purge,
            starts[cut] + embargo,
            starts[cut + test_days],
        )
        kept = {"training": bounds[1] - bounds[0], "test": bounds[3] - bounds[2]}
        for name, length in kept.items():
            if length < SHORTEST_PART:
                day = when(int(market.timestamps[starts[cut]]))
                raise MarketError(
                    f"the {name} window before or after {day} keeps {max(length, 0)} bars after "
                    f"purge {purge} and embargo {embargo}; at least "
                    f"{SHORTEST_PART} are needed: choose more days, or purge less"
                )
        windows.append(bounds)
    return ((market.bars(a, b), market.bars(c, d)) for a, b, c, d in windows)


def regime_labels(
    market: Market,
    reference: Market,
    window: int = 60,
    trend: float = 0.5,
    volatility_quantile: float = 0.8,
) -> Tensor:
    """Labels each bar by the regime its symbol has been in, from its closes up to that bar.

    The rule, with r the log returns of the last ``window`` bars: volatility = std(r), strength =
    sum(r) / (volatility x sqrt(window)), which is standard normal for a market without trend.

    - ``high_volatility`` where volatility exceeds the ``volatility_quantile`` quantile of the same
      volatility of the same symbol in ``reference``; else
    - ``bull`` where strength > ``trend``,
    - ``bear`` where strength < -``trend``,
    - ``sideways`` otherwise (also where the price does not move at all).

    The first ``window`` bars are -1, not known. No label depends on later bars of ``market``;
    the thresholds are frozen by ``reference``, so let it be the training part.

    Args:
        market: the market to label. Give the whole one and cut the labels like the market, so that
            no part loses its first bars.
        reference: training market that has the same symbols.
        window: bars to look back on.
        trend: strength from which a trend counts, in standard deviations; 0.5 calls 38 % of the
            bars of a driftless market sideways.
        volatility_quantile: share of the reference's bars that are not of high volatility.

    Returns:
        int8 ``[T, S]``, indices into :data:`REGIMES`, or -1.

    Example:
        >>> from trading_torchrl.data import load_index_series, regime_labels, split
        >>> market = load_index_series("sp500")
        >>> labels = regime_labels(market, reference=split(market).train)
        >>> labels.shape
        torch.Size([5031, 1])
    """
    _check_counts(2, window=window)
    if not trend >= 0:
        raise MarketError(f"trend must not be negative, got {trend}")
    if not 0 < volatility_quantile < 1:
        raise MarketError(f"volatility_quantile must lie within (0, 1), got {volatility_quantile}")
    if len(reference) <= window:
        raise MarketError(
            f"the reference has {len(reference)} bars, window {window} needs more; give a longer "
            "reference or a shorter window"
        )
    labels = torch.full_like(market.close, UNKNOWN_REGIME, dtype=torch.int8)
    if len(market) <= window:
        return labels
    strength, volatility = _trailing(market, window)
    known = volatility
    if reference is not market:
        known = _trailing(reference.select(market.symbols), window)[1]
    threshold = known.sort(dim=0).values[int(volatility_quantile * len(known))]
    regime = torch.full_like(strength, REGIMES.index("sideways"), dtype=torch.int8)
    regime[strength > trend] = REGIMES.index("bull")
    regime[strength < -trend] = REGIMES.index("bear")
    regime[volatility > threshold] = REGIMES.index("high_volatility")
    labels[window:] = regime
    return labels


def _trailing(market: Market, window: int) -> tuple[Tensor, Tensor]:
    """Strength and volatility of the bars from ``window`` on."""
    logs = market.close.log()
    volatility = logs.diff(dim=0).unfold(0, window, 1).std(dim=-1)
    change = logs[window:] - logs[:-window]
    return change / (volatility * math.sqrt(window)), volatility


def _check_counts(least: int, **counts: int) -> None:
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < least:
            raise MarketError(f"{name} must be a whole number of at least {least}, got {count!r}")
