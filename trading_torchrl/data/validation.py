"""Checks of a market's values: what a training run must never see."""

from __future__ import annotations

import numpy as np

from trading_torchrl.data.market import BARS, PRICES, Market, MarketError

# Vendors round open, high, low and close apart from one another (and adjust them afterwards):
# an open or close this much outside the bar's range, relative to the price, is rounding.
ROUNDING = 1e-6

SPLIT_RATIOS = np.array([1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 10, 15, 20, 25, 30, 40, 50, 100])
SPLIT_TOLERANCE = 0.03

UNIT_COLUMNS = ("sentiment", "confidence")


def validate(market: Market, source: str = "market", allow_jumps: bool = False) -> Market:
    """Checks the values of a market and returns it unchanged.

    Refused are: timestamps that repeat or go back; NaN or infinite prices, volumes or user
    columns; prices that are not positive; high below low; open or close outside [low, high] by
    more than 1e-6 of the price (less is a vendor's rounding); negative volume; user columns
    ``sentiment`` or ``confidence`` outside [0, 1]; and a move from one bar's close to the next
    bar's open that looks like a split nobody adjusted for: its ratio, up or down, lies within 3 %
    of 3/2, 2, 5/2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 25, 30, 40, 50 or 100.

    Args:
        market: the market to check. Its features and hidden tensors are not looked at.
        source: what errors call it, usually the file.
        allow_jumps: accept moves that look like splits (when they are real).

    Raises:
        MarketError: names source, symbol, column and first bad time, and says what to do.

    Example:
        >>> from trading_torchrl.data import load_index_series, validate
        >>> market = validate(load_index_series("sp500"), source="sp500")
    """
    timestamps = market.timestamps.cpu().numpy()
    check_order(timestamps, source, "all symbols" if len(market.symbols) > 1 else market.symbols[0])
    arrays = {name: getattr(market, name).cpu().numpy() for name in BARS}
    columns = {name: tensor.cpu().numpy() for name, tensor in market.columns.items()}

    def refuse(name: str, bad: np.ndarray, rule: str, advice: str) -> None:
        values = arrays[name] if name in arrays else columns[name]
        refuse_where(bad, values, timestamps, market.symbols, source, name, rule, advice)

    for name, array in (*arrays.items(), *columns.items()):
        refuse(name, ~np.isfinite(array), "is not a number", "fill it in or remove the bar")
    for name in PRICES:
        refuse(name, arrays[name] <= 0, "is not positive", "correct or remove the bar")
    refuse(
        "volume",
        arrays["volume"] < 0,
        "is negative",
        "correct it, or write 1 for unknown (0 is a bar without trading)",
    )

    high, low = arrays["high"], arrays["low"]
    refuse("high", high < low, "lies below the low of its bar", "correct or remove the bar")
    for name in ("open", "close"):
        outside = (arrays[name] > high * (1 + ROUNDING)) | (arrays[name] < low * (1 - ROUNDING))
        refuse(name, outside, "lies outside [low, high] of its bar", "correct or remove the bar")
    for name in UNIT_COLUMNS:
        if name in columns:
            outside = (columns[name] < 0) | (columns[name] > 1)
            refuse(name, outside, "lies outside [0, 1]", "rescale the column or rename it")
    if not allow_jumps:
        refuse(
            "open",
            split_like(arrays["open"], arrays["close"]),
            "is a jump from the close before that looks like an unadjusted split",
            "load adjusted prices (adjust=True where there is an adjusted close) or give a `split` "
            "column (and ignore it where prices are adjusted already); if the move is real, pass "
            "allow_jumps=True",
        )
    return market


def check_order(timestamps: np.ndarray, source: str, symbol: str) -> None:
    """Refuses timestamps (int64 nanoseconds) that do not increase."""
    bad = np.flatnonzero(np.diff(timestamps) <= 0)
    if not len(bad):
        return
    before, at = timestamps[bad[0]], timestamps[bad[0] + 1]
    if before == at:
        problem, advice = f"{when(at)} stands twice", "keep one bar a timestamp"
    else:
        problem = f"{when(at)} comes after {when(before)}"
        advice = "sort the rows by time, oldest first"
    raise MarketError(f"{source}: symbol {symbol}, column timestamp: {problem}; {advice}")


def refuse_where(
    bad: np.ndarray,
    values: np.ndarray,
    timestamps: np.ndarray,
    symbols: tuple[str, ...],
    source: str,
    column: str,
    rule: str,
    advice: str,
) -> None:
    """Raises a :class:`MarketError` for the first true entry of ``bad`` ``[T, S]``, if any."""
    if not bad.any():
        return
    bar, symbol = np.argwhere(bad)[0]
    more = f" (the first of {bad.sum()})" if bad.sum() > 1 else ""
    raise MarketError(
        f"{source}: symbol {symbols[symbol]}, column {column}: {float(values[bar, symbol])!r} at "
        f"{when(timestamps[bar])} {rule}{more}; {advice}"
    )


def split_like(open: np.ndarray, close: np.ndarray) -> np.ndarray:
    """Bool ``[T, S]``: bars whose open stands to the close before as after an unadjusted split."""
    suspects = np.zeros(open.shape, dtype=bool)
    move = np.abs(np.log(open[1:] / close[:-1]))
    large = np.nonzero(move > np.log(SPLIT_RATIOS[0] / (1 + SPLIT_TOLERANCE)))
    distance = np.abs(move[large][:, None] - np.log(SPLIT_RATIOS)).min(axis=1, initial=np.inf)
    suspects[1:][large] = distance < np.log1p(SPLIT_TOLERANCE)
    return suspects


def when(timestamp: int | np.integer) -> str:
    """A timestamp in nanoseconds as ISO text, as short as it can be."""
    return str(np.datetime_as_string(np.datetime64(int(timestamp), "ns"), unit="auto"))
