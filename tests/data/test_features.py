"""The 23 features against plain implementations, textbook values and their promises."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trading_torchrl.data import (
    FEATURES,
    WARMUP,
    Market,
    MarketError,
    standard_features,
    with_features,
)

HOUR = 3_600_000_000_000


def bars_of(close, volume=None, *, open=None, high=None, low=None, step=HOUR, start=0):
    """A market of one symbol from lists."""

    def column(values, default):
        values = default if values is None else torch.tensor(values, dtype=torch.float64)[:, None]
        return values.clone()

    close = torch.tensor(close, dtype=torch.float64)[:, None]
    open_ = column(open, close)
    return Market(
        symbols=("A",),
        timestamps=start + torch.arange(len(close)) * step,
        open=open_,
        high=column(high, torch.maximum(open_, close)),
        low=column(low, torch.minimum(open_, close)),
        close=close,
        volume=column(volume, torch.ones_like(close)),
        bars_per_year=252.0,
    )


# Plain implementations: bar by bar, or in pandas; they share no code with the package.


def wilder_from(values, first, n=14):
    """Textbook Wilder average: the mean of n values from ``first`` on, then recursive."""
    out = np.full(len(values), np.nan)
    out[first + n - 1] = np.mean(values[first : first + n])
    for t in range(first + n, len(values)):
        out[t] = (out[t - 1] * (n - 1) + values[t]) / n
    return out


def ema(values, span):
    out, weight = [values[0]], 2 / (span + 1)
    for value in values[1:]:
        out.append(out[-1] + weight * (value - out[-1]))
    return np.array(out)


def plain_features(o, h, l, c, v):  # noqa: E741
    close, volume = pd.Series(c), pd.Series(v)
    returns = np.log(close).diff()
    change = np.diff(c, prepend=c[0])
    up, down = wilder_from(np.maximum(change, 0), 1), wilder_from(np.maximum(-change, 0), 1)
    previous = np.concatenate([[np.nan], c[:-1]])
    true_range = np.fmax(h - l, np.fmax(abs(h - previous), abs(l - previous)))
    plus, minus = np.zeros(len(c)), np.zeros(len(c))
    for t in range(1, len(c)):
        rise, fall = h[t] - h[t - 1], l[t - 1] - l[t]
        plus[t] = rise if rise > fall and rise > 0 else 0
        minus[t] = fall if fall > rise and fall > 0 else 0
    atr = wilder_from(true_range, 1)
    plus_index = 100 * wilder_from(plus, 1) / atr
    minus_index = 100 * wilder_from(minus, 1) / atr
    directional = 100 * abs(plus_index - minus_index) / (plus_index + minus_index)
    middle, deviation = close.rolling(20).mean(), close.rolling(20).std(ddof=0)
    macd = (ema(c, 12) - ema(c, 26)) / ema(c, 26)
    lowest, highest = pd.Series(l).rolling(20).min(), pd.Series(h).rolling(20).max()
    volatility = (returns**2).rolling(20).mean() ** 0.5
    return {
        **{f"return_{k}": np.log(close / close.shift(k)) for k in (1, 2, 5, 20)},
        "sma_ratio": close.rolling(10).mean() / middle - 1,
        "ema_ratio": c / ema(c, 20) - 1,
        "rsi": (100 - 100 / (1 + up / down)) / 100,
        "macd": macd,
        "macd_signal": ema(macd, 9),
        "bollinger_position": (close - middle) / (2 * deviation),
        "bollinger_width": ((middle + 2 * deviation) - (middle - 2 * deviation)) / middle,
        "atr": atr / c,
        "volatility": volatility,
        "volume_ratio": volume / volume.rolling(20).mean(),
        "range_position": (close - lowest) / (highest - lowest),
        "momentum": returns.rolling(10).sum() / (volatility * math.sqrt(10)),
        "candle_body": (c - o) / (h - l),
        "candle_shadow": ((h - np.maximum(o, c)) - (np.minimum(o, c) - l)) / (h - l),
        "adx": wilder_from(directional, 14) / 100,
    }


def test_features_agree_with_plain_implementations(make_market):
    market = make_market(bars=600, symbols=3)
    features = standard_features(market)
    assert tuple(features) == FEATURES
    assert len(FEATURES) == 23
    for symbol in range(3):
        columns = (getattr(market, n)[:, symbol].numpy() for n in ("open", "high", "low", "close"))
        plain = plain_features(*columns, market.volume[:, symbol].numpy())
        assert {*plain} == {name for name in FEATURES if not name.startswith("time_")}
        for name, expected in plain.items():
            # Before it is full, a textbook window has no value, and ADX has another start.
            first = 450 if name == "adx" else WARMUP
            mine, expected = features[name][first:, symbol].numpy(), np.asarray(expected)[first:]
            assert np.isfinite(expected).all(), name
            np.testing.assert_allclose(mine, expected, rtol=1e-7, atol=1e-9, err_msg=name)


def test_windows_are_full_at_their_length(make_market):
    market = make_market(bars=60, symbols=1)
    features = standard_features(market)
    columns = [getattr(market, n)[:, 0].numpy() for n in ("open", "high", "low", "close", "volume")]
    for name, expected in plain_features(*columns).items():
        full = np.isfinite(np.asarray(expected))
        if name != "adx":
            mine = features[name][:, 0].numpy()[full]
            np.testing.assert_allclose(mine, np.asarray(expected)[full], 1e-7, 1e-9, err_msg=name)
            assert full[21:].all(), name


def test_short_windows_use_the_bars_there_are():
    features = standard_features(bars_of([100.0, 110.0, 99.0], [1.0, 3.0, 2.0]))
    assert features["return_20"][:, 0].tolist() == pytest.approx([0, math.log(1.1), math.log(0.99)])
    assert features["volume_ratio"][:, 0].tolist() == pytest.approx([1, 1.5, 1])
    assert features["rsi"][:, 0].tolist() == pytest.approx([0.5, 1, 10 / 21])
    assert features["range_position"][:, 0].tolist() == pytest.approx([0.5, 1, 0])
    assert features["atr"][:, 0].tolist() == pytest.approx([0, 10 / 110, 10.5 / 99])
    deviation = np.std([100, 110, 99])
    assert features["bollinger_width"][2].item() == pytest.approx(4 * deviation / 103)


def test_rsi_of_the_published_table():
    close = (
        "44.3389 44.0902 44.1497 43.6124 44.3278 44.8264 45.0955 45.4245 45.8433 46.0826 45.8931 "
        "46.0328 45.6140 46.2820 46.2820 46.0028 46.0328 46.4116 46.2222 45.6439"
    )
    rsi = standard_features(bars_of([float(price) for price in close.split()]))["rsi"][14:, 0]
    published = [0.7053, 0.6632, 0.6655, 0.6941, 0.6636, 0.5797]
    assert rsi.tolist() == pytest.approx(published, abs=6e-5)


def test_steady_rise_and_its_mirror():
    rise = [100.0 + bar for bar in range(120)]
    up, down = standard_features(bars_of(rise)), standard_features(bars_of(rise[::-1]))
    for name, value in {"rsi": (1, 0), "range_position": (1, 0), "adx": (1, 1)}.items():
        assert (up[name][-1].item(), down[name][-1].item()) == pytest.approx(value, abs=1e-9), name
    for name in ("return_5", "sma_ratio", "ema_ratio", "macd", "bollinger_position", "momentum"):
        assert up[name][-1] > 0 > down[name][-1], name


def test_constant_market_without_volume():
    for price in (1e-6, 0.1, 1e9):
        features = standard_features(bars_of([price] * 80, [0.0] * 80))
        for name, neutral in {"rsi": 0.5, "range_position": 0.5, "volume_ratio": 1.0}.items():
            assert (features.pop(name) == neutral).all(), name
        for name, values in features.items():
            if not name.startswith("time_"):
                assert values.abs().max() < 1e-15, name


def test_prices_rounded_apart_stay_in_bounds():
    flat = [100.0, 100.0]  # a valid close may lie 1e-6 outside its bar
    features = standard_features(bars_of([100.0, 100.0001], open=flat, high=flat, low=flat))
    for name in ("candle_body", "range_position"):
        assert features[name][-1].item() == pytest.approx(1), name
    assert features["candle_shadow"][-1].item() == 0


def test_time_is_where_the_clock_stands():
    thursday_6am = standard_features(bars_of([1.0], start=6 * HOUR))
    sunday_noon = standard_features(bars_of([1.0], start=(3 * 24 + 12) * HOUR))
    assert thursday_6am["time_of_day_sin"].item() == pytest.approx(1)
    assert thursday_6am["time_of_day_cos"].item() == pytest.approx(0, abs=1e-12)
    assert sunday_noon["time_of_day_cos"].item() == pytest.approx(-1)
    angle = 2 * math.pi * 6.5 / 7  # from Monday
    assert sunday_noon["time_of_week_sin"].item() == pytest.approx(math.sin(angle))
    assert sunday_noon["time_of_week_cos"].item() == pytest.approx(math.cos(angle))


def test_no_feature_has_a_scale(make_market):
    market = make_market(bars=150)
    prices = {name: getattr(market, name) * 7e6 for name in ("open", "high", "low", "close")}
    scaled = standard_features(replace(market, volume=market.volume * 1e-9, **prices))
    for name, values in standard_features(market).items():
        torch.testing.assert_close(scaled[name], values, rtol=1e-8, atol=1e-10, msg=name)


def test_symbols_do_not_mix(make_market):
    market = make_market(symbols=3)
    alone = standard_features(market.select(["S1"]))
    for name, values in standard_features(market).items():
        assert torch.equal(values[:, 1:2], alone[name]), name


@st.composite
def valid_markets(draw):
    bars, symbols = draw(st.integers(1, 90)), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    repeat = draw(st.sampled_from([1, 1, 5, 40]))  # prices that stand still for a while
    spread = draw(st.sampled_from([0.0, 1e-15, 1e-3, 1.0]))

    def uniform(low, high):
        drawn = torch.rand(bars, symbols, generator=generator, dtype=torch.float64)
        return (low + (high - low) * drawn)[torch.arange(bars) // repeat * repeat]

    exponents = sorted(draw(st.tuples(st.floats(-6, 9), st.floats(-6, 9))))
    points = (10 ** uniform(*exponents) * (1 + uniform(0, spread)) for _ in range(4))
    low, open_, close, high = torch.stack([*points]).sort(dim=0).values
    if draw(st.booleans()):
        open_, close = close, open_
    if draw(st.booleans()):
        open_ = low = high = close
    volume = uniform(0, draw(st.sampled_from([0.0, 5e-324, 1.0, 1e12])))
    steps = torch.randint(1, 10**14, (bars,), generator=generator)
    return Market(
        symbols=tuple(f"S{symbol}" for symbol in range(symbols)),
        timestamps=draw(st.integers(-(10**18), 10**18)) + steps.cumsum(0),
        open=open_,
        high=high,
        low=low,
        close=close,
        volume=volume * (uniform(0, 1) > 0.3),
        bars_per_year=252.0,
    )


BOUNDS = {
    "rsi": (0, 1),
    "adx": (0, 1),
    "range_position": (0, 1),
    "candle_body": (-1, 1),
    "candle_shadow": (-1, 1),
    "bollinger_position": (-math.sqrt(19) / 2, math.sqrt(19) / 2),
    "momentum": (-math.sqrt(20), math.sqrt(20)),
    "volume_ratio": (0, 20),
    "atr": (0, math.inf),
}


@given(valid_markets())
@settings(max_examples=150, deadline=None)
def test_finite_and_in_bounds_for_any_valid_market(market):
    features = with_features(market).features
    assert features.isfinite().all()
    for name, (least, most) in BOUNDS.items():
        values = features[..., FEATURES.index(name)]
        slack = 1e-5 if name != "volume_ratio" else 1
        assert least - slack <= values.min(), name
        assert values.max() <= most + slack, name


@given(valid_markets(), valid_markets(), st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_later_bars_change_no_bit(market, other, where):
    end = round(where * (len(market) - 1)) + 1
    features = standard_features(market)
    prefix = standard_features(market.bars(0, end))
    later = min(end, len(other) - 1)  # the same bars, followed by those of another market

    def follow(old, new):
        return torch.cat([old[:end], new[later:, :1].expand(-1, len(market.symbols))])

    joined = {
        name: follow(getattr(market, name), getattr(other, name))
        for name in ("open", "high", "low", "close", "volume")
    }
    times = torch.cat([market.timestamps[:end], other.timestamps[later:]])
    followed = standard_features(replace(market, timestamps=times, **joined))
    for name, values in features.items():
        assert torch.equal(values[:end], prefix[name]), name
        assert torch.equal(values[:end], followed[name][:end]), name


def test_a_prefix_of_a_long_market_has_the_same_bits(make_market):
    market = make_market(bars=70_000, symbols=1)  # long enough to be split over threads
    features = standard_features(market)
    for end in (1, 33_001, 69_997):
        for name, values in standard_features(market.bars(0, end)).items():
            assert torch.equal(values, features[name][:end]), name


def test_user_columns_and_functions_join(make_market):
    market = make_market(bars=30)
    market = replace(
        market, columns={"sentiment": torch.rand(30, 2)}, hidden={"drift": torch.ones(30, 2)}
    )

    def gap(m):
        assert not m.hidden
        return {"gap": m.open / m.close - 1}

    full = with_features(with_features(market), gap)
    assert full.feature_names == (*FEATURES, "sentiment", "gap")
    assert full.features.dtype == torch.float32
    assert full.features.is_contiguous()
    assert tuple(full.features.shape) == (30, 2, 25)
    assert torch.equal(full.features[..., 23], market.columns["sentiment"])
    assert torch.equal(full.features[..., 24], (market.open / market.close - 1).float())
    assert torch.equal(full.features[..., 6], standard_features(market)["rsi"].float())
    assert full.hidden.keys() == {"drift"}


def test_refusals_name_what_is_wrong(make_market):
    market = make_market(bars=30)

    def after(values):
        return lambda m: {"mine": values}

    bad = torch.zeros(30, 2)
    bad[7, 1] = math.nan
    with pytest.raises(
        MarketError, match=r"'mine'.* is nan for S1 at 2000-01-03T07:00:00 \(bar 7\)"
    ):
        with_features(market, after(bad))
    with pytest.raises(MarketError, match=r"'mine'.* is inf for S0 at 2000-01-03T00:00:00"):
        with_features(market, after(torch.full((30, 2), 1e39, dtype=torch.float64)))
    with_features(market, after(torch.full((30, 2), 3e38)))  # finite, though their sum is not
    with pytest.raises(MarketError, match=r"'mine'.* shape \[30\].* \[30, 2\]"):
        with_features(market, after(torch.zeros(30)))
    with pytest.raises(MarketError, match=r"'mine'.* is a ndarray.* must be a tensor"):
        with_features(market, after(np.zeros((30, 2))))
    with pytest.raises(MarketError, match=r"'mine'.* has the name of one of"):
        with_features(market, after(torch.zeros(30, 2)), after(torch.zeros(30, 2)))
    with pytest.raises(
        MarketError, match=r"'rsi' of market\.columns has the name of one of standard"
    ):
        with_features(replace(market, columns={"rsi": torch.zeros(30, 2)}))
    with pytest.raises(MarketError, match=r"'x' of market\.columns is nan for S1"):
        with_features(replace(market, columns={"x": bad}))
