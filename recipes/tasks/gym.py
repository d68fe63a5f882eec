"""Gymnasium environments with continuous actions, judged by their mean return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import EnvBase, GymWrapper
from torchrl.envs.utils import ExplorationType, set_exploration_type

from tasks.gym_rows import GymRows, stand, standing
from tasks.task import RETURN, ROW, Figures, Goals, Judged, Policy, acted, explores


class SavedGym(GymWrapper):
    """A Gymnasium environment of classic control that can be gone on with in mid-episode."""

    def get_extra_state(self) -> dict[str, Any]:
        """Where it stands, and its generator."""
        return standing(self._env)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`get_extra_state` left off."""
        stand(self._env, state)


class Gym:
    """A Gymnasium environment, or several of a kind; judged by the mean return."""

    score = "return"
    kind: str | int = "target"
    in_keys: tuple[NestedKey, ...] = ("observation",)
    symbols: tuple[str, ...] = ()
    signals = RETURN
    rewards = 1
    stored: tuple[Any, ...] = ROW
    goals: Goals | None = None
    places = 0

    def __init__(self, env: Mapping[str, Any], num_envs: int, seed: int) -> None:
        self.name, self.actions_are = env["gym"], env.get("actions", "continuous")
        if self.actions_are not in ("continuous", "discrete"):
            raise ValueError(
                f"env.actions is continuous or discrete for {self.name}, got {self.actions_are!r}"
            )
        self._check()
        self.env = self._make(seed, num_envs)
        self.inputs = self.env.observation_spec["observation"].shape[-1]
        if self.actions_are == "discrete":
            self.actions = self.kind = int(self.env.action_spec.n)
        else:
            self.actions = self.env.action_spec.shape[-1]

    def _check(self) -> None:
        """Refuses an environment that could not be gone on with, before it has learned anything."""
        env = self._one()
        env.reset()
        try:
            standing(env)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"env.gym={self.name} does not say where it stands (no .state that is a row of"
                " numbers, or no limit of steps), so that a stopped run could not go on: take one"
                " of classic control, Pendulum-v1 say"
            ) from error
        env.close()

    def _one(self) -> gymnasium.Env:
        try:
            made = gymnasium.make(self.name)
        except gymnasium.error.Error as error:
            raise ValueError(f"env.gym={self.name}: {error}") from error
        kinds = {"continuous": gymnasium.spaces.Box, "discrete": gymnasium.spaces.Discrete}
        if not isinstance(made.action_space, kinds[self.actions_are]):
            other = next(name for name in kinds if name != self.actions_are)
            fits = isinstance(made.action_space, kinds[other])
            raise ValueError(
                f"env.gym={self.name} takes {made.action_space} for actions, and"
                f" env.actions={self.actions_are}: "
                + (f"take env.actions={other}" if fits else "take one with a Box, or Discrete")
            )
        if self.actions_are == "discrete":
            return made
        return gymnasium.wrappers.RescaleAction(made, np.float32(-1), np.float32(1))

    def _make(self, seed: int, count: int = 1) -> EnvBase:
        if count > 1 or self.actions_are == "discrete":
            return GymRows(self._one, count, seed)
        wrapped = SavedGym(self._one())
        wrapped.set_seed(seed)
        return wrapped

    def watched(self, batch: TensorDictBase) -> tuple[Tensor, Tensor | None, Tensor]:
        """Actions ``[N, T, 1]`` and ends."""
        rows = batch[None] if batch.ndim == 1 else batch
        actions = rows["action"]
        actions = actions if actions.ndim == 3 else actions[..., None]
        return actions, None, rows["next", "done"]

    def place_of(self, batch: TensorDictBase) -> Tensor:
        """None that is known."""
        return torch.full(batch.shape, -1)

    def potential(self) -> None:
        """Nobody wrote one."""

    def population(self, members: int, episodes: int) -> EnvBase:
        """Many of them; what a member's rows draw those of all others draw too."""
        rows = GymRows(self._one, members * episodes, 0)
        rows.draw_alike(members)
        return rows

    def replay_transform(self) -> None:
        """Rows are stored as they are."""

    def evaluate(self, policy: Policy, episodes: int = 10, seed: int = 1_000_000) -> Figures:
        """Mean return of whole episodes, and what the policy did; exploring beside it."""
        env = self._make(seed)
        runs = self._episodes(env, policy, episodes)
        exploring = self._episodes(self._make(seed), explores(policy), episodes)
        returns = torch.stack([run["next", "reward"].sum() for run in runs])
        others = torch.stack([run["next", "reward"].sum() for run in exploring])
        done = [self.watched(run)[0] for run in runs]
        each = [acted(one, self.kind) for one in done]
        actions = acted(torch.cat(done, 1), self.kind)
        return {
            "return": float(returns.mean()),
            "return_std": float(returns.std()),
            "stochastic_return": float(others.mean()),
            **actions,
            "exact_repeats": max(one["exact_repeats"] for one in each),
        }

    def _episodes(self, env: EnvBase, policy: Policy, episodes: int) -> list[TensorDictBase]:
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            runs = [env.rollout(100_000, policy).reshape(-1) for _ in range(episodes)]
        env.close()
        return runs

    def judge(self, policy: Policy, split: str) -> Judged:
        """The mean return of fresh episodes."""
        seed = {"validation": 1_000_000, "test": 4_000_000}[split]
        figures = self.evaluate(policy, 100, seed)
        facts = {"split": f"{split}: 100 episodes from seed {seed:,}"}
        return Judged(self.name, facts, figures, {"agent": figures})

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the environment follows from the settings."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to take over."""
