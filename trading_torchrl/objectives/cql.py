"""Conservative Q-learning."""

from __future__ import annotations

import math
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule, dispatch
from torch import Tensor

from trading_torchrl.objectives.sac import SACLoss


class CQLLoss(SACLoss):
    """SAC whose critics are held down at actions that the data do not show.

    Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning", 2020,
    https://arxiv.org/abs/2006.04779, the variant CQL(H) with a fixed weight.

    The critics' loss gets ``weight x (log of the integral of exp Q over all actions - Q of the
    action taken)``. The integral is estimated from ``drawn`` actions drawn evenly from [-1, 1] and
    as many of the present policy, each divided by its density. With ``weight=0`` it is SAC.

    Args:
        actor_network: as :class:`~trading_torchrl.objectives.SACLoss` has it.
        qvalue_network: critics, which write ``state_action_value`` ``[*, members, K]``.

    Keyword Args:
        weight: of what holds the critics down, in the unit of the scaled rewards.
        drawn: actions of each kind that estimate the integral.
        **settings: of :class:`~trading_torchrl.objectives.SACLoss`.

    Example:
        >>> from trading_torchrl.modules import make_actor, make_critics
        >>> actor, critics = make_actor(4, 1, [32]), make_critics(4, 1, [32])
        >>> loss = CQLLoss(actor, critics, weight=1.0, gamma=0.95)
    """

    out_keys = [  # noqa: RUF012
        "loss_actor", "loss_qvalue", "loss_alpha", "alpha", "entropy", "q", "td_error", "gap"
    ]  # fmt: skip

    def __init__(
        self,
        actor_network: TensorDictModule,
        qvalue_network: TensorDictModule,
        *,
        weight: float = 1.0,
        drawn: int = 10,
        **settings: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, **settings)
        if not 0 <= weight < math.inf:
            raise ValueError(f"weight must not be negative, got {weight}")
        if drawn < 1:
            raise ValueError(f"drawn must be at least 1 action of each kind, got {drawn}")
        self.weight, self.drawn = weight, drawn

    # Without a batch size: guessed from tensors of width 1 it would be one dimension too long.
    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """As SAC's, and detached: the gap, by how much other actions are held to be better."""
        tensordict, masked = self._without_masked(tensordict)
        out = super().forward(tensordict)
        gap = self._gap(tensordict)
        held = self._reduce_loss(self.weight * gap.sum(-1), masked)
        out.set("loss_qvalue", out.get("loss_qvalue") + held)
        out.set("gap", self._reduce_loss(gap.detach().mean(-1), masked))
        return out

    def _gap(self, tensordict: TensorDictBase) -> Tensor:
        """Log of the integral of exp Q, less Q of the action taken: ``[*, members]``."""
        weights = self._weights(tensordict)
        taken = tensordict.get(self.tensor_keys.action)
        with torch.no_grad():
            # One more dimension before the features, [*, drawn, ...]: every state several times.
            crowd = self._repeated(tensordict, self.drawn, taken.ndim - 1)
            own, log_prob = self._act(crowd)
            even = torch.empty_like(own).uniform_(-1, 1)
            density = torch.cat(
                [torch.full_like(log_prob, -even.shape[-1] * math.log(2)), log_prob], -1
            )
            actions = torch.cat([even, own, taken.unsqueeze(-2)], -2)
        several = self._repeated(tensordict, actions.shape[-2], taken.ndim - 1)
        if weights is not None and weights.ndim > 1:
            weights = weights.unsqueeze(-2)
        values = self._total(self._values(self.qvalue_network, several, actions), weights)
        others, held = values[..., :-1, :], values[..., -1, :]
        among = (others - density.unsqueeze(-1)).logsumexp(-2) - math.log(2 * self.drawn)
        return among - held

    def _repeated(self, tensordict: TensorDictBase, times: int, batch_dims: int) -> TensorDictBase:
        """What the networks read but the action, ``[*, times, ...]``."""
        keys = dict.fromkeys([*self.actor_network.in_keys, *self.qvalue_network.in_keys])
        out = TensorDict({}, [])
        for key in keys:
            if key != self.tensor_keys.action:
                value = tensordict.get(key)
                shape = (*value.shape[:batch_dims], times, *value.shape[batch_dims:])
                out.set(key, value.unsqueeze(batch_dims).expand(shape))
        return out
