"""Goals: a return to reach by the end of an episode, what it pays, and what an agent sees of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import Composite, TensorSpec, Unbounded
from torchrl.envs import Transform

from trading_torchrl.envs import draws

ACHIEVED, DESIRED, SEEN = ("goal", "achieved"), ("goal", "desired"), ("goal", "seen")
EQUITY = ("account", "equity")
STREAM = 1_000
"""Of the draws; those of symbols and starts are far below."""


class Goal(Protocol):
    """What being somewhere is worth to who wants to be elsewhere; pure functions of tensors."""

    def reward(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """``[*, 1]``, of ``achieved`` and ``desired`` ``[*, G]``."""

    def reached(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """bool ``[*, 1]``."""

    def seen(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """What a network sees of both, ``[*, W]``."""


@dataclass(frozen=True)
class ReachReturn:
    """A return to reach: 1 within ``tolerance`` of it, falling to 0 over ``width``.

    Args:
        tolerance: how near is there.
        width: distance from which on there is no reward.
        sparse: no reward outside the tolerance.

    Example:
        >>> goal = ReachReturn()
        >>> goal.reward(torch.tensor([[0.02], [0.01], [-0.05]]), torch.tensor([[0.0205]])).T
        tensor([[1.0000, 0.7900, 0.0000]])
    """

    tolerance: float = 0.001
    width: float = 0.05
    sparse: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < self.width < math.inf:
            raise ValueError(
                "tolerance must be positive and width larger, got"
                f" tolerance={self.tolerance}, width={self.width}"
            )

    def reward(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """``[*, 1]``."""
        near = self.reached(achieved, desired).to(achieved.dtype)
        if self.sparse:
            return near
        slope = (1 - (achieved - desired).abs() / self.width).clamp(min=0)
        return torch.maximum(near, slope)

    def reached(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """bool ``[*, 1]``."""
        return (achieved - desired).abs() <= self.tolerance

    def seen(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """``[*, 3]``: how far it is, in widths; the same near the goal, in tolerances; the goal.

        A distance of a tolerance is hardly to be seen beside one of a width, so it has a number of
        its own, which does not go beyond a few.
        """
        far = desired - achieved
        near = (far / (4 * self.tolerance)).tanh()
        return torch.cat([far / self.width, near, desired / self.width], -1)


class DesiredGoal(Transform):
    """Gives every episode a return to reach, and shows how far it is.

    For a :class:`~trading_torchrl.envs.TradingEnv` that emits ``achieved``. Writes ``("goal",
    "desired")`` ``[N, 1]``, drawn evenly between ``low`` and ``high`` by (seed, account, episode)
    alone, and ``("goal", "seen")`` ``[N, W]``, which a policy reads beside the observation. The
    reward stays the environment's; :class:`~trading_torchrl.replay.Hindsight` pays for goals.

    Args:
        num_envs: number of accounts N.
        goal: what an agent sees of goals.
        low: smallest return.
        high: largest; the same as ``low`` is one for all.
        seed: of the draws.
        first_account: number of the first account.

    Example:
        >>> from torchrl.envs import TransformedEnv
        >>> from trading_torchrl.data import synthetic_market
        >>> from trading_torchrl.envs import TradingEnv
        >>> env = TradingEnv(synthetic_market(2, 2_000), 4, emit=["achieved"], compiled=False)
        >>> env = TransformedEnv(env, DesiredGoal(4, ReachReturn(), low=-0.02, high=0.04))
        >>> env.rollout(3)["goal", "seen"].shape
        torch.Size([4, 3, 3])
    """

    desired: Tensor
    episode: Tensor

    def __init__(
        self,
        num_envs: int,
        goal: Goal,
        *,
        low: float,
        high: float,
        seed: int = 0,
        first_account: int = 0,
    ) -> None:
        super().__init__(in_keys=[ACHIEVED], out_keys=[DESIRED, SEEN])
        if not -1 < low <= high < math.inf:
            raise ValueError(
                f"a goal is a return above -1, low at most high; got low={low}, high={high}"
            )
        self.goal, self.low, self.high, self._seed = goal, low, high, seed
        self._account = torch.arange(first_account, first_account + num_envs)
        self.register_buffer("episode", torch.full((num_envs,), -1))
        self.register_buffer("desired", torch.zeros(num_envs, 1))

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        desired = self.desired.clone()
        next_tensordict.set(DESIRED, desired)
        return next_tensordict.set(SEEN, self.goal.seen(next_tensordict.get(ACHIEVED), desired))

    def _reset(
        self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        over = torch.ones_like(self.desired, dtype=torch.bool) if mask is None else mask.view(-1, 1)
        self.episode += over[:, 0]
        part = draws.uniform(self._seed, self._account, self.episode, STREAM).float()[:, None]
        drawn = self.low + (self.high - self.low) * part
        self.desired = torch.where(over, drawn, self.desired)
        return self._call(tensordict_reset)

    def transform_observation_spec(self, observation_spec: TensorSpec) -> TensorSpec:
        """Adds both keys."""
        achieved = observation_spec[ACHIEVED]
        like: dict[str, Any] = {"dtype": torch.float32, "device": achieved.device}
        width = width_of(self.goal, achieved.shape[-1])
        assert isinstance(observation_spec, Composite)
        observation_spec[DESIRED] = Unbounded(achieved.shape, **like)
        observation_spec[SEEN] = Unbounded((*achieved.shape[:-1], width), **like)
        return observation_spec


class GoalAfterGoal(Transform):
    """Shows accounts that go on and on one goal after another: the same return over every stretch.

    So that an agent of :class:`DesiredGoal`'s episodes can trade a whole split in one account. What
    was achieved counts from where the account stood when the stretch began, and ``("goal",
    "achieved")`` says so. For a :class:`~trading_torchrl.envs.TradingEnv` that emits ``equity``.

    Args:
        num_envs: number of accounts N.
        goal: what an agent sees of goals.
        desired: the return.
        bars: of a stretch.

    Example:
        >>> from torchrl.envs import TransformedEnv
        >>> from trading_torchrl.data import synthetic_market
        >>> from trading_torchrl.envs import TradingEnv
        >>> env = TradingEnv(synthetic_market(2, 2_000), 4, emit=["equity"], compiled=False)
        >>> env = TransformedEnv(env, GoalAfterGoal(4, ReachReturn(), desired=0.04, bars=300))
        >>> env.rollout(3)["goal", "seen"].shape
        torch.Size([4, 3, 3])
    """

    start: Tensor
    bar: Tensor

    def __init__(self, num_envs: int, goal: Goal, *, desired: float, bars: int) -> None:
        super().__init__(in_keys=[EQUITY], out_keys=[ACHIEVED, DESIRED, SEEN])
        if not -1 < desired < math.inf:
            raise ValueError(f"a goal is a return above -1, got desired={desired}")
        if bars < 1:
            raise ValueError(f"a stretch has at least 1 bar, got bars={bars}")
        self.goal, self.desired, self.bars = goal, desired, bars
        self.register_buffer("start", torch.zeros(num_envs, 1, dtype=torch.float64))
        self.register_buffer("bar", torch.zeros(num_envs, 1, dtype=torch.int64))

    def _reset(
        self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        equity = tensordict_reset.get(EQUITY)
        mask = None if tensordict is None else tensordict.get("_reset", None)
        over = torch.ones_like(equity, dtype=torch.bool) if mask is None else mask.view(-1, 1)
        self.start = torch.where(over, equity, self.start)
        self.bar = torch.where(over, 0, self.bar)
        return self._call(tensordict_reset)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        steps = tensordict.get("_step", None)
        steps = torch.ones_like(self.bar, dtype=torch.bool) if steps is None else steps.view(-1, 1)
        self.bar = torch.where(steps, (self.bar + 1) % self.bars, self.bar)
        anew = steps & (self.bar == 0)
        self.start = torch.where(anew, next_tensordict.get(EQUITY), self.start)
        return self._call(next_tensordict)

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        equity = next_tensordict.get(EQUITY)
        earned = torch.where(self.start > 0, equity / self.start - 1, -1.0).float()
        desired = torch.full_like(earned, self.desired)
        next_tensordict.set(ACHIEVED, earned).set(DESIRED, desired)
        return next_tensordict.set(SEEN, self.goal.seen(earned, desired))

    def transform_observation_spec(self, observation_spec: TensorSpec) -> TensorSpec:
        """Adds all three keys."""
        like: dict[str, Any] = {"dtype": torch.float32, "device": observation_spec.device}
        equity = observation_spec[EQUITY]
        assert isinstance(observation_spec, Composite)
        for key in (ACHIEVED, DESIRED):
            observation_spec[key] = Unbounded(equity.shape, **like)
        width = width_of(self.goal)
        observation_spec[SEEN] = Unbounded((*equity.shape[:-1], width), **like)
        return observation_spec


def width_of(goal: Goal, size: int = 1) -> int:
    """Of what a network sees of goals of this size."""
    nothing = torch.zeros(1, size)
    return goal.seen(nothing, nothing).shape[-1]
