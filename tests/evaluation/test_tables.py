"""How sure a figure of a table is."""

from __future__ import annotations

import math

import pytest

from trading_torchrl.evaluation.tables import (
    NORMAL_95,
    Value,
    interval_of,
    intervals,
    symbol_lines,
    symbol_table,
    with_shares,
)

STUDENT = 4.302653 / math.sqrt(3)
OVER_SIX = 2.570582
"""Student's t that 95 % lie within, 5 degrees of freedom."""


@pytest.mark.parametrize(
    ("row", "mean", "half_width"),
    [
        ({"growth": 0.3}, 0.3, math.nan),
        ({"growth": 0.3, "growth_error": 0.1}, 0.3, 0.196),
        ({"growth": 0.3, "growth_error": 0.1, "paths": 6.0}, 0.3, 0.1 * OVER_SIX),
        ({"growth": 0.3, "growth_error": 0.1, "paths": 2.0}, 0.3, 1.2706205),
        ({"growth": 0.3, "growth_error": math.nan, "paths": 1.0}, 0.3, math.nan),
        ({"growth": 0.3, "growth_error": math.nan}, 0.3, math.nan),
        ({"growth": 0.3, "sharpe_error": 0.1}, 0.3, math.nan),
        ({"growth": [0.3]}, 0.3, math.nan),
        ({"growth": [0.3], "growth_error": [0.1]}, 0.3, 0.196),
        ({"growth": [1.0, 2.0, 3.0]}, 2.0, STUDENT),
        ({"growth": [1.0, 2.0, 3.0], "growth_error": [0.0, 0.0, 0.0]}, 2.0, STUDENT),
        (
            {"growth": [1.0, 2.0, 3.0], "growth_error": [1.0, 2.0, 1.5]},
            2.0,
            math.sqrt(STUDENT**2 + (1.96 * 1.5) ** 2),
        ),
        ({"growth": [2.0, 2.0], "growth_error": [0.1, 0.1]}, 2.0, 0.196),
        (
            {"growth": [1.0, 2.0, 3.0], "growth_error": [1.0, 2.0, 1.5], "paths": [6.0] * 3},
            2.0,
            math.sqrt(STUDENT**2 + (OVER_SIX * 1.5) ** 2),
        ),
        (
            {"growth": [1.0, math.nan, 2.0, 3.0], "growth_error": [1.0, math.nan, 2.0, 1.5]},
            2.0,
            math.sqrt(STUDENT**2 + (1.96 * 1.5) ** 2),
        ),
        ({"growth": math.nan, "growth_error": math.nan}, math.nan, math.nan),
        ({"growth": [math.nan, math.nan], "growth_error": [0.1, 0.1]}, math.nan, 0.196),
    ],
)
def test_an_interval_is_over_seeds_and_symbols(
    row: dict[str, Value], mean: float, half_width: float
) -> None:
    assert interval_of(row, "growth") == pytest.approx((mean, half_width), nan_ok=True)


def test_figures_of_others_have_the_errors_of_others() -> None:
    row: dict[str, Value] = {"growth_error": 9.0, "random/growth": 0.3, "random/growth_error": 0.1}
    assert interval_of(row, "random/growth").half_width == pytest.approx(0.196)
    row["paths"] = 6.0  # all are judged on the same
    assert interval_of(row, "random/growth").half_width == pytest.approx(0.1 * OVER_SIX)
    row = {"martingale/net_profit": [1.0, 2.0, 3.0], "martingale/net_profit_error": [1.0, 2.0, 1.5]}
    both = math.sqrt(STUDENT**2 + (1.96 * 1.5) ** 2)
    assert interval_of(row, "martingale/net_profit").half_width == pytest.approx(both, rel=1e-4)


def test_more_seeds_do_not_make_the_same_symbols_surer() -> None:
    for seeds in (2, 5, 50):
        row = {"growth": [0.3] * seeds, "growth_error": [0.1] * seeds}
        assert interval_of(row, "growth").half_width == pytest.approx(NORMAL_95 * 0.1)


def test_a_portfolio_is_no_share_of_an_oracle_by_symbol() -> None:
    rows = {
        "agent": {"growth": [0.1, 0.3], "paths": [4.0, 4.0]},
        "agent, equal weight": {"growth": 0.3, "paths": 1.0},
        "oracle_full": {"growth": 0.4, "paths": 4.0},
    }
    found = with_shares(rows)
    assert found["agent"]["growth_share"] == pytest.approx([0.25, 0.75])
    assert "growth_share" not in found["agent, equal weight"]


def test_the_intervals_of_a_row_are_those_that_are_shown() -> None:
    row: dict[str, Value] = {"growth": [1.0, 2.0, 3.0], "growth_error": [1.0, 2.0, 1.5], "x": 1.0}
    found = intervals(row)
    assert list(found) == ["growth", "growth_error"]
    assert found["growth"] == {**interval_of(row, "growth")._asdict(), "seeds": 3}


def test_a_table_of_symbols_has_a_line_each() -> None:
    symbols = {
        "AAA": {"agent": {"growth": [0.1, 0.3]}, "buy_and_hold": {"growth": -0.05}},
        "<B>": {"agent": {"growth": [0.0, 0.0]}, "buy_and_hold": {"growth": 1.0}},
    }
    lines = symbol_lines(symbols).splitlines()
    assert [line.split() for line in lines] == [
        ["growth", "growth"],
        ["agent", "buy_and_hold"],
        ["AAA", "+20.0%", "-5.0%"],
        ["<B>", "+0.0%", "+100.0%"],
    ]
    assert len({len(line) for line in lines}) == 1
    page = symbol_table(symbols)
    assert "&lt;B&gt;" in page
    assert "+20.0%<small>± " in page
