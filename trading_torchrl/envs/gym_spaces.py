"""What Gymnasium calls the spaces of our environments, and what it has no place for."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from torchrl.data import Bounded, Categorical, MultiCategorical
from torchrl.data.tensor_specs import TensorSpec
from torchrl.envs import EnvBase

LARGEST = np.finfo(np.float32).max
"""What bounds an observation: all numbers, but finite ones only."""


def spaces_of(core: EnvBase) -> tuple[spaces.Box, spaces.Space[Any]]:
    """Observation and action space of one account.

    Raises:
        ValueError: Gymnasium has no place for what the environment shows or takes.
    """
    if len(core.batch_size) != 1:
        raise ValueError(f"the environment has batch {list(core.batch_size)}, a view needs [N]")
    window = getattr(core, "window", None)
    if window is not None:
        raise ValueError(
            f"with window={window} the features are not in the observation; build the environment"
            " without a window, or use it in TorchRL with MarketWindow"
        )
    reward = core.reward_spec.shape
    if reward[-1] != 1:
        raise ValueError(
            f"the environment gives {reward[-1]} rewards a step, Gymnasium takes one; choose"
            " another reward (emit=('objectives',) shows the five of a TradingEnv as infos)"
        )
    actions = list(core.full_action_spec.keys(True, True))
    if actions != ["action"]:
        raise ValueError(
            f"the environment takes the actions {actions}, Gymnasium's learners one; choose"
            " continuous, target or discrete actions, or use it in TorchRL"
        )
    shape = tuple(core.observation_spec["observation"].shape[1:])
    if len(shape) != 1:
        raise ValueError(f"an observation has shape {shape} here, a view needs (D,)")
    observation = spaces.Box(-LARGEST, LARGEST, shape, np.float32)
    return observation, _action_space(core.full_action_spec["action"])


def _action_space(spec: TensorSpec) -> spaces.Space[Any]:
    shape = tuple(spec.shape[1:])
    if isinstance(spec, Bounded) and spec.dtype.is_floating_point:
        low, high = spec.space.low[0].cpu().numpy(), spec.space.high[0].cpu().numpy()
        return spaces.Box(low, high, dtype=low.dtype.type)
    if isinstance(spec, MultiCategorical):
        return spaces.MultiDiscrete(np.broadcast_to(spec.nvec.cpu().numpy(), spec.shape)[0])
    if isinstance(spec, Categorical):
        choices = int(spec.space.n)
        return spaces.MultiDiscrete(np.full(shape, choices)) if shape else spaces.Discrete(choices)
    raise ValueError(
        f"a view takes bounded numbers or names as actions, not {type(spec).__name__}"
        f" {spec.dtype}; use the environment in TorchRL"
    )
