"""Behaviour cloning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import ProbabilisticTensorDictModule, TensorDictModule, dispatch
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule

from trading_torchrl.checks import check_reduction
from trading_torchrl.objectives.actor_critic import without_masked


class BCLoss(LossModule):
    """Makes a policy do what stored actions do: their likelihood under it is made largest.

    It reads no rewards. What it reaches is what other losses must beat on the same data.

    Args:
        actor_network: policy whose distribution has ``log_prob``, or, for actions at the edge too,
            ``log_likelihood``.

    Keyword Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over the batch.

    Example:
        >>> from trading_torchrl.modules import make_actor
        >>> loss = BCLoss(make_actor(4, 1, [32]))
        >>> batch = TensorDict(
        ...     {"observation": torch.zeros(8, 4), "action": torch.zeros(8, 1)}, [8])
        >>> loss(batch)["loss_actor"].backward()
    """

    @dataclass
    class _AcceptedKeys:
        """Keys that :meth:`set_keys` can change."""

        action: NestedKey = "action"

    default_keys = _AcceptedKeys
    tensor_keys: _AcceptedKeys
    out_keys = ["loss_actor", "action_error"]  # noqa: RUF012

    actor_network: ProbabilisticTensorDictModule

    def __init__(self, actor_network: TensorDictModule, *, reduction: str = "mean") -> None:
        super().__init__()
        check_reduction(reduction)
        self.actor_network, self.reduction = actor_network, reduction

    def _forward_value_estimator_keys(self, **kwargs: NestedKey) -> None:
        """There is no value estimator."""

    @property
    def in_keys(self) -> list[NestedKey]:
        """What :meth:`forward` reads."""
        return [*self.actor_network.in_keys, self.tensor_keys.action]

    @in_keys.setter
    def in_keys(self, keys: list[NestedKey]) -> None:
        raise AttributeError("in_keys follow from the network; use set_keys")

    # Without a batch size: guessed from tensors of width 1 it would be one dimension too long.
    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The loss, and detached: how far the policy's mode is from the actions, on average."""
        tensordict, masked = without_masked(self, tensordict, self.in_keys)
        taken = tensordict.get(self.tensor_keys.action)
        dist = self.actor_network.get_dist(tensordict.select(*self.actor_network.in_keys))
        loss = -log_likelihood(dist, taken)
        error = (dist.mode.detach() - taken).abs().mean(-1)
        return TensorDict._new_unsafe(
            {
                "loss_actor": self._reduce_loss(loss, masked),
                "action_error": self._reduce_loss(error, masked),
            },
            batch_size=torch.Size([]),
        )

    def update_targets(self, rate: float) -> None:
        """Nothing is slow here."""


def log_likelihood(dist: torch.distributions.Distribution, taken: Tensor) -> Tensor:
    """Of actions ``[*, A]`` that somebody took, which may be at the edge: ``[*]``."""
    return getattr(dist, "log_likelihood", dist.log_prob)(taken)
