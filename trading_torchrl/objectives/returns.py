"""What was done on the way to what came of it: advantages over stretches of time."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from tensordict.utils import NestedKey
from torch import Tensor


def gae(
    reward: Tensor,
    value: Tensor,
    ahead: Tensor,
    done: Tensor,
    terminated: Tensor,
    *,
    gamma: float,
    lmbda: float,
) -> Tensor:
    """Generalised advantages ``[N, T, 1]`` of rows ``[N, T, 1]``, time along the second dimension.

    Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation",
    2015, https://arxiv.org/abs/1506.02438. A truncated episode is worth what is expected after it,
    a terminated one nothing; neither hears of the next.

    Args:
        reward: of each step.
        value: of where it was taken.
        ahead: of where it led to, the last of its own episode where that ended.
        done: whether the episode ended there.
        terminated: whether nothing comes after it.
        gamma: discount.
        lmbda: how far rewards are trusted over values: 0 looks one step ahead, 1 to the end.

    Example:
        >>> one, no = torch.ones(1, 2, 1), torch.zeros(1, 2, 1, dtype=torch.bool)
        >>> gae(one, 0 * one, 0 * one, no, no, gamma=0.5, lmbda=1.0)[0, :, 0]
        tensor([1.5000, 1.0000])
    """
    missed = torch.addcmul(reward - value, ahead, (~terminated).to(ahead.dtype), value=gamma)
    fades = gamma * lmbda * (~done).to(missed.dtype)
    found = torch.empty_like(missed)
    carried = torch.zeros_like(missed[:, 0])
    for at in reversed(range(missed.shape[1])):
        carried = torch.addcmul(missed[:, at], fades[:, at], carried)
        found[:, at] = carried
    return found


def values_of(
    critic: TensorDictModule, batch: TensorDictBase, done: NestedKey = ("next", "done")
) -> tuple[Tensor, Tensor]:
    """What a critic expects where each step of ``[N, T]`` was taken, and where it led, ``[.., 1]``.

    Steps follow each other, so that only ends are looked at twice.
    """
    key = critic.out_keys[0]
    value = critic(batch.select(*critic.in_keys)).get(key)
    ends = batch.get(done)[..., 0].clone()
    ends[:, -1] = True
    ahead = torch.cat([value[:, 1:], value[:, -1:]], 1)
    last = critic(batch.get("next").select(*critic.in_keys)[ends]).get(key)
    return value, ahead.masked_scatter(ends.unsqueeze(-1), last)


def explained(misfit: Tensor, target: Tensor) -> Tensor:
    """Share of the targets' variance that values explain, ``[]``; below 0 they add to it.

    Example:
        >>> target = torch.tensor([1.0, 3.0])
        >>> explained(torch.tensor([0.5, 1.5]) - target, target)
        tensor(0.7500)
    """
    left, whole = (each.detach().var(correction=0) for each in (misfit, target))
    return 1 - left / whole.clamp(min=1e-12)
