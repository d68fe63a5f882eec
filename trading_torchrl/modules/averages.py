"""Slow copies of networks: targets of critics, averaged actors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Parameters = nn.Module | Sequence[Tensor]
"""A module, or the list of its parameters: to walk through modules at each update takes time."""


def _listed(parameters: Parameters) -> list[Tensor]:
    if isinstance(parameters, nn.Module):
        return list(parameters.parameters())
    return list(parameters)


@torch.no_grad()
def follow_slowly(slow: Parameters, fast: Parameters, rate: float) -> None:
    """Moves every parameter of ``slow`` by ``rate`` of the way to that of ``fast``."""
    torch._foreach_lerp_(_listed(slow), _listed(fast), rate)


@contextmanager
def frozen(parameters: Parameters) -> Iterator[None]:
    """Within it no gradient reaches the parameters, but one passes through what they compute."""
    trained = [each for each in _listed(parameters) if each.requires_grad]
    for each in trained:
        each.requires_grad_(False)
    try:
        yield
    finally:
        for each in trained:
            each.requires_grad_(True)
