"""Every kind of bad value is refused, by name of file, symbol, column and time."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trading_torchrl.data import BARS, Market, MarketError, validate

DAY = 86_400_000_000_000
START = 18_262 * DAY  # 2020-01-01


def make(bars=5, symbols=("A", "B"), **columns):
    shape = (bars, len(symbols))
    return Market(
        symbols=symbols,
        timestamps=START + torch.arange(bars) * DAY,
        open=torch.full(shape, 10.0, dtype=torch.float64),
        high=torch.full(shape, 11.0, dtype=torch.float64),
        low=torch.full(shape, 9.0, dtype=torch.float64),
        close=torch.full(shape, 10.0, dtype=torch.float64),
        volume=torch.full(shape, 5.0, dtype=torch.float64),
        bars_per_year=252.0,
        columns={name: torch.full(shape, value) for name, value in columns.items()},
    )


def test_a_good_market_comes_back_itself():
    market = make(sentiment=0.0, confidence=1.0, other=-7.0)
    assert validate(market) is market


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        *((name, math.nan, "nan at 2020-01-03 is not a number") for name in BARS),
        ("close", math.inf, "inf at 2020-01-03 is not a number"),
        ("volume", math.inf, "inf at 2020-01-03 is not a number"),
        ("low", 0.0, "0.0 at 2020-01-03 is not positive"),
        ("open", -1.0, "-1.0 at 2020-01-03 is not positive"),
        ("volume", -1.0, "-1.0 at 2020-01-03 is negative"),
        ("high", 8.0, "8.0 at 2020-01-03 lies below the low"),
        ("open", 11.5, "11.5 at 2020-01-03 lies outside [low, high]"),
        ("open", 8.5, "8.5 at 2020-01-03 lies outside [low, high]"),
        ("close", 11.5, "11.5 at 2020-01-03 lies outside [low, high]"),
        ("close", 8.5, "8.5 at 2020-01-03 lies outside [low, high]"),
    ],
)
def test_a_bad_bar_is_named(column, value, problem):
    market = make()
    getattr(market, column)[2, 1] = value
    expected = re.escape(f"prices.csv: symbol B, column {column}: {problem}")
    with pytest.raises(MarketError, match=expected + r".*; \w+"):
        validate(market, source="prices.csv")


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("other", math.nan, "nan at 2020-01-04 is not a number"),
        ("other", -math.inf, "-inf at 2020-01-04 is not a number"),
        ("sentiment", 1.5, r"1.5 at 2020-01-04 lies outside \[0, 1\]"),
        ("confidence", -0.5, r"-0.5 at 2020-01-04 lies outside \[0, 1\]"),
    ],
)
def test_a_bad_user_column_is_named(column, value, problem):
    market = make(**{column: 0.5})
    market.columns[column][3, 0] = value
    with pytest.raises(MarketError, match=rf"x: symbol A, column {column}: {problem}"):
        validate(market, source="x")


def test_the_first_of_several_is_named_by_time_before_symbol():
    market = make()
    market.close[3, 0] = math.nan
    market.close[1, 1] = math.nan
    with pytest.raises(MarketError, match=r"symbol B, .* 2020-01-02 .*the first of 2"):
        validate(market)


def test_times_are_named_to_the_second():
    market = make()
    market.timestamps[:] = START + torch.arange(5) * 1_000_000_000
    market.close[1, 0] = math.nan
    with pytest.raises(MarketError, match="at 2020-01-01T00:00:01 is not"):
        validate(market)


def test_duplicate_timestamps_are_named():
    market = make()
    market.timestamps[3] = market.timestamps[2]
    with pytest.raises(MarketError, match=r"f: .*column timestamp: 2020-01-03 stands twice"):
        validate(market, "f")


def test_unsorted_timestamps_are_named():
    market = make()
    market.timestamps[3] = START
    with pytest.raises(MarketError, match="2020-01-01 comes after 2020-01-03; sort"):
        validate(market)


def test_rounding_of_vendors_is_accepted():
    market = make()
    market.close[2, 0] = 11 * (1 + 9e-7)
    market.open[3, 0] = 9 * (1 - 9e-7)
    validate(market)
    market.close[2, 0] = 11 * (1 + 2e-6)
    with pytest.raises(MarketError, match="column close"):
        validate(market)


def scaled_from(bar, ratio):
    market = make()
    for name in ("open", "high", "low", "close"):
        getattr(market, name)[bar:, 1] *= ratio
    return market


@pytest.mark.parametrize("ratio", [2, 3, 1.5, 4, 5, 10, 20])
@pytest.mark.parametrize("noise", [0.98, 1.0, 1.02])
def test_a_jump_like_a_split_is_refused(ratio, noise):
    for factor in (ratio * noise, noise / ratio):
        market = scaled_from(3, factor)
        with pytest.raises(MarketError, match=r"B, column open: .* at 2020-01-04 is a jump"):
            validate(market)
        assert validate(market, allow_jumps=True) is market


@pytest.mark.parametrize("factor", [1.1, 0.8, 1.3, 1.42, 1.75, 0.57, 12.5])
def test_other_moves_are_accepted(factor):
    validate(scaled_from(3, factor))


def test_a_move_within_a_bar_is_no_split():
    market = make()
    market.high[2:] = 25
    market.close[2:] = 20
    market.open[3:] = 20
    validate(market)


@settings(max_examples=60, deadline=None)
@given(
    bar=st.integers(0, 4),
    symbol=st.integers(0, 1),
    column=st.sampled_from([*BARS, "other"]),
    value=st.sampled_from([math.nan, math.inf, -math.inf]),
)
def test_no_infinite_or_missing_value_passes(bar, symbol, column, value):
    market = make(other=0.0)
    tensor = market.columns[column] if column == "other" else getattr(market, column)
    tensor[bar, symbol] = value
    with pytest.raises(
        MarketError, match=f"symbol {'AB'[symbol]}, column {column}.*2020-01-0{bar + 1}"
    ):
        validate(market)
