"""Truncated quantile critics."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import Tensor

from trading_torchrl.objectives.sac import SACLoss


def quantile_loss(values: Tensor, wanted: Tensor) -> Tensor:
    """Quantile Huber loss ``[*, M]`` of quantiles ``[*, M, Q]`` to samples ``[*, T]``.

    Quantile i of Q stands for the level (i + 1/2) / Q; means over quantiles and samples.
    """
    quantiles = values.shape[-1]
    level = (torch.arange(quantiles, device=values.device, dtype=values.dtype) + 0.5) / quantiles
    apart = wanted[..., None, None, :] - values[..., None]
    size = apart.abs()
    huber = torch.where(size > 1, size - 0.5, 0.5 * apart.square())
    weight = (level[:, None] - (apart.detach() < 0).to(values.dtype)).abs()
    return (weight * huber).mean((-1, -2))


class TQCLoss(SACLoss):
    """SAC whose critics learn the distribution of what is earned, the highest of it left out.

    Kuznetsov et al., "Controlling Overestimation Bias with Truncated Mixture of Continuous
    Distributional Quantile Critics", 2020, https://arxiv.org/abs/2005.04269

    All quantiles of all slow critics are put in order; the highest ``dropped`` for each critic do
    not count in the target. The actor follows the mean of all quantiles. One objective.

    Args:
        actor_network: as :class:`~trading_torchrl.objectives.SACLoss` has it.
        qvalue_network: critics which write ``state_action_value`` ``[*, members, quantiles]``:
            ``make_critics(..., objectives=25)``.

    Keyword Args:
        dropped: quantiles left out for each critic.
        **settings: of :class:`~trading_torchrl.objectives.SACLoss`, without ``objective_weights``.

    Example:
        >>> from trading_torchrl.modules import make_actor, make_critics
        >>> actor, critics = make_actor(4, 1, [32]), make_critics(4, 1, [32], objectives=25)
        >>> loss = TQCLoss(actor, critics, dropped=2, gamma=0.95)
    """

    def __init__(
        self,
        actor_network: TensorDictModule,
        qvalue_network: TensorDictModule,
        *,
        dropped: int = 2,
        **settings: Any,
    ) -> None:
        if settings.get("objective_weights") is not None:
            raise ValueError("quantile critics have one objective: leave objective_weights out")
        super().__init__(actor_network, qvalue_network, **settings)
        if dropped < 0:
            raise ValueError(f"dropped must be at least 0 quantiles, got {dropped}")
        self.dropped = dropped
        # Networks that do not say how many quantiles they have show it at the first call.
        self._check(getattr(qvalue_network, "outputs", None) or dropped + 1)

    def _believed(self, values: Tensor, weights: Tensor | None) -> Tensor:
        members, quantiles = values.shape[-2:]
        self._check(quantiles)
        ordered = values.flatten(-2).sort(-1).values
        return ordered[..., : members * (quantiles - self.dropped)]

    def _check(self, quantiles: int) -> None:
        if self.dropped >= quantiles:
            raise ValueError(
                f"{self.dropped} quantiles are dropped and a critic has {quantiles}: build critics"
                " with more outputs, or drop fewer"
            )

    def _one_step(self, tensordict: TensorDictBase, following: Tensor) -> Tensor:
        # Every quantile of what follows meets the one reward.
        one = following[..., :1]
        reward = super()._one_step(tensordict, torch.zeros_like(one))
        goes_on = ~tensordict.get(("next", self.tensor_keys.terminated))
        return reward + self._discount(tensordict) * goes_on.to(following.dtype) * following

    def _worth(self, values: Tensor, weights: Tensor | None) -> Tensor:
        return values.mean((-1, -2))

    def _misfit(self, values: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        error = values.mean(-1) - wanted.mean(-1, keepdim=True)
        return quantile_loss(values, wanted).sum(-1), error.abs().mean(-1)
