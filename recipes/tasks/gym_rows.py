"""Several Gymnasium environments of one kind, stepped as one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Bounded, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase

from trading_torchrl.envs.draws import alike


def standing(env: gymnasium.Env) -> dict[str, Any]:
    """Where an environment of classic control stands, and its generator."""
    inner: Any = env.unwrapped
    state = [float(value) for value in inner.state]
    return {"state": state, "steps": _counter(env)._elapsed_steps,
            "random": inner.np_random.bit_generator.state}  # fmt: skip


def stand(env: gymnasium.Env, state: dict[str, Any]) -> None:
    """Goes on where :func:`standing` left off."""
    inner: Any = env.unwrapped
    inner.state = np.array(state["state"])
    inner.np_random.bit_generator.state = state["random"]
    _counter(env)._elapsed_steps = state["steps"]


def _counter(env: Any) -> Any:
    while not hasattr(env, "_elapsed_steps"):
        env = env.env
    return env


class GymRows(EnvBase):
    """N of them, ``[N]``, each reset when its own episode ends.

    Args:
        make: builds one.
        count: N.
        seed: of the first; each has one of its own.
    """

    def __init__(self, make: Callable[[], gymnasium.Env], count: int, seed: int) -> None:
        super().__init__(batch_size=[count])
        self.rows = [make() for _ in range(count)]
        one = self.rows[0]
        assert one.observation_space.shape is not None
        shape = (count, *one.observation_space.shape)
        self.seen = np.zeros(shape, dtype=np.float32)
        self.observation_spec = Composite(
            observation=Unbounded(torch.Size(shape), dtype=torch.float32), shape=[count]
        )
        self.discrete = isinstance(one.action_space, gymnasium.spaces.Discrete)
        if isinstance(one.action_space, gymnasium.spaces.Discrete):
            self.action_spec = Categorical(int(one.action_space.n), torch.Size([count]))
        else:
            assert one.action_space.shape is not None
            wide = torch.Size((count, *one.action_space.shape))
            self.action_spec = Bounded(-1, 1, wide, dtype=torch.float32)
        self.reward_spec = Unbounded(torch.Size([count, 1]), dtype=torch.float32)
        self.account = torch.arange(count)
        self.set_seed(seed)

    def draw_alike(self, copies: int) -> None:
        """Makes the batch so many copies of its first rows, which draw the same."""
        self.account = alike(self.account, copies)

    def _set_seed(self, seed: int | None) -> None:
        first = (seed or 0) * 1_000_003
        self._seeds: list[int | None] = [first + n for n in self.account.tolist()]

    def _reset(self, tensordict: TensorDictBase | None) -> TensorDict:
        asked = None if tensordict is None else tensordict.get("_reset", None)
        over = np.ones(len(self.rows), bool) if asked is None else asked.flatten().numpy()
        for n in over.nonzero()[0]:
            self.seen[n], _ = self.rows[n].reset(seed=self._seeds[n])
            self._seeds[n] = None  # from then on by its own generator
        no = torch.zeros(*self.batch_size, 1, dtype=torch.bool)
        flags = {name: no.clone() for name in ("done", "terminated", "truncated")}
        return TensorDict({"observation": self._shown(), **flags}, self.batch_size)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        actions = tensordict.get("action").numpy()
        reward = np.zeros((len(self.rows), 1), np.float32)
        ends = np.zeros((2, len(self.rows), 1), bool)
        for n, env in enumerate(self.rows):
            taken = int(actions[n]) if self.discrete else actions[n]
            self.seen[n], reward[n, 0], ends[0, n, 0], ends[1, n, 0], _ = env.step(taken)
        terminated, truncated = torch.from_numpy(ends).unbind()
        flags = {"terminated": terminated, "truncated": truncated, "done": terminated | truncated}
        shown = {"observation": self._shown(), "reward": torch.from_numpy(reward), **flags}
        return TensorDict(shown, self.batch_size)

    def _shown(self) -> torch.Tensor:
        return torch.from_numpy(self.seen.copy())

    def get_extra_state(self) -> dict[str, Any]:
        """Where all of them stand."""
        rows = [standing(env) for env in self.rows]
        return {"rows": rows, "seeds": list(self._seeds), "seen": self._shown()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`get_extra_state` left off."""
        for env, seed, saved in zip(self.rows, self._seeds, state["rows"], strict=True):
            if seed is not None:  # it takes no step before its first reset
                env.reset(seed=seed)
            stand(env, saved)
        self._seeds, self.seen = list(state["seeds"]), state["seen"].numpy().copy()
