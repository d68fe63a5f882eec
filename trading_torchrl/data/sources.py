"""Loaders: CSV and Parquet files, pandas tables, and the index series of the package arch."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from trading_torchrl.data.calendars import Align, combine
from trading_torchrl.data.market import Market, MarketError
from trading_torchrl.data.tables import ALIASES, Reading, one_symbol_markets, plain

INDEX_SERIES = ("sp500", "nasdaq")

# What counts as an empty cell. Not in the symbol column: NA is a company's ticker.
EMPTY = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "-")


def load_csv(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    adjust: bool = False,
    align: Align | None = None,
    allow_jumps: bool = False,
    bars_per_year: float | None = None,
) -> Market:
    """Loads OHLCV bars from CSV files and validates them.

    ``path`` is a folder with one ``.csv`` a symbol (the file's stem names it), one such file, or
    one long file with a ``symbol`` column. Columns are found in any case and order: ``timestamp``
    (or date, datetime, time), ``open``, ``high``, ``low``, ``close``, ``volume``. Any further
    column must be numeric and becomes one of ``Market.columns``, under its name in lower case with
    underscores; ``sentiment`` and ``confidence`` lie in [0, 1]. Timestamps are ISO 8601 text or
    whole numbers since 1970 in s, ms, us or ns (told apart by their size); with a time zone they
    are turned into UTC, without one they are UTC.

    A ``split`` column (2.0 on the first day after a 2 for 1 split, else 1, 0 or empty) is undone
    forward: from that day on prices are multiplied and volumes divided by the ratios so far, so
    that no bar depends on a later one. For raw prices only.

    Args:
        path: the file or folder.
        columns: the further columns to keep (default: all of them).
        ignore: columns to leave unread.
        adjust: multiply open, high, low and close by adjusted close / close. Vendors adjust
            backward, so that the factor of a bar is known only later: the level of such a price
            knows of later dividends and splits, its returns do not. Without it an adjusted close
            is left unread.
        align: what to do with symbols on different calendars: ``None`` refuses them,
            ``"intersection"`` keeps the timestamps all have, ``"forward"`` carries a symbol's
            previous close into the bars it lacks, with volume 0.
        allow_jumps: accept moves from close to open that look like unadjusted splits.
        bars_per_year: inferred when not given: bars per date times dates per year, the latter
            252 for daily weekdays, else counted over the elapsed time.

    Returns:
        A validated market, its features not yet computed.

    Raises:
        MarketError: names the file, the column, and the line or the first bad time.

    Example:
        >>> market = load_csv("prices/", align="intersection")  # doctest: +SKIP
        >>> market.symbols  # doctest: +SKIP
        ('AAPL', 'MSFT')
    """
    reading = Reading(columns, ignore, adjust, allow_jumps)
    return _load_files(path, ".csv", _read_csv, reading, align, bars_per_year, first_line=2)


def load_parquet(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    adjust: bool = False,
    align: Align | None = None,
    allow_jumps: bool = False,
    bars_per_year: float | None = None,
) -> Market:
    """Loads OHLCV bars from Parquet files; all else is as in :func:`load_csv`.

    Needs the extra: ``pip install "trading-torchrl[parquet]"``.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise ImportError(
            "load_parquet needs pyarrow, which is not installed; "
            'pip install "trading-torchrl[parquet]", or load CSV files with load_csv'
        )
    reading = Reading(columns, ignore, adjust, allow_jumps)
    return _load_files(path, ".parquet", _read_parquet, reading, align, bars_per_year)


def load_frame(
    frame: pd.DataFrame | Mapping[str, pd.DataFrame],
    *,
    columns: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    adjust: bool = False,
    align: Align | None = None,
    allow_jumps: bool = False,
    bars_per_year: float | None = None,
) -> Market:
    """Takes OHLCV bars from pandas tables; all else is as in :func:`load_csv`.

    Args:
        frame: a dict with one table a symbol, or one table, long with a ``symbol`` column or of
            one symbol (then called ``"asset"``). Times may stand in a column or in the index.
        columns: see :func:`load_csv`, likewise the others.
        ignore: see :func:`load_csv`.
        adjust: see :func:`load_csv`.
        align: see :func:`load_csv`.
        allow_jumps: see :func:`load_csv`.
        bars_per_year: see :func:`load_csv`.

    Example:
        >>> import pandas as pd
        >>> days = pd.date_range("2024-01-01", periods=3)
        >>> bars = {name: [1.0, 2.0, 3.0] for name in ("open", "high", "low", "close", "volume")}
        >>> load_frame({"A": pd.DataFrame(bars, index=days)}, allow_jumps=True)
        Market(3 bars x 1 symbols, 2024-01-01 to 2024-01-03, 252 bars a year, 0 features)
    """
    reading = Reading(columns, ignore, adjust, allow_jumps)
    if isinstance(frame, pd.DataFrame):
        frames: Mapping[str, pd.DataFrame] = {"asset": frame}
    elif frame:
        frames = frame
    else:
        raise MarketError("load_frame got an empty dict; pass one table a symbol")
    parts: list[tuple[str, Market]] = []
    for symbol, table in frames.items():
        source = "frame" if table is frame else f"frame {symbol!r}"
        if not isinstance(table, pd.DataFrame):
            raise MarketError(f"{source}: a pandas DataFrame is needed, got {type(table).__name__}")
        parts += one_symbol_markets(_with_time_column(table), source, str(symbol), reading)
    return combine(parts, align, bars_per_year)


def load_index_series(name: str = "sp500") -> Market:
    """Real daily bars of an index, 1999-2018, out of the package ``arch`` (no network).

    Needs the extra: ``pip install "trading-torchrl[arch]"``.

    Args:
        name: ``"sp500"`` or ``"nasdaq"``; also the symbol's name.
    """
    if name not in INDEX_SERIES:
        raise MarketError(f"no index series {name!r}; there are: {', '.join(INDEX_SERIES)}")
    try:
        data = importlib.import_module(f"arch.data.{name}")
    except ImportError as error:
        raise ImportError(
            "load_index_series needs the package arch, which is not installed; "
            'pip install "trading-torchrl[arch]"'
        ) from error
    return load_frame({name: data.load()})


def _load_files(
    path: str | Path,
    suffix: str,
    read: Callable[[Path], pd.DataFrame],
    reading: Reading,
    align: Align | None,
    bars_per_year: float | None,
    first_line: int | None = None,
) -> Market:
    path = Path(path)
    parts: list[tuple[str, Market]] = []
    files = _files(path, suffix)
    several = (
        tqdm(files, desc=f"reading {path.name}", leave=False, delay=1.0) if files[1:] else files
    )
    for file in several:
        parts += one_symbol_markets(read(file), str(file), file.stem, reading, first_line)
    return combine(parts, align, bars_per_year)


def _files(path: Path, suffix: str) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise MarketError(
            f"{path}: no such file or folder; give a {suffix} file or a folder of them"
        )
    files = sorted(
        file
        for file in path.iterdir()
        if file.suffix.lower() == suffix and not file.name.startswith(".") and file.is_file()
    )
    if not files:
        raise MarketError(f"{path}: no {suffix} file in this folder; put one file a symbol there")
    return files


def _read_csv(file: Path) -> pd.DataFrame:
    try:
        header = pd.read_csv(file, header=None, nrows=1, dtype=str, keep_default_na=False)
        labels = header.iloc[0].tolist()
        symbol = [label for label in labels if ALIASES.get(plain(label)) == "symbol"]
        twice = [label for label in labels if label and labels.count(label) > 1]
        if twice:
            raise MarketError(f"{file}: column {twice[0]!r} stands twice; remove or rename one")
        frame = pd.read_csv(
            file,
            dtype=dict.fromkeys(symbol, str),
            keep_default_na=False,
            na_values={label: list(EMPTY) for label in labels if label not in symbol},
            skip_blank_lines=False,
            low_memory=False,
        )
    except pd.errors.EmptyDataError:
        raise MarketError(f"{file}: the file is empty; give a header and bars") from None
    except pd.errors.ParserError as error:
        raise MarketError(f"{file}: not a readable CSV ({error}); correct that line") from None
    except UnicodeError as error:
        raise MarketError(f"{file}: not UTF-8 text ({error}); save it as UTF-8") from None
    if not isinstance(frame.index, pd.RangeIndex):
        raise MarketError(
            f"{file}: rows have more fields than the header's {len(labels)}; separate fields by "
            "commas and write decimals with a point"
        )
    return frame


def _read_parquet(file: Path) -> pd.DataFrame:
    try:
        return _with_time_column(pd.read_parquet(file))
    except (OSError, ValueError) as error:
        raise MarketError(
            f"{file}: not a readable Parquet file ({error}); write it again"
        ) from None


def _with_time_column(frame: pd.DataFrame) -> pd.DataFrame:
    """Moves times (and symbols) from the index into columns."""
    if isinstance(frame.index, pd.DatetimeIndex) and frame.index.name is None:
        frame = frame.rename_axis("timestamp")
    named = [
        name
        for name in frame.index.names
        if ALIASES.get(plain(name)) in ("timestamp", "symbol") and name not in frame.columns
    ]
    return frame.reset_index(named) if named else frame
