"""Splits, walk-forward windows and regime labels."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trading_torchrl.data import (
    REGIMES,
    Market,
    MarketError,
    load_index_series,
    regime_labels,
    split,
    walk_forward,
)

DAY = 86_400_000_000_000


def make(close, per_day=1, symbols=None):
    """A market of these closes ``[T]`` or ``[T, S]``."""
    close = torch.as_tensor(close, dtype=torch.float64)
    close = close[:, None] if close.ndim == 1 else close
    return Market(
        symbols=symbols or tuple(f"S{i}" for i in range(close.shape[1])),
        timestamps=torch.arange(len(close)) * (DAY // per_day),
        open=close,
        high=close,
        low=close,
        close=close,
        volume=torch.zeros_like(close),
        bars_per_year=252.0 * per_day,
    )


def numbered(bars, per_day=1):
    """A market whose close is the number of the bar."""
    return make(torch.arange(bars) + 1.0, per_day)


def ends(market):
    return int(market.close[0]) - 1, int(market.close[-1])


# split


def test_split_of_a_hundred_bars():
    parts = split(numbered(100))
    assert [ends(part) for part in parts] == [(0, 60), (60, 75), (75, 80), (80, 100)]
    assert parts.meta is parts[2]


def test_without_meta_the_others_lie_next_to_each_other():
    parts = split(numbered(100), 0.6, 0.2, 0, 0.2, purge=1, embargo=2)
    assert parts.meta is None
    assert [ends(part) for part in parts if part] == [(0, 59), (62, 79), (82, 100)]


def test_purge_ends_a_part_early_and_embargo_begins_the_next_late():
    parts = split(numbered(100), purge=1, embargo=2)
    assert [ends(part) for part in parts] == [(0, 59), (62, 74), (77, 79), (82, 100)]


@settings(max_examples=100, deadline=None)
@given(
    bars=st.integers(60, 3000),
    shares=st.lists(st.integers(1, 9), min_size=4, max_size=4),
    purge=st.integers(0, 3),
    embargo=st.integers(0, 3),
)
def test_parts_keep_order_and_distance(bars, shares, purge, embargo):
    fractions = [share / sum(shares) for share in shares]
    market = numbered(bars)
    if min(fractions) * bars < purge + embargo + 4:
        return
    parts = [ends(part) for part in split(market, *fractions, purge=purge, embargo=embargo)]
    assert parts[0][0] == 0
    assert parts[-1][1] == bars
    for (_, before), (after, _) in itertools.pairwise(parts):
        assert after - before == purge + embargo


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train": 0.7}, r"must sum to 1, got train 0\.7 .* = 1\.1"),
        ({"validation": 0.2, "meta": -0.05}, r"meta must be a positive number or 0, got -0\.05"),
        ({"test": -0.2}, r"share of test must be a positive number, got -0\.2"),
        ({"train": 0, "meta": 0.65}, "share of train must be a positive number, got 0"),
        ({"train": math.nan}, "share of train must be a positive number, got nan"),
        ({"train": "most"}, "share of train must be a positive number, got 'most'"),
        ({"purge": -1}, "purge must be a whole number of at least 0, got -1"),
        ({"embargo": 1.5}, r"embargo must be a whole number of at least 0, got 1\.5"),
        ({"purge": 4}, "meta gets 5 of 100 bars and keeps 1 after purge 4 and embargo 0"),
        ({"embargo": 50}, "validation gets 15 of 100 bars and keeps 0 .* a shorter embargo"),
    ],
)
def test_impossible_splits_are_refused(arguments, message):
    with pytest.raises(MarketError, match=message):
        split(numbered(100), **arguments)


# walk_forward


def windows(*args, **kwargs):
    return [(ends(train), ends(test)) for train, test in walk_forward(*args, **kwargs)]


def test_rolling_windows():
    assert windows(numbered(11), 4, 3, 2) == [((0, 4), (4, 7)), ((2, 6), (6, 9)), ((4, 8), (8, 11))]


def test_anchored_windows_begin_with_the_market():
    assert windows(numbered(11), 4, 3, 2, anchored=True) == [
        ((0, 4), (4, 7)),
        ((0, 6), (6, 9)),
        ((0, 8), (8, 11)),
    ]


def test_an_incomplete_last_window_is_left_out():
    assert len(windows(numbered(10), 4, 3, 2)) == 2


def test_windows_count_days_not_bars():
    assert windows(numbered(22, per_day=2), 4, 3, 2)[1] == ((4, 12), (12, 18))


def test_days_of_unequal_length():
    market = numbered(9)
    hours = torch.tensor([0, 24, 25, 26, 48, 72, 73, 96, 97])
    market.timestamps[:] = hours * (DAY // 24)
    assert windows(market, 2, 2, 1) == [((0, 4), (4, 7)), ((1, 5), (5, 9))]


def test_purge_and_embargo_are_bars():
    assert windows(numbered(20, per_day=2), 4, 3, 2, purge=1, embargo=2)[0] == ((0, 7), (10, 14))


def test_defaults_are_sixty_days_by_twenty():
    first, second = windows(numbered(340))[:2]
    assert first == ((0, 252), (252, 312))
    assert second == ((20, 272), (272, 332))


@settings(max_examples=60, deadline=None)
@given(
    days=st.integers(20, 60),
    train=st.integers(3, 9),
    test=st.integers(3, 9),
    step=st.integers(1, 9),
    anchored=st.booleans(),
)
def test_training_always_ends_before_its_test(days, train, test, step, anchored):
    pairs = windows(numbered(days), train, test, step, anchored=anchored)
    assert len(pairs) == (days - train - test) // step + 1
    for k, ((start, cut), (first, last)) in enumerate(pairs):
        assert cut == first == train + k * step
        assert last == first + test
        assert start == (0 if anchored else k * step)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train_days": 9}, r"12 trading days, train_days 9 \+ test_days 4 need more"),
        ({"step_days": 0}, "step_days must be a whole number of at least 1, got 0"),
        ({"purge": 4}, "training window .* keeps 1 bars after purge 4"),
        ({"embargo": 9}, "test window .* keeps 0 bars after purge 0 and embargo 9"),
    ],
)
def test_impossible_windows_are_refused_at_the_call(arguments, message):
    with pytest.raises(MarketError, match=message):
        walk_forward(numbered(12), **{"train_days": 5, "test_days": 4} | arguments)


# regime_labels


def walk(drift, volatility, bars, seed=0):
    steps = torch.randn(bars, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    steps = (steps - steps.mean()) / steps.std()
    return drift + volatility * steps


def test_planted_regimes_are_found():
    parts = {
        "bull": walk(0.005, 0.01, 300, 1),
        "bear": walk(-0.005, 0.01, 300, 2),
        "high_volatility": walk(0.0, 0.04, 300, 3),
    }
    steps = torch.cat(list(parts.values()))
    reference = make(walk(0.0, 0.01, 2000, 4).cumsum(0).exp())
    labels = regime_labels(
        make(steps.cumsum(0).exp()), reference, window=50, volatility_quantile=0.99
    )
    for k, name in enumerate(parts):
        inside = labels[300 * k + 60 : 300 * k + 300, 0]
        assert (inside == REGIMES.index(name)).float().mean() > 0.9, name


def test_labels_by_hand():
    # Returns of the last two bars: (+, +), (+, -), (-, -), then a wild one.
    logs = torch.tensor([0.0, 0.01, 0.03, 0.01, -0.02, -0.03, 0.5]).double()
    market = make(logs.exp())
    reference = make((torch.tensor([0.0, 0.1, 0.0, 0.1, 0.0, 0.1]).double()).exp())
    labels = regime_labels(market, reference, window=2)
    # strength by hand: r1 + r2 over |r1 - r2| (std of two is |difference| / sqrt 2).
    assert labels[:, 0].tolist() == [
        -1,
        -1,
        REGIMES.index("bull"),  # .03 / .01
        REGIMES.index("sideways"),  # 0 / .04
        REGIMES.index("bear"),  # -.05 / .01
        REGIMES.index("bear"),  # -.04 / .02
        REGIMES.index("high_volatility"),
    ]
    assert labels.dtype == torch.int8


def test_a_constant_price_is_sideways():
    labels = regime_labels(make(torch.ones(10)), numbered(20), window=3)
    assert labels[3:, 0].unique().tolist() == [REGIMES.index("sideways")]


@pytest.mark.parametrize(("growth", "name"), [(1.001, "bull"), (0.999, "bear")])
def test_steady_growth_is_a_trend(growth, name):
    labels = regime_labels(make(growth ** torch.arange(30.0).double()), numbered(20), window=5)
    assert labels[5:, 0].unique().tolist() == [REGIMES.index(name)]


def test_thresholds_belong_to_each_symbol_and_follow_its_name():
    calm, wild = walk(0, 0.01, 1500, 5).cumsum(0).exp(), walk(0, 0.05, 1500, 6).cumsum(0).exp()
    market = make(torch.stack([calm, wild], 1), symbols=("calm", "wild"))
    swapped = market.select(["wild", "calm"])
    labels = regime_labels(market, swapped)
    share = (labels == REGIMES.index("high_volatility")).float()[60:].mean(0)
    assert share.tolist() == pytest.approx([0.2, 0.2], abs=0.005)
    assert torch.equal(regime_labels(swapped, market), labels[:, [1, 0]])


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(1, 199), seed=st.integers(0, 10), window=st.integers(2, 80))
def test_labels_never_depend_on_the_future(cut, seed, window):
    reference = make(walk(0, 0.01, 300, seed).cumsum(0).exp())
    steps = walk(0.001, 0.01, 200, seed + 1)
    changed = torch.cat([steps[:cut], 5 * walk(-0.01, 0.05, 200 - cut + 2, seed + 2)[: 200 - cut]])
    a = regime_labels(make(steps.cumsum(0).exp()), reference, window)
    b = regime_labels(make(changed.cumsum(0).exp()), reference, window)
    assert torch.equal(a[:cut], b[:cut])


def test_a_market_shorter_than_the_window_is_not_known():
    assert regime_labels(numbered(5), numbered(100)).unique().tolist() == [-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": 1}, "window must be a whole number of at least 2, got 1"),
        ({"window": 100}, "the reference has 100 bars, window 100 needs more"),
        ({"trend": -1.0}, "trend must not be negative"),
        ({"volatility_quantile": 1.0}, r"must lie within \(0, 1\), got 1\.0"),
    ],
)
def test_impossible_rules_are_refused(arguments, message):
    with pytest.raises(MarketError, match=message):
        regime_labels(numbered(100), numbered(100), **arguments)


def test_a_reference_of_other_symbols_is_refused():
    with pytest.raises(MarketError, match="no symbol 'S0' here; known: other"):
        regime_labels(numbered(100), make(torch.ones(100), symbols=("other",)))


def test_the_crisis_of_2008_was_volatile():
    pytest.importorskip("arch")
    market = load_index_series("sp500")
    labels = regime_labels(market, market.bars(0, 2200))[:, 0].numpy()
    autumn = (market.dates >= np.datetime64("2008-10-15")) & (
        market.dates < np.datetime64("2009-01-01")
    )
    assert (labels[autumn] == REGIMES.index("high_volatility")).all()
    counts = np.bincount(labels[labels >= 0], minlength=4)
    assert (counts >= 100).all()
