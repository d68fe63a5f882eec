"""The loss of learned weights: each objective counts as far as following it helps the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from tensordict import TensorDict, TensorDictBase, unravel_key
from tensordict.nn import TensorDictModule, dispatch
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.objectives import LossModule

from trading_torchrl.checks import check_reduction, check_share
from trading_torchrl.modules.averages import follow_slowly
from trading_torchrl.modules.weights import WeightNetwork
from trading_torchrl.objectives.actor_critic import kept_by, without_masked

STEP = 0.01
"""To either side of an action, for the slope there."""

FURTHEST = 3.0
"""An alignment counts as at most this: one row must not speak for all."""


class WeightLoss(LossModule):
    """Trains weights of objectives so that the result improves on rows that no agent learned from.

    An actor that follows ``sum of w x Q`` moves its action along the sum of ``w x dQ/da``. To first
    order the result moves by ``sum of w x (dQ/da . dR/da)``, R being what the result is expected to
    be: that is what the weights are trained to make large, with an entropy bonus. An objective
    that is easy to raise and leads nowhere has no part in it; what the weighted reward amounts to
    does not count at all.

    Critics of the result are trained here as well, on the same rows, for the present policy. Actor
    and critics of the objectives are used as they are, and are no part of this module. Related:
    Du et al., "Adapting Auxiliary Losses Using Gradient Similarity", 2018,
    https://arxiv.org/abs/1812.02224

    Args:
        weight_network: what is trained.
        actor_network: the policy that follows the weights.
        qvalue_network: its critics, ``[*, members, K]`` or more objectives than there are weights,
            of which the first K count.
        result_network: critics of the result, ``[*, members, 1]``.

    Keyword Args:
        gamma: discount, in [0, 1].
        entropy: of the bonus for weights that are alike.
        in_keys: what the weights are a function of.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over the batch.
    """

    @dataclass
    class _AcceptedKeys:
        """Keys that :meth:`set_keys` can change."""

        action: NestedKey = "action"
        reward: NestedKey = "reward"
        terminated: NestedKey = "terminated"
        state_action_value: NestedKey = "state_action_value"

    default_keys = _AcceptedKeys
    tensor_keys: _AcceptedKeys
    out_keys = ["loss_weights", "loss_result", "weight_entropy", "alignment"]  # noqa: RUF012

    weight_network: WeightNetwork
    result_network: TensorDictModule
    target_result_network: TensorDictModule

    def __init__(
        self,
        weight_network: WeightNetwork,
        actor_network: TensorDictModule,
        qvalue_network: TensorDictModule,
        result_network: TensorDictModule,
        *,
        gamma: float,
        entropy: float = 0.05,
        in_keys: Sequence[NestedKey] = ("observation",),
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_share("gamma", gamma)
        if not 0 <= entropy < math.inf:
            raise ValueError(f"entropy must not be negative, got {entropy}")
        check_reduction(reduction)
        self.weight_network = weight_network
        self._agent = (actor_network, qvalue_network)  # in a tuple they are not registered
        self.result_network = result_network
        self.target_result_network = deepcopy(result_network).requires_grad_(False)
        self.gamma, self.entropy, self.reduction = gamma, entropy, reduction
        self.seen = tuple(in_keys)

    def _forward_value_estimator_keys(self, **kwargs: NestedKey) -> None:
        """There is no value estimator: the target is one step."""

    @property
    def in_keys(self) -> list[NestedKey]:
        """What :meth:`forward` reads."""
        keys, (actor, critics) = self.tensor_keys, self._agent
        later = dict.fromkeys([*actor.in_keys, *self.result_network.in_keys])
        seen = dict.fromkeys([*self.seen, *later, *critics.in_keys])
        after = [keys.reward, keys.terminated, *(key for key in later if key != keys.action)]
        now = [key for key in seen if key != keys.action]
        return [*now, keys.action, *(unravel_key(("next", key)) for key in after)]

    @in_keys.setter
    def in_keys(self, keys: list[NestedKey]) -> None:
        raise AttributeError("in_keys follow from what the networks see; use set_keys")

    def update_targets(self, rate: float) -> None:
        """Moves the slow critics of the result by ``rate`` of the way."""
        follow_slowly(self.target_result_network, self.result_network, rate)

    # Without a batch size: guessed from tensors of width 1 it would be one dimension too long.
    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Both losses; and detached: the weights' entropy, each objective's alignment ``[K]``."""
        tensordict, masked = without_masked(self, tensordict, self.in_keys)
        keys, after = self.tensor_keys, tensordict.get("next")
        with torch.no_grad():
            ahead = self._values(self.target_result_network, after, self._acted(after)).amin(-2)
            ahead = ahead.masked_fill(after.get(keys.terminated), 0.0)
            wanted = after.get(keys.reward) + self.gamma * ahead
        values = self._values(self.result_network, tensordict, tensordict.get(keys.action))
        misfit = 0.5 * (values - wanted.unsqueeze(-2)).square().sum((-1, -2))

        kept = kept_by(self, tensordict, misfit)
        rows = slice(None) if kept is None else kept
        alignment = self.alignment(tensordict, rows)
        weights = self.weight_network.free(*(tensordict.get(key) for key in self.seen))
        spread = -(weights * weights.clamp(min=1e-12).log()).sum(-1)
        gained = (weights * alignment).sum(-1)
        return TensorDict._new_unsafe(
            {
                "loss_weights": self._reduce_loss(-gained - self.entropy * spread, masked),
                "loss_result": self._reduce_loss(misfit, masked),
                "weight_entropy": spread.detach()[rows].mean(),
                "alignment": alignment[rows].flatten(0, -2).mean(0),
            },
            batch_size=torch.Size([]),
        )

    def alignment(self, tensordict: TensorDictBase, rows: Tensor | slice = slice(None)) -> Tensor:
        """How far following each objective alone would raise the result, ``[*, K]``.

        In units of the usual slopes, over ``rows``, of the steepest objective and of the result.
        """
        _, critics = self._agent
        action = self._acted(tensordict)
        objectives = self._slopes(critics, tensordict, action)
        steep = objectives[..., : len(self.weight_network.names), :]
        uphill = self._slopes(self.result_network, tensordict, action).squeeze(-2)
        product = (steep * uphill.unsqueeze(-2)).sum(-1)
        steepest = steep[rows].square().sum(-1).flatten(0, -2).mean(0).max().sqrt()
        usual = steepest * uphill[rows].square().sum(-1).mean().sqrt()
        return (product / usual.clamp(min=1e-12)).clamp(-FURTHEST, FURTHEST)

    @torch.no_grad()
    def _slopes(self, network: TensorDictModule, seen: TensorDictBase, action: Tensor) -> Tensor:
        """Of each value in each action, ``[*, K, A]``, members on average.

        From a little above and below, all in one pass: there are more objectives than actions, and
        any network can do it. None learns anything of these rows.
        """
        step = STEP * torch.eye(action.shape[-1], dtype=action.dtype, device=action.device)
        moves = torch.cat([step, -step])
        moved = torch.cat([action + move for move in moves])
        again = torch.cat([seen.select(*network.in_keys, strict=False)] * len(moves))
        training = network.training
        network.eval()
        try:
            values = self._values(network, again, moved).mean(-2)
        finally:
            network.train(training)
        above, below = values.unflatten(0, (2, len(step), -1))
        return ((above - below) / (2 * STEP)).movedim(0, -1)

    @torch.no_grad()
    def _acted(self, tensordict: TensorDictBase) -> Tensor:
        """What the actor does without exploring."""
        actor, _ = self._agent
        seen = tensordict.select(*actor.in_keys)
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            return actor(seen).get(self.tensor_keys.action)

    def _values(self, network: TensorDictModule, seen: TensorDictBase, action: Tensor) -> Tensor:
        """``[*, members, K]``."""
        given = seen.select(*network.in_keys, strict=False).set(self.tensor_keys.action, action)
        return network(given).get(self.tensor_keys.state_action_value)
