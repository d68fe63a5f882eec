"""Double deep Q-networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import ProbabilisticTensorDictSequential, TensorDictModule, dispatch
from tensordict.utils import NestedKey
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from trading_torchrl.objectives.actor_critic import ActorCriticLoss
from trading_torchrl.objectives.discrete_sac import value_of


class DQNLoss(ActorCriticLoss):
    """Double Q-learning: what is best next the network says, what it is worth its slow copy.

    van Hasselt et al., "Deep Reinforcement Learning with Double Q-learning", 2016,
    https://arxiv.org/abs/1509.06461, after Mnih et al., "Human-level control through deep
    reinforcement learning", Nature 518, 2015.

    The target is ``reward + gamma x (1 - terminated) x Q'(next, best)``, where Q' is the slow copy
    and best is what the actor would do next without exploring. Choices that are not allowed are
    never best. Of several members each learns, and the lowest counts in the target. One objective.
    Masks of rows are as :class:`~trading_torchrl.objectives.actor_critic.ActorCriticLoss` has them.

    Args:
        actor_network: policy that does what its first module values most, which writes
            ``action_value`` ``[*, members, choices]``, from
            :func:`~trading_torchrl.modules.make_q_actor` for one.

    Keyword Args:
        gamma: discount, in [0, 1].
        loss_function: ``"smooth_l1"`` is half the squared error up to 1 and linear beyond, ``"l2"``
            half the squared error.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over the batch.

    Example:
        >>> from trading_torchrl.modules import make_q_actor
        >>> loss = DQNLoss(make_q_actor(4, 3, [32]), gamma=0.95)
        >>> batch = TensorDict({
        ...     "observation": torch.zeros(8, 4), "action": torch.zeros(8, dtype=torch.int64),
        ...     "next": {"observation": torch.zeros(8, 4), "reward": torch.ones(8, 1),
        ...              "terminated": torch.zeros(8, 1, dtype=torch.bool)}}, [8])
        >>> loss(batch)["loss_qvalue"].backward()
        >>> loss.update_targets(0.005)
    """

    @dataclass
    class _AcceptedKeys(ActorCriticLoss._AcceptedKeys):
        """Keys that :meth:`set_keys` can change."""

        action_value: NestedKey = "action_value"

    default_keys = _AcceptedKeys
    tensor_keys: _AcceptedKeys

    out_keys = ["loss_qvalue", "q", "td_error"]  # noqa: RUF012

    discrete: ClassVar[bool] = True
    _written: ClassVar[str] = "action_value"

    actor_network: ProbabilisticTensorDictSequential

    def __init__(
        self,
        actor_network: ProbabilisticTensorDictSequential,
        *,
        gamma: float = 0.99,
        loss_function: Literal["smooth_l1", "l2"] = "smooth_l1",
        reduction: str = "mean",
    ) -> None:
        values = actor_network[0]
        if not isinstance(values, TensorDictModule):
            raise ValueError(
                "actor_network must be a sequence that begins with what writes its values, as"
                f" make_q_actor builds it; it begins with {type(values).__name__}"
            )
        super().__init__(
            actor_network, values, gamma=gamma, objective_weights=None, reduction=reduction
        )
        if loss_function not in ("smooth_l1", "l2"):
            raise ValueError(f"loss_function must be 'smooth_l1' or 'l2', got {loss_function!r}")
        self.loss_function = loss_function

    # Without a batch size: guessed from tensors of width 1 it would be one dimension too long.
    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The loss, and detached: mean value of what was done, mean TD error."""
        tensordict, masked = self._without_masked(tensordict)
        wanted = self._wanted(tensordict).unsqueeze(-2)
        every = self._values(self.qvalue_network, tensordict)
        values = value_of(every, tensordict.get(self.tensor_keys.action))
        error = values - wanted
        if self.loss_function == "l2":
            misfit = 0.5 * error.square()
        else:
            misfit = smooth_l1_loss(values, wanted.expand_as(values), reduction="none")
        return TensorDict._new_unsafe(
            {
                "loss_qvalue": self._reduce_loss(misfit.sum((-1, -2)), masked),
                **self._shown(masked, q=values.mean((-1, -2)), td_error=error.abs().mean((-1, -2))),
            },
            batch_size=torch.Size([]),
        )

    @torch.no_grad()
    def _wanted(self, tensordict: TensorDictBase) -> Tensor:
        """The target ``[*, 1]``."""
        following = tensordict.get("next")
        values = self._values(self.target_qvalue_network, following)
        return self._one_step(tensordict, value_of(values, self._best(following)).amin(-2))

    @torch.no_grad()
    def _best(self, tensordict: TensorDictBase) -> Tensor:
        """What the actor does without exploring, ``[*]``."""
        return self.actor_network.get_dist(tensordict.select(*self.actor_network.in_keys)).mode
