"""Fronts: what several objectives reach together, and how much of what can be reached."""

from __future__ import annotations

import torch
from torch import Tensor


def even_preferences(count: int, least: float = 0.0) -> Tensor:
    """Weights of two objectives from one end to the other, ``[count, 2]``.

    Example:
        >>> even_preferences(3, least=0.2)
        tensor([[0.8000, 0.2000],
                [0.5000, 0.5000],
                [0.2000, 0.8000]])
    """
    second = torch.linspace(least, 1 - least, count)
    return torch.stack([1 - second, second], -1)


def best_of(points: Tensor) -> Tensor:
    """Those of the points ``[P, K]`` that no other one beats, bool ``[P]``; more is better.

    Example:
        >>> best_of(torch.tensor([[1.0, 1.0], [2.0, 0.0], [0.5, 0.5]]))
        tensor([ True,  True, False])
    """
    as_good = (points[:, None] >= points[None]).all(-1)
    better = as_good & (points[:, None] > points[None]).any(-1)
    return ~better.any(0)


def hypervolume(points: Tensor, reference: Tensor) -> float:
    """Area between the reference ``[2]`` and the front of points ``[P, 2]``; more is better.

    Points that are not above the reference in both objectives add nothing.

    Example:
        >>> hypervolume(torch.tensor([[1.0, 2.0], [2.0, 1.0], [0.5, 0.5]]), torch.zeros(2))
        3.0
    """
    above = (points.double() - reference.double()).clamp(min=0)
    area, height = 0.0, 0.0
    for first, second in sorted(above.tolist(), reverse=True):
        if second > height:
            area += first * (second - height)
            height = second
    return area
