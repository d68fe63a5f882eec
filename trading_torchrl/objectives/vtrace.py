"""V-trace: an actor-critic that learns from steps of other actors, older ones say."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from tensordict import TensorDictBase, unravel_key
from tensordict.nn import ProbabilisticTensorDictSequential, TensorDictModule, dispatch
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives.value.functional import vtrace_advantage_estimate

from trading_torchrl.objectives.actor_critic import without_masked
from trading_torchrl.objectives.on_policy import OnPolicyLoss
from trading_torchrl.objectives.returns import values_of


class VTraceLoss(OnPolicyLoss):
    """IMPALA's loss on stretches ``[N, T]`` with the log probabilities they were collected by.

    Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
    Architectures", 2018, https://arxiv.org/abs/1802.01561. Values and ratios are those of the
    networks as they are, so that nothing needs to be estimated before; shows besides the mean of
    the ratios and what share of them is cut.

    Args:
        actor_network: a policy with a distribution.
        critic_network: writes ``state_value`` ``[*, 1]``.

    Keyword Args:
        rho: at most this is a ratio that weighs a step, above 0; what is learned is the value of a
            policy between both where it is finite.
        c: at most this is one that hands later steps on, above 0 and at most ``rho``.
        settings: see :class:`~trading_torchrl.objectives.on_policy.OnPolicyLoss`, but ``lmbda``:
            ``c`` says how far rewards are trusted.
    """

    out_keys = [*OnPolicyLoss.out_keys, "rho_mean", "rho_cut"]  # noqa: RUF012
    sequences: ClassVar[bool] = True

    def __init__(
        self,
        actor_network: ProbabilisticTensorDictSequential,
        critic_network: TensorDictModule,
        *,
        rho: float = 1.0,
        c: float = 1.0,
        normalise: bool = False,
        **settings: Any,
    ) -> None:
        if "lmbda" in settings:
            raise ValueError("V-trace has no lmbda: c says how far rewards are trusted")
        super().__init__(actor_network, critic_network, normalise=normalise, **settings)
        if not 0 < c <= rho < math.inf:
            raise ValueError(f"0 < c <= rho is needed, got c={c}, rho={rho}")
        self.rho, self.c = rho, c

    @property
    def in_keys(self) -> list[NestedKey]:
        """What :meth:`forward` reads."""
        keys = self.tensor_keys
        seen = dict.fromkeys([*self.actor_network.in_keys, *self.critic_network.in_keys])
        after = (keys.reward, keys.done, keys.terminated, *self.critic_network.in_keys)
        then = [unravel_key(("next", key)) for key in after]
        return [*seen, keys.action, keys.sample_log_prob, *then]

    @in_keys.setter
    def in_keys(self, keys: list[NestedKey]) -> None:
        raise AttributeError("in_keys follow from the networks; use set_keys")

    def estimate(self, tensordict: TensorDictBase) -> TensorDictBase:
        """How likely steps were; the rest is estimated when it is learned from."""
        return self.say_how_likely(tensordict)

    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Three losses; and detached what :class:`OnPolicyLoss` shows, and of the ratios."""
        tensordict, masked = without_masked(self, tensordict, self.in_keys)
        keys, after = self.tensor_keys, tensordict.get("next")
        policy = self._policy(tensordict)
        log_prob = policy.log_prob(tensordict.get(keys.action))
        done = unravel_key(("next", keys.done))
        value, ahead = values_of(self.critic_network, tensordict, done)
        with torch.no_grad():
            # Plain numbers would be rounded to single precision on their way.
            gamma, rho, c = value.new_tensor([self.gamma, self.rho, self.c]).unbind()
            advantage, target = vtrace_advantage_estimate(
                gamma, log_prob.detach().unsqueeze(-1),
                tensordict.get(keys.sample_log_prob).unsqueeze(-1),
                value.detach(), ahead.detach(), self._rewards(after), after.get(keys.done),
                after.get(keys.terminated), rho, c,
            )  # fmt: skip
        found = value[..., 0], advantage[..., 0], target[..., 0]
        return self._said(tensordict, masked, policy, log_prob, *found)

    def objective(self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """What was better than expected is made likelier; advantages are weighed already."""
        return -log_prob * advantage

    def _shown(self, ratio: Tensor) -> dict[str, Tensor]:
        cut = (ratio > self.rho).to(ratio.dtype).mean()
        return {"rho_mean": ratio.mean(), "rho_cut": cut}
