"""Soft actor-critic."""

from __future__ import annotations

import math
from typing import Literal

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import (
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    dispatch,
)
from torch import Tensor, nn

from trading_torchrl.modules.averages import frozen
from trading_torchrl.modules.squashed_normal import SquashedNormal, draw_squashed
from trading_torchrl.objectives.actor_critic import ActorCriticLoss


class SACLoss(ActorCriticLoss):
    """Soft actor-critic with an ensemble of critics as one module, and a learned temperature.

    Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018,
    https://arxiv.org/abs/1812.05905

    The critics' target is ``reward + gamma x (1 - terminated) x (min Q - alpha x log pi)`` at the
    next observation. Several objectives and masks are as
    :class:`~trading_torchrl.objectives.actor_critic.ActorCriticLoss` has them.

    Args:
        actor_network: policy whose distribution has ``rsample`` and ``log_prob``, or, faster,
            ``rsample_with_log_prob``.
        qvalue_network: critics, which write ``state_action_value`` ``[*, members, K]``.

    Keyword Args:
        gamma: discount, in [0, 1].
        alpha_init: temperature at the start.
        min_alpha: floor of the temperature; 0 is none.
        target_entropy: entropy in nats that the temperature aims at; ``"auto"`` is minus the
            number of actions.
        objective_weights: K numbers, none negative, that sum to 1; None for one objective. A
            tensordict that holds ``("objectives", "weights")`` ``[*, K]`` is read instead.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over the batch.

    Example:
        >>> from trading_torchrl.modules import make_actor, make_critics
        >>> actor, critics = make_actor(4, 1, [32]), make_critics(4, 1, [32])
        >>> loss = SACLoss(actor, critics, gamma=0.95)
        >>> batch = TensorDict({
        ...     "observation": torch.zeros(8, 4), "action": torch.zeros(8, 1),
        ...     "next": {"observation": torch.zeros(8, 4), "reward": torch.ones(8, 1),
        ...              "terminated": torch.zeros(8, 1, dtype=torch.bool)}}, [8])
        >>> out = loss(batch)
        >>> sum(out[key] for key in ("loss_actor", "loss_qvalue", "loss_alpha")).backward()
        >>> loss.update_targets(0.005)
    """

    out_keys = ["loss_actor", "loss_qvalue", "loss_alpha", "alpha", "entropy", "q", "td_error"]  # noqa: RUF012

    actor_network: ProbabilisticTensorDictModule
    log_alpha: Tensor

    def __init__(
        self,
        actor_network: TensorDictModule,
        qvalue_network: TensorDictModule,
        *,
        gamma: float = 0.99,
        alpha_init: float = 1.0,
        min_alpha: float = 0.0,
        target_entropy: float | Literal["auto"] = "auto",
        objective_weights: Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            actor_network, qvalue_network,
            gamma=gamma, objective_weights=objective_weights, reduction=reduction,
        )  # fmt: skip
        if not 0 <= min_alpha <= alpha_init or not 0 < alpha_init < math.inf:
            raise ValueError(
                "alpha_init must be positive and min_alpha between 0 and alpha_init,"
                f" got alpha_init={alpha_init}, min_alpha={min_alpha}"
            )
        if target_entropy != "auto" and not isinstance(target_entropy, (int, float)):
            raise ValueError(f"target_entropy must be 'auto' or a number, got {target_entropy!r}")
        self.min_alpha, self.target_entropy = min_alpha, target_entropy
        self.log_alpha = nn.Parameter(torch.tensor(math.log(alpha_init)))

    # Without a batch size: guessed from tensors of width 1 it would be one dimension too long.
    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Losses, and detached: alpha, the policy's entropy, mean value, mean TD error."""
        tensordict, masked = self._without_masked(tensordict)
        alpha = self._alpha()
        weights = self._weights(tensordict)
        values, wanted = self._values_and_wanted(tensordict, alpha, weights)
        misfit, error = self._misfit(values, wanted)
        log_prob, worth, goal = self._decide(tensordict, weights)
        entropy = -log_prob.detach()
        return TensorDict._new_unsafe(
            {
                "loss_actor": self._reduce_loss(alpha * log_prob - worth, masked),
                "loss_qvalue": self._reduce_loss(misfit, masked),
                "loss_alpha": self._reduce_loss(self.log_alpha * (entropy - goal), masked),
                "alpha": alpha,
                **self._shown(masked, entropy=entropy, q=worth, td_error=error),
            },
            batch_size=torch.Size([]),
        )

    @torch.no_grad()
    def _alpha(self) -> Tensor:
        if self.min_alpha:
            # The parameter stays at the floor, so that it can leave it at once.
            self.log_alpha.clamp_(min=math.log(self.min_alpha))
        return self.log_alpha.exp()

    def _values_and_wanted(
        self, tensordict: TensorDictBase, alpha: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The critics' values ``[*, members, K]`` of what was done, and their target ``[*, K]``."""
        with torch.no_grad():
            log_prob, believed = self._follow(tensordict.get("next"), weights)
            wanted = self._one_step(tensordict, believed - (alpha * log_prob).unsqueeze(-1))
        return self._taken(tensordict), wanted

    def _follow(self, following: TensorDictBase, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Of the present policy: log density ``[*]``, and values ``[*, K]`` of the slow critics."""
        action, log_prob = self._act(following)
        values = self._values(self.target_qvalue_network, following, action)
        return log_prob, self._believed(values, weights)

    def _taken(self, tensordict: TensorDictBase) -> Tensor:
        """The critics' values ``[*, members, K]`` of what was done."""
        return self._values(self.qvalue_network, tensordict)

    def _decide(
        self, tensordict: TensorDictBase, weights: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | float]:
        """Of the present policy: log density ``[*]``, worth ``[*]``, entropy it is to have."""
        action, log_prob = self._act(tensordict)
        with frozen(self._critics):
            decided = self._decided(tensordict, action)
        goal = self.target_entropy
        goal = -float(action.shape[-1]) if goal == "auto" else goal
        return log_prob, self._worth(decided, weights), goal

    def _decided(self, tensordict: TensorDictBase, action: Tensor) -> Tensor:
        """Values ``[*, members, K]`` that the actor learns from, of its action."""
        return self._values(self.qvalue_network, tensordict, action)

    def _believed(self, values: Tensor, weights: Tensor | None) -> Tensor:
        """What of the slow critics' values ``[*, members, K]`` the target is made of."""
        return self._lowest(values, weights)[0]

    def _worth(self, values: Tensor, weights: Tensor | None) -> Tensor:
        """What the actor makes of the critics' values of its action: ``[*]``."""
        return self._lowest(values, weights)[1]

    def _misfit(self, values: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """The critics' loss ``[*]``, and their mean absolute error ``[*]``."""
        error = values - wanted.unsqueeze(-2)
        return 0.5 * error.square().sum((-1, -2)), error.detach().abs().mean((-1, -2))

    def _act(self, tensordict: TensorDictBase) -> tuple[Tensor, Tensor]:
        """An action ``[*, A]`` of the present policy, and its log density ``[*]``."""
        network = _plain_network(self.actor_network)
        if network is not None:
            return draw_squashed(*network.module(*(tensordict.get(key) for key in network.in_keys)))
        dist = self.actor_network.get_dist(tensordict.select(*self.actor_network.in_keys))
        if hasattr(dist, "rsample_with_log_prob"):
            return dist.rsample_with_log_prob()
        action = dist.rsample()
        return action, dist.log_prob(action)


def _plain_network(actor: TensorDictModule) -> TensorDictModule | None:
    """What computes loc and scale, where the actor is as ``make_actor`` builds it."""
    parts = list(actor.module) if isinstance(actor, ProbabilisticTensorDictSequential) else []
    if len(parts) != 2 or type(parts[0]) is not TensorDictModule:
        return None
    network, draw = parts
    plain = draw.distribution_class is SquashedNormal and not draw.distribution_kwargs
    return network if plain and list(network.out_keys) == ["loc", "scale"] else None
