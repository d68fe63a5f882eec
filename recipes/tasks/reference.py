"""Problems with known answers, judged by the share of the optimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from checks import check_names
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import EnvBase, Transform, TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type

from tasks.task import RETURN, ROW, Figures, Goals, Judged, Policy, acted, explores
from trading_torchrl.envs import reference
from trading_torchrl.envs.reference import (
    ActionGrid,
    BestOnGrid,
    GridWorld,
    SameBits,
    optimum_share,
    scores,
)

PROBLEMS = (
    "GarleanuPedersen", "Merton", "OUSpread", "PlantedLeak", "Martingale",
    "BitFlip", "Chain", "SparseMaze", "FourRooms",
)  # fmt: skip


class Reference:
    """A problem with a known answer; judged by the share of the optimum, on common noise.

    Where actions are numbers and the environment is asked to be discrete, the optimum is that of
    policies that choose among as many even steps.
    """

    score = "optimum_share"
    in_keys: tuple[NestedKey, ...] = ("observation",)
    symbols: tuple[str, ...] = ()
    stored: tuple[Any, ...] = ROW
    signals = RETURN
    rewards = 1

    def __init__(self, env: Mapping[str, Any], num_envs: int, seed: int) -> None:
        settings = dict(env)
        name = settings.pop("problem")
        if name not in PROBLEMS:
            raise ValueError(f"env.problem is one of {', '.join(PROBLEMS)}; got {name!r}")
        if settings.get("action", "continuous") == "discrete":
            raise ValueError(
                f"env.action={settings['action']} is a choice that no loss here is for: take"
                " env.actions=discrete"
            )
        actions, choices = settings.pop("actions", "continuous"), settings.pop("choices", 21)
        if actions not in ("continuous", "discrete"):
            raise ValueError(f"env.actions is continuous or discrete here, got {actions!r}")
        self.name = name
        check_names("env", settings, getattr(reference, name), ("num_envs", "seed"))
        self.made_of = {"seed": seed, **settings}
        self.problem = getattr(reference, name)(num_envs, **self.made_of)
        self.env: EnvBase = self.problem
        self.inputs = self.problem.observation_spec["observation"].shape[-1]
        self.kind: str | int = "target"
        self.actions = 1
        self.best: BestOnGrid | None = None
        self._best_scores: dict[tuple[int, int], Tensor] = {}
        """by how many episodes and their seed: the same at every evaluation"""
        if not self.problem.action_spec.dtype.is_floating_point:
            self.actions = self.kind = int(self.problem.action_spec.n)
            if actions != "discrete":
                raise ValueError(f"{name} is a matter of choices: env.actions=discrete")
        elif actions == "discrete":
            self.env = TransformedEnv(self.problem, ActionGrid(choices))
            self.best = BestOnGrid(self.problem, choices)
            self.actions = choices
        bits = isinstance(self.problem, reference.BitFlip)
        self.goals = Goals(SameBits(), "observation", terminates=True) if bits else None
        world = self.problem if isinstance(self.problem, GridWorld) else None
        self.places = 0 if world is None else len(world.cells)

    def place_of(self, batch: TensorDictBase) -> Tensor:
        """The cell that each step arrived at."""
        assert isinstance(self.problem, GridWorld)
        return self.problem.cell_of(batch["next", "observation"])

    def _numbers(self, action: Tensor) -> Tensor:
        """Actions in [-1, 1], whether they are numbers or choices; choices of a problem's own."""
        return action if self.best is None else self.best.levels[action]

    def watched(self, batch: TensorDictBase) -> tuple[Tensor, Tensor | None, Tensor]:
        """Actions and ends."""
        return self._numbers(batch["action"]), None, batch["next", "done"]

    def potential(self) -> Callable[[Tensor], Tensor] | None:
        """In a world of cells, minus the steps that the goal is away."""
        world = self.problem
        if not isinstance(world, GridWorld):
            return None
        return lambda observation: -world.steps_to_goal(observation).unsqueeze(-1)

    def population(self, members: int, episodes: int) -> EnvBase:
        """The problem again, with the same noise for all members."""
        alike = getattr(reference, self.name)(members * episodes, **self.made_of)
        alike.draw_alike(members)
        return TransformedEnv(alike, ActionGrid(self.actions)) if self.best else alike

    def replay_transform(self) -> Transform | None:
        """Rows are stored as they are."""
        return None

    def evaluate(self, policy: Policy, episodes: int = 64, seed: int = 1_000_000) -> Figures:
        """The share of the optimum, and what the policy did; exploring beside it.

        In a martingale the optimum is 0 and the share not defined: there is the score.
        """
        asked: dict[str, Any] = {"episodes": episodes, "seed": seed}
        if (episodes, seed) not in self._best_scores:
            best = self.best.policy() if self.best else None
            self._best_scores[episodes, seed] = scores(best, self.env, **asked)
        asked["best"] = self._best_scores[episodes, seed]
        found = optimum_share(policy, self.env, **asked)
        exploring = optimum_share(explores(policy), self.env, **asked)
        env = deepcopy(self.env)
        env.set_seed(seed)
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            steps = env.rollout(self.problem.steps, policy, break_when_any_done=False)
        return {
            "optimum_share": found.share,
            "optimum_share_error": found.error,
            "paths": float(found.episodes),
            "score": found.score,
            "stochastic_share": exploring.share,
            **acted(self._numbers(steps["action"]), self.kind),
        }

    def judge(self, policy: Policy, split: str) -> Judged:
        """The share of the optimum on fresh noise."""
        seed = {"validation": 1_000_000, "test": 4_000_000}[split]
        figures = self.evaluate(policy, 256, seed)
        facts = {"split": f"{split}: 256 episodes from seed {seed:,}"}
        if self.best is not None:
            part = self.best.value / self.problem.value if self.problem.value > 0 else math.nan
            facts["optimum"] = (
                f"of policies that choose among {self.actions} evenly spaced actions,"
                f" {part:.2%} of what any can reach"
            )
        return Judged(f"{self.name}: share of the optimum", facts, figures, {"agent": figures})

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the problem follows from the settings."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to take over."""
