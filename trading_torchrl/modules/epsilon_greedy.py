"""The best of a few choices, now and then any other: how an agent with values alone explores."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution


class EpsilonGreedy(Distribution):
    """The choice that is worth most, and with probability ``epsilon`` any that is allowed.

    Args:
        action_value: ``[*, members, choices]``; the mean over members counts.
        mask: bool ``[*, choices]``, which choices are allowed; None for all.
        epsilon: in [0, 1].

    Example:
        >>> values = torch.tensor([[[1.0, 3.0, 2.0]]])
        >>> dist = EpsilonGreedy(values, torch.tensor([[True, False, True]]), epsilon=0.1)
        >>> dist.mode, dist.probs
        (tensor([2]), tensor([[0.0500, 0.0000, 0.9500]]))
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, action_value: Tensor, mask: Tensor | None = None, *, epsilon: float) -> None:
        worth = action_value.mean(-2)
        self.allowed = torch.ones_like(worth, dtype=torch.bool) if mask is None else mask
        self.worth, self.epsilon = worth.masked_fill(~self.allowed, -torch.inf), epsilon
        super().__init__(worth.shape[:-1], validate_args=False)

    @property
    def mode(self) -> Tensor:
        """What is worth most, ``[*]``."""
        return self.worth.argmax(-1)

    @property
    def deterministic_sample(self) -> Tensor:
        """The same."""
        return self.mode

    @property
    def probs(self) -> Tensor:
        """Of each choice, ``[*, choices]``; exactly 0 where it is not allowed."""
        some = self.epsilon * self.allowed / self.allowed.sum(-1, keepdim=True)
        best = torch.full_like(self.mode, 1, dtype=some.dtype)[..., None] * (1 - self.epsilon)
        return some.scatter_add(-1, self.mode[..., None], best)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Choices, ``[*sample_shape, *]``."""
        shape = torch.Size(sample_shape)
        probs = self.probs.expand(*shape, *self.worth.shape)
        drawn = torch.multinomial(probs.reshape(-1, probs.shape[-1]), 1)
        return drawn.view(probs.shape[:-1])

    def log_prob(self, value: Tensor) -> Tensor:
        """Of choices, ``[*]``."""
        return self.probs.gather(-1, value[..., None]).squeeze(-1).log()
