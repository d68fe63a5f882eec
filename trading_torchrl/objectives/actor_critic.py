"""What the losses of actors with an ensemble of critics share."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar

import torch
from tensordict import TensorDictBase, unravel_key
from tensordict.nn import TensorDictModule
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule

from trading_torchrl.checks import check_reduction, check_share
from trading_torchrl.modules.averages import follow_slowly, moving


def without_masked(
    loss: LossModule, tensordict: TensorDictBase, keys: Iterable[NestedKey]
) -> tuple[TensorDictBase, TensorDictBase | None]:
    """Zeros under ``keys`` where the loss's mask leaves positions out: a NaN would reach all.

    Returns:
        what the loss is to read, and what it is to reduce by: where there is a mask the same, else
        None, so that none is looked for again.
    """
    found = [tensordict.get(key, None) for key in loss._loss_mask_keys()]
    masks = [mask for mask in found if mask is not None]
    if not masks:
        return tensordict, None
    tensordict = tensordict.copy()
    for key in keys:
        value = tensordict.get(key, None)
        for mask in masks if value is not None else ():
            value = value.masked_fill(~loss._expand_loss_mask(mask, value), 0)
        if value is not None:
            tensordict.set(key, value)
    return tensordict, tensordict


def kept_by(loss: LossModule, tensordict: TensorDictBase, like: Tensor) -> Tensor | None:
    """Positions that no mask leaves out, bool of the shape of ``like``; None without a mask."""
    found = [tensordict.get(key, None) for key in loss._loss_mask_keys()]
    masks = [loss._expand_loss_mask(mask, like) for mask in found if mask is not None]
    return torch.stack(masks).all(0) if masks else None


class ActorCriticLoss(LossModule):
    """An actor, an ensemble of critics as one module, and slow copies of the critics.

    One backward pass through the sum of the losses reaches each parameter once, by its own loss
    alone. The critics' target is one step: truncated episodes go on, terminated ones do not. Where
    rows span several steps, ``steps_to_next_obs`` (``[*]`` or ``[*, 1]``) says how often what
    follows is discounted.

    Rewards may be a vector of K objectives; critics then learn one value each, the actor follows
    their weighted sum, and the lowest critic is the one whose weighted sum is lowest. Positions
    that a mask (:attr:`loss_mask_key`) leaves out count in no loss.

    Args:
        actor_network: a policy.
        qvalue_network: critics, which write ``state_action_value`` ``[*, members, K]``.

    Keyword Args:
        gamma: discount, in [0, 1].
        objective_weights: K numbers, none negative, that sum to 1; None for one objective. A
            tensordict that holds ``("objectives", "weights")`` ``[*, K]`` is read instead.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over the batch.
    """

    @dataclass
    class _AcceptedKeys:
        """Keys that :meth:`set_keys` can change."""

        action: NestedKey = "action"
        reward: NestedKey = "reward"
        terminated: NestedKey = "terminated"
        state_action_value: NestedKey = "state_action_value"
        objective_weights: NestedKey = ("objectives", "weights")
        steps_to_next_obs: NestedKey = "steps_to_next_obs"

    default_keys = _AcceptedKeys
    tensor_keys: _AcceptedKeys

    discrete: ClassVar[bool] = False
    """Whether it is for actors that choose among a few actions."""

    _written: ClassVar[str] = "state_action_value"
    slow_critics: ClassVar[bool] = True
    """Whether there are slow copies of the critics; without them a loss makes its own targets."""

    qvalue_network: TensorDictModule
    target_qvalue_network: TensorDictModule

    def __init__(
        self,
        actor_network: TensorDictModule,
        qvalue_network: TensorDictModule,
        *,
        gamma: float,
        objective_weights: Tensor | None,
        reduction: str,
    ) -> None:
        super().__init__()
        check_share("gamma", gamma)
        check_reduction(reduction)
        self.actor_network, self.qvalue_network = actor_network, qvalue_network
        self._critics = list(qvalue_network.parameters())
        self._targets: list[Tensor] = []
        if self.slow_critics:
            self.target_qvalue_network = deepcopy(qvalue_network).requires_grad_(False)
            self._targets = moving(self.target_qvalue_network)
        self._followed = moving(qvalue_network)
        self.gamma, self.reduction = gamma, reduction
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

    def update_targets(self, rate: float) -> None:
        """Moves the target critics by ``rate`` of the way to the critics."""
        if self._targets:
            follow_slowly(self._targets, self._followed, rate)

    @torch.no_grad()
    def _shown(self, masked: TensorDictBase | None, **values: Tensor) -> dict[str, Tensor]:
        """What is shown beside the losses, each ``[*]`` reduced; means are taken of all at once."""
        if masked is not None or self.reduction != "mean":
            return {name: self._reduce_loss(each, masked) for name, each in values.items()}
        means = torch.stack(list(values.values())).flatten(1).mean(1)
        return dict(zip(values, means.unbind(), strict=True))

    def _without_masked(
        self, tensordict: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase | None]:
        """Of what :meth:`forward` reads, see :func:`without_masked`."""
        return without_masked(self, tensordict, (*self.in_keys, self.tensor_keys.objective_weights))

    def _weights(self, tensordict: TensorDictBase) -> Tensor | None:
        """Of the objectives: ``[*, K]``, ``[K]``, or None for one."""
        return tensordict.get(self.tensor_keys.objective_weights, self.objective_weights)

    def _one_step(self, tensordict: TensorDictBase, following: Tensor) -> Tensor:
        """Reward and, where the episode goes on, the discounted ``following``, ``[*, K]``."""
        keys, after = self.tensor_keys, tensordict.get("next")
        reward, over = after.get(keys.reward), after.get(keys.terminated)
        one = (*following.shape[:-1], 1)
        if reward.shape != following.shape or over.shape not in (one, following.shape):
            raise ValueError(
                f"critics with {following.shape[-1]} objectives need rewards"
                f" {list(following.shape)} and flags {list(one)} on this batch, got"
                f" {list(reward.shape)} and {list(over.shape)};"
                " build the critics with as many objectives as the reward has"
            )
        following, discount = following.masked_fill(over, 0.0), self._discount(tensordict)
        if isinstance(discount, float):
            return torch.add(reward, following, alpha=discount)
        return reward + discount * following

    def _discount(self, tensordict: TensorDictBase) -> float | Tensor:
        """Of what follows; ``[*, 1]`` where rows span several steps."""
        steps = tensordict.get(self.tensor_keys.steps_to_next_obs, None)
        if steps is None:
            return float(self.gamma)
        if steps.numel() != tensordict.numel():
            raise ValueError(
                f"{self.tensor_keys.steps_to_next_obs!r} counts the steps of each row:"
                f" {[*tensordict.shape, 1]}, got {list(steps.shape)}"
            )
        return self.gamma ** steps.reshape(*tensordict.shape, 1).to(torch.get_default_dtype())

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
        return network(seen).get(getattr(self.tensor_keys, self._written))

    def _total(self, values: Tensor, weights: Tensor | None) -> Tensor:
        """The weighted sum ``[*, members]`` of the objectives' values ``[*, members, K]``."""
        if values.shape[-1] == 1:
            return values.squeeze(-1)
        if weights is None or weights.shape[-1] != values.shape[-1]:
            raise ValueError(
                f"the critics have {values.shape[-1]} objectives: pass as many objective_weights,"
                f" got {None if weights is None else list(weights.shape)}"
            )
        return (values * weights.unsqueeze(-2)).sum(-1) if weights.ndim > 1 else values @ weights

    def _lowest(self, values: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """The lowest member's values ``[*, K]``, and their weighted sum ``[*]``."""
        if values.shape[-1] == 1:
            lowest = values.amin(-2)
            return lowest, lowest.squeeze(-1)
        least, member = self._total(values, weights).min(-1)
        index = member[..., None, None].expand(*member.shape, 1, values.shape[-1])
        return values.gather(-2, index).squeeze(-2), least
