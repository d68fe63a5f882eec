"""What the losses of an actor that learns from its own newest steps share."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from tensordict import TensorDict, TensorDictBase, unravel_key
from tensordict.nn import ProbabilisticTensorDictSequential, TensorDictModule, dispatch
from tensordict.utils import NestedKey
from torch import Tensor
from torch.distributions import Distribution
from torchrl.objectives import LossModule

from trading_torchrl.checks import check_reduction, check_share
from trading_torchrl.objectives.actor_critic import kept_by, without_masked
from trading_torchrl.objectives.returns import explained, gae, values_of

FURTHEST = 20.0
"""Log ratios are shown as if none went further: their figures stay finite."""


def entropy_of(policy: Distribution) -> Tensor:
    """In nats, ``[*]``, with a gradient; of one draw where it has no closed form."""
    if hasattr(policy, "rsample_with_log_prob"):
        return -policy.rsample_with_log_prob()[1]
    return policy.entropy()


def policy_of(actor: ProbabilisticTensorDictSequential, tensordict: TensorDictBase) -> Distribution:
    """What an actor may do in each row."""
    return actor.get_dist(tensordict.select(*actor.in_keys))


@torch.no_grad()
def say_how_likely(
    actor: ProbabilisticTensorDictSequential,
    tensordict: TensorDictBase,
    action: NestedKey = "action",
    log_prob: NestedKey = "action_log_prob",
) -> TensorDictBase:
    """Writes log probabilities ``[*]`` of what an actor did."""
    likely = policy_of(actor, tensordict).log_prob(tensordict.get(action))
    return tensordict.set(log_prob, likely)


class OnPolicyLoss(LossModule):
    """An actor and a critic that learn from steps of the actor itself.

    :meth:`estimate` says of a batch ``[N, T]``, as a collector hands it over, what its steps were
    worth and how likely they were; :meth:`forward` learns from any rows of it, ``[*]``. A subclass
    says by :meth:`objective` what the actor follows. Positions that a mask
    (:attr:`loss_mask_key`) leaves out count in no loss; advantages still look across them, so that
    what stands before them should be the end of an episode.

    Args:
        actor_network: a policy with a distribution.
        critic_network: writes ``state_value`` ``[*, 1]``.

    Keyword Args:
        gamma: discount, in [0, 1].
        lmbda: of generalised advantages, in [0, 1].
        entropy: of the bonus for policies that are less certain.
        value: of the critic's loss.
        normalise: whether advantages are brought to mean 0 and deviation 1.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over the batch.
    """

    @dataclass
    class _AcceptedKeys:
        """Keys that :meth:`set_keys` can change."""

        action: NestedKey = "action"
        reward: NestedKey = "reward"
        done: NestedKey = "done"
        terminated: NestedKey = "terminated"
        sample_log_prob: NestedKey = "action_log_prob"
        advantage: NestedKey = "advantage"
        value_target: NestedKey = "value_target"
        value: NestedKey = "state_value"

    default_keys = _AcceptedKeys
    tensor_keys: _AcceptedKeys
    out_keys = [  # noqa: RUF012
        "loss_objective", "loss_critic", "loss_entropy", "entropy", "kl", "ess", "explained",
    ]  # fmt: skip

    sequences: ClassVar[bool] = False
    """Whether it learns from stretches ``[N, T]`` as a whole, and needs no estimates."""

    actor_network: ProbabilisticTensorDictSequential
    critic_network: TensorDictModule

    def __init__(
        self,
        actor_network: ProbabilisticTensorDictSequential,
        critic_network: TensorDictModule,
        *,
        gamma: float = 0.99,
        lmbda: float = 0.95,
        entropy: float = 0.0,
        value: float = 0.5,
        normalise: bool = True,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_share("gamma", gamma)
        check_share("lmbda", lmbda)
        check_reduction(reduction)
        for name, part in (("entropy", entropy), ("value", value)):
            if not 0 <= part < math.inf:
                raise ValueError(f"{name} must not be negative, got {part}")
        self.actor_network, self.critic_network = actor_network, critic_network
        self.gamma, self.lmbda, self.entropy, self.value = gamma, lmbda, entropy, value
        self.normalise, self.reduction = normalise, reduction

    def _forward_value_estimator_keys(self, **kwargs: NestedKey) -> None:
        """There is no value estimator: :meth:`estimate` is."""

    @property
    def in_keys(self) -> list[NestedKey]:
        """What :meth:`forward` reads."""
        keys = self.tensor_keys
        seen = dict.fromkeys([*self.actor_network.in_keys, *self.critic_network.in_keys])
        return [*seen, keys.action, keys.sample_log_prob, keys.advantage, keys.value_target]

    @in_keys.setter
    def in_keys(self, keys: list[NestedKey]) -> None:
        raise AttributeError("in_keys follow from the networks; use set_keys")

    @property
    def collected(self) -> list[NestedKey]:
        """What :meth:`estimate` and :meth:`forward` read of steps as they were collected."""
        keys = self.tensor_keys
        after = (keys.reward, keys.done, keys.terminated, *self.critic_network.in_keys)
        then = [unravel_key(("next", key)) for key in after]
        estimated = (keys.advantage, keys.value_target)
        return [*(key for key in self.in_keys if key not in (*estimated, *then)), *then]

    @torch.no_grad()
    def estimate(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Writes advantages, value targets and, unless they are there, log probabilities.

        Args:
            tensordict: steps ``[N, T]`` of the actor as it is.
        """
        keys = self.tensor_keys
        following = unravel_key(("next", keys.done))
        value, ahead = values_of(self.critic_network, tensordict, following)
        after = tensordict.get("next")
        found = gae(
            self._rewards(after), value, ahead, after.get(keys.done), after.get(keys.terminated),
            gamma=self.gamma, lmbda=self.lmbda,
        )  # fmt: skip
        tensordict.set(keys.advantage, found).set(keys.value_target, found + value)
        return self.say_how_likely(tensordict)

    def say_how_likely(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Writes log probabilities ``[*]`` of what was done, unless they are there."""
        keys = self.tensor_keys
        if tensordict.get(keys.sample_log_prob, None) is not None:
            return tensordict
        return say_how_likely(self.actor_network, tensordict, keys.action, keys.sample_log_prob)

    @abstractmethod
    def objective(self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """What the actor is to make small, ``[*]``.

        Args:
            log_prob: of what was done, by the actor as it is, with its gradient.
            log_ratio: of that over how likely it was then.
            advantage: of what was done.
        """

    def next_batch(self) -> None:
        """To be called when a batch has been learned: what is adapted between batches is."""

    # Without a batch size: guessed from tensors of width 1 it would be one dimension too long.
    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Three losses; and detached: entropy, divergence from what collected the rows, ..."""
        tensordict, masked = without_masked(self, tensordict, self.in_keys)
        keys = self.tensor_keys
        policy = self._policy(tensordict)
        log_prob = policy.log_prob(tensordict.get(keys.action))
        value = self._value(tensordict)
        advantage = tensordict.get(keys.advantage)[..., 0]
        target = tensordict.get(keys.value_target)[..., 0]
        return self._said(tensordict, masked, policy, log_prob, value, advantage, target)

    def _said(
        self,
        tensordict: TensorDictBase,
        masked: TensorDictBase | None,
        policy: Distribution,
        log_prob: Tensor,
        value: Tensor,
        advantage: Tensor,
        target: Tensor,
    ) -> TensorDictBase:
        """Losses and figures, of tensors ``[*]``."""
        kept = kept_by(self, tensordict, log_prob)
        rows = slice(None) if kept is None else kept
        log_ratio = log_prob - tensordict.get(self.tensor_keys.sample_log_prob)
        if self.normalise:
            counted = advantage[rows]
            deviation = counted.std(correction=min(counted.numel() - 1, 1))  # a row alone has none
            advantage = (advantage - counted.mean()) / deviation.clamp(min=1e-8)
        with torch.set_grad_enabled(self.entropy > 0 and torch.is_grad_enabled()):
            entropy = entropy_of(policy)
        misfit = value - target
        named = {
            "loss_objective": self.objective(log_prob, log_ratio, advantage),
            "loss_critic": self.value * misfit.square(),
            "loss_entropy": -self.entropy * entropy,
            "entropy": entropy.detach(),
        }
        reduced = {name: self._reduce_loss(each, masked) for name, each in named.items()}
        with torch.no_grad():
            moved = log_ratio[rows].clamp(-FURTHEST, FURTHEST)
            ratio = moved.exp()
            reduced["kl"] = (ratio - 1 - moved).mean()
            reduced["ess"] = ratio.sum().square() / ratio.square().sum() / ratio.numel()
            reduced["explained"] = explained(misfit[rows], target[rows])
            reduced |= self._shown(ratio)
        return TensorDict._new_unsafe(reduced, batch_size=torch.Size([]))

    def _shown(self, ratio: Tensor) -> dict[str, Tensor]:
        """More to show, of the ratios of rows that count."""
        return {}

    def _policy(self, tensordict: TensorDictBase) -> Distribution:
        return policy_of(self.actor_network, tensordict)

    def _value(self, tensordict: TensorDictBase) -> Tensor:
        critic = self.critic_network
        return critic(tensordict.select(*critic.in_keys)).get(critic.out_keys[0])[..., 0]

    def _rewards(self, after: TensorDictBase) -> Tensor:
        reward = after.get(self.tensor_keys.reward)
        if reward.shape[-1] != 1:
            raise ValueError(
                f"{type(self).__name__} learns from one reward, [*, 1], got"
                f" {list(reward.shape)}: weigh several objectives before"
            )
        return reward
