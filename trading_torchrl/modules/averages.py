"""Slow copies of networks: targets of critics, averaged actors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@torch.no_grad()
def follow_slowly(slow: nn.Module, fast: nn.Module, rate: float) -> None:
    """Moves every parameter of ``slow`` by ``rate`` of the way to that of ``fast``."""
    torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), rate)


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Within it no gradient reaches the module's parameters, but one passes through it."""
    trained = [each for each in module.parameters() if each.requires_grad]
    for each in trained:
        each.requires_grad_(False)
    try:
        yield
    finally:
        for each in trained:
            each.requires_grad_(True)
