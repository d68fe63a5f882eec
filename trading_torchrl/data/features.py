"""The 23 standard features: causal, dimensionless functions of the bars.

Every value at bar t is computed from the bars up to t alone, and has the same bits whatever comes
after t. Windows that are not full yet use the bars there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from trading_torchrl.data.market import Market, MarketError

FeatureFunction = Callable[[Market], Mapping[str, Tensor]]
"""From a market to named features, each ``[T, S]``."""

FEATURES = (
    "return_1",
    "return_2",
    "return_5",
    "return_20",
    "sma_ratio",
    "ema_ratio",
    "rsi",
    "macd",
    "macd_signal",
    "bollinger_position",
    "bollinger_width",
    "atr",
    "adx",
    "volatility",
    "volume_ratio",
    "range_position",
    "momentum",
    "candle_body",
    "candle_shadow",
    "time_of_day_sin",
    "time_of_day_cos",
    "time_of_week_sin",
    "time_of_week_cos",
)

WARMUP = 64
"""Bars after which every window is full and a recursive average forgot 99 % of its start."""

_DAY = 86_400_000_000_000
# A price move below this share of the price is rounding, not a move.
_NEGLIGIBLE = 1e-12


def standard_features(market: Market) -> dict[str, Tensor]:
    """The 23 features of a market in float64, each ``[T, S]``, in the order of ``FEATURES``.

    ====================  =====================================================================
    ``return_k``          log return over the last k bars (k = 1, 2, 5, 20)
    ``sma_ratio``         SMA 10 / SMA 20 - 1
    ``ema_ratio``         close / EMA 20 - 1
    ``rsi``               relative strength index 14 (Wilder) / 100, in [0, 1]; 0.5 without moves
    ``macd``              (EMA 12 - EMA 26) / EMA 26
    ``macd_signal``       EMA 9 of ``macd``
    ``bollinger_position``  (close - SMA 20) / (2 standard deviations): -1 and 1 on the bands
    ``bollinger_width``   4 standard deviations / SMA 20
    ``atr``               average true range 14 (Wilder) / close
    ``adx``               average directional index 14 (Wilder) / 100, in [0, 1]
    ``volatility``        realised: root mean square of the last 20 one-bar log returns
    ``volume_ratio``      volume / its mean over 20 bars; 1 where that is 0
    ``range_position``    of the close between lowest low (0) and highest high (1) of 20 bars
    ``momentum``          log return over 10 bars / (``volatility`` x sqrt(10))
    ``candle_body``       (close - open) / (high - low), in [-1, 1]
    ``candle_shadow``     (upper - lower shadow) / (high - low), in [-1, 1]
    ``time_of_day_*``     sine and cosine of the time of day (UTC)
    ``time_of_week_*``    sine and cosine of the time since Monday 00:00 (UTC)
    ====================  =====================================================================

    Before a window is full the bars there are take its place: ``return_20`` at bar 3 is the return
    since bar 0. See ``WARMUP`` for when all are settled.

    Example:
        >>> import torch
        >>> from trading_torchrl.data.market import Market
        >>> price = torch.tensor([[100.0], [101.0], [99.0]], dtype=torch.float64)
        >>> market = Market(
        ...     symbols=("A",), timestamps=torch.arange(3) * 86_400_000_000_000, bars_per_year=252,
        ...     open=price, high=price + 1, low=price - 1, close=price, volume=price,
        ... )
        >>> round(standard_features(market)["rsi"][2].item(), 4)  # up 1, down 2
        0.3333
    """
    open_, high, low, close, volume = (
        tensor.to(torch.float64).contiguous()
        for tensor in (market.open, market.high, market.low, market.close, market.volume)
    )
    # Vendors round prices apart: a valid close may lie a little outside its own bar.
    high = torch.maximum(high, torch.maximum(open_, close))
    low = torch.minimum(low, torch.minimum(open_, close))
    log_close = close.log()
    previous = _lag(close, 1, first=close[:1])
    return_1 = _log_return(log_close, 1)
    volatility = (_sum(return_1 * return_1, 20) / _bars(close, 20, first=0).clamp(min=1)).sqrt()
    sma_20 = _mean(close, 20)
    offset, deviation = _offset_and_deviation(close, 20)
    macd = _share(_ema(close, 12) - _ema(close, 26), _ema(close, 26))
    true_range = torch.maximum(high, previous) - torch.minimum(low, previous)
    volume_mean = _mean(volume, 20)
    lowest, highest = _extreme(low, 20, torch.minimum), _extreme(high, 20, torch.maximum)
    bar_range = high - low
    top, bottom = torch.maximum(open_, close), torch.minimum(open_, close)
    expected_move = volatility * _bars(close, 10, first=0).sqrt()
    features = {
        "return_1": return_1,
        "return_2": _log_return(log_close, 2),
        "return_5": _log_return(log_close, 5),
        "return_20": _log_return(log_close, 20),
        "sma_ratio": _mean(close, 10) / sma_20 - 1,
        "ema_ratio": close / _ema(close, 20) - 1,
        "rsi": _rsi(close, previous),
        "macd": macd,
        "macd_signal": _ema(macd, 9),
        "bollinger_position": _share(offset, 2 * deviation),
        "bollinger_width": 4 * deviation / sma_20,
        "atr": _wilder(true_range, 14) / close,
        "adx": _adx(high, low, close),
        "volatility": volatility,
        "volume_ratio": _share(volume, volume_mean, otherwise=1.0),
        "range_position": _share(close - lowest, highest - lowest, otherwise=0.5),
        "momentum": _share(_log_return(log_close, 10), expected_move),
        "candle_body": _share(close - open_, bar_range),
        "candle_shadow": _share((high - top) - (bottom - low), bar_range),
    }
    # 1970 began on a Thursday: three days later than a Monday.
    for name, length, shift in (("time_of_day", _DAY, 0), ("time_of_week", 7 * _DAY, 3 * _DAY)):
        since = torch.remainder(torch.remainder(market.timestamps, length) + shift, length)
        angle = (since.to(torch.float64) * (2 * math.pi / length))[:, None]
        features[f"{name}_sin"] = angle.sin().expand_as(close)
        features[f"{name}_cos"] = angle.cos().expand_as(close)
    return features


def with_features(market: Market, *extra: FeatureFunction) -> Market:
    """The market with its features: the 23, its user columns, then those of ``extra``.

    Args:
        market: the bars; features it has already are replaced.
        extra: functions of the market, each returning named ``[T, S]`` tensors. They do not get
            to see ``market.hidden``. Check them with ``python -m trading_torchrl.lookahead``.

    Returns:
        The market with ``features`` float32 ``[T, S, F]``, unscaled (see
        :class:`~trading_torchrl.data.Scaler`), and ``feature_names``.

    Raises:
        MarketError: if a feature has the wrong shape, a value that is not finite, or a name that
            is taken.
    """
    bare = replace(market, hidden={}, features=None, feature_names=())
    groups = [("standard_features", standard_features(bare)), ("market.columns", market.columns)]
    groups += [(getattr(function, "__name__", "extra"), function(bare)) for function in extra]
    origin: dict[str, str] = {}
    for source, group in groups:
        for name, values in group.items():
            if name in origin:
                raise MarketError(
                    f"feature {name!r} of {source} has the name of one of {origin[name]}; rename it"
                )
            origin[name] = source
            _check_shape(name, source, values, market)
    shape = (len(market), len(market.symbols), len(origin))
    features = torch.empty(shape, dtype=torch.float32, device=market.close.device)
    columns = (values for _, group in groups for values in group.values())
    for index, values in enumerate(columns):
        features[..., index] = values
    if not features.sum().isfinite():  # reads all in a row, where one by one is ten times slower
        for index, (name, source) in enumerate(origin.items()):
            _check_finite(name, source, features[..., index], market)
    names = tuple(origin)
    return replace(market, features=features, feature_names=names, warmup=WARMUP - 1)


def _check_shape(name: str, source: str, values: Tensor, market: Market) -> None:
    shape = (len(market), len(market.symbols))
    if not isinstance(values, Tensor):
        raise MarketError(
            f"feature {name!r} of {source} is a {type(values).__name__}, it must be a tensor "
            f"[bars, symbols] = {list(shape)}"
        )
    if tuple(values.shape) != shape:
        raise MarketError(
            f"feature {name!r} of {source} has shape {list(values.shape)}, it must have one value "
            f"for each bar and symbol: {list(shape)}"
        )


def _check_finite(name: str, source: str, values: Tensor, market: Market) -> None:
    finite = values.isfinite()
    if not finite.all():
        bar, symbol = (~finite).nonzero()[0].tolist()
        raise MarketError(
            f"feature {name!r} of {source} is {values[bar, symbol].item()} for "
            f"{market.symbols[symbol]} at {market.dates[bar].astype('datetime64[s]')} (bar {bar}); "
            "every value must be finite in float32: give bars whose window is not full a neutral "
            "value, never one from later bars"
        )


# Sums and extremes over windows are built from element-wise operations on shifted copies only:
# cumulative sums lose digits and reductions may change bits with the length of the tensor.


def _lag(x: Tensor, bars: int, first: Tensor) -> Tensor:
    """``x`` of ``bars`` ago; ``first`` ([1, S]) where there was none."""
    bars = min(bars, len(x))
    return torch.cat([first.expand(bars, -1), x[: len(x) - bars]])


def _window(
    x: Tensor, bars: int, combine: Callable[[Tensor, Tensor], Tensor], neutral: float
) -> Tensor:
    """Combines the last ``bars`` values, doubling the window from 1 to 2, 4, 8... bars."""
    first = x.new_full((1, x.shape[1]), neutral)
    result, covered, width = torch.full_like(x, neutral), 0, 1
    while covered < bars:
        if bars & width:
            result = combine(result, _lag(x, covered, first))
            covered += width
        x = combine(x, _lag(x, width, first))
        width *= 2
    return result


def _sum(x: Tensor, bars: int) -> Tensor:
    return _window(x, bars, torch.add, 0.0)


def _extreme(x: Tensor, bars: int, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    return _window(x, bars, combine, math.inf if combine is torch.minimum else -math.inf)


def _bars(x: Tensor, bars: int, first: int = 1) -> Tensor:
    """``[T, 1]``: how many bars a window holds, counted from ``first`` at the first bar."""
    count = torch.arange(first, len(x) + first, dtype=x.dtype, device=x.device)
    return count.clamp(max=bars)[:, None]


def _mean(x: Tensor, bars: int) -> Tensor:
    return _sum(x, bars) / _bars(x, bars)


def _log_return(log_close: Tensor, bars: int) -> Tensor:
    return log_close - _lag(log_close, bars, first=log_close[:1])


def _share(part: Tensor, whole: Tensor, otherwise: float = 0.0) -> Tensor:
    """``part / whole``, and ``otherwise`` where ``whole`` is 0."""
    return torch.where(whole > 0, part / whole, otherwise)


def _offset_and_deviation(x: Tensor, bars: int) -> tuple[Tensor, Tensor]:
    """x less its mean over a window, and its standard deviation there (of the population).

    Distances from the last value, rather than values, keep all digits at any price level, and are
    exactly 0 when the price stands still.
    """
    total, squares = torch.zeros_like(x), torch.zeros_like(x)
    for lag in range(1, min(bars, len(x))):
        distance = x[lag:] - x[:-lag]
        total[lag:] += distance
        squares[lag:] += distance.mul_(distance)
    count = _bars(x, bars)
    offset = total / count
    return offset, (squares / count - offset * offset).clamp_(min=0).sqrt_()


def _recursive(x: Tensor, weight: float) -> Tensor:
    """y[t] = (1 - weight) y[t - 1] + weight x[t], from y[0] = x[0]."""
    frame = pd.DataFrame(x.cpu().numpy())
    mean = frame.ewm(alpha=weight, adjust=False).mean().to_numpy()
    return torch.from_numpy(np.array(mean, order="C")).to(x.device)


def _ema(x: Tensor, span: int) -> Tensor:
    return _recursive(x, 2 / (span + 1))


def _wilder(x: Tensor, bars: int) -> Tensor:
    """Wilder's average of what happens between bars: the mean of the first, then recursive.

    The first bar has no bar before it and stands for itself, as in the published tables.
    """
    start = torch.cat([x[:1], _mean(x[1 : bars + 1], bars)])
    if len(x) <= bars + 1:
        return start
    rest = _recursive(torch.cat([start[-1:], x[bars + 1 :]]), 1 / bars)
    return torch.cat([start, rest[1:]])


def _rsi(close: Tensor, previous: Tensor) -> Tensor:
    change = close - previous
    up, down = _wilder(change.clamp(min=0), 14), _wilder((-change).clamp(min=0), 14)
    moves = up + down
    return torch.where(moves > _NEGLIGIBLE * close, up / moves, 0.5)


def _adx(high: Tensor, low: Tensor, close: Tensor) -> Tensor:
    # The true range divides both directional indices, so it drops out of their ratio.
    up = high - _lag(high, 1, first=high[:1])
    down = _lag(low, 1, first=low[:1]) - low
    plus = _wilder(torch.where((up > down) & (up > 0), up, 0.0), 14)
    minus = _wilder(torch.where((down > up) & (down > 0), down, 0.0), 14)
    moves = plus + minus
    directional = torch.where(moves > _NEGLIGIBLE * close, (plus - minus).abs() / moves, 0.0)
    return _wilder(directional, 14)
