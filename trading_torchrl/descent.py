"""From a loss to gradients, with little around it: updates are a few milliseconds long."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def differentiate(loss: Tensor, parameters: Sequence[Tensor], longest: float) -> float:
    """Leaves the gradients of ``loss``, scaled down to a common norm of at most ``longest``.

    Gradients that were there before are let go. What ``zero_grad``, ``backward`` and
    :func:`torch.nn.utils.clip_grad_norm_` do, but gradients that are shorter are not touched.

    Args:
        loss: a number; parameters that it does not depend on keep no gradient.
        parameters: of which gradients are wanted.
        longest: infinity for no limit.

    Returns:
        the norm before it was scaled; NaN where loss or norm are not finite.

    Example:
        >>> weight = torch.zeros(2, requires_grad=True)
        >>> differentiate((weight * torch.tensor([3.0, 4.0])).sum(), [weight], longest=1.0)
        5.0
        >>> weight.grad
        tensor([0.6000, 0.8000])
    """
    for each in parameters:
        each.grad = None
    loss.backward()
    grads = [each.grad for each in parameters if each.grad is not None]
    if not grads:
        return 0.0
    norm = float(torch.stack(torch._foreach_norm(grads)).norm())
    if not math.isfinite(norm + float(loss.detach())):
        return math.nan
    if norm > longest:
        torch._foreach_mul_(grads, longest / norm)
    return norm
