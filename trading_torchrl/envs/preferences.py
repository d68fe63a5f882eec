"""Preferences: how much each of several objectives counts, as something that an agent sees."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import Composite, TensorSpec, Unbounded
from torchrl.envs import Transform

from trading_torchrl.envs import draws

WEIGHTS = ("objectives", "weights")
STREAM = 2_000
"""Of the draws; those of symbols, starts and goals are below."""

Policy = Callable[[TensorDictBase], TensorDictBase]


class Preferences(Transform):
    """Gives every episode weights of K objectives, which sum to 1 and which the agent sees.

    They are spread evenly over all weights that are at least ``least`` each. Appended to an
    environment it writes ``("objectives", "weights")`` ``[N, K]``, keyed by (seed, account,
    episode). See :class:`PreferencesAnew` for the replay buffer.

    Args:
        num_envs: number of accounts.
        objectives: K.
        least: smallest weight, below 1 / K.
        seed: of the draws.
        first_account: number of the first account.

    Example:
        >>> from torchrl.envs import TransformedEnv
        >>> from trading_torchrl.envs.reference import GarleanuPedersen
        >>> env = TransformedEnv(GarleanuPedersen(4, parts=True), Preferences(4, 2, least=0.2))
        >>> weights = env.rollout(3)["objectives", "weights"]
        >>> weights.shape, bool((weights >= 0.2).all())
        (torch.Size([4, 3, 2]), True)
    """

    drawn: Tensor
    episode: Tensor

    def __init__(
        self,
        num_envs: int,
        objectives: int,
        *,
        least: float = 0.0,
        seed: int = 0,
        first_account: int = 0,
    ) -> None:
        super().__init__(out_keys=[WEIGHTS])
        check_least(least, objectives)
        self.least, self._seed = least, seed
        self._account = torch.arange(first_account, first_account + num_envs)
        self.register_buffer("episode", torch.full((num_envs,), -1))
        self.register_buffer("drawn", torch.full((num_envs, objectives), 1 / objectives))

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        return next_tensordict.set(WEIGHTS, self.drawn.clone())

    def _reset(
        self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        count, width = self.drawn.shape
        over = torch.ones(count, 1, dtype=torch.bool) if mask is None else mask.view(-1, 1)
        self.episode += over[:, 0]
        even = [
            draws.uniform(self._seed, self._account, self.episode, STREAM + k) for k in range(width)
        ]
        self.drawn = torch.where(over, spread(torch.stack(even, -1), self.least), self.drawn)
        return self._call(tensordict_reset)

    def transform_observation_spec(self, observation_spec: TensorSpec) -> TensorSpec:
        """Adds the weights."""
        assert isinstance(observation_spec, Composite)
        observation_spec[WEIGHTS] = Unbounded(
            self.drawn.shape, dtype=torch.float32, device=observation_spec.device
        )
        return observation_spec


class PreferencesAnew(Transform):
    """Gives each row that is sampled weights of its own, the same before and after the step.

    A step says as much about other preferences as about the one that it was made with. Appended to
    a replay buffer; draws are PyTorch's.

    Args:
        objectives: K.
        least: smallest weight, below 1 / K.
    """

    def __init__(self, objectives: int, *, least: float = 0.0) -> None:
        super().__init__()
        check_least(least, objectives)
        self.objectives, self.least = objectives, least

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """A batch with a preference for each row."""
        even = torch.rand(*tensordict.shape, self.objectives).clamp(min=1e-12)
        weights = spread(even, self.least)
        tensordict = tensordict.copy().set(WEIGHTS, weights)
        return tensordict.set(("next", *WEIGHTS), weights)


def check_least(least: float, objectives: int) -> None:
    """Refuses a smallest weight that leaves nothing to prefer."""
    if not 0 <= least * objectives < 1:
        raise ValueError(
            f"least must be at least 0 and below 1 / {objectives}, or nothing is left to prefer;"
            f" got {least}"
        )


def spread(even: Tensor, least: float) -> Tensor:
    """Weights ``[*, K]`` of numbers in (0, 1): exponential ones over their sum are even."""
    parts = -even.log()
    whole = parts / parts.sum(-1, keepdim=True)
    return (least + (1 - least * even.shape[-1]) * whole).float()


def preferring(policy: Policy, weights: Tensor) -> Policy:
    """A policy that sees these weights ``[K]`` in every row, whatever the environment shows."""

    def asked(tensordict: TensorDictBase) -> TensorDictBase:
        tensordict.set(WEIGHTS, weights.expand(*tensordict.shape, -1))
        return policy(tensordict)

    return asked
