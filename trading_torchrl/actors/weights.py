"""All that a policy computes with, as one row of bytes: what is handed to actors."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def packed(module: nn.Module) -> Tensor:
    """Parameters and buffers, uint8 ``[B]``: every bit of them, whatever their types are."""
    with torch.no_grad():
        rows = [each.detach().contiguous().view(-1).view(torch.uint8) for each in _tensors(module)]
    return torch.cat(rows)


@torch.no_grad()
def unpack(weights: Tensor, module: nn.Module) -> None:
    """Sets what :func:`packed` took of a module of the same make.

    Example:
        >>> one, other = nn.Linear(3, 2), nn.Linear(3, 2)
        >>> unpack(packed(one), other)
        >>> bool((one.weight == other.weight).all())
        True
    """
    tensors = _tensors(module)
    sizes = [each.numel() * each.element_size() for each in tensors]
    if sum(sizes) != len(weights):
        raise ValueError(
            f"these weights have {len(weights):,} bytes and the policy {sum(sizes):,}: an actor"
            " must build the same networks as the learner"
        )
    for each, row in zip(tensors, weights.split(sizes), strict=True):
        # A copy begins where any type of number may begin.
        each.copy_(row.clone().view(each.dtype).view_as(each))
