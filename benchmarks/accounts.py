"""Many accounts of one batched environment, as Stable-Baselines3 takes them."""

from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from trading_torchrl.envs.gym import VectorGymView


class Accounts(VecEnv):
    """All accounts of the Gymnasium vector, as Stable-Baselines3 takes them."""

    def __init__(self, view: VectorGymView, reward_scale: float) -> None:
        self.view, self.reward_scale = view, reward_scale
        super().__init__(view.num_envs, view.single_observation_space, view.single_action_space)

    def reset(self) -> np.ndarray:
        """The first episodes of the seed, where one was set."""
        observation, _ = self.view.reset(seed=self._seeds[0])
        self._reset_seeds()
        return observation

    def step_async(self, actions: np.ndarray) -> None:
        """Keeps the actions until the step is asked for."""
        self.actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """One step of all accounts."""
        observation, reward, terminated, truncated, info = self.view.step(self.actions)
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for k in done.nonzero()[0]:
            infos[k]["terminal_observation"] = info["final_obs"][k]
            infos[k]["TimeLimit.truncated"] = bool(truncated[k] and not terminated[k])
        return observation, self.reward_scale * reward, done, infos

    def close(self) -> None:
        """Closes the environment."""
        self.view.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The vector's, for each account."""
        return [getattr(self.view, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Accounts have no attributes of their own."""
        raise NotImplementedError(f"{attr_name} cannot be set")

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Accounts have no methods of their own."""
        raise NotImplementedError(f"{method_name} cannot be called")

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Never."""
        return [False] * self.num_envs
