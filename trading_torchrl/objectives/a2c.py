"""Plain policy gradients: with advantages, or with returns to the end."""

from __future__ import annotations

from typing import Any

from tensordict.nn import ProbabilisticTensorDictSequential, TensorDictModule
from torch import Tensor

from trading_torchrl.objectives.on_policy import OnPolicyLoss


class A2CLoss(OnPolicyLoss):
    """Advantage actor-critic: nothing is corrected where rows are of an older actor.

    Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning", 2016,
    https://arxiv.org/abs/1602.01783. Arguments are those of
    :class:`~trading_torchrl.objectives.on_policy.OnPolicyLoss`.
    """

    def objective(self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """What was better than expected is made likelier."""
        return -log_prob * advantage


class ReinforceLoss(A2CLoss):
    """REINFORCE with a learned baseline: returns to the end of the episode.

    Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement
    learning", 1992. Where a batch cuts an episode, the baseline says what would come. Arguments are
    those of :class:`~trading_torchrl.objectives.on_policy.OnPolicyLoss` but ``lmbda``, which is 1.
    """

    def __init__(
        self,
        actor_network: ProbabilisticTensorDictSequential,
        critic_network: TensorDictModule,
        **settings: Any,
    ) -> None:
        if "lmbda" in settings:
            raise ValueError("REINFORCE looks to the end: lmbda is 1 and cannot be set")
        super().__init__(actor_network, critic_network, lmbda=1.0, **settings)
