"""Trading a decaying signal for any price of trading: one agent, a front."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torchrl.envs import Compose, Transform, TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type

from tasks.reference import Reference
from tasks.task import ROW, Figures, Judged, Policy
from trading_torchrl.envs import Preferences, PreferencesAnew, preferring
from trading_torchrl.envs.preferences import WEIGHTS
from trading_torchrl.envs.reference import GarleanuPedersen
from trading_torchrl.envs.reference.garleanu_pedersen import PARTS
from trading_torchrl.evaluation import even_preferences, hypervolume
from trading_torchrl.replay import VectorReward

WHILE_TRAINING, AT_THE_END = 64, 1_024
"""Episodes that each preference is judged on."""


class Front(Reference):
    """Garleanu-Pedersen with gross profit and trading apart, for all preferences between them.

    A preference (w, 1 - w) is a cost of trading of (1 - w) / w. What the best rule reaches at each
    cost, on the same noise, is the front to be reached.
    """

    score = "front_share"
    rewards = len(PARTS)
    stored = (*ROW, ("next", "objectives"))

    def __init__(
        self, objectives: Mapping[str, Any], env: Mapping[str, Any], num_envs: int, seed: int
    ) -> None:
        least, points = objectives["least"], objectives["points"]
        if env.get("problem") != "GarleanuPedersen" or env.get("actions", "") == "discrete":
            raise ValueError(
                "objectives=pareto is for markets, and for env=garleanu_pedersen with numbers for"
                " actions, whose front is known"
            )
        if env.get("cost", 1.0) != 1.0 or env.get("reward_noise", 0.0):
            raise ValueError(
                "objectives=pareto has all costs at once and no noise in rewards: leave out"
                " env.cost and env.reward_noise"
            )
        if points < 2:
            raise ValueError(f"objectives.points must be at least 2, got {points}")
        super().__init__({**env, "parts": True}, num_envs, seed)
        self.least = least
        drawn = Preferences(num_envs, self.rewards, least=least, seed=seed)
        self.env = TransformedEnv(self.problem, drawn)
        self.asked = even_preferences(points, least)
        self.in_keys = (*self.in_keys, WEIGHTS)
        self.inputs += self.rewards
        self.name = "GarleanuPedersen, any cost"

    def replay_transform(self) -> Transform | None:
        """Rewards apart, and a preference for each row that is sampled."""
        apart = VectorReward([("objectives", name) for name in PARTS])
        return Compose(apart, PreferencesAnew(self.rewards, least=self.least))

    def _reached(self, policy: Policy, episodes: int, seed: int) -> Tensor:
        """Mean of each part of the reward over so many episodes, ``[2]``."""
        settings = {
            name: getattr(self.problem, name) for name in ("risk", "decay", "limit", "steps")
        }
        action = self.problem.action_is
        env = GarleanuPedersen(episodes, **settings, action=action, parts=True, seed=seed)
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            rows = env.rollout(self.problem.steps, policy, break_when_any_done=False)
        return torch.stack([rows["next", "objectives", name].mean() for name in PARTS])

    def fronts(self, policy: Policy, episodes: int, seed: int) -> tuple[Tensor, Tensor]:
        """What the policy and the best rules reach at every preference, ``[P, 2]`` each."""
        problem = self.problem
        assert isinstance(problem, GarleanuPedersen)
        own, known = [], []
        for weights in self.asked:
            own.append(self._reached(preferring(policy, weights), episodes, seed))
            best = problem.policy_of(problem.best_rule_at(float(weights[1] / weights[0])))
            known.append(self._reached(best, episodes, seed))
        return torch.stack(own), torch.stack(known)

    def _figures(self, own: Tensor, known: Tensor) -> Figures:
        reference = torch.stack([torch.zeros(()), 1.1 * known[:, 1].min()])
        areas = [hypervolume(points, reference) for points in (own, known)]
        weighed = [(points * self.asked).sum(-1) for points in (own, known)]
        shares = weighed[0] / weighed[1]
        return {
            "front_share": areas[0] / areas[1],
            "hypervolume": areas[0],
            "least_optimum_share": float(shares.min()),
            "reference_trading": float(reference[1]),
        }

    def evaluate(
        self, policy: Policy, episodes: int = WHILE_TRAINING, seed: int = 1_000_000
    ) -> Figures:
        """Share of the front's hypervolume; and the share of the optimum at equal weights."""
        middle = preferring(policy, torch.full((self.rewards,), 1 / self.rewards))
        figures = super().evaluate(middle, episodes, seed)
        return figures | self._figures(*self.fronts(policy, episodes, seed))

    def judge(self, policy: Policy, split: str) -> Judged:
        """The front on fresh noise."""
        seed = {"validation": 1_000_000, "test": 4_000_000}[split]
        figures = self.evaluate(deepcopy(policy), AT_THE_END, seed)
        own, known = self.fronts(policy, AT_THE_END, seed)
        prices = [float(w[1] / w[0]) for w in self.asked]
        facts = {
            "split": f"{split}: {AT_THE_END:,} episodes from seed {seed:,}",
            "costs": f"{len(prices)} from {prices[0]:.3g} to {prices[-1]:.3g}",
            "reference point": f"gross 0, trading {figures['reference_trading']:.3g}",
        }
        rows = {"agent": figures}
        front = {"agent": own, "the best rule at each cost": known}
        return Judged(f"{self.name}: front", facts, figures, rows, front=(PARTS, front))
