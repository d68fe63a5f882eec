"""Trading for any preference between five objectives: one agent, a front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torchrl.envs import Compose, Transform

from tasks.task import Figures, Judged, Policy
from tasks.trading import MadeOf, Trading, appended
from trading_torchrl.envs import Preferences, PreferencesAnew, preferring
from trading_torchrl.envs.preferences import WEIGHTS
from trading_torchrl.envs.terms import OBJECTIVES
from trading_torchrl.evaluation import even_preferences, follow, judge
from trading_torchrl.modules import fixed_weights
from trading_torchrl.modules.weights import START
from trading_torchrl.replay import VectorReward


class FrontTrading(Trading):
    """An agent that trades by the weights it is shown; judged as ever at the usual weights.

    Its front is what it reaches as profit gives way to risk, the others as usual.
    """

    name = "trading for any preference"

    def __init__(self, objectives: Mapping[str, Any], made_of: MadeOf) -> None:
        super().__init__(made_of, ("objectives",), len(OBJECTIVES))
        self.stored = (*self.stored, ("next", "objectives"))
        if objectives["points"] < 2:
            raise ValueError(f"objectives.points must be at least 2, got {objectives['points']}")
        self.points = even_preferences(objectives["points"], objectives["least"])
        self.usual = fixed_weights({name: START[name] for name in OBJECTIVES})
        self.least = objectives["least"]
        drawn = Preferences(made_of.num_envs, self.rewards, least=self.least, seed=made_of.seed)
        self.env = appended(self.env, drawn)
        self.in_keys = (*self.in_keys, WEIGHTS)
        self.inputs += self.rewards

    def replay_transform(self) -> Transform:
        """Rows by their place in the market, rewards apart, a preference for each row."""
        again = PreferencesAnew(self.rewards, least=self.least)
        return Compose(super().replay_transform(), VectorReward(), again)

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
        env = self.judged_in(self.splits.on(market))
        rows, reached = dict(judged.rows), []
        for pair in self.points:
            name = f"agent, profit {pair[0]:.0%} of profit and risk"
            account = follow(env, preferring(policy, self.weights_at(pair)), progress=name)
            found = judge(account, market.bars_per_year, self.kind)
            rows[name] = found
            reached.append([found["growth"], -found["max_drawdown"]])
        front = ("growth a year", "minus the largest drawdown"), {"agent": torch.tensor(reached)}
        return replace(judged, title="Trading by preference", rows=rows, front=front)
