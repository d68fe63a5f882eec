"""Soft actor-critic for a few choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from tensordict.utils import NestedKey
from torch import Tensor

from trading_torchrl.modules.averages import frozen
from trading_torchrl.modules.discrete import NEVER
from trading_torchrl.objectives.actor_critic import ActorCriticLoss
from trading_torchrl.objectives.sac import SACLoss

OF_UNIFORM = 0.5
"""The entropy an actor aims at by default, as a share of that of uniform choices."""


def value_of(values: Tensor, action: Tensor) -> Tensor:
    """The values ``[*, members, 1]`` of the choices ``[*]`` (or ``[*, 1]``) that were made.

    Args:
        values: of all choices, ``[*, members, choices]``.
        action: int64.
    """
    index = action.reshape(*values.shape[:-2], 1, 1)
    return values.gather(-1, index.expand(*values.shape[:-1], 1))


class DiscreteSACLoss(SACLoss):
    """SAC whose actor chooses: means over all choices take the place of a drawn action.

    Christodoulou, "Soft Actor-Critic for Discrete Action Settings", 2019,
    https://arxiv.org/abs/1910.07207

    The critics' target is ``reward + gamma x (1 - terminated) x sum pi (min Q - alpha x log pi)``
    over the choices at the next observation, the actor's loss ``sum pi (alpha x log pi - min Q)``.
    Choices that are not allowed have probability 0 and count in no sum. One objective. Masks of
    rows are as :class:`~trading_torchrl.objectives.actor_critic.ActorCriticLoss` has them.

    Args:
        actor_network: policy whose distribution has ``probs`` and ``logits``, from
            :func:`~trading_torchrl.modules.make_discrete_actor` for one.
        qvalue_network: critics, which write ``action_value`` ``[*, members, choices]``.

    Keyword Args:
        target_entropy: entropy in nats that the temperature aims at. ``"auto"`` is half of
            log(number of allowed choices), in each state its own: as random as an even choice among
            the square root of their number. The paper's 0.98 of it is nearly uniform.
        **settings: of :class:`~trading_torchrl.objectives.SACLoss`, without ``objective_weights``.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from trading_torchrl.modules import make_discrete_actor, make_discrete_critics
        >>> actor, critics = make_discrete_actor(4, 3, [32]), make_discrete_critics(4, 3, [32])
        >>> loss = DiscreteSACLoss(actor, critics, gamma=0.95)
        >>> batch = TensorDict({
        ...     "observation": torch.zeros(8, 4), "action": torch.zeros(8, dtype=torch.int64),
        ...     "next": {"observation": torch.zeros(8, 4), "reward": torch.ones(8, 1),
        ...              "terminated": torch.zeros(8, 1, dtype=torch.bool)}}, [8])
        >>> out = loss(batch)
        >>> sum(out[key] for key in ("loss_actor", "loss_qvalue", "loss_alpha")).backward()
        >>> loss.update_targets(0.005)
    """

    @dataclass
    class _AcceptedKeys(ActorCriticLoss._AcceptedKeys):
        """Keys that :meth:`set_keys` can change."""

        action_value: NestedKey = "action_value"

    default_keys = _AcceptedKeys
    tensor_keys: _AcceptedKeys

    discrete: ClassVar[bool] = True
    _written: ClassVar[str] = "action_value"

    def __init__(
        self, actor_network: TensorDictModule, qvalue_network: TensorDictModule, **settings: Any
    ) -> None:
        if settings.get("objective_weights") is not None:
            raise ValueError("critics of choices have one objective: leave objective_weights out")
        super().__init__(actor_network, qvalue_network, **settings)

    def _taken(self, tensordict: TensorDictBase) -> Tensor:
        values = self._values(self.qvalue_network, tensordict)
        return value_of(values, tensordict.get(self.tensor_keys.action))

    def _follow(self, following: TensorDictBase, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        probs, logs = self._chances(following)
        lowest = self._values(self.target_qvalue_network, following).amin(-2)
        return (probs * logs).sum(-1), (probs * lowest).sum(-1, keepdim=True)

    def _decide(
        self, tensordict: TensorDictBase, weights: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | float]:
        probs, logs = self._chances(tensordict)
        with frozen(self._critics):
            lowest = self._values(self.qvalue_network, tensordict).amin(-2)
        allowed = (logs.detach() > NEVER / 2).sum(-1)
        goal = self.target_entropy
        wanted = OF_UNIFORM * allowed.to(logs.dtype).log() if goal == "auto" else goal
        return (probs * logs).sum(-1), (probs * lowest).sum(-1), wanted

    def _chances(self, tensordict: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Probabilities ``[*, choices]`` of the present policy, and their finite logarithms."""
        dist = self.actor_network.get_dist(tensordict.select(*self.actor_network.in_keys))
        return dist.probs, dist.logits.clamp(min=NEVER)
