"""One calendar for many symbols, and how many of its bars make a year."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch

from trading_torchrl.data.market import BARS, Market, MarketError
from trading_torchrl.data.validation import when

Align = Literal["intersection", "forward"]

DAY = 86_400_000_000_000
DAYS_PER_YEAR = 365.25
TRADING_DAYS_PER_YEAR = 252.0


def combine(
    parts: Sequence[tuple[str, Market]],
    align: Align | None = None,
    bars_per_year: float | None = None,
) -> Market:
    """Puts validated one-symbol markets on one calendar.

    Args:
        parts: (source, market) pairs; errors call a market by its source.
        align: ``None`` refuses symbols on different calendars; ``"intersection"`` keeps the
            timestamps all symbols have; ``"forward"`` keeps those any symbol has, and gives a
            symbol without a bar there its previous close as all four prices, volume 0 and its
            previous user columns. Nothing is ever filled from later bars.
        bars_per_year: inferred from the calendar when not given, see :func:`infer_bars_per_year`.
    """
    if align is not None and align not in get_args(Align):
        raise MarketError(f"align must be None, 'intersection' or 'forward', got {align!r}")
    _check_unique(parts)
    _check_same_columns(parts)
    calendars = [market.timestamps.numpy() for _, market in parts]
    same = all(np.array_equal(calendars[0], other) for other in calendars[1:])
    if same:
        calendar = calendars[0]
    elif align == "intersection":
        calendar = _intersection(calendars)
    elif align == "forward":
        calendar = np.unique(np.concatenate(calendars))
        _check_starts(parts, calendar)
    else:
        _refuse_difference(parts, calendars)

    names = (*BARS, *(f"columns.{name}" for name in parts[0][1].columns))
    stacked = {name: np.empty((len(calendar), len(parts))) for name in names}
    for s, (_, market) in enumerate(parts):
        # The last bar at or before each time of the calendar; `missing` where it is before.
        rows = np.searchsorted(calendars[s], calendar, side="right") - 1
        missing = calendars[s][rows] != calendar
        for name in names:
            values = _column(market, name)
            stacked[name][:, s] = values[rows]
            if name == "volume":
                stacked[name][missing, s] = 0.0
            elif name in BARS:
                stacked[name][missing, s] = _column(market, "close")[rows[missing]]
    tensors = {name: torch.from_numpy(array) for name, array in stacked.items()}
    if bars_per_year is None:
        bars_per_year = infer_bars_per_year(calendar, parts[0][0])
    return Market(
        symbols=tuple(market.symbols[0] for _, market in parts),
        timestamps=torch.from_numpy(calendar.copy()),
        bars_per_year=bars_per_year,
        columns={name: tensors[f"columns.{name}"] for name in parts[0][1].columns},
        open=tensors["open"],
        high=tensors["high"],
        low=tensors["low"],
        close=tensors["close"],
        volume=tensors["volume"],
    )


def infer_bars_per_year(timestamps: np.ndarray, source: str = "market") -> float:
    """Bars per trading day times trading days per year.

    The first is the number of bars over the number of their dates. The second is 252 where dates
    follow each other daily and none is a Saturday or Sunday, or where the count comes to 240 to
    265; else it is the count itself: dates per elapsed 365.25 days (365.25 for a market that never
    closes, about 52 for weekly bars).

    Example:
        >>> days = np.arange("2024-01-01", "2024-12-31", dtype="datetime64[D]")
        >>> infer_bars_per_year(days.astype("datetime64[ns]").view("int64"))
        365.25
    """
    dates = np.unique(np.asarray(timestamps) // DAY)
    if len(dates) < 2:
        raise MarketError(
            f"{source}: bars per year cannot be inferred from the bars of one date; pass "
            "bars_per_year (252 for daily stock data)"
        )
    counted = (len(dates) - 1) * DAYS_PER_YEAR / (dates[-1] - dates[0])
    daily = np.median(np.diff(dates)) == 1
    weekend = np.isin((dates + 3) % 7, (5, 6)).any()  # day 0, 1970-01-01, was a Thursday
    if (daily and not weekend) or 240 <= counted <= 265:
        counted = TRADING_DAYS_PER_YEAR
    return float(counted * len(timestamps) / len(dates))


def _column(market: Market, name: str) -> np.ndarray:
    tensor = getattr(market, name) if name in BARS else market.columns[name.split(".", 1)[1]]
    return tensor.numpy()[:, 0]


def _check_unique(parts: Sequence[tuple[str, Market]]) -> None:
    seen: dict[str, str] = {}
    for source, market in parts:
        symbol = market.symbols[0]
        if symbol in seen:
            raise MarketError(
                f"{source}: symbol {symbol} stands in {seen[symbol]} too; keep all bars of a "
                "symbol in one file"
            )
        seen[symbol] = source


def _check_same_columns(parts: Sequence[tuple[str, Market]]) -> None:
    first_source, first = parts[0]
    for source, market in parts[1:]:
        for name in (*first.columns, *market.columns):
            if name in first.columns and name in market.columns:
                continue
            lacks, has = (source, first_source) if name in first.columns else (first_source, source)
            raise MarketError(
                f"{lacks}: no column {name}, which {has} has; add it, or leave it out everywhere "
                f"with ignore=[{name!r}]"
            )


def _check_starts(parts: Sequence[tuple[str, Market]], calendar: np.ndarray) -> None:
    for source, market in parts:
        first = market.timestamps[0].item()
        if first > calendar[0]:
            raise MarketError(
                f"{source}: symbol {market.symbols[0]}, column timestamp: its first bar is at "
                f"{when(int(first))}, the calendar starts at {when(calendar[0])}, and there is "
                "nothing to carry forward; leave the symbol out, cut the others to its start, or "
                "use align='intersection'"
            )


def _intersection(calendars: Sequence[np.ndarray]) -> np.ndarray:
    common = calendars[0]
    for other in calendars[1:]:
        common = np.intersect1d(common, other, assume_unique=True)
    if not len(common):
        raise MarketError(
            "align='intersection': the symbols have no timestamp in common; check that all files "
            "cover one period and use one time zone"
        )
    return common


def _refuse_difference(parts: Sequence[tuple[str, Market]], calendars: list[np.ndarray]) -> None:
    first = parts[0][1].symbols[0]
    for (source, market), calendar in zip(parts, calendars, strict=True):
        different = np.setxor1d(calendars[0], calendar, assume_unique=True)
        if len(different):
            symbol = market.symbols[0]
            lacks, has = (symbol, first) if different[0] in calendars[0] else (first, symbol)
            raise MarketError(
                f"{source}: symbol {symbol}, column timestamp: symbols {first} and {symbol} are on "
                f"different calendars: {lacks} has no bar at {when(different[0])}, {has} has; "
                "pass align='intersection' to keep common timestamps, or align='forward' to carry "
                "the previous close into missing bars"
            )
