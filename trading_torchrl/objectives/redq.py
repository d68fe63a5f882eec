"""Randomised ensembled double Q-learning."""

from __future__ import annotations

from typing import Any

import torch
from tensordict.nn import TensorDictModule
from torch import Tensor

from trading_torchrl.objectives.sac import SACLoss


class REDQLoss(SACLoss):
    """SAC with many critics, of which a few drawn anew at each call make the target.

    Chen et al., "Randomized Ensembled Double Q-Learning: Learning Fast Without a Model", 2021,
    https://arxiv.org/abs/2101.05982

    The target takes the lowest of ``subset`` critics; the actor follows the mean of all. It bears
    many updates a frame.

    Args:
        actor_network: as :class:`~trading_torchrl.objectives.SACLoss` has it.
        qvalue_network: critics, ten of them in the paper.

    Keyword Args:
        subset: how many critics make a target.
        **settings: of :class:`~trading_torchrl.objectives.SACLoss`.

    Example:
        >>> from trading_torchrl.modules import make_actor, make_critics
        >>> actor, critics = make_actor(4, 1, [32]), make_critics(4, 1, [32], members=10)
        >>> loss = REDQLoss(actor, critics, subset=2, gamma=0.95)
    """

    def __init__(
        self,
        actor_network: TensorDictModule,
        qvalue_network: TensorDictModule,
        *,
        subset: int = 2,
        **settings: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, **settings)
        if subset < 1:
            raise ValueError(f"subset must be at least 1 critic, got {subset}")
        self.subset = subset
        # Networks that do not say how many they are show it at the first call.
        self._check(getattr(qvalue_network, "members", None) or subset)

    def _believed(self, values: Tensor, weights: Tensor | None) -> Tensor:
        members = values.shape[-2]
        self._check(members)
        drawn = torch.randperm(members, device=values.device)[: self.subset]
        return super()._believed(values.index_select(-2, drawn), weights)

    def _check(self, members: int) -> None:
        if members < self.subset:
            raise ValueError(
                f"a target is made of {self.subset} critics and there are {members}: build more"
                " critics, or choose a smaller subset"
            )

    def _worth(self, values: Tensor, weights: Tensor | None) -> Tensor:
        return self._total(values, weights).mean(-1)
