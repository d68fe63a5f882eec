"""A normal squashed into (-1, 1) by tanh: the usual distribution of continuous actions."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn.functional import softplus

CONSTANT = -0.5 * math.log(2 * math.pi) - 2 * math.log(2)
EDGE = 1e-6
RIM = 1e-3


def log_density(noise: Tensor, raw: Tensor, scale: Tensor) -> Tensor:
    """Log density ``[*]`` of ``tanh(raw)`` ``[*, A]``, where raw = loc + scale x noise.

    Less the logarithm of tanh's slope, 2 log 2 - 2 raw - 2 log(1 + exp(-2 raw)): so written it
    stays exact far out.
    """
    # With beta -2 softplus is -log(1 + exp(-2 raw)) / 2; a quarter of the square is doubled below.
    half = torch.add(raw, softplus(raw, beta=-2), alpha=-2).addcmul(noise, noise, value=-0.25)
    return torch.add(torch.sub(CONSTANT, scale.log()), half, alpha=2).sum(-1)


def draw_squashed(loc: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """An action ``tanh(loc + scale x noise)`` ``[*, A]`` with a gradient, its log density ``[*]``.

    What a :class:`SquashedNormal` draws, without one.
    """
    noise = torch.randn(loc.shape, dtype=loc.dtype, device=loc.device)
    raw = torch.addcmul(loc, scale, noise)
    return raw.tanh(), log_density(noise, raw, scale)


class SquashedNormal(Distribution):
    """``tanh(loc + scale x noise)`` over the last dimension, without validation of its arguments.

    What :class:`torchrl.modules.TanhNormal` is, with less around it.

    Args:
        loc: ``[*, A]``, before the tanh.
        scale: likewise, positive.

    Example:
        >>> dist = SquashedNormal(torch.zeros(3, 2), torch.ones(3, 2))
        >>> action, log_prob = dist.rsample_with_log_prob()
        >>> action.shape, log_prob.shape
        (torch.Size([3, 2]), torch.Size([3]))
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = True

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        self.loc, self.scale = loc, scale
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

    @property
    def mode(self) -> Tensor:
        """The squashed centre: what a deterministic policy does."""
        return self.loc.tanh()

    @property
    def mean(self) -> Tensor:
        """The squashed centre; the true mean has no closed form."""
        return self.mode

    @property
    def deterministic_sample(self) -> Tensor:
        """The squashed centre."""
        return self.mode

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Samples with a gradient, ``[*sample_shape, *, A]``."""
        shape = torch.Size(sample_shape) + self.loc.shape
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return torch.addcmul(self.loc, self.scale, noise).tanh()

    def rsample_with_log_prob(self) -> tuple[Tensor, Tensor]:
        """A sample ``[*, A]`` with a gradient, and its log density ``[*]``."""
        return draw_squashed(self.loc, self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density ``[*]``; values at the very edge count as just inside."""
        raw = value.clamp(EDGE - 1, 1 - EDGE).atanh()
        return log_density((raw - self.loc) / self.scale, raw, self.scale)

    def log_likelihood(self, value: Tensor) -> Tensor:
        """Log likelihood ``[*]`` of an action that somebody took: it may be at the very edge.

        There the density has no end, and ``atanh`` would make the action an outlier that outweighs
        all others. An action within a thousandth of -1 or 1 counts as one at the edge, and its
        likelihood is the probability of all that lies as far out. Elsewhere it is the density.
        """
        raw = value.clamp(RIM - 1, 1 - RIM).atanh()
        noise = (raw - self.loc) / self.scale
        inside = log_density(noise[..., None], raw[..., None], self.scale[..., None])
        beyond = torch.special.log_ndtr(torch.where(value < 0, noise, -noise))
        return torch.where(value.abs() < 1 - RIM, inside, beyond).sum(-1)
