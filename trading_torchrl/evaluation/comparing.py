"""How much better one way of learning is than another: pairs of seeds, time to a level, curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trading_torchrl.evaluation.statistics import interval

Evaluations = Sequence[Mapping[str, float]]
"""Rows of one run with ``frames`` and figures, in their order; where there are ``updates``, these
are its clock."""


def clock_of(row: Mapping[str, float]) -> str:
    """``updates`` where a run learns from stored rows, else ``frames``."""
    return "updates" if "updates" in row else "frames"


class Difference(NamedTuple):
    """``mean +- half_width`` over ``pairs``; NaN where there are too few."""

    mean: float
    half_width: float
    pairs: int

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0."""
        return abs(self.mean) > self.half_width


def paired_difference(one: Mapping[int, float], other: Mapping[int, float]) -> Difference:
    """``one - other`` seed by seed, with the 95 % interval of its mean by Student's t.

    Seeds share what makes their runs alike, starts and draws, so that this is narrower than the
    difference of two means where they do. Seeds that either lacks, or has no number for, are left
    out.

    Args:
        one: a value by seed.
        other: likewise.

    Example:
        >>> difference = paired_difference({0: 1.2, 1: 1.4, 2: 1.3}, {0: 1.0, 1: 1.1, 2: 1.2})
        >>> f"{difference.mean:.2f} +- {difference.half_width:.2f}", difference.clear
        ('0.20 +- 0.25', False)
    """
    apart = [one[seed] - other[seed] for seed in one if seed in other]
    defined = [each for each in apart if math.isfinite(each)]
    mean, half_width = interval(defined) if defined else (math.nan, math.nan)
    return Difference(mean, half_width, len(defined))


def frames_to(evaluations: Evaluations, figure: str, level: float) -> float:
    """Frames of the first evaluation at which a figure is at least ``level``; infinite if none is.

    Updates, where these are the run's clock.

    Example:
        >>> rows = [{"frames": 100, "growth": 0.1}, {"frames": 200, "growth": 0.3}]
        >>> frames_to(rows, "growth", 0.2), frames_to(rows, "growth", 0.5)
        (200.0, inf)
    """
    reached = (float(row[clock_of(row)]) for row in evaluations if row[figure] >= level)
    return next(reached, math.inf)


class Curve(NamedTuple):
    """A figure over frames (or updates), of several runs: their mean, lowest and highest."""

    frames: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def learning_curve(runs: Sequence[Evaluations], figure: str) -> Curve:
    """Of the runs that have a number for it, wherever any has.

    Example:
        >>> runs = [[{"frames": 5, "growth": 0.0}], [{"frames": 5, "growth": 1.0}]]
        >>> learning_curve(runs, "growth")
        Curve(frames=[5.0], mean=[0.5], low=[0.0], high=[1.0])
    """
    at: dict[float, list[float]] = {}
    for run in runs:
        for row in run:
            if math.isfinite(value := row.get(figure, math.nan)):
                at.setdefault(float(row[clock_of(row)]), []).append(value)
    frames = sorted(at)
    means = [math.fsum(at[each]) / len(at[each]) for each in frames]
    return Curve(
        frames, means, [min(at[each]) for each in frames], [max(at[each]) for each in frames]
    )
