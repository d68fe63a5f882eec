"""How sure a mean over a few runs is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch


class Interval(NamedTuple):
    """``mean +- half_width``."""

    mean: float
    half_width: float


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Interval of the mean by Student's t, for values that are independent: a run a seed, say.

    ``half_width = t * std / sqrt(n)``, ddof 1; NaN for a single value.

    Example:
        >>> mean, half_width = interval([2.1, 2.2, 2.3])
        >>> f"{mean:.2f} +- {half_width:.2f}"
        '2.20 +- 0.25'
    """
    count = len(values)
    if count == 0:
        raise ValueError("an interval needs at least one value, got none")
    mean = math.fsum(values) / count
    if count == 1:
        return Interval(mean, math.nan)
    spread = math.sqrt(math.fsum((each - mean) ** 2 for each in values) / (count - 1))
    return Interval(mean, t_quantile(count - 1, level) * spread / math.sqrt(count))


@cache
def t_quantile(freedom: int, level: float = 0.95) -> float:
    """The t that a Student variable stays within, either side, with probability ``level``.

    Args:
        freedom: degrees of freedom, a whole number from 1.
        level: in (0, 1).
    """
    if freedom < 1 or not 0 < level < 1:
        raise ValueError(
            "freedom must be a whole number from 1 and level between 0 and 1,"
            f" got {freedom} and {level}"
        )
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _t_within(angle, freedom) < level else (low, angle)
    return math.sqrt(freedom) * math.tan(low)


def _t_within(angle: float, freedom: int) -> float:
    """P(|t| < sqrt(freedom) tan(angle)): Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = sine * cosine if odd else sine
    total = 0.0
    for k in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine**2 * (k - 1) / k
    return 2 / math.pi * (angle + total) if odd else total


def paired_interval(
    first: Sequence[float], second: Sequence[float], draws: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
    """Mean of ``first - second`` and its 95 % bootstrap interval, pairs drawn anew together.

    Pairs share what makes them alike: a symbol's path, a seed. Of fewer than about ten pairs the
    interval is too narrow; :func:`interval` of the differences is not.

    Returns:
        mean, lower and upper end.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"pairs need as many values in both, got {len(first)} and {len(second)}")
    apart = torch.tensor(first, dtype=torch.float64) - torch.tensor(second, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(apart), (draws, len(apart)), generator=generator)
    means = apart[drawn].mean(-1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return float(apart.mean()), low, high
