"""Slow copies of networks: targets of critics, averaged actors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Tensors = nn.Module | list[Tensor]
"""A module, or a list of its tensors: to walk through modules at each update takes time."""


def moving(module: nn.Module) -> list[Tensor]:
    """What a slow copy of a module follows: parameters, and buffers that are no whole numbers.

    Buffers are the running means of a network that normalises, without which the copy computes
    something else. Whole numbers, counts and flags, have no way between two of them.
    """
    buffers = [each for each in module.buffers() if each.is_floating_point()]
    return [*module.parameters(), *buffers]


@torch.no_grad()
def follow_slowly(slow: Tensors, fast: Tensors, rate: float) -> None:
    """Moves all that :func:`moving` lists of ``slow`` by ``rate`` of the way to ``fast``'s."""
    one, other = (moving(each) if isinstance(each, nn.Module) else each for each in (slow, fast))
    torch._foreach_lerp_(one, other, rate)


@contextmanager
def frozen(parameters: Tensors) -> Iterator[None]:
    """Within it no gradient reaches the parameters, but one passes through what they compute."""
    if isinstance(parameters, nn.Module):
        parameters = list(parameters.parameters())
    trained = [each for each in parameters if each.requires_grad]
    for each in trained:
        each.requires_grad_(False)
    try:
        yield
    finally:
        for each in trained:
            each.requires_grad_(True)
