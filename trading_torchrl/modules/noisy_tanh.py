"""A certain action with noise around it: how a deterministic policy explores."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution


class NoisyTanh(Distribution):
    """``tanh(loc)``, and around it normal noise, clipped to [-1, 1].

    What a policy does when it is asked for its mode is certain, and has a gradient; what it draws
    has none to speak of.

    Args:
        loc: ``[*, A]``, before the tanh.
        noise: deviation of what is drawn, of an action in [-1, 1].

    Example:
        >>> dist = NoisyTanh(torch.zeros(3, 2), noise=0.1)
        >>> dist.mode.abs().max(), dist.rsample().shape
        (tensor(0.), torch.Size([3, 2]))
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = True

    def __init__(self, loc: Tensor, noise: float) -> None:
        self.loc, self.noise = loc, noise
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

    @property
    def mode(self) -> Tensor:
        """What a deterministic policy does."""
        return self.loc.tanh()

    @property
    def mean(self) -> Tensor:
        """The same; clipping moves the true mean."""
        return self.mode

    @property
    def deterministic_sample(self) -> Tensor:
        """The same."""
        return self.mode

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Noisy actions, ``[*sample_shape, *, A]``."""
        shape = torch.Size(sample_shape) + self.loc.shape
        drawn = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return (self.mode + self.noise * drawn).clamp(-1, 1)
