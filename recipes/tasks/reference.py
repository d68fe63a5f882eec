"""Problems with known answers, judged by the share of the optimum."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from tasks.task import ROW, Figures, Judged, Policy, acted, explores
from trading_torchrl.envs import reference
from trading_torchrl.envs.reference import optimum_share

PROBLEMS = ("GarleanuPedersen", "Merton", "OUSpread", "PlantedLeak", "Martingale")


class Reference:
    """A problem with a known answer; judged by the share of the optimum, on common noise."""

    score = "optimum_share"
    kind = "target"
    in_keys: tuple[str, ...] = ("observation",)
    symbols: tuple[str, ...] = ()
    stored: tuple[Any, ...] = ROW

    def __init__(self, env: Mapping[str, Any], num_envs: int, seed: int) -> None:
        settings = dict(env)
        name = settings.pop("problem")
        if name not in PROBLEMS:
            raise ValueError(f"env.problem is one of {', '.join(PROBLEMS)}; got {name!r}")
        self.name = name
        self.env = getattr(reference, name)(num_envs, seed=seed, **settings)
        self.inputs = self.env.observation_spec["observation"].shape[-1]
        self.actions = 1

    def watched(self, batch: TensorDictBase) -> tuple[Tensor, Tensor | None, Tensor]:
        """Actions and ends."""
        return batch["action"], None, batch["next", "done"]

    def replay_transform(self) -> None:
        """Rows are stored as they are."""

    def evaluate(self, policy: Policy, episodes: int = 64, seed: int = 1_000_000) -> Figures:
        """The share of the optimum, and what the policy did; exploring beside it.

        In a martingale the optimum is 0 and the share not defined: there is the score.
        """
        found = optimum_share(policy, self.env, episodes=episodes, seed=seed)
        exploring = optimum_share(explores(policy), self.env, episodes=episodes, seed=seed)
        env = deepcopy(self.env)
        env.set_seed(seed)
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            steps = env.rollout(env.steps, policy, break_when_any_done=False)
        return {
            "optimum_share": found.share,
            "optimum_share_error": found.error,
            "score": found.score,
            "stochastic_share": exploring.share,
            **acted(steps["action"], self.kind),
        }

    def judge(self, policy: Policy, split: str) -> Judged:
        """The share of the optimum on fresh noise."""
        seed = {"validation": 1_000_000, "test": 4_000_000}[split]
        figures = self.evaluate(policy, 256, seed)
        facts = {"split": f"{split}: 256 episodes from seed {seed:,}"}
        return Judged(f"{self.name}: share of the optimum", facts, figures, {"agent": figures})

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the problem follows from the settings."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to take over."""
