"""Trading for any preference between five objectives: one agent, a front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torchrl.envs import Compose, EnvBase, Transform, TransformedEnv

from tasks.task import Figures, Judged, Policy
from tasks.trading import Trading
from trading_torchrl.envs import Preferences, preferring
from trading_torchrl.envs.preferences import WEIGHTS
from trading_torchrl.envs.terms import OBJECTIVES
from trading_torchrl.evaluation import even_preferences, follow, judge
from trading_torchrl.modules import fixed_weights
from trading_torchrl.modules.weights import START
from trading_torchrl.replay import VectorReward

SHOWN = ("growth", "max_drawdown")
"""What the front is drawn of; less of the second is better."""


class FrontTrading(Trading):
    """An agent that trades by the weights it is shown; judged as ever at the usual weights.

    Its front is what it reaches as profit gives way to risk, the others as usual.
    """

    name = "trading for any preference"

    def __init__(
        self,
        objectives: Mapping[str, Any],
        market: Mapping[str, Any],
        env: Mapping[str, Any],
        num_envs: int,
        window: int | None,
        seed: int,
        earlier: Mapping[str, Any],
    ) -> None:
        super().__init__(
            market, env, num_envs, window, seed, earlier, ("objectives",), len(OBJECTIVES)
        )
        self.stored = (*self.stored, ("next", "objectives"))
        self.drawn = Preferences(num_envs, self.rewards, least=objectives["least"], seed=seed)
        if objectives["points"] < 2:
            raise ValueError(f"objectives.points must be at least 2, got {objectives['points']}")
        self.points = even_preferences(objectives["points"], objectives["least"])
        self.usual = fixed_weights({name: START[name] for name in OBJECTIVES})
        self.env = self._preferring(self.env)
        self.in_keys = (*self.in_keys, WEIGHTS)
        self.inputs += self.rewards

    def _preferring(self, env: EnvBase) -> TransformedEnv:
        if not isinstance(env, TransformedEnv):
            return TransformedEnv(env, self.drawn)
        env.append_transform(self.drawn)
        return env

    def replay_transform(self) -> Transform:
        """Rows by their place in the market, rewards apart, a preference for each row."""
        again = Preferences(len(self.drawn.drawn), self.rewards, least=self.drawn.least)
        return Compose(super().replay_transform(), VectorReward(OBJECTIVES), again)

    def weights_at(self, pair: Tensor) -> Tensor:
        """The usual weights, of which profit and risk share theirs by ``pair`` ``[2]``."""
        at = [OBJECTIVES.index(name) for name in ("profit", "risk")]
        weights = self.usual.clone()
        weights[at] = weights[at].sum() * pair
        return weights

    def evaluate(self, policy: Policy) -> Figures:
        """As ever, at the usual weights."""
        return super().evaluate(preferring(policy, self.usual))

    def judge(self, policy: Policy, split: str) -> Judged:
        """As ever, at the usual weights, and beside it what other weights lead to."""
        judged = super().judge(preferring(policy, self.usual), split)
        market = getattr(self.parts, split)
        env = self._windowed(self._whole(market))
        rows, reached = dict(judged.rows), []
        for pair in self.points:
            name = f"agent, profit {pair[0]:.0%} of profit and risk"
            account = follow(env, preferring(policy, self.weights_at(pair)), progress=name)
            rows[name] = judge(account, market.bars_per_year, self.kind)
            growth, fallen = (float(rows[name][each]) for each in SHOWN)  # type: ignore[arg-type]
            reached.append([growth, -fallen])
        front = ("growth a year", "minus the largest drawdown"), {"agent": torch.tensor(reached)}
        return replace(judged, title="Trading by preference", rows=rows, front=front)
