"""Intervals against known quantiles and known coverage."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from trading_torchrl.evaluation import interval, paired_interval, t_quantile


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042)]
)
def test_quantiles_of_the_table(freedom: int, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_quantiles_to_ten_digits(level: float) -> None:
    for freedom in (*range(1, 40), 99, 1_000):
        expected = stats.t.ppf((1 + level) / 2, freedom)
        assert t_quantile(freedom, level) == pytest.approx(expected, rel=1e-10)


def test_interval_by_hand() -> None:
    """1, 2, 3: mean 2, deviation 1, t of 2 degrees of freedom 4.3027."""
    mean, half_width = interval([1, 2, 3])
    assert mean == pytest.approx(2)
    assert half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert interval([5.0] * 4) == (5, 0)


def test_one_value_has_no_interval() -> None:
    mean, half_width = interval([7.0])
    assert mean == 7
    assert math.isnan(half_width)
    with pytest.raises(ValueError, match="at least one value"):
        interval([])


@pytest.mark.parametrize(("freedom", "level"), [(0, 0.95), (3, 1.0), (3, 0.0)])
def test_quantiles_that_do_not_exist_are_refused(freedom: int, level: float) -> None:
    with pytest.raises(ValueError, match=f"got {freedom} and {level}"):
        t_quantile(freedom, level)


def test_the_interval_holds_as_often_as_it_says() -> None:
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(4_000, 5, generator=generator, dtype=torch.float64)
    held = 0
    for sample in samples.tolist():
        mean, half_width = interval(sample)
        held += abs(mean) <= half_width
    assert held / 4_000 == pytest.approx(0.95, abs=0.012)


def test_pairs_are_compared_pair_by_pair() -> None:
    """What pairs share, however large, is not in the interval."""
    generator = torch.Generator().manual_seed(1)
    shared = 100 * torch.randn(60, generator=generator, dtype=torch.float64)
    noise = torch.randn(60, generator=generator, dtype=torch.float64)
    mean, low, high = paired_interval((shared + 1 + noise).tolist(), shared.tolist())
    assert mean == pytest.approx(1 + float(noise.mean()))
    error = float(noise.std(correction=0)) / math.sqrt(60)
    assert low == pytest.approx(mean - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(mean + 1.96 * error, abs=0.1 * error)
    assert paired_interval([1, 2, 3], [0, 1, 2]) == (1, 1, 1)


def test_the_bootstrap_repeats_itself() -> None:
    first, second = [1.0, 4.2, 2.7, 8.1, 3.3, -2.4, 0.2], [0.0, 1.5, 3.1, 2.0, 0.1, 0.2, 0.5]
    assert paired_interval(first, second) == paired_interval(first, second)
    assert paired_interval(first, second) != paired_interval(first, second, seed=1)


@pytest.mark.parametrize(("first", "second"), [([1.0], [1.0, 2.0]), ([], [])])
def test_what_does_not_pair_is_refused(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError, match=f"got {len(first)} and {len(second)}"):
        paired_interval(first, second)
