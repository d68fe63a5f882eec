"""Comparisons with answers worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trading_torchrl.evaluation import (
    Curve,
    curves_picture,
    frames_to,
    interval,
    learning_curve,
    paired_difference,
)


def test_difference_by_hand():
    # Differences 1, 2, 3: mean 2, deviation 1, t of two degrees of freedom 4.302653.
    found = paired_difference({0: 11.0, 1: 22.0, 2: 33.0}, {0: 10.0, 1: 20.0, 2: 30.0})
    assert found.mean == pytest.approx(2.0)
    assert found.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert found.pairs == 3
    assert not found.clear  # 2 +- 2.48


def test_pairs_see_what_means_do_not():
    # Seeds differ by 10, the settings by 1 or so in each: clear in pairs, lost between means.
    one, other = {0: 1.0, 1: 11.1, 2: 20.9}, {0: 0.0, 1: 10.0, 2: 20.0}
    assert paired_difference(one, other).clear
    assert interval(list(one.values())).half_width > 20


def test_only_seeds_that_both_have_and_that_are_defined_count():
    found = paired_difference({0: 1.0, 1: 5.0, 2: math.nan, 3: 2.0}, {0: 0.0, 2: 1.0, 3: 1.0})
    assert found == (1.0, 0.0, 2)
    assert found.clear


@pytest.mark.parametrize(("one", "pairs"), [({0: 3.0}, 1), ({}, 0), ({7: 1.0}, 0)])
def test_one_pair_or_none_says_nothing(one, pairs):
    found = paired_difference(one, {0: 1.0})
    assert found.pairs == pairs
    assert math.isnan(found.half_width)
    assert not found.clear


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=2, max_size=6))
def test_the_other_way_round_only_the_sign_changes(values):
    one, other = (dict(enumerate(each)) for each in zip(*values, strict=True))
    there, back = paired_difference(one, other), paired_difference(other, one)
    assert back.mean == pytest.approx(-there.mean)
    assert back.half_width == pytest.approx(there.half_width)
    assert back.clear == there.clear


ROWS = [
    {"frames": 10, "share": math.nan},
    {"frames": 20, "share": 0.2},
    {"frames": 30, "share": 0.5},
    {"frames": 40, "share": 0.1},
]


@pytest.mark.parametrize(("level", "frames"), [(0.1, 20), (0.2, 20), (0.21, 30), (0.6, math.inf)])
def test_frames_to_a_level(level, frames):
    assert frames_to(ROWS, "share", level) == frames


def test_runs_on_stored_rows_count_updates():
    rows = [{"updates": 5 * i, "frames": 0, "share": 0.1 * i} for i in (1, 2, 3)]
    assert frames_to(rows, "share", 0.2) == 10
    assert learning_curve([rows], "share").frames == [5, 10, 15]


def test_a_curve_is_mean_lowest_and_highest_of_the_runs_that_have_a_number():
    other = [{"frames": 10, "share": 1.0}, {"frames": 20, "share": 0.4}, {"frames": 50}]
    assert learning_curve([ROWS, other], "share") == Curve(
        [10, 20, 30, 40], [1.0, pytest.approx(0.3), 0.5, 0.1], [1.0, 0.2, 0.5, 0.1],
        [1.0, 0.4, 0.5, 0.1],
    )  # fmt: skip
    assert learning_curve([], "share").frames == []


def test_a_picture_has_a_panel_a_figure_and_a_name_a_setting():
    line = Curve([1.0, 2.0], [0.0, 1.0], [0.0, 0.5], [0.0, 2.0])
    drawn = curves_picture({"growth": {"sac": line, "td3": line}, "turnover": {"td3": line}})
    growth, turnover = drawn.axes
    assert [growth.get_ylabel(), turnover.get_ylabel()] == ["growth", "turnover"]
    assert growth.get_xlabel() == "frames"
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == ["sac", "td3"]
    sac, td3 = growth.get_lines()
    (alone,) = turnover.get_lines()
    assert (alone.get_color(), alone.get_linestyle()) == (td3.get_color(), td3.get_linestyle())
    assert sac.get_linestyle() != td3.get_linestyle()
