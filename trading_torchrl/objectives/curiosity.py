"""The loss of an agent's curiosity: its models of the world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tensordict import TensorDict, TensorDictBase, unravel_key
from tensordict.nn import dispatch
from tensordict.utils import NestedKey
from torchrl.objectives import LossModule

from trading_torchrl.checks import check_reduction, check_share
from trading_torchrl.modules.curiosity import Curiosity
from trading_torchrl.objectives.actor_critic import without_masked


class ICMLoss(LossModule):
    """Trains a :class:`~trading_torchrl.modules.Curiosity`: intrinsic curiosity module.

    Pathak et al., "Curiosity-driven Exploration by Self-supervised Prediction", 2017,
    https://arxiv.org/abs/1705.05363

    ``(1 - beta) x inverse error + beta x forward error``; the features that the forward model aims
    at are held fixed. It reads no rewards and reaches no parameter of an agent; what the surprise
    is worth is :class:`~trading_torchrl.replay.CuriosityReward`'s.

    Args:
        curiosity: the models.

    Keyword Args:
        beta: share of the forward error, in [0, 1].
        in_keys: what they see, in the root and in ``next``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over the batch.

    Example:
        >>> loss = ICMLoss(Curiosity(inputs=4, actions=1))
        >>> batch = TensorDict({
        ...     "observation": torch.zeros(8, 4), "action": torch.zeros(8, 1),
        ...     "next": {"observation": torch.ones(8, 4)}}, [8])
        >>> out = loss(batch)
        >>> (out["loss_forward"] + out["loss_inverse"]).backward()
    """

    @dataclass
    class _AcceptedKeys:
        """Keys that :meth:`set_keys` can change."""

        action: NestedKey = "action"

    default_keys = _AcceptedKeys
    tensor_keys: _AcceptedKeys
    out_keys = ["loss_forward", "loss_inverse", "forward_error", "inverse_error"]  # noqa: RUF012

    curiosity: Curiosity

    def __init__(
        self,
        curiosity: Curiosity,
        *,
        beta: float = 0.2,
        in_keys: Sequence[NestedKey] = ("observation",),
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_share("beta", beta)
        check_reduction(reduction)
        self.curiosity, self.beta, self.reduction = curiosity, beta, reduction
        self.seen = tuple(in_keys)

    def _forward_value_estimator_keys(self, **kwargs: NestedKey) -> None:
        """There is no value estimator."""

    @property
    def in_keys(self) -> list[NestedKey]:
        """What :meth:`forward` reads."""
        following = [unravel_key(("next", key)) for key in self.seen]
        return [*self.seen, self.tensor_keys.action, *following]

    @in_keys.setter
    def in_keys(self, keys: list[NestedKey]) -> None:
        raise AttributeError("in_keys follow from what the models see; use set_keys")

    # Without a batch size: guessed from tensors of width 1 it would be one dimension too long.
    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Both losses, weighed; and detached, both errors as they are."""
        tensordict, masked = without_masked(self, tensordict, self.in_keys)
        following = tensordict.get("next")
        wrong = self.curiosity(
            [tensordict.get(key) for key in self.seen],
            tensordict.get(self.tensor_keys.action),
            [following.get(key) for key in self.seen],
        )
        ahead = self._reduce_loss(wrong.forward, masked)
        between = self._reduce_loss(wrong.inverse, masked)
        return TensorDict._new_unsafe(
            {
                "loss_forward": self.beta * ahead,
                "loss_inverse": (1 - self.beta) * between,
                "forward_error": ahead.detach(),
                "inverse_error": between.detach(),
            },
            batch_size=torch.Size([]),
        )
