"""Figures of merit against numbers worked out by hand."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trading_torchrl.evaluation import (
    calmar,
    exposure,
    fills,
    growth,
    max_drawdown,
    sharpe,
    simple_returns,
    sortino,
    total_return,
    turnover,
)


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_simple_returns_by_hand() -> None:
    equity = torch.stack([numbers(100, 110, 99, 99), numbers(200, 100, 150, 300)])
    returns = simple_returns(equity)
    assert returns.shape == (2, 3)
    assert returns[0].tolist() == pytest.approx([0.1, -0.1, 0.0])
    assert returns[1].tolist() == pytest.approx([-0.5, 0.5, 1.0])


def test_sharpe_by_hand() -> None:
    """1, 2, 3 %: mean 2 %, deviation (ddof 1) 1 %: 2 a bar, 4 over four bars a year."""
    assert float(sharpe(numbers(0.01, 0.02, 0.03), 4)) == pytest.approx(4.0)
    assert float(sharpe(numbers(0.01, 0.02, 0.03), 1)) == pytest.approx(2.0)
    assert float(sharpe(numbers(-0.01, -0.02, -0.03), 252)) == pytest.approx(-2 * math.sqrt(252))
    assert float(sharpe(numbers(0.1, -0.1), 252)) == 0.0


def test_sharpe_is_the_textbook_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    returns = 0.01 * torch.randn(4, 300, generator=generator, dtype=torch.float64) + 0.001
    for path, ratio in zip(returns.tolist(), sharpe(returns, 1638).tolist(), strict=True):
        expected = statistics.mean(path) / statistics.stdev(path) * math.sqrt(1638)
        assert ratio == pytest.approx(expected, rel=1e-12)


def test_sharpe_golden() -> None:
    returns = numbers(0.012, -0.004, 0.007, 0.003, -0.011, 0.009)
    # mean 16/6e-3; squares of deviations add up to 377.333e-6, over 5
    expected = (0.016 / 6) / math.sqrt((420e-6 - 6 * (0.016 / 6) ** 2) / 5) * math.sqrt(252)
    assert expected == pytest.approx(4.872943, rel=1e-6)
    assert float(sharpe(returns, 252)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_a_path_without_variation_has_a_ratio_of_zero(value: float) -> None:
    """Not the 1e16 that the rounding of its mean would make of it."""
    for dtype in (torch.float32, torch.float64):
        for length in (2, 3, 10, 100, 1_000, 3_333):
            path = torch.full((length,), value, dtype=dtype)
            assert float(sharpe(path, 252)) == 0.0, (dtype, length)


def test_small_variation_is_variation() -> None:
    """Deviations of a millionth of the mean: large ratios, and right ones."""
    path = numbers(1e-3, 1.000001e-3, 0.999999e-3)
    assert float(sharpe(path, 1)) == pytest.approx(1e6, rel=1e-6)
    assert float(sharpe(1e-6 * numbers(1, 2, 3), 1)) == pytest.approx(2.0)


def test_paths_without_variation_leave_others_alone() -> None:
    paths = torch.stack([numbers(0, 0, 0), numbers(0.01, 0.02, 0.03)])
    assert sharpe(paths, 4).tolist() == pytest.approx([0.0, 4.0])


def test_growth_by_hand() -> None:
    """+ 10 % and - 10 %: log .99 over two bars."""
    assert float(growth(numbers(0.1, -0.1), 252)) == pytest.approx(math.log(0.99) / 2 * 252)
    assert float(growth(numbers(math.e - 1, 0.0), 2)) == pytest.approx(1.0)
    assert float(growth(numbers(0, 0, 0), 1638)) == 0


def test_growth_is_that_of_the_equity() -> None:
    equity = numbers(100, 130, 90, 95, 121)
    given = float(growth(simple_returns(equity), 252))
    assert given == pytest.approx(math.log(1.21) / 4 * 252)


def test_max_drawdown_by_hand() -> None:
    assert float(max_drawdown(numbers(100, 120, 90, 130, 104))) == pytest.approx(0.25)
    assert float(max_drawdown(numbers(100, 120, 100, 130, 91, 200))) == pytest.approx(0.3)
    assert float(max_drawdown(numbers(100, 101, 102))) == 0
    assert float(max_drawdown(numbers(100, 50, 0))) == 1
    both = max_drawdown(torch.stack([numbers(100, 80, 90), numbers(100, 100, 99)]))
    assert both.tolist() == pytest.approx([0.2, 0.01])


def test_leading_dimensions_are_kept() -> None:
    equity = 100 + torch.rand(2, 3, 50, dtype=torch.float64)
    returns = simple_returns(equity)
    assert returns.shape == (2, 3, 49)
    for figure in (sharpe(returns, 252), growth(returns, 252), max_drawdown(equity)):
        assert figure.shape == (2, 3)
    alone = float(sharpe(returns[1, 2], 252))
    assert float(sharpe(returns, 252)[1, 2]) == pytest.approx(alone, rel=1e-12)


def test_sortino_by_hand() -> None:
    """2, -1, 3, -2 %: mean .5 %, downside root((1 + 4) / 4) %, all four bars counted."""
    returns = numbers(0.02, -0.01, 0.03, -0.02)
    assert float(sortino(returns, 1)) == pytest.approx(0.5 / math.sqrt(5 / 4))
    assert float(sortino(returns, 4)) == pytest.approx(0.894427191)
    assert float(sortino(numbers(-0.01, -0.01), 252)) == pytest.approx(-math.sqrt(252))


def test_total_return_by_hand() -> None:
    assert float(total_return(numbers(200, 100, 250))) == pytest.approx(0.25)


def test_calmar_by_hand() -> None:
    """+ 21 % in three bars after a fall from 120 to 90, a quarter."""
    equity = numbers(100, 120, 90, 121)
    assert float(calmar(equity, 3)) == pytest.approx(0.21 / 0.25)
    assert float(calmar(equity, 6)) == pytest.approx((1.21**2 - 1) / 0.25)
    assert float(calmar(numbers(100, 50), 1)) == pytest.approx(-1)


def test_turnover_and_costs_by_hand() -> None:
    """Half of 100 sold, then half of 110 bought."""
    equity, value = numbers(100, 110, 99), numbers(0, -50, 55)
    assert float(turnover(value, equity, 252)) == pytest.approx(126)
    assert float(turnover(0.01 * value.abs(), equity, 252)) == pytest.approx(1.26)


def test_exposure_and_fills_by_hand() -> None:
    assert float(exposure(numbers(0.5, -0.25, 0))) == pytest.approx(0.25)
    assert float(fills(numbers(0, 5, 0, -5, 3))) == 3


def test_nothing_moves() -> None:
    equity = numbers(100, 100, 100, 100)
    returns = simple_returns(equity)
    for figure in (sharpe(returns, 252), sortino(returns, 252), growth(returns, 252),
                   calmar(equity, 252), total_return(equity), max_drawdown(equity)):  # fmt: skip
        assert float(figure) == 0


def test_gains_without_any_loss_are_not_infinite() -> None:
    equity = numbers(100, 101, 103, 104)
    assert sortino(simple_returns(equity), 252).isnan()
    assert calmar(equity, 252).isnan()
    # A year's return beyond all numbers.
    assert calmar(numbers(100, 99, 300), 1e6).isnan()


@pytest.mark.parametrize("left", [0.0, -5.0, 1e-9])
def test_ruin_is_a_number(left: float) -> None:
    equity = numbers(100, 50, left, left, left)
    returns = simple_returns(equity)
    assert returns[2:].tolist() == [0, 0]
    grown = float(growth(returns, 4))
    assert grown == pytest.approx(math.log(0.5) + math.log(1e-6), rel=1e-6)
    for figure in (sharpe(returns, 252), sortino(returns, 252), calmar(equity, 252)):
        assert -math.inf < float(figure) < 0
    assert float(max_drawdown(equity)) == pytest.approx(1 - left / 100)
    assert float(turnover(numbers(0, 1, 1, 0, 0), equity, 1)) == pytest.approx((0.01 + 0.02) / 4)


# Returns of whole millionths: one of 1e-16 is a rounding of prices, and so is every ratio of it.
PATHS = st.lists(
    st.integers(-200_000, 200_000).map(lambda n: n / 1e6), min_size=3, max_size=40
).map(
    lambda returns: 100 * torch.tensor([0.0, *returns], dtype=torch.float64).log1p().cumsum(0).exp()
)


@settings(deadline=None)
@given(PATHS, st.floats(0.01, 1e6))
def test_money_has_no_unit(equity: torch.Tensor, scale: float) -> None:
    for figure in (
        lambda e: sharpe(simple_returns(e), 252), lambda e: sortino(simple_returns(e), 252),
        lambda e: growth(simple_returns(e), 252), lambda e: turnover(e, e, 252),
        lambda e: calmar(e, 12), max_drawdown, total_return,
    ):  # fmt: skip
        one, other = figure(equity), figure(scale * equity)
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9, equal_nan=True)


@settings(deadline=None)
@given(PATHS)
def test_signs_and_bounds(equity: torch.Tensor) -> None:
    returns = simple_returns(equity)
    for figure in (sharpe(returns, 252), sortino(returns, 252)):
        assert not figure.isinf()
        assert figure.isnan() or float(figure) * float(returns.mean()) >= 0
    assert float(sharpe(-returns, 252)) == pytest.approx(-float(sharpe(returns, 252)))
    assert 0 <= float(max_drawdown(equity)) < 1
    risk = calmar(equity, 12)
    assert risk.isnan() or float(risk) * float(total_return(equity)) >= 0
    # What is lost in the end was lost from a peak.
    assert float(max_drawdown(equity)) >= -float(total_return(equity)) - 1e-12
