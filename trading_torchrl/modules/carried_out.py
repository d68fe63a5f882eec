"""What becomes of an agent's action where an option carries it out."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from tensordict.nn import (
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
)
from torch import Tensor
from torch.distributions import Distribution

OFFSET, FACTOR = ("option", "offset"), ("option", "factor")


class CarriedOut(Distribution):
    """``offset + factor x`` what an agent wants, which has a distribution of its own.

    Densities are those of what is wanted, so that an agent explores as much where little of it is
    done; an action does not say what was wanted, so there is no ``log_prob``.

    Args:
        offset: ``[*, A]``.
        factor: likewise, not negative.
        of: class of the distribution.
        parameters: its arguments.

    Example:
        >>> from trading_torchrl.modules import SquashedNormal
        >>> half = torch.full((3, 1), 0.5)
        >>> dist = CarriedOut(half, half, of=SquashedNormal, loc=0 * half, scale=half)
        >>> dist.mode[:, 0]
        tensor([0.5000, 0.5000, 0.5000])
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = True

    def __init__(
        self, offset: Tensor, factor: Tensor, *, of: type[Distribution], **parameters: Any
    ) -> None:
        self.wanted, self.offset, self.factor = of(**parameters), offset, factor
        super().__init__(offset.shape[:-1], offset.shape[-1:], validate_args=False)

    def _done(self, wanted: Tensor) -> Tensor:
        return torch.addcmul(self.offset, self.factor, wanted)

    @property
    def mode(self) -> Tensor:
        """What a deterministic policy does."""
        return self._done(self.wanted.mode)

    @property
    def mean(self) -> Tensor:
        """Of what is done."""
        return self._done(self.wanted.mean)

    @property
    def deterministic_sample(self) -> Tensor:
        """What a deterministic policy does."""
        return self.mode

    def log_prob(self, value: Tensor) -> Tensor:
        """There is none."""
        raise ValueError(
            "how likely an action was cannot be said of what options made of it: take a loss that"
            " samples actions instead, such as SACLoss"
        )

    def around(self, noise: Tensor) -> Tensor:
        """What is done where an agent wants nearly the same, ``[*, A]``."""
        return self._done((self.wanted.mode + noise).clamp(-1, 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Samples with a gradient, ``[*sample_shape, *, A]``."""
        return self._done(self.wanted.rsample(sample_shape))

    def rsample_with_log_prob(self) -> tuple[Tensor, Tensor]:
        """What is done ``[*, A]``, with a gradient, and the log density ``[*]`` of the wish."""
        if hasattr(self.wanted, "rsample_with_log_prob"):
            wanted, density = self.wanted.rsample_with_log_prob()
        else:
            wanted = self.wanted.rsample()
            density = self.wanted.log_prob(wanted)
        return self._done(wanted), density


def carried_out(actor: ProbabilisticTensorDictSequential) -> ProbabilisticTensorDictSequential:
    """An agent whose ``action`` is what options make of it.

    Reads ``("option", "offset")`` and ``("option", "factor")`` ``[*, A]`` besides. Its losses learn
    from actions as they were carried out.

    Args:
        actor: of one network and one distribution, with the same weights from then on.
    """
    parts = list(actor.module)
    if len(parts) != 2 or not isinstance(parts[1], ProbabilisticTensorDictModule):
        raise ValueError("options carry out what an actor of one network and one distribution does")
    network, draw = parts
    assert isinstance(network, TensorDictModule)
    parameters = {str(key): key for key in draw.in_keys}
    return ProbabilisticTensorDictSequential(
        network,
        ProbabilisticTensorDictModule(
            in_keys={**parameters, "offset": OFFSET, "factor": FACTOR},
            out_keys=draw.out_keys,
            distribution_class=CarriedOut,
            distribution_kwargs={"of": draw.distribution_class, **draw.distribution_kwargs},
            default_interaction_type=draw.default_interaction_type,
        ),
    )
