"""Loaders: what comes out of good files, and what is said of bad ones."""

import importlib.util
import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trading_torchrl.data import (
    BARS,
    MarketError,
    load_csv,
    load_frame,
    load_index_series,
    load_parquet,
    validate,
)
from trading_torchrl.data.calendars import infer_bars_per_year

DAY = 86_400_000_000_000
DAYS = ("2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05")
HEADER = "timestamp,open,high,low,close,volume"


def table(close, days=DAYS, **further):
    close = np.asarray(close, dtype=float)
    return pd.DataFrame(
        {
            "timestamp": list(days[: len(close)]),
            "open": close - 0.5,
            "high": close + 1,
            "low": close - 1,
            "close": close,
            "volume": 100.0 * close,
            **further,
        }
    )


def write(path, *rows, header=HEADER):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


ROWS = tuple(f"{day},10,11,9,10,5" for day in DAYS)


def refused(path, *fragments, load=load_csv, **options):
    """The load fails, and its message holds each fragment."""
    with pytest.raises(MarketError) as caught:
        load(path, **options)
    for fragment in fragments:
        assert fragment in str(caught.value)


# What comes out


def test_one_csv_file(tmp_path):
    path = write(
        tmp_path / "ACME.csv", "2024-01-02,10,12,9,11,500", "2024-01-03,11,13,10.5,12.25,0"
    )
    market = load_csv(path)
    assert market.symbols == ("ACME",)
    assert market.dates.tolist() == [
        np.datetime64(day, "ns").astype(int) for day in ("2024-01-02", "2024-01-03")
    ]
    assert [getattr(market, name).tolist() for name in BARS] == [
        [[10], [11]],
        [[12], [13]],
        [[9], [10.5]],
        [[11], [12.25]],
        [[500], [0]],
    ]
    assert market.close.dtype == torch.float64
    assert market.timestamps.dtype == torch.int64
    assert market.bars_per_year == 252
    assert market.features is None
    assert market.columns == {}


def test_a_folder_has_a_file_a_symbol(tmp_path):
    table([10, 11]).to_csv(tmp_path / "B.csv", index=False)
    table([20, 21]).to_csv(tmp_path / "A.CSV", index=False)
    (tmp_path / "readme.txt").write_text("not a table")
    (tmp_path / "._A.csv").write_bytes(b"\x00\x05\x16")
    market = load_csv(tmp_path)
    assert market.symbols == ("A", "B")
    assert market.close.tolist() == [[20, 10], [21, 11]]


def test_a_long_file_is_cut_by_symbol(tmp_path):
    # Rows of symbols may alternate; a ticker may look like a number, a truth or an empty cell.
    path = write(
        tmp_path / "long.csv",
        "2024-01-02,10,11,9,10,5,NA",
        "2024-01-02,20,21,19,20,5,0700",
        "2024-01-02,30,31,29,30,5,TRUE",
        "2024-01-03,11,12,10,11,5,NA",
        "2024-01-03,21,22,20,21,5,0700",
        "2024-01-03,31,32,30,31,5,TRUE",
        header=HEADER + ",Symbol",
    )
    market = load_csv(path)
    assert market.symbols == ("NA", "0700", "TRUE")
    assert market.close.tolist() == [[10, 20, 30], [11, 21, 31]]


def test_symbols_of_digits_keep_their_zeros(tmp_path):
    rows = [f"{row},{symbol}" for row in ROWS for symbol in ("0700", "0005")]
    path = write(tmp_path / "long.csv", *rows, header=HEADER + ",ticker")
    assert load_csv(path).symbols == ("0700", "0005")


def test_rows_of_a_long_table_keep_their_order_in_each_symbol():
    days = pd.date_range("2024-01-01", periods=300).strftime("%Y-%m-%d")
    closes = {symbol: 50 + np.arange(300) % (7 + k) for k, symbol in enumerate("ABC")}
    long = pd.concat([table(closes[s], days, symbol=s) for s in closes]).sort_values("timestamp")
    market = load_frame(long).select("ABC")
    assert market.close.T.tolist() == [closes[s].tolist() for s in "ABC"]


def test_names_are_found_in_any_case_and_order(tmp_path):
    path = write(
        tmp_path / "x.csv", "5,10,9,11,10,2024-01-02", "5,10,9,11,10,2024-01-03",
        header="VOLUME,Close, Low ,HIGH,Open,Date",
    )  # fmt: skip
    assert load_csv(path).high.tolist() == [[11], [11]]


def test_parquet_folder_file_and_long_file_equal_the_frame(tmp_path):
    frames = {"A": table([10, 11, 12], signal=[1, 2, 3]), "B": table([20, 21, 22], signal=0.5)}
    expected = load_frame(frames)
    (tmp_path / "folder").mkdir()
    for symbol, frame in frames.items():
        frame.to_parquet(tmp_path / "folder" / f"{symbol}.parquet")
    long = pd.concat([frame.assign(symbol=symbol) for symbol, frame in frames.items()])
    long.to_parquet(tmp_path / "long.parquet")
    long.set_index(["timestamp", "symbol"]).to_parquet(tmp_path / "indexed.parquet")
    for name in ("folder", "long.parquet", "indexed.parquet"):
        market = load_parquet(tmp_path / name)
        assert market.symbols == expected.symbols
        for bar in BARS:
            assert torch.equal(getattr(market, bar), getattr(expected, bar))
        assert torch.equal(market.columns["signal"], expected.columns["signal"])
    assert load_parquet(tmp_path / "folder" / "A.parquet").symbols == ("A",)


def test_frame_with_times_in_the_index():
    frame = table([10, 11]).set_index("timestamp")
    frame.index = pd.to_datetime(frame.index)
    named = load_frame(frame)
    unnamed = load_frame(frame.rename_axis(None))
    assert named.symbols == ("asset",)
    assert torch.equal(named.timestamps, unnamed.timestamps)
    assert str(named.dates[0]).startswith("2024-01-02T00:00")


def test_the_table_given_is_neither_changed_nor_shared():
    frame = table([10, 11], signal=[1.0, 2.0])
    before = frame.copy()
    market = load_frame(frame)
    market.close[0, 0] = market.columns["signal"][0, 0] = 99
    pd.testing.assert_frame_equal(frame, before)


def test_further_numeric_columns_are_the_users(tmp_path):
    frame = table([10, 11], **{"My Signal": [1, 2], "Up": [True, False], "note": ["a", "b"]})
    path = tmp_path / "x.csv"
    frame.to_csv(path, index=False)
    market = load_csv(path, ignore=["Note"])
    assert {name: t.tolist() for name, t in market.columns.items()} == {
        "my_signal": [[1], [2]],
        "up": [[1], [0]],
    }
    assert list(load_csv(path, columns=["UP"]).columns) == ["up"]
    assert load_csv(path, columns=[]).columns == {}


# Time


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-02T14:30:00Z",
        "2024-01-02 14:30",
        "2024-01-02T15:30:00+01:00",
        "2024-01-02 09:30:00-05:00",
        "1704205800",
        "1704205800000",
        "1704205800000000",
        "1704205800000000000",
    ],
)
def test_times_are_utc_whatever_the_notation(tmp_path, text):
    path = write(tmp_path / "x.csv", f"{text},10,11,9,10,5")
    market = load_csv(path, bars_per_year=252)
    assert market.dates[0] == np.datetime64("2024-01-02T14:30")


def test_time_zones_of_a_frame():
    stamps = pd.to_datetime(["2024-01-02 09:30", "2024-01-03 09:30"])
    naive = load_frame(table([10, 11]).assign(timestamp=stamps))
    aware = load_frame(table([10, 11]).assign(timestamp=stamps.tz_localize("America/New_York")))
    assert (aware.timestamps - naive.timestamps).tolist() == [5 * DAY // 24] * 2


@settings(max_examples=60, deadline=None)
@given(st.integers(10**8, 92 * 10**8 - 61), st.sampled_from(["s", "ms", "us", "ns"]))
def test_epochs_between_1973_and_2261_are_told_apart(second, unit):
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    stamps = np.array([second, second + 60]) * scale
    market = load_frame(table([10, 11]).assign(timestamp=stamps), bars_per_year=1)
    assert market.timestamps.tolist() == [second * 10**9, (second + 60) * 10**9]


@pytest.mark.parametrize(
    ("start", "freq", "count", "expected"),
    [
        ("2024-01-01", "B", 5, 252),
        ("2015-01-01", "B", 2000, 252),
        ("2020-01-01", "D", 1000, 365.25),
        ("2020-01-03", "W-FRI", 400, 365.25 / 7),
        ("2020-01-01", "MS", 121, 12),
    ],
)
def test_bars_per_year_of_daily_and_rarer_bars(start, freq, count, expected):
    dates = pd.date_range(start, periods=count, freq=freq).as_unit("ns")
    assert infer_bars_per_year(dates.asi8) == pytest.approx(expected, rel=1e-3)


def test_bars_per_year_of_intraday_bars():
    days = pd.bdate_range("2024-01-01", periods=30)
    stock = [day + pd.Timedelta(hours=14 + hour) for day in days for hour in range(7)]
    assert infer_bars_per_year(pd.DatetimeIndex(stock).as_unit("ns").asi8) == 252 * 7
    evening = pd.bdate_range("2020-01-01", periods=800) - pd.Timedelta(hours=9)  # Tokyo midnight
    assert infer_bars_per_year(evening.as_unit("ns").asi8) == 252
    crypto = pd.date_range("2020-01-01", periods=24 * 400, freq="h").as_unit("ns")
    assert infer_bars_per_year(crypto.asi8) == pytest.approx(365.25 * 24)


def test_bars_per_year_of_one_date_is_refused_unless_given():
    frame = table([10, 11]).assign(timestamp=["2024-01-02T10:00", "2024-01-02T11:00"])
    refused({"A": frame}, "frame 'A'", "one date", "pass bars_per_year", load=load_frame)
    assert load_frame(frame, bars_per_year=1638).bars_per_year == 1638


# Adjusted prices and splits


def test_adjusted_close_scales_prices_only_when_asked():
    frame = table([10, 20, 20], **{"Adj Close": [5.0, 10.0, 20.0]})
    plain = load_frame(frame, allow_jumps=True)
    assert plain.close[:, 0].tolist() == [10, 20, 20]
    assert plain.columns == {}
    market = load_frame(frame, adjust=True, allow_jumps=True)
    assert market.close[:, 0].tolist() == [5, 10, 20]
    assert market.open[:, 0].tolist() == [4.75, 9.75, 19.5]
    assert market.high[:, 0].tolist() == [5.5, 10.5, 21]
    assert market.volume[:, 0].tolist() == [1000, 2000, 2000]


def test_a_split_is_undone_forward():
    frame = table([10, 10, 5, 6], split=[0, 1, 2, np.nan]).assign(
        open=[10, 10, 5, 5], low=1, volume=[7, 7, 14, 14]
    )
    market = load_frame(frame)
    assert market.close[:, 0].tolist() == [10, 10, 10, 12]
    assert market.open[:, 0].tolist() == [10, 10, 10, 10]
    assert market.volume[:, 0].tolist() == [7, 7, 7, 7]
    assert market.columns == {}
    # Nothing before the split knows of it.
    early = load_frame(frame.iloc[:2])
    for name in BARS:
        assert torch.equal(getattr(market, name)[:2], getattr(early, name))


def test_an_unadjusted_split_is_refused(tmp_path):
    path = tmp_path / "ACME.csv"
    table([10, 10, 5, 5]).assign(open=[10, 10, 5, 5], low=1).to_csv(path, index=False)
    refused(
        path, "ACME.csv: symbol ACME, column open", "2024-01-04", "split", "adjust=True",
        "allow_jumps=True",
    )  # fmt: skip
    assert len(load_csv(path, allow_jumps=True)) == 4


def test_adjust_and_splits_together_are_refused():
    frame = table([10, 10, 5], split=[1, 1, 2], adj_close=[5, 5, 5])
    refused(frame, "column split", "2024-01-04", "ignore=['split']", load=load_frame, adjust=True)
    assert len(load_frame(frame, adjust=True, ignore=["split"])) == 3


@pytest.mark.parametrize(
    ("further", "options", "fragments"),
    [
        ({"split": [1, -2]}, {}, ("column split", "-2.0 at 2024-01-03")),
        ({"split": [1, np.inf]}, {}, ("column split", "inf at 2024-01-03")),
        ({"adj_close": [1, 0]}, {"adjust": True}, ("column adjusted_close", "0.0 at 2024-01-03")),
        ({"adj_close": [1, np.inf]}, {"adjust": True}, ("adjusted_close: inf at 2024-01-03",)),
        ({"adj_close": [1, None]}, {"adjust": True}, ("column adjusted_close", "2024-01-03")),
        ({}, {"adjust": True}, ("no column adjusted_close",)),
    ],
)
def test_bad_adjustments_are_named(further, options, fragments):
    refused(table([10, 11], **further), *fragments, load=load_frame, **options)


# Calendars

FULL = table([10, 11, 12, 13])
GAP = table([20, 21, 22, 23], signal=0).drop(columns="signal").drop(index=2)


def test_different_calendars_are_refused_by_name(tmp_path):
    FULL.to_csv(tmp_path / "A.csv", index=False)
    GAP.to_csv(tmp_path / "B.csv", index=False)
    refused(tmp_path, "B.csv: symbol B", "B has no bar at 2024-01-04, A has", "align=")
    FULL.to_csv(tmp_path / "C.csv", index=False)
    GAP.to_csv(tmp_path / "A.csv", index=False)
    refused(tmp_path, "C.csv: symbol C", "A has no bar at 2024-01-04, C has")


def test_intersection_keeps_common_bars():
    market = load_frame({"A": FULL, "B": GAP}, align="intersection")
    assert market.close.tolist() == [[10, 20], [11, 21], [13, 23]]
    assert market.volume[:, 1].tolist() == [2000, 2100, 2300]
    assert [str(date)[:10] for date in market.dates] == [DAYS[0], DAYS[1], DAYS[3]]


def test_forward_carries_the_previous_close_without_volume():
    market = load_frame(
        {"A": FULL.assign(signal=[1, 2, 3, 4]), "B": GAP.assign(signal=[5, 6, 8])}, align="forward"
    )
    assert market.close.tolist() == [[10, 20], [11, 21], [12, 21], [13, 23]]
    for name in ("open", "high", "low"):
        assert getattr(market, name)[2, 1] == 21
    assert market.open[3, 1] == 22.5
    assert market.volume[:, 1].tolist() == [2000, 2100, 0, 2300]
    assert market.columns["signal"].tolist() == [[1, 5], [2, 6], [3, 6], [4, 8]]


def test_nothing_is_carried_to_before_a_symbols_first_bar():
    refused(
        {"A": FULL, "B": FULL.iloc[1:]}, "frame 'B'", "symbol B", "first bar is at 2024-01-03",
        "calendar starts at 2024-01-02", "leave the symbol out", load=load_frame, align="forward",
    )  # fmt: skip


def test_no_common_bar_is_refused():
    frames = {"A": FULL.iloc[:2], "B": FULL.iloc[2:]}
    refused(frames, "no timestamp in common", load=load_frame, align="intersection")


def test_an_unknown_alignment_is_refused():
    refused(FULL, "align must be", "'backward'", load=load_frame, align="backward")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_alignment_never_uses_later_bars(data):
    days = pd.date_range("2024-01-01", periods=12).strftime("%Y-%m-%d")
    numbers = st.lists(st.integers(50, 60), min_size=12, max_size=12)
    keep = data.draw(st.lists(st.booleans(), min_size=10, max_size=10))
    kept = [True, *keep, True]
    cut = data.draw(st.integers(2, 11))
    a, b, later = (np.array(data.draw(numbers), dtype=float) for _ in range(3))
    changed = np.where(np.arange(12) < cut, b, later)
    markets = [
        load_frame(
            {"A": table(a, days), "B": table(closes, days)[kept]}, align="forward", bars_per_year=1
        )
        for closes in (b, changed)
    ]
    for name in BARS:
        first, second = (getattr(market, name)[:cut] for market in markets)
        assert torch.equal(first, second)
    # And a present bar is never replaced.
    assert markets[0].close[kept, 1].tolist() == b[kept].tolist()


# Bad files


@pytest.mark.parametrize(
    ("rows", "fragments"),
    [
        ((*ROWS[:1], "2024-01-03,10,11,9,,5"), ("column close", "nan at 2024-01-03")),
        ((*ROWS[:1], "2024-01-03,10,11,9"), ("column close", "nan at 2024-01-03")),
        ((*ROWS[:1], "2024-01-03,10,11,9,x1,5"), ("column close", "'x1' at line 3", "number")),
        ((*ROWS[:1], "", "2024-01-03,10,11,9,x1,5"), ("'x1' at line 4",)),
        ((*ROWS[:1], "2024-01-03,10,11,9,10,5,7"), ("line 3", "Expected 6 fields")),
        (("2024-01-02,10,11,9,10,5,7",), ("more fields than the header's 6",)),
        ((*ROWS[:1], "2024-01-03,10,11,9,0,5"), ("column close", "0.0 at 2024-01-03")),
        ((*ROWS[:1], "2024-01-03,10,8,9,10,5"), ("column high", "2024-01-03", "below the low")),
        ((*ROWS[:1], "2024-01-03,10,11,9,10,-5"), ("column volume", "-5.0 at 2024-01-03")),
        ((*ROWS[:1], "yesterday,10,11,9,10,5"), ("column timestamp", "'yesterday' at line 3")),
        ((*ROWS[:1], "2024-13-03,10,11,9,10,5"), ("'2024-13-03' at line 3",)),
        ((*ROWS[:1], "03/01/2024,10,11,9,10,5"), ("'03/01/2024' at line 3", "ISO 8601")),
        ((*ROWS[:1], "1066-01-03,10,11,9,10,5"), ("'1066-01-03' at line 3",)),
        ((*ROWS[:1], ",10,11,9,10,5"), ("column timestamp", "line 3 is not a time")),
        (("20240102,10,11,9,10,5",), ("'20240102' at line 2", "clear unit")),
        (("1704205800,1,1,1,1,5", "1704205800000,1,1,1,1,5"), ("line 3", "clear unit")),
        (("1704205800,1,1,1,1,5", "soon,1,1,1,1,5"), ("'soon' at line 3",)),
        (("1704205800.5,1,1,1,1,5",), ("line 2 is neither",)),
        ((ROWS[0], ROWS[0]), ("2024-01-02 stands twice",)),
        ((ROWS[1], ROWS[0]), ("2024-01-02 comes after 2024-01-03", "oldest first")),
        ((), ("no rows",)),
    ],
)
def test_a_bad_row_is_named(tmp_path, rows, fragments):
    path = write(tmp_path / "ACME.csv", *rows)
    refused(path, str(path), *fragments)


@pytest.mark.parametrize(
    ("header", "fragments"),
    [
        ("timestamp,open,high,low,close,amount", ("no column volume; found timestamp,", "amount")),
        ("when,open,high,low,close,volume", ("no column timestamp",)),
        ("timestamp;open;high;low;close;volume", ("found timestamp;open", "load_frame")),
        ("timestamp,open,high,low,close,close", ("'close' stands twice",)),
        ("timestamp,open,high,low,close,Close", ("'close' and 'Close' both mean close",)),
        ("date,time,high,low,close,volume", ("'date' and 'time' both mean timestamp",)),
        ("timestamp,open,high,low,close,", ("column number 6 has no name",)),
    ],
)
def test_a_bad_header_is_named(tmp_path, header, fragments):
    rows = [row.replace(",", ";") if ";" in header else row for row in ROWS]
    path = write(tmp_path / "ACME.csv", *rows, header=header)
    refused(path, str(path), *fragments)


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "file is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "not UTF-8 text"),
        ((HEADER + "\n" + ROWS[0]).encode("utf-16"), "not UTF-8 text"),
        (HEADER.encode() + b"\n" + ROWS[0].encode() + b"\n\x00\x00\x00", ""),
        (HEADER.encode() + b'\n"2024-01-02,10,11,9,10,5\n', "not a readable CSV"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path, content, fragment):
    path = tmp_path / "ACME.csv"
    path.write_bytes(content)
    refused(path, str(path), fragment)


GOOD = "\n".join([HEADER + ",signal", *(f"{row},0.5" for row in ROWS)]).encode()


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, len(GOOD)),
    st.integers(0, 8),
    st.one_of(
        st.binary(max_size=6), st.sampled_from(b',;"\n\r -.xe0\x00').map(lambda b: bytes([b]))
    ),
)
def test_a_damaged_file_loads_or_is_named(tmp_path_factory, at, cut, put):
    path = tmp_path_factory.mktemp("damaged") / "ACME.csv"
    path.write_bytes(GOOD[:at] + put + GOOD[at + cut :])
    try:
        validate(load_csv(path))
        message = "ACME.csv is good"
    except MarketError as error:
        message = str(error)
    assert "ACME.csv" in message


def test_a_byte_order_mark_and_blank_lines_are_no_error(tmp_path):
    path = tmp_path / "ACME.csv"
    text = "\r\n".join([HEADER, ROWS[0], "", ROWS[1], "", ""])
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert len(load_csv(path)) == 2


def test_missing_paths_are_named(tmp_path):
    refused(tmp_path / "none.csv", "none.csv: no such file or folder")
    refused(tmp_path, str(tmp_path), "no .csv file")
    refused(tmp_path, "no .parquet file", load=load_parquet)


def test_a_broken_parquet_file_is_named(tmp_path):
    path = tmp_path / "ACME.parquet"
    path.write_bytes(b"no parquet")
    refused(path, str(path), "not a readable Parquet file", load=load_parquet)


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=re.escape("trading-torchrl[parquet]")):
        load_parquet(tmp_path)


def test_the_bad_file_of_many_is_named(tmp_path):
    for symbol in "ABC":
        write(tmp_path / f"{symbol}.csv", *ROWS)
    write(tmp_path / "B.csv", *ROWS[:2], ROWS[2].replace(",9,", ",nan,"), ROWS[3])
    refused(tmp_path, "B.csv: symbol B, column low", "2024-01-04")


def test_a_bad_symbol_of_a_long_file_is_named(tmp_path):
    rows = [f"{row},{symbol}" for symbol in "AB" for row in ROWS]
    rows[5] = rows[5].replace(",11,", ",-11,")
    path = write(tmp_path / "long.csv", *rows, header=HEADER + ",symbol")
    refused(path, "long.csv: symbol B, column high", "2024-01-03")


def test_a_row_without_symbol_is_named(tmp_path):
    frame = table([10, 11], symbol=["A", None])
    refused(frame, "column symbol", "row 1", load=load_frame)


def test_a_symbol_in_two_files_is_refused(tmp_path):
    for year in ("2023", "2024"):
        table([10, 11], symbol="A").to_csv(tmp_path / f"{year}.csv", index=False)
    refused(tmp_path, "2024.csv: symbol A stands in", "2023.csv")


def test_user_columns_must_be_numbers_in_every_file():
    frame = table([10, 11], note=["up", "down"])
    refused(frame, "column note: 'up' at row 0", "ignore=['note']", load=load_frame)
    frame = table([10, 11], when=pd.to_datetime(["2024-01-01"] * 2))
    refused(frame, "column when", "ignore=['when']", load=load_frame)
    refused(table([10, 11], wave=[1j, 2]), "column wave: '1j' at row 0", load=load_frame)
    frames = {"A": table([10, 11], signal=1.0), "B": table([10, 11])}
    refused(frames, "frame 'B': no column signal, which frame 'A' has", load=load_frame)
    frames = {"A": table([10, 11]), "B": table([10, 11], signal=1.0)}
    refused(frames, "frame 'A': no column signal, which frame 'B' has", load=load_frame)


def test_bad_user_columns_are_named():
    frame = table([10, 11], sentiment=[0.5, 1.5])
    refused(frame, "column sentiment: 1.5 at 2024-01-03", "[0, 1]", load=load_frame)
    frame = table([10, 11], signal=[0.5, None])
    refused(frame, "column signal: nan at 2024-01-03", load=load_frame)
    refused(table([10, 11]), "no column signal", load=load_frame, columns=["signal"])
    refused(table([10, 11]), "pass ['signal']", load=load_frame, columns="signal")


def test_frames_of_another_kind_are_refused():
    refused({}, "empty dict", load=load_frame)
    refused({"A": [1, 2]}, "frame 'A': a pandas DataFrame is needed, got list", load=load_frame)
    stacked = pd.concat({"A": table([10, 11])}, axis=1)
    refused(stacked, "2 levels", "dict", load=load_frame)


# Index series


@pytest.mark.parametrize("name", ["sp500", "nasdaq"])
def test_index_series(name):
    pytest.importorskip("arch")
    market = load_index_series(name)
    assert market.symbols == (name,)
    assert len(market) == 5031
    assert str(market.dates[0])[:10] == "1999-01-04"
    assert market.bars_per_year == 252
    if name == "sp500":
        assert market.close[0, 0].item() == pytest.approx(1228.10, abs=0.005)


def test_index_series_errors(monkeypatch):
    with pytest.raises(MarketError, match="no index series 'dax'; there are: sp500, nasdaq"):
        load_index_series("dax")
    monkeypatch.setitem(__import__("sys").modules, "arch.data.sp500", None)
    with pytest.raises(ImportError, match=re.escape("trading-torchrl[arch]")):
        load_index_series()
