"""Potential shaping: rewards for getting somewhere that leave the best policy what it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import Transform

from trading_torchrl.checks import check_share


class PotentialShaping(Transform):
    """Adds ``gamma x w x Phi(next) - w x Phi(now)`` to rewards.

    Ng, Harada & Russell, "Policy invariance under reward transformations", 1999. Summed over an
    episode it depends on where the episode began alone, so it pays for nothing in the end; only at
    true termination the next potential counts as zero, a truncated episode would have gone on.

    Appended to a replay buffer, or called on any batch with ``next``, it works with the potential
    and the weight as they are by then, one weight for the whole batch, and writes ``reward`` and,
    beside it, ``shaping``, what was added, both ``[*, 1]``, in ``next``. Appended to an
    environment it changes the reward of each step.

    Args:
        potential: any function of what is seen that returns ``[*, 1]``. It is no part of this
            transform's state, and no gradient reaches it from here.
        in_keys: what it sees, in the root and in ``next``.
        gamma: the discount of the loss that learns from these rewards.
        weight: w at the start.
        step: by how much :meth:`adapt` moves it.
        most: largest weight; the least is 0.
        warmup_frames: rows that have to be collected before it counts.
        reward_key: where the reward is, in ``next``.
        terminated_key: where it says that an episode is over, in ``next``.

    Example:
        >>> from trading_torchrl.envs.reference import Chain
        >>> from torchrl.envs import TransformedEnv
        >>> chain = Chain(num_envs=2, length=5)
        >>> near = lambda seen: -chain.steps_to_goal(seen)[..., None].float()
        >>> env = TransformedEnv(chain, PotentialShaping(near, gamma=1.0, weight=0.1))
        >>> right = lambda td: td.set("action", torch.ones(2, dtype=torch.int64))
        >>> env.rollout(3, right)["next", "reward"][0, :, 0]
        tensor([0.1000, 0.1000, 0.1000])
    """

    weight: Tensor

    def __init__(
        self,
        potential: Callable[..., Tensor],
        in_keys: Sequence[NestedKey] = ("observation",),
        *,
        gamma: float,
        weight: float = 0.1,
        step: float = 0.01,
        most: float = 1.0,
        warmup_frames: int = 0,
        reward_key: NestedKey = "reward",
        terminated_key: NestedKey = "terminated",
    ) -> None:
        super().__init__()
        check_share("gamma", gamma)
        if not 0 <= weight <= most < math.inf:
            raise ValueError(f"weight must lie between 0 and most={most}, got {weight}")
        if not 0 <= step < math.inf:
            raise ValueError(f"step must not be negative, got {step}")
        self._potential = (potential,)  # in a tuple it is not registered: its loss saves it
        self.seen, self.reward_key, self.terminated_key = tuple(in_keys), reward_key, terminated_key
        self.gamma, self.step, self.most = gamma, step, most
        self.warmup_frames, self.frames = warmup_frames, 0
        self.register_buffer("weight", torch.tensor(float(weight), dtype=torch.float64))

    def adapt(self, *, entropy: float | None = None, sharpe: float | None = None) -> None:
        """A step up while actions are few (entropy below 0.3), one down while Sharpe is above 1."""
        up = entropy is not None and entropy < 0.3
        down = sharpe is not None and sharpe > 1
        self.weight.add_(self.step * (up - down)).clamp_(0.0, self.most)

    def count(self, frames: int) -> None:
        """So many rows were collected by now; for who calls it by hand."""
        self.frames = frames

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Rows on their way into the buffer are counted."""
        self.frames += tensordict.numel()
        return tensordict

    @torch.no_grad()
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """A batch with its rewards shaped."""
        tensordict = tensordict.copy()  # and all that is nested in it
        following = tensordict.get("next")
        added = self._added(tensordict, following)
        following.set("shaping", added)
        following.set(self.reward_key, following.get(self.reward_key) + added)
        return tensordict

    @torch.no_grad()
    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        self.frames += tensordict.numel()
        reward = next_tensordict.get(self.reward_key)
        return next_tensordict.set(
            self.reward_key, reward + self._added(tensordict, next_tensordict)
        )

    def _added(self, now: TensorDictBase, following: TensorDictBase) -> Tensor:
        (potential,) = self._potential
        weight = float(self.weight) if self.frames >= self.warmup_frames else 0.0
        reward = following.get(self.reward_key)
        before, after = (
            potential(*(each.get(key) for key in self.seen)) for each in (now, following)
        )
        if before.shape != reward.shape:
            raise ValueError(
                f"the potential is {list(before.shape)} and the reward {list(reward.shape)}: both"
                " must be one number a row, [*, 1]"
            )
        after = after.masked_fill(following.get(self.terminated_key), 0.0)
        return weight * (self.gamma * after - before)

    def get_extra_state(self) -> dict[str, Any]:
        """What was counted."""
        return {"frames": self.frames}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Goes on counting."""
        self.frames = state["frames"]
