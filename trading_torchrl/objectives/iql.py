"""Implicit Q-learning."""

from __future__ import annotations

import math

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import ProbabilisticTensorDictModule, TensorDictModule, dispatch
from torch import Tensor

from trading_torchrl.objectives.actor_critic import ActorCriticLoss
from trading_torchrl.objectives.behaviour_cloning import log_likelihood


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """The square of ``error = wanted - value``, times ``expectile`` above 0 and the rest below.

    The value that makes it least is the expectile of what is wanted; at 0.5 the mean.
    """
    return torch.where(error > 0, expectile * error, (1 - expectile) * error) * error


class IQLLoss(ActorCriticLoss):
    """Learns from stored actions alone: no action that the data do not show is ever valued.

    Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning", 2021,
    https://arxiv.org/abs/2110.06169

    A value network learns an upper expectile, over the actions taken, of the lowest slow critic;
    the critics' target is ``reward + gamma x (1 - terminated) x V`` of the next observation; the
    actor imitates the actions taken, each weighed by ``exp(advantage / temperature)``. Masks are as
    :class:`~trading_torchrl.objectives.actor_critic.ActorCriticLoss` has them; the reward is one.

    Args:
        actor_network: policy whose distribution has ``log_prob``, or, for actions at the edge too,
            ``log_likelihood``.
        qvalue_network: critics, which write ``state_action_value`` ``[*, members, 1]``.
        value_network: writes ``state_value`` ``[*, 1]``, from
            :func:`~trading_torchrl.modules.make_value` for one.

    Keyword Args:
        gamma: discount, in [0, 1].
        expectile: in [0.5, 1): 0.5 values what the data do on average, near 1 the best they do.
        temperature: in the unit of the scaled rewards; the smaller, the more the better actions
            count; large is imitation of all.
        max_weight: largest weight of an action.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over the batch.

    Example:
        >>> from trading_torchrl.modules import make_actor, make_critics, make_value
        >>> actor, critics = make_actor(4, 1, [32]), make_critics(4, 1, [32])
        >>> loss = IQLLoss(actor, critics, make_value(4, 1, [32]), gamma=0.95)
        >>> batch = TensorDict({
        ...     "observation": torch.zeros(8, 4), "action": torch.zeros(8, 1),
        ...     "next": {"observation": torch.zeros(8, 4), "reward": torch.ones(8, 1),
        ...              "terminated": torch.zeros(8, 1, dtype=torch.bool)}}, [8])
        >>> out = loss(batch)
        >>> sum(out[key] for key in ("loss_actor", "loss_qvalue", "loss_value")).backward()
        >>> loss.update_targets(0.005)
    """

    out_keys = [  # noqa: RUF012
        "loss_actor", "loss_qvalue", "loss_value", "value", "advantage", "q", "td_error"
    ]  # fmt: skip

    actor_network: ProbabilisticTensorDictModule
    value_network: TensorDictModule

    def __init__(
        self,
        actor_network: TensorDictModule,
        qvalue_network: TensorDictModule,
        value_network: TensorDictModule,
        *,
        gamma: float = 0.99,
        expectile: float = 0.7,
        temperature: float = 1.0,
        max_weight: float = 100.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            actor_network, qvalue_network,
            gamma=gamma, objective_weights=None, reduction=reduction,
        )  # fmt: skip
        if not 0.5 <= expectile < 1:
            raise ValueError(f"expectile must lie in [0.5, 1), got {expectile}")
        for name, given in (("temperature", temperature), ("max_weight", max_weight)):
            if not 0 < given < math.inf:
                raise ValueError(f"{name} must be positive, got {given}")
        self.value_network = value_network
        self.expectile, self.temperature = expectile, temperature
        self.max_log_weight = math.log(max_weight)

    # Without a batch size: guessed from tensors of width 1 it would be one dimension too long.
    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Losses, and detached: mean value, advantage and Q of what was done, mean TD error."""
        tensordict, masked = self._without_masked(tensordict)
        value = self._state_value(tensordict)
        with torch.no_grad():
            slow = self._values(self.target_qvalue_network, tensordict)
            advantage = slow.amin(-2) - value
            wanted = self._one_step(tensordict, self._state_value(tensordict.get("next")))
        weight = (advantage / self.temperature).clamp(max=self.max_log_weight).exp().squeeze(-1)
        dist = self.actor_network.get_dist(tensordict.select(*self.actor_network.in_keys))
        taken = log_likelihood(dist, tensordict.get(self.tensor_keys.action))
        loss_value = expectile_loss(advantage + value.detach() - value, self.expectile)

        values = self._values(self.qvalue_network, tensordict)
        error = values - wanted.unsqueeze(-2)
        losses = {
            "loss_actor": -weight * taken,
            "loss_qvalue": 0.5 * error.square().sum((-1, -2)),
            "loss_value": loss_value.squeeze(-1),
            "value": value.detach().squeeze(-1),
            "advantage": advantage.squeeze(-1),
            "q": values.detach().amin(-2).squeeze(-1),
            "td_error": error.detach().abs().mean((-1, -2)),
        }
        return TensorDict._new_unsafe(
            {name: self._reduce_loss(each, masked) for name, each in losses.items()},
            batch_size=torch.Size([]),
        )

    def _state_value(self, tensordict: TensorDictBase) -> Tensor:
        """``[*, 1]``."""
        seen = tensordict.select(*self.value_network.in_keys)
        return self.value_network(seen).get("state_value")
