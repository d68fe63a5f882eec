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

from tasks.task import RETURN, ROW, Figures, Goals, Judged, Policy, acted, explores


class SavedGym(GymWrapper):
    """A Gymnasium environment of classic control that can be gone on with in mid-episode."""

    def _counter(self) -> Any:
        env = self._env
        while not hasattr(env, "_elapsed_steps"):
            env = env.env
        return env

    def get_extra_state(self) -> dict[str, Any]:
        """Where it stands, and its generator."""
        inner = self._env.unwrapped
        state = [float(value) for value in inner.state]
        steps, draws = self._counter()._elapsed_steps, inner.np_random.bit_generator.state
        return {"state": state, "steps": steps, "random": draws}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`get_extra_state` left off."""
        inner = self._env.unwrapped
        inner.state = np.array(state["state"])
        inner.np_random.bit_generator.state = state["random"]
        self._counter()._elapsed_steps = state["steps"]


class Gym:
    """A Gymnasium environment with continuous actions; judged by its mean return."""

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
        self.name = env["gym"]
        actions = env.get("actions", "continuous")
        if actions != "continuous":
            raise ValueError(
                f"{self.name} has numbers for actions and no others: env.actions=continuous, got"
                f" {actions!r}"
            )
        if num_envs != 1:
            raise ValueError(f"env={self.name} is one environment: num_envs=1, got {num_envs}")
        self._check(seed)
        self.env = self._make(seed)
        self.inputs = self.env.observation_spec["observation"].shape[-1]
        self.actions = self.env.action_spec.shape[-1]

    def _check(self, seed: int) -> None:
        """Refuses an environment that could not be gone on with, before it has learned anything."""
        env = self._make(seed)
        env.reset()
        try:
            env.get_extra_state()
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"env.gym={self.name} does not say where it stands (no .state that is a row of"
                " numbers, or no limit of steps), so that a stopped run could not go on: take one"
                " of classic control, Pendulum-v1 say"
            ) from error
        env.close()

    def _make(self, seed: int) -> EnvBase:
        try:
            made = gymnasium.make(self.name)
        except gymnasium.error.Error as error:
            raise ValueError(f"env.gym={self.name}: {error}") from error
        if not isinstance(made.action_space, gymnasium.spaces.Box):
            raise ValueError(
                f"env.gym={self.name} takes {made.action_space} for actions; this recipe is for one"
                " whose actions are numbers, a Box"
            )
        wrapped = SavedGym(gymnasium.wrappers.RescaleAction(made, np.float32(-1), np.float32(1)))
        wrapped.set_seed(seed)
        return wrapped

    def watched(self, batch: TensorDictBase) -> tuple[Tensor, Tensor | None, Tensor]:
        """Actions and ends, of one account."""
        return batch["action"][None], None, batch["next", "done"][None]

    def place_of(self, batch: TensorDictBase) -> Tensor:
        """None that is known."""
        return torch.full(batch.shape, -1)

    def potential(self) -> None:
        """Nobody wrote one."""

    def replay_transform(self) -> None:
        """Rows are stored as they are."""

    def evaluate(self, policy: Policy, episodes: int = 10, seed: int = 1_000_000) -> Figures:
        """Mean return of whole episodes, and what the policy did; exploring beside it."""
        env = self._make(seed)
        runs = self._episodes(env, policy, episodes)
        exploring = self._episodes(self._make(seed), explores(policy), episodes)
        returns = torch.stack([run["next", "reward"].sum() for run in runs])
        others = torch.stack([run["next", "reward"].sum() for run in exploring])
        each = [acted(run["action"][None], self.kind) for run in runs]
        actions = acted(torch.cat([run["action"] for run in runs])[None], self.kind)
        return {
            "return": float(returns.mean()),
            "return_std": float(returns.std()),
            "stochastic_return": float(others.mean()),
            **actions,
            "exact_repeats": max(one["exact_repeats"] for one in each),
        }

    def _episodes(self, env: EnvBase, policy: Policy, episodes: int) -> list[TensorDictBase]:
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            runs = [env.rollout(100_000, policy) for _ in range(episodes)]
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
