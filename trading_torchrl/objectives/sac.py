"""Soft actor-critic."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from tensordict import TensorDict, TensorDictBase, unravel_key
from tensordict.nn import (
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    dispatch,
)
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.objectives import LossModule

from trading_torchrl.modules.averages import follow_slowly, frozen
from trading_torchrl.modules.squashed_normal import SquashedNormal


class SACLoss(LossModule):
    """Soft actor-critic with an ensemble of critics as one module, and a learned temperature.

    Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018,
    https://arxiv.org/abs/1812.05905

    The critics' target is ``reward + gamma x (1 - terminated) x (min Q - alpha x log pi)`` at the
    next observation: truncated episodes go on, terminated ones do not. One backward pass through
    the sum of the three losses reaches each parameter once, by its own loss alone.

    Rewards may be a vector of K objectives; critics then learn one value each, the actor follows
    their weighted sum, and the lowest critic is the one whose weighted sum is lowest. Positions
    that a mask (:attr:`loss_mask_key`) leaves out count in no loss.

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

    @dataclass
    class _AcceptedKeys:
        """Keys that :meth:`set_keys` can change."""

        action: NestedKey = "action"
        reward: NestedKey = "reward"
        terminated: NestedKey = "terminated"
        state_action_value: NestedKey = "state_action_value"
        objective_weights: NestedKey = ("objectives", "weights")

    default_keys = _AcceptedKeys
    tensor_keys: _AcceptedKeys
    out_keys = ["loss_actor", "loss_qvalue", "loss_alpha", "alpha", "entropy", "q", "td_error"]  # noqa: RUF012

    actor_network: ProbabilisticTensorDictModule
    qvalue_network: TensorDictModule
    target_qvalue_network: TensorDictModule
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
        super().__init__()
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma must lie in [0, 1], got {gamma}")
        if not 0 <= min_alpha <= alpha_init or not 0 < alpha_init < math.inf:
            raise ValueError(
                "alpha_init must be positive and min_alpha between 0 and alpha_init,"
                f" got alpha_init={alpha_init}, min_alpha={min_alpha}"
            )
        if target_entropy != "auto" and not isinstance(target_entropy, (int, float)):
            raise ValueError(f"target_entropy must be 'auto' or a number, got {target_entropy!r}")
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        self.actor_network, self.qvalue_network = actor_network, qvalue_network
        self.target_qvalue_network = deepcopy(qvalue_network).requires_grad_(False)
        self._critics = list(qvalue_network.parameters())
        self._targets = list(self.target_qvalue_network.parameters())
        self.gamma, self.min_alpha, self.reduction = gamma, min_alpha, reduction
        self.target_entropy = target_entropy
        self.log_alpha = nn.Parameter(torch.tensor(math.log(alpha_init)))
        if objective_weights is not None:
            weights = torch.as_tensor(objective_weights, dtype=torch.float32)
            positive = weights.ndim == 1 and bool((weights >= 0).all())
            if not positive or abs(float(weights.sum()) - 1) > 1e-5:
                raise ValueError(
                    "objective_weights must be a list of numbers, none negative, that sum to 1,"
                    f" got {weights.tolist()}"
                )
            self.register_buffer("objective_weights", weights)
        else:
            self.objective_weights = None

    def _forward_value_estimator_keys(self, **kwargs: NestedKey) -> None:
        """There is no value estimator: the target is one step."""

    @property
    def in_keys(self) -> list[NestedKey]:
        """What :meth:`forward` reads."""
        keys = self.tensor_keys
        both = dict.fromkeys([*self.actor_network.in_keys, *self.qvalue_network.in_keys])
        seen = [key for key in both if key != keys.action]
        after = [unravel_key(("next", key)) for key in (keys.reward, keys.terminated, *seen)]
        return [*seen, keys.action, *after]

    @in_keys.setter
    def in_keys(self, keys: list[NestedKey]) -> None:
        raise AttributeError("in_keys follow from the networks; use set_keys")

    # Without a batch size: guessed from tensors of width 1 it would be one dimension too long.
    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Losses, and detached: alpha, the policy's entropy, mean value, mean TD error."""
        tensordict = self._without_masked(tensordict)
        alpha = self._alpha()
        weights = self._weights(tensordict)
        wanted = self._wanted(tensordict, alpha, weights)
        values = self._values(self.qvalue_network, tensordict)
        error = values - wanted.unsqueeze(-2)
        loss_qvalue = self._reduce_loss(0.5 * error.square().sum((-1, -2)), tensordict)

        action, log_prob = self._act(tensordict)
        with frozen(self._critics):
            decided = self._values(self.qvalue_network, tensordict, action)
        worth = self._lowest(decided, weights)[1]
        loss_actor = self._reduce_loss(alpha * log_prob - worth, tensordict)

        entropy = -log_prob.detach()
        goal = self.target_entropy
        goal = -float(action.shape[-1]) if goal == "auto" else goal
        loss_alpha = self._reduce_loss(self.log_alpha * (entropy - goal), tensordict)
        return TensorDict._new_unsafe(
            {
                "loss_actor": loss_actor,
                "loss_qvalue": loss_qvalue,
                "loss_alpha": loss_alpha,
                "alpha": alpha,
                "entropy": self._reduce_loss(entropy, tensordict),
                "q": self._reduce_loss(worth.detach(), tensordict),
                "td_error": self._reduce_loss(error.detach().abs().mean((-1, -2)), tensordict),
            },
            batch_size=torch.Size([]),
        )

    def update_targets(self, rate: float) -> None:
        """Moves the target critics by ``rate`` of the way to the critics."""
        follow_slowly(self._targets, self._critics, rate)

    def _without_masked(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Zeros where a mask leaves positions out: a NaN there would reach all gradients."""
        found = [tensordict.get(key, None) for key in self._loss_mask_keys()]
        masks = [mask for mask in found if mask is not None]
        if not masks:
            return tensordict
        tensordict = tensordict.copy()
        for key in (*self.in_keys, self.tensor_keys.objective_weights):
            value = tensordict.get(key, None)
            for mask in masks if value is not None else ():
                value = value.masked_fill(~self._expand_loss_mask(mask, value), 0)
            if value is not None:
                tensordict.set(key, value)
        return tensordict

    @torch.no_grad()
    def _alpha(self) -> Tensor:
        if self.min_alpha:
            # The parameter stays at the floor, so that it can leave it at once.
            self.log_alpha.clamp_(min=math.log(self.min_alpha))
        return self.log_alpha.exp()

    def _weights(self, tensordict: TensorDictBase) -> Tensor | None:
        """Of the objectives: ``[*, K]``, ``[K]``, or None for one."""
        return tensordict.get(self.tensor_keys.objective_weights, self.objective_weights)

    @torch.no_grad()
    def _wanted(self, tensordict: TensorDictBase, alpha: Tensor, weights: Tensor | None) -> Tensor:
        """The critics' target ``[*, K]``."""
        keys, following = self.tensor_keys, tensordict.get("next")
        action, log_prob = self._act(following)
        values = self._values(self.target_qvalue_network, following, action)
        lowest = self._lowest(values, weights)[0] - (alpha * log_prob).unsqueeze(-1)
        reward, goes_on = following.get(keys.reward), ~following.get(keys.terminated)
        wanted = reward + self.gamma * goes_on.float() * lowest
        if not reward.shape == wanted.shape == lowest.shape:
            one = list(lowest[..., :1].shape)
            raise ValueError(
                f"critics with {lowest.shape[-1]} objectives need rewards {list(lowest.shape)} and"
                f" flags {one} on this batch, got {list(reward.shape)} and {list(goes_on.shape)};"
                " build the critics with as many objectives as the reward has"
            )
        return wanted

    def _act(self, tensordict: TensorDictBase) -> tuple[Tensor, Tensor]:
        """An action ``[*, A]`` of the present policy, and its log density ``[*]``."""
        network = _plain_network(self.actor_network)
        if network is None:
            read = tensordict.select(*self.actor_network.in_keys)
            dist = self.actor_network.get_dist(read)
        else:
            read = [tensordict.get(key) for key in network.in_keys]
            dist = SquashedNormal(*network.module(*read))
        if hasattr(dist, "rsample_with_log_prob"):
            return dist.rsample_with_log_prob()
        action = dist.rsample()
        return action, dist.log_prob(action)

    def _values(
        self, network: TensorDictModule, tensordict: TensorDictBase, action: Tensor | None = None
    ) -> Tensor:
        """Values ``[*, members, K]`` of ``action``, else of the one in the tensordict."""
        key = self.tensor_keys.action
        if type(network) is TensorDictModule:  # what it wraps is called without its overhead
            given = tensordict.get(key) if action is None else action
            return network.module(
                *(given if each == key else tensordict.get(each) for each in network.in_keys)
            )
        seen = tensordict.select(*network.in_keys, strict=False)
        if action is not None:
            seen.set(key, action)
        return network(seen).get(self.tensor_keys.state_action_value)

    def _lowest(self, values: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """The lowest member's values ``[*, K]``, and their weighted sum ``[*]``."""
        if values.shape[-1] == 1:
            lowest = values.amin(-2)
            return lowest, lowest.squeeze(-1)
        if weights is None or weights.shape[-1] != values.shape[-1]:
            raise ValueError(
                f"the critics have {values.shape[-1]} objectives: pass as many objective_weights,"
                f" got {None if weights is None else list(weights.shape)}"
            )
        total = (values * weights.unsqueeze(-2)).sum(-1) if weights.ndim > 1 else values @ weights
        least, member = total.min(-1)
        index = member[..., None, None].expand(*member.shape, 1, values.shape[-1])
        return values.gather(-2, index).squeeze(-2), least


def _plain_network(actor: TensorDictModule) -> TensorDictModule | None:
    """What computes loc and scale, where the actor is as ``make_actor`` builds it."""
    parts = list(actor.module) if isinstance(actor, ProbabilisticTensorDictSequential) else []
    if len(parts) != 2 or type(parts[0]) is not TensorDictModule:
        return None
    network, draw = parts
    plain = draw.distribution_class is SquashedNormal and not draw.distribution_kwargs
    return network if plain and list(network.out_keys) == ["loc", "scale"] else None
