"""How much each objective counts: weights that sum to 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from trading_torchrl.modules.networks import MLP

START: Mapping[str, float] = {
    "profit": 0.38,
    "risk": 0.24,
    "activity": 0.14,
    "timing": 0.10,
    "consistency": 0.05,
    "exploration": 0.09,
}
"""Weights to begin with, in the order of the columns: the environment's terms, then exploration."""

TURBULENT: Mapping[str, float] = {"risk": 1.5, "profit": 0.8}
"""By what the weights of these are multiplied in turbulent bars."""


def fixed_weights(weights: Mapping[str, float] = START) -> Tensor:
    """As given, brought to a sum of 1: ``[K]``, in the order given, which is to be the columns'.

    Example:
        >>> fixed_weights({"profit": 3.0, "risk": 1.0})
        tensor([0.7500, 0.2500])
    """
    given = torch.tensor(list(weights.values()), dtype=torch.float32)
    if not len(given) or not bool((given >= 0).all() & given.isfinite().all() & (given.sum() > 0)):
        raise ValueError(f"weights must not be negative, nor all zero; got {dict(weights)}")
    return given / given.sum()


def regime_weights(
    turbulent: Tensor,
    weights: Mapping[str, float] = START,
    factors: Mapping[str, float] = TURBULENT,
) -> Tensor:
    """For ``turbulent`` bars, bool ``[*]``, others than for quiet ones: ``[*, K]``.

    Example:
        >>> regime_weights(torch.tensor([False, True]), {"profit": 0.5, "risk": 0.5})
        tensor([[0.5000, 0.5000],
                [0.3478, 0.6522]])
    """
    changed = {name: weight * factors.get(name, 1.0) for name, weight in weights.items()}
    quiet, other = (fixed_weights(each).to(turbulent.device) for each in (weights, changed))
    return torch.where(turbulent[..., None], other, quiet)


def capped(weights: Tensor, most: float) -> Tensor:
    """Weights ``[*, K]`` moved towards even ones just so far that none is over ``most``.

    Example:
        >>> capped(torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2]]), most=0.6)
        tensor([[0.6000, 0.2235, 0.1765],
                [0.5000, 0.3000, 0.2000]])
    """
    even = 1 / weights.shape[-1]
    apart, furthest = weights - even, most - even
    return even + apart * (furthest / apart.amax(-1, keepdim=True).clamp(min=furthest))


class WeightNetwork(nn.Module):
    """Weights of K objectives for what is seen: they sum to 1, and begin near those given.

    Args:
        inputs: sum of the widths of what is seen.
        weights: to begin with, by objective; all above 0.
        hidden: widths of the hidden layers.
        most: of any weight, above 1 / K: see :func:`capped`. It learns as if there were no such
            limit, or what is at it could not tell which way to go.

    Example:
        >>> network = WeightNetwork(5, {"profit": 0.75, "risk": 0.25})
        >>> network(torch.zeros(8, 5))[0]
        tensor([0.7500, 0.2500], grad_fn=<SelectBackward0>)
    """

    def __init__(
        self,
        inputs: int,
        weights: Mapping[str, float] = START,
        hidden: Sequence[int] = (128, 32),
        most: float = 1.0,
    ) -> None:
        super().__init__()
        start = fixed_weights(weights)
        if not bool((start > 0).all()):
            raise ValueError(f"weights to begin with must be above 0, got {dict(weights)}")
        self.names, self.most = tuple(weights), most
        if not (1 / len(start) < most <= 1 and bool((start <= most).all())):
            raise ValueError(
                f"most must be at most 1 and above 1 / {len(start)}, and no weight to begin with"
                f" above it; got {most} and {dict(weights)}"
            )
        self.network = MLP(inputs, hidden, len(self.names))
        last = self.network.layers[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():  # nothing is known yet: the same everywhere
            last.weight.zero_()
            last.bias.copy_(start.log())

    def free(self, *seen: Tensor) -> Tensor:
        """``[*, K]``, without a limit: what learns."""
        return self.network(*seen).softmax(-1)

    def forward(self, *seen: Tensor) -> Tensor:
        """``[*, K]``."""
        return capped(self.free(*seen), self.most) if self.most < 1 else self.free(*seen)
