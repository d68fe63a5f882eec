"""Proximal policy optimisation: by clipped ratios, or by a price on divergence."""

from __future__ import annotations

from typing import Any

import torch
from tensordict.nn import ProbabilisticTensorDictSequential, TensorDictModule
from torch import Tensor

from trading_torchrl.objectives.on_policy import OnPolicyLoss


class PPOLoss(OnPolicyLoss):
    """PPO with clipped ratios.

    Schulman et al., "Proximal Policy Optimization Algorithms", 2017,
    https://arxiv.org/abs/1707.06347. Shows besides what share of the rows is clipped.

    Args:
        actor_network: a policy with a distribution.
        critic_network: writes ``state_value`` ``[*, 1]``.

    Keyword Args:
        clip: how far a ratio may move from 1, above 0.
        settings: see :class:`~trading_torchrl.objectives.on_policy.OnPolicyLoss`.

    Example:
        >>> from tensordict import TensorDict
        >>> from trading_torchrl.modules import make_actor, make_value
        >>> loss = PPOLoss(make_actor(4, 1, [32]), make_value(4, 1, [32]), gamma=0.95)
        >>> no = torch.zeros(8, 5, 1, dtype=torch.bool)
        >>> batch = TensorDict({
        ...     "observation": torch.randn(8, 5, 4), "action": torch.zeros(8, 5, 1),
        ...     "next": {"observation": torch.randn(8, 5, 4), "reward": torch.ones(8, 5, 1),
        ...              "done": no, "terminated": no}}, [8, 5])
        >>> out = loss(loss.estimate(batch).reshape(-1))
        >>> sum(out[key] for key in out.keys() if key.startswith("loss_")).backward()
    """

    out_keys = [*OnPolicyLoss.out_keys, "clipped"]  # noqa: RUF012

    def __init__(
        self,
        actor_network: ProbabilisticTensorDictSequential,
        critic_network: TensorDictModule,
        *,
        clip: float = 0.2,
        **settings: Any,
    ) -> None:
        super().__init__(actor_network, critic_network, **settings)
        if not 0 < clip < 1:
            raise ValueError(f"clip must lie between 0 and 1, got {clip}")
        self.clip = clip

    def objective(self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """The worse of what it gains as it is and clipped."""
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        return -torch.minimum(ratio * advantage, clipped * advantage)

    def _shown(self, ratio: Tensor) -> dict[str, Tensor]:
        return {"clipped": ((ratio - 1).abs() > self.clip).to(ratio.dtype).mean()}


FURTHEST = 1e8
"""By what a price may be above or below the first."""


class PPOKLLoss(OnPolicyLoss):
    """PPO with a price on divergence that adapts to a divergence aimed at.

    The other form of the same paper. :meth:`next_batch` doubles the price where the last epoch
    ended further than half as much again, and halves it where it ended that much nearer.

    Args:
        actor_network: a policy with a distribution.
        critic_network: writes ``state_value`` ``[*, 1]``.

    Keyword Args:
        aim: divergence in nats that a batch is to lead to, above 0.
        price: of a nat at first, above 0.
        settings: see :class:`~trading_torchrl.objectives.on_policy.OnPolicyLoss`.
    """

    out_keys = [*OnPolicyLoss.out_keys, "price"]  # noqa: RUF012

    price: Tensor
    _last: Tensor

    def __init__(
        self,
        actor_network: ProbabilisticTensorDictSequential,
        critic_network: TensorDictModule,
        *,
        aim: float = 0.01,
        price: float = 1.0,
        **settings: Any,
    ) -> None:
        super().__init__(actor_network, critic_network, **settings)
        for name, value in (("aim", aim), ("price", price)):
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} must be above 0, got {value}")
        self.aim, self.first = aim, price
        self.register_buffer("price", torch.tensor(float(price)))
        self.register_buffer("_last", torch.tensor(float(aim)))

    def objective(self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """What it gains, less the price of the divergence (of what was done, never negative)."""
        ratio = log_ratio.exp()
        return self.price * (ratio - 1 - log_ratio) - ratio * advantage

    def _shown(self, ratio: Tensor) -> dict[str, Tensor]:
        self._last.copy_((ratio - 1 - ratio.log()).mean())
        return {"price": self.price.clone()}

    def next_batch(self) -> None:
        """Adapts the price to the divergence of the last rows that were learned."""
        if self._last > 1.5 * self.aim:
            self.price.mul_(2)
        elif self._last < self.aim / 1.5:
            self.price.div_(2)
        # For ever nothing, or more than can be counted, it must not become.
        self.price.clamp_(self.first / FURTHEST, self.first * FURTHEST)
