"""Figures of merit against numbers worked out by hand."""

from __future__ import annotations

import math
import statistics

import pytest
import torch

from trading_torchrl.evaluation import growth, max_drawdown, sharpe, simple_returns


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
    for path, given in zip(returns.tolist(), sharpe(returns, 1638).tolist(), strict=True):
        expected = statistics.mean(path) / statistics.stdev(path) * math.sqrt(1638)
        assert given == pytest.approx(expected, rel=1e-12)


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
