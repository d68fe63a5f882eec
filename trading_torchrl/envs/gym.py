"""Batched environments as Gymnasium knows them: one account, or N as one vector.

Every environment with batch ``[N]``, an ``observation`` ``[N, D]``, one ``action`` and a reward of
one number can be viewed. Values shown besides become infos: ``("account", "equity")`` is
``info["account/equity"]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pkgutil import resolve_name
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from tensordict import NestedKey, TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase, TransformedEnv

from trading_torchrl.data.market import Market
from trading_torchrl.data.synthetic import synthetic_market
from trading_torchrl.envs.gym_spaces import spaces_of
from trading_torchrl.envs.trading import TradingEnv

Info = dict[str, Any]


class GymView(gymnasium.Env[np.ndarray, Any]):
    """One account of a batched environment, stepped the Gymnasium way.

    ``reset()`` goes on to the next episode, ``reset(seed=s)`` to the first one of seed s.

    Args:
        core: an environment of batch ``[1]``; ``unwrapped.core`` gives it back.
        render_mode: only ``None``; :class:`TradingView` draws.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, core: EnvBase, render_mode: str | None = None) -> None:
        self.core = core
        self.observation_space, self.action_space = spaces_of(core)
        if core.batch_size[0] != 1:
            raise ValueError(
                f"the environment has {core.batch_size[0]} accounts, this view shows one;"
                " build it with num_envs=1, or take VectorGymView"
            )
        _check_render_mode(render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self._keys = _shown_besides(core)
        self._seen: TensorDictBase | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, Info]:
        """The next episode; with a seed, the first one of that seed. There are no options."""
        super().reset(seed=seed)
        self._seen = _first(self.core, seed, options)
        return self._look(self._seen)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        """One step; an episode that ended must be reset."""
        before = _reset_before(self._seen)
        before.set("action", _read(action, self.action_space)[None])
        after = self.core.step(before).get("next")
        terminated, truncated = (bool(after.get(flag)) for flag in ("terminated", "truncated"))
        self._seen = None if terminated or truncated else after.exclude("reward")
        observation, info = self._look(after)
        return observation, float(after.get("reward")), terminated, truncated, info

    def _look(self, seen: TensorDictBase) -> tuple[np.ndarray, Info]:
        seen = _callers_own(seen, self.core)
        infos = _infos(seen, self._keys)
        return _array(seen.get("observation"))[0], {name: value[0] for name, value in infos.items()}

    def close(self) -> None:
        """Closes the environment."""
        self.core.close(raise_if_closed=False)


class TradingView(GymView):
    """One account of a :class:`TradingEnv`, with a picture of its episode.

    Args:
        market: what is traded; without one, a small synthetic market.
        render_mode: ``rgb_array`` draws the running episode, and emits what that needs.
        emit: as in :class:`TradingEnv`.
        settings: all others of :class:`TradingEnv`.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        market: Market | None = None,
        *,
        render_mode: str | None = None,
        emit: Sequence[str] | Literal["all"] = ("equity",),
        **settings: Any,
    ) -> None:
        emit = (emit,) if isinstance(emit, str) and emit != "all" else emit
        if render_mode is not None and emit != "all":
            from trading_torchrl.evaluation.episode import EMIT

            emit = tuple(dict.fromkeys((*emit, *EMIT)))
        core = TradingEnv(market or small_market(), 1, emit=emit, **settings)
        super().__init__(core, render_mode)
        self._steps: list[TensorDictBase] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, Info]:
        """The next episode; with a seed, the first one of that seed. There are no options."""
        self._steps = []
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        """One bar; an episode that ended must be reset."""
        before = self._seen
        result = super().step(action)
        if self.render_mode is not None and before is not None:
            self._steps.append(before)
        return result

    def render(self) -> np.ndarray | None:
        """The picture of the episode so far, uint8 ``[height, width, 3]``."""
        if self.render_mode is None:
            return None
        # Drawing is slow to import, and most accounts are never drawn.
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        from trading_torchrl.evaluation.episode import plot_episode

        steps = self._steps or [_standing(_reset_before(self._seen))]
        assert isinstance(self.core, TradingEnv)
        figure = plot_episode(torch.stack(steps, 1), self.core.market, fill=self.core.rules.fill)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()


class VectorGymView(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """All N accounts of a batched environment, stepped as one Gymnasium vector.

    Accounts whose episode ends are reset in the same step: the observation and the infos are those
    of the new episode, ``final_obs`` and ``final_info`` tell how the old one ended.

    Args:
        core: an environment of batch ``[N]``; ``unwrapped.core`` gives it back.
        render_mode: only ``None``.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, core: EnvBase, render_mode: str | None = None) -> None:
        self.core = core
        self.single_observation_space, self.single_action_space = spaces_of(core)
        _check_render_mode(render_mode, self.metadata["render_modes"])
        self.num_envs = core.batch_size[0]
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._keys = _shown_besides(core)
        self._seen: TensorDictBase | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, Info]:
        """The next episodes; with a seed, the first ones of that seed. There are no options."""
        super().reset(seed=seed)
        self._seen = _first(self.core, seed, options)
        seen = _callers_own(self._seen, self.core)
        return _array(seen.get("observation")), self._info(seen)

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of all accounts, and a reset of those whose episode ended."""
        before = _reset_before(self._seen).set("action", _read(actions, self.action_space))
        before, seen = self.core.step_and_maybe_reset(before)
        self._seen = seen
        seen = _callers_own(seen, self.core)
        after = before.get("next")
        reward, terminated, truncated = (
            _array(after.get(key))[:, 0] for key in ("reward", "terminated", "truncated")
        )
        info = self._info(seen)
        ended = terminated | truncated
        if ended.any():
            info |= self._final(after, ended)
        return _array(seen.get("observation")), reward, terminated, truncated, info

    def _info(self, seen: TensorDictBase) -> Info:
        info: Info = {}
        for name, value in _infos(seen, self._keys).items():
            info[name], info[f"_{name}"] = value, np.ones(self.num_envs, dtype=np.bool_)
        return info

    def _final(self, after: TensorDictBase, ended: np.ndarray) -> Info:
        """How the ended episodes ended; of other accounts nothing, and zeros."""
        observation = np.full(self.num_envs, None, dtype=object)
        rows = _array(after.get("observation"))[ended]
        observation[ended] = np.fromiter(rows, dtype=object, count=len(rows))
        info: Info = {}
        for name, value in _infos(after, self._keys).items():
            info[name] = np.zeros_like(value)
            info[name][ended] = value[ended]
            info[f"_{name}"] = ended.copy()
        return {
            "final_obs": observation,
            "_final_obs": ended.copy(),
            "final_info": info,
            "_final_info": ended.copy(),
        }

    def close_extras(self) -> None:
        """Closes the environment."""
        self.core.close(raise_if_closed=False)


def trading_vector(
    num_envs: int = 1,
    market: Market | None = None,
    *,
    render_mode: str | None = None,
    **settings: Any,
) -> VectorGymView:
    """N accounts of a :class:`TradingEnv`; without a market, on a small synthetic one."""
    return VectorGymView(TradingEnv(market or small_market(), num_envs, **settings), render_mode)


def problem(problem: str, render_mode: str | None = None, **settings: Any) -> GymView:
    """One account of the environment class at ``module:Class``, built with its settings."""
    return GymView(resolve_name(problem)(1, **settings), render_mode)


def problem_vector(
    num_envs: int, problem: str, render_mode: str | None = None, **settings: Any
) -> VectorGymView:
    """N accounts of the environment class at ``module:Class``, built with its settings."""
    return VectorGymView(resolve_name(problem)(num_envs, **settings), render_mode)


@cache
def small_market() -> Market:
    """What is traded where no market is given; the same one for all who ask."""
    return synthetic_market(symbols=5, bars=20_000, seed=0)


def _shown_besides(core: EnvBase) -> dict[str, NestedKey]:
    """Keys of all that is shown beside the observation, by the names of the infos."""
    keys = core.observation_spec.keys(include_nested=True, leaves_only=True)
    names = {key if isinstance(key, str) else "/".join(key): key for key in keys}
    return {name: key for name, key in names.items() if key != "observation"}


def _infos(seen: TensorDictBase, keys: dict[str, NestedKey]) -> dict[str, np.ndarray]:
    """``[N]`` of what is one number an account; masks in the type Gymnasium samples by."""
    found = {name: _array(seen.get(key)) for name, key in keys.items()}
    if "action_mask" in found:
        found["action_mask"] = found["action_mask"].view(np.int8)
    return {
        name: value[:, 0] if value.shape[1:] == (1,) else value for name, value in found.items()
    }


def _callers_own(seen: TensorDictBase, core: EnvBase) -> TensorDictBase:
    """Transforms read what they showed at the step before; callers may write to it."""
    return seen.clone() if isinstance(core, TransformedEnv) else seen


def _array(value: Tensor) -> np.ndarray:
    return value.cpu().numpy()


def _first(core: EnvBase, seed: int | None, options: dict[str, Any] | None) -> TensorDictBase:
    if options:
        raise ValueError(f"reset has no options here, got {sorted(options)}; build with settings")
    if seed is not None:
        core.set_seed(seed, static_seed=True)
    return core.reset()


def _reset_before(seen: TensorDictBase | None) -> TensorDictBase:
    if seen is None:
        raise ResetNeeded("no episode is running; call reset() before step() or render()")
    return seen


def _read(action: Any, space: spaces.Space[Any]) -> Tensor:
    """A copy: what callers give may be read-only, or written to later."""
    given, wanted = np.asarray(action), np.dtype(space.dtype)
    if given.shape != space.shape or not np.can_cast(given.dtype, wanted, "same_kind"):
        raise ValueError(
            f"got an action of shape {given.shape} and type {given.dtype}; it must have shape"
            f" {space.shape} and type {wanted}"
        )
    return torch.from_numpy(given.astype(wanted))


def _standing(seen: TensorDictBase) -> TensorDictBase:
    """An account that was just reset, as a step in which nothing happened."""
    return seen.copy().set("next", seen.copy())


def _check_render_mode(mode: str | None, known: list[str]) -> None:
    if mode is not None and mode not in known:
        raise ValueError(
            f"render_mode={mode!r} is not known here; allowed are {[None, *known]}. Pictures are"
            " drawn of trading_torchrl/Trading-v0 made with gymnasium.make"
        )
