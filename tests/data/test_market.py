"""Market: slices, selections, and the way to disk and back."""

import dataclasses
import json
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from trading_torchrl.data import BARS, Market, MarketError

DAY = 86_400_000_000_000


def make(bars=6, symbols=("A", "B", "C"), **fields):
    shape = (bars, len(symbols))
    grid = torch.arange(bars * len(symbols), dtype=torch.float64).reshape(shape)
    given = {
        "symbols": symbols,
        "timestamps": torch.arange(bars) * DAY // 2,
        "open": grid + 100,
        "high": grid + 101,
        "low": grid + 99,
        "close": grid + 100.5,
        "volume": grid,
        "bars_per_year": 252.0,
        "columns": {"sentiment": grid / 100},
        "hidden": {"drift": -grid},
        "features": grid.float().unsqueeze(-1) * torch.tensor([1.0, 2.0]),
        "feature_names": ("one", "two"),
    }
    return Market(**given | fields)


def assert_same(a, b):
    assert (a.symbols, a.bars_per_year, a.feature_names) == (
        b.symbols,
        b.bars_per_year,
        b.feature_names,
    )
    assert [name for name, _ in a._tensors()] == [name for name, _ in b._tensors()]
    for (name, x), (_, y) in zip(a._tensors(), b._tensors(), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0, msg=name)


def test_length_days_and_dates():
    market = make()
    assert len(market) == 6
    assert market.days.tolist() == [0, 0, 1, 1, 2, 2]
    assert market.dates[2] == np.datetime64("1970-01-02")
    assert "6 bars x 3 symbols" in repr(market).replace(",", "")


def test_days_before_1970_are_floored():
    market = make(2, timestamps=torch.tensor([-1, 0]))
    assert market.days.tolist() == [-1, 0]


def test_bars_slice_everything_and_share_memory():
    market = make()
    part = market.bars(1, 3)
    assert part.close.tolist() == [[103.5, 104.5, 105.5], [106.5, 107.5, 108.5]]
    assert part.timestamps.tolist() == [DAY // 2, DAY]
    assert part.features.shape == (2, 3, 2)
    assert part.columns["sentiment"].shape == part.hidden["drift"].shape == (2, 3)
    assert part.close.data_ptr() == market.close[1:].data_ptr()
    assert_same(market.bars(2), market.bars(2, 6))


@pytest.mark.parametrize(("start", "stop"), [(0, 7), (3, 3), (4, 2), (-1, 2)])
def test_bars_outside_the_market_are_refused(start, stop):
    with pytest.raises(MarketError, match=rf"bars {start}:{stop} .* 6 bars"):
        make().bars(start, stop)


def test_select_orders_symbols():
    part = make().select(["C", "A"])
    assert part.symbols == ("C", "A")
    assert part.open[0].tolist() == [102, 100]
    assert part.features[0, :, 1].tolist() == [4, 0]
    assert len(part.timestamps) == 6


def test_select_names_the_unknown_symbol():
    with pytest.raises(MarketError, match=r"no symbol 'Z' here; known: A, B, C"):
        make().select(["A", "Z"])


def test_save_and_load_round_trip(tmp_path):
    market = make()
    assert_same(Market.load(market.save(tmp_path / "saved")), market)


def test_load_without_features(tmp_path):
    market = make(features=None, feature_names=(), columns={}, hidden={})
    assert_same(Market.load(market.save(tmp_path)), market)


def test_loaded_tensors_map_the_file_and_do_not_write_to_it(tmp_path):
    market = make()
    path = market.save(tmp_path)
    first = Market.load(path)
    first.close[0, 0] = -1
    assert_same(Market.load(path), market)
    # Mapped, not read: what is written into the file afterwards is seen.
    second = Market.load(path)
    mapped = np.load(path / "close.npy", mmap_mode="r+")
    mapped[1, 1] = 7
    mapped.flush()
    assert second.close[1, 1] == 7


def test_a_folder_without_market_is_refused(tmp_path):
    with pytest.raises(MarketError, match=r"no market\.json"):
        Market.load(tmp_path)


def test_another_format_is_refused(tmp_path):
    path = make().save(tmp_path)
    described = json.loads((path / "market.json").read_text())
    (path / "market.json").write_text(json.dumps(described | {"format": 99}))
    with pytest.raises(MarketError, match="format 99"):
        Market.load(path)


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage"])
def test_a_damaged_tensor_is_named(tmp_path, damage):
    path = make().save(tmp_path)
    file = path / "close.npy"
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"" if damage == "empty" else b"no array at all")
    with pytest.raises(MarketError, match=r"close\.npy"):
        Market.load(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"symbols": ("A", "B", "A")}, "these stand twice: A"),
        ({"bars_per_year": 0}, "bars_per_year must be positive, got 0"),
        ({"volume": torch.zeros(5, 3)}, r"volume has shape \(5, 3\), expected \(6, 3\)"),
        ({"columns": {"x": torch.zeros(6, 2)}}, r"columns\.x has shape \(6, 2\)"),
        ({"feature_names": ("one",)}, "1 names"),
    ],
)
def test_the_constructor_checks_shapes(fields, message):
    with pytest.raises(MarketError, match=message):
        make(**fields)


def test_a_market_without_bars_is_refused():
    with pytest.raises(MarketError, match="0 bars of 1 symbols"):
        make(0, ("A",), features=None, feature_names=())


def test_bar_names():
    assert BARS == ("open", "high", "low", "close", "volume")


def test_a_failed_save_leaves_what_was_there(make_market, tmp_path, monkeypatch):
    first, second = make_market(seed=0), make_market(seed=1)
    first.save(tmp_path / "saved")
    write, written = np.save, []

    def full_disk(file, array):
        if len(written) == 3:
            raise OSError("No space left on device")
        written.append(file)
        write(file, array)

    monkeypatch.setattr(np, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        second.save(tmp_path / "saved")
    assert (Market.load(tmp_path / "saved").close == first.close).all()
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    monkeypatch.undo()
    second.save(tmp_path / "saved")
    assert (Market.load(tmp_path / "saved").close == second.close).all()
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_column_may_have_any_name(make_market, tmp_path):
    market = make_market()
    market = dataclasses.replace(market, columns={"a/b ..": market.close})
    loaded = Market.load(market.save(tmp_path / "saved"))
    assert (loaded.columns["a/b .."] == market.close).all()


def test_a_save_that_is_killed_leaves_one_market_whole(make_market, tmp_path):
    """A process writes two markets in turn over one another until it is killed, four times."""
    markets = [make_market(seed=seed) for seed in (0, 1)]
    sources = [str(market.save(tmp_path / f"source{k}")) for k, market in enumerate(markets)]
    place = tmp_path / "place" / "saved"
    script = (
        "import sys; from trading_torchrl.data import Market\n"
        "one, two = (Market.load(path) for path in sys.argv[2:])\n"
        "while True:\n"
        "    one.save(sys.argv[1]); two.save(sys.argv[1]); print('.', flush=True)\n"
    )
    for pause in (0.0, 0.013, 0.029, 0.051):
        writer = subprocess.Popen(
            [sys.executable, "-c", script, str(place), *sources], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(pause)
        writer.kill()
        writer.wait()
        writer.stdout.close()
        # Between its two renames the market that was there lies beside, whole as well.
        left = place if place.exists() else next(place.parent.glob(".saved.*/old"))
        found = Market.load(left)
        assert any(torch.equal(found.close, market.close) for market in markets)
        assert all(len(tensor) == len(found) for _, tensor in found._tensors())


def test_the_fingerprint_tells_markets_apart():
    market = make()
    assert market.sha256() == make().sha256()
    close = market.close.clone()
    close[3, 1] = np.nextafter(float(close[3, 1]), np.inf)
    others = [
        dataclasses.replace(market, close=close),
        dataclasses.replace(market, symbols=("A", "B", "D")),
        dataclasses.replace(market, bars_per_year=365.0),
        dataclasses.replace(market, columns={}),
    ]
    assert len({market.sha256(), *(other.sha256() for other in others)}) == 5
    # What no observation shows does not count.
    assert dataclasses.replace(market, hidden={}).sha256() == market.sha256()
