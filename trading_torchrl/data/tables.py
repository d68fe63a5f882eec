"""From a pandas table as a vendor writes it to validated one-symbol markets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from trading_torchrl.data.market import BARS, PRICES, Market, MarketError
from trading_torchrl.data.validation import check_order, refuse_where, validate

ALIASES = {
    **{name: name for name in BARS},
    **dict.fromkeys(("timestamp", "date", "datetime", "time"), "timestamp"),
    **dict.fromkeys(("adj_close", "adjusted_close", "adjclose"), "adjusted_close"),
    **dict.fromkeys(("split", "splits", "stock_splits", "split_ratio"), "split"),
    **dict.fromkeys(("symbol", "ticker"), "symbol"),
}
REQUIRED = ("timestamp", *BARS)

# An epoch between 1973 and 2261 (where int64 nanoseconds end): units do not overlap.
EPOCH = (10**8, 92 * 10**8)
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Reading:
    """How to read a table; the loaders document each field."""

    columns: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    adjust: bool = False
    allow_jumps: bool = False

    def __post_init__(self) -> None:
        for field in ("columns", "ignore"):
            given = getattr(self, field)
            if isinstance(given, str):
                raise MarketError(
                    f"{field} must be a list of names, got {given!r}; pass [{given!r}]"
                )


def one_symbol_markets(
    frame: pd.DataFrame, source: str, symbol: str, reading: Reading, line: int | None = None
) -> Iterator[tuple[str, Market]]:
    """The validated market of each symbol in a table, with its source, in order of appearance.

    Args:
        frame: the table, a column a quantity.
        source: what errors call the table.
        symbol: name of the symbol where the table has no symbol column.
        reading: how to read it.
        line: number of the line the first row stood in, for errors; ``None`` counts rows from 0.
    """
    names = match_columns(list(frame.columns), source, reading)
    if frame.empty:
        raise MarketError(f"{source}: no rows below the header; give at least two bars")
    row = "row" if line is None else "line"
    # Blank lines were kept until here so that the index still counts lines.
    frame = frame.set_axis(np.arange(len(frame)) + (line or 0), axis=0)
    if frame[names["timestamp"]].isna().any():
        frame = frame.dropna(how="all")
    timestamps = parse_timestamps(frame[names["timestamp"]], source, row)
    values = {
        name: parse_numbers(frame[label], source, name, row)
        for name, label in names.items()
        if name not in ("timestamp", "symbol")
    }
    if "symbol" not in names:
        yield source, _market(symbol, timestamps, values, source, reading)
        return
    symbols = frame[names["symbol"]]
    if symbols.isna().any():
        raise MarketError(
            f"{source}: column {names['symbol']}: no symbol at {row} {_first(symbols.isna())}; "
            "name it or remove the row"
        )
    codes, found = pd.factorize(symbols)
    order = np.argsort(codes, kind="stable")
    for name, rows in zip(found, np.split(order, np.bincount(codes).cumsum()[:-1]), strict=True):
        part = {column: array[rows] for column, array in values.items()}
        yield source, _market(str(name), timestamps[rows], part, source, reading)


def match_columns(labels: Sequence[object], source: str, reading: Reading) -> dict[str, object]:
    """Maps our names of the columns to read to the table's labels."""
    ignored = {plain(name) for name in reading.ignore}
    chosen = None if reading.columns is None else [plain(name) for name in reading.columns]
    names: dict[str, object] = {}
    for number, label in enumerate(labels, start=1):
        if isinstance(label, tuple):
            raise MarketError(
                f"{source}: the table's columns have {len(label)} levels (first: {label}); pass a "
                "dict with one plain table a symbol"
            )
        name = plain(label)
        if name in ignored:
            continue
        if not name or re.fullmatch(r"unnamed_\d+", name):
            raise MarketError(
                f"{source}: column number {number} has no name; name it, or leave it out with "
                f"ignore=[{str(label)!r}]"
            )
        if name not in ALIASES and chosen is not None and name not in chosen:
            continue
        name = ALIASES.get(name, name)
        if name in names:
            raise MarketError(
                f"{source}: columns {names[name]!r} and {label!r} both mean {name}; rename one or "
                f"leave it out with ignore=[{str(label)!r}]"
            )
        names[name] = label
    needed = [*REQUIRED, *(["adjusted_close"] if reading.adjust else ()), *(chosen or ())]
    missing = [name for name in needed if name not in names]
    if missing:
        raise MarketError(
            f"{source}: no column {', '.join(missing)}; found {', '.join(map(str, labels))}; "
            f"needed are {', '.join(needed)} (in any case; timestamp may be called date, "
            "datetime or time); rename the columns, or read it with pandas and pass "
            "the table to load_frame"
        )
    return names


def plain(label: object) -> str:
    """A column's name in lower case with underscores: ``"Adj Close"`` is ``"adj_close"``."""
    return re.sub(r"\W+", "_", str(label).strip().lower()).strip("_")


def parse_timestamps(values: pd.Series, source: str, row: str) -> np.ndarray:
    """int64 nanoseconds (UTC) from ISO 8601 text, epoch numbers or datetimes; naive means UTC."""

    def refuse(bad: pd.Series, problem: str) -> MarketError:
        at = _first(bad)
        return MarketError(
            f"{source}: column {values.name}: {str(values[at])!r} at {row} {at} {problem}; write "
            "ISO 8601 such as 2024-01-31 or 2024-01-31T14:30:00Z, or a number of s, ms, us or ns "
            "since 1970"
        )

    if values.isna().any():
        raise refuse(values.isna(), "is not a time")
    kind = values.dtype
    if kind.kind in "fbmc" or isinstance(kind, pd.PeriodDtype):
        raise refuse(values.notna(), "is neither text, a whole number nor a datetime")
    if pd.api.types.is_integer_dtype(kind):
        numbers = values.to_numpy(dtype=np.int64)
        low, high = EPOCH
        fits = [(numbers >= low * n) & (numbers < high * n) for n in UNITS.values()]
        scale = np.select(fits, [10**9 // n for n in UNITS.values()], 0)
        bad = pd.Series((scale == 0) | (scale != scale[0]), values.index)
        if bad.any():
            units = ", ".join(UNITS)
            raise refuse(bad, f"is no epoch of a clear unit (all in one of {units}; 1973 to 2261)")
        return numbers * scale
    times = pd.to_datetime(values, utc=True, format="ISO8601", errors="coerce")
    bad = times.isna() | (times < pd.Timestamp.min.tz_localize("UTC"))
    bad |= times > pd.Timestamp.max.tz_localize("UTC")
    if bad.any():
        text = pd.to_numeric(values, errors="coerce").isna()
        raise refuse(text if bad.all() and text.any() else bad, "is not a time")
    return times.dt.as_unit("ns").to_numpy(dtype="datetime64[ns]", copy=True).view(np.int64)


def parse_numbers(values: pd.Series, source: str, name: str, row: str) -> np.ndarray:
    """float64; an empty cell is NaN (and refused later, with its time)."""
    if values.dtype.kind in "mMc":
        bad, numbers = values.notna(), values
    else:
        numbers = pd.to_numeric(values, errors="coerce")
        bad = numbers.isna() & values.notna()
    if bad.any():
        at = _first(bad)
        further = name not in (*BARS, "adjusted_close", "split")
        raise MarketError(
            f"{source}: column {values.name}: {str(values[at])!r} at {row} {at} is not a number; "
            "correct it" + (f", or leave the column out with ignore=[{name!r}]" if further else "")
        )
    return numbers.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)


def _first(bad: pd.Series) -> int:
    return int(bad.index[int(bad.to_numpy(dtype=bool).argmax())])


def _market(
    symbol: str,
    timestamps: np.ndarray,
    values: dict[str, np.ndarray],
    source: str,
    reading: Reading,
) -> Market:
    check_order(timestamps, source, symbol)
    values = dict(values)

    def refuse(name: str, bad: np.ndarray, rule: str, advice: str) -> None:
        array = values[name][:, None]
        refuse_where(bad[:, None], array, timestamps, (symbol,), source, name, rule, advice)

    adjusted, split = values.get("adjusted_close"), values.get("split")
    if split is not None:
        split = np.where(np.isnan(split) | (split == 0), 1.0, split)
        refuse("split", ~(np.isfinite(split) & (split > 0)), "is no ratio", "write 2 for 2 for 1")
        if reading.adjust:
            rule = "is a split, and adjusted closes contain it"
            refuse("split", split != 1, rule, "pass adjust=False or ignore=['split']")
        ratio = split.cumprod()
        values |= {name: values[name] * ratio for name in PRICES}
        values["volume"] = values["volume"] / ratio
    if adjusted is not None and reading.adjust:
        bad = ~(np.isfinite(adjusted) & (adjusted > 0))
        refuse("adjusted_close", bad, "is no positive price", "correct it or pass adjust=False")
        ratio = adjusted / values["close"]
        values |= {name: values[name] * ratio for name in PRICES}

    tensors = {name: torch.from_numpy(array)[:, None] for name, array in values.items()}
    market = Market(
        symbols=(symbol,),
        timestamps=torch.from_numpy(timestamps),
        bars_per_year=1.0,  # combine() knows the whole calendar and sets it
        columns={name: t for name, t in tensors.items() if name not in ALIASES},
        open=tensors["open"],
        high=tensors["high"],
        low=tensors["low"],
        close=tensors["close"],
        volume=tensors["volume"],
    )
    return validate(market, source, reading.allow_jumps)
