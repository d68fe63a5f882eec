"""Trading for a return to be reached by the end of an episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torchrl.envs import EnvBase, TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type

from tasks.task import RETURN, Figures, Goals, Judged, Policy, explores
from tasks.trading import MadeOf, Trading, appended
from tasks.whole_splits import BUYS_ONCE
from trading_torchrl.data import Market
from trading_torchrl.envs import DesiredGoal, GoalAfterGoal, ReachReturn, TradingEnv
from trading_torchrl.envs.goals import ACHIEVED, DESIRED, SEEN, width_of
from trading_torchrl.envs.settings import first_starts
from trading_torchrl.evaluation import BuyAndHold, ConstantPolicy, RandomPolicy
from trading_torchrl.evaluation.tables import Value

WHILE_TRAINING, AT_THE_END = 256, 1_024
"""Episodes that a policy is judged on."""


class GoalTrading(Trading):
    """An agent with a return to reach; judged by how many episodes end at it."""

    name = "trading for a return"
    score = "goal_success"

    def __init__(
        self,
        goal: Mapping[str, Any],
        made_of: MadeOf,
        shows: tuple[str, ...] = (),
        rewards: int = 1,
    ) -> None:
        asked = dict(goal)
        self.wanted = {name: asked.pop(name) for name in ("low", "high")}
        self.goal = ReachReturn(**asked)
        super().__init__(made_of, shows, rewards)
        self.signals = RETURN
        if self.base.rules.episode_bars >= self.base.rules.bars:
            raise ValueError("a return is reached by the end of an episode: env.episode_bars=500")
        for split in ("validation", "test"):
            try:
                first_starts(
                    getattr(self.parts, split), made_of.window, self.base.rules.episode_bars
                )
            except ValueError as error:
                raise ValueError(f"market.{split}: {error}") from error
        self.env = self._with_goals(self.env, made_of.num_envs, made_of.seed)
        self.goals = Goals(self.goal)
        self.in_keys = (*self.in_keys, SEEN)
        self.inputs += width_of(self.goal)

    def emitted(self) -> tuple[str, ...]:
        """What was achieved as well."""
        return (*super().emitted(), "achieved")

    def _with_goals(self, env: EnvBase, num_envs: int, seed: int) -> TransformedEnv:
        goals = DesiredGoal(num_envs, self.goal, seed=seed, **self.wanted)
        return appended(env, goals)

    def meta(self, accounts: int, seed: int) -> EnvBase:
        """With goals of its own, and what they pay for a reward."""
        market = self.parts.meta
        if market is None:
            return super().meta(accounts, seed)
        return self._episodes(market, accounts, seed)

    def judged_in(self, env: TradingEnv) -> EnvBase:
        """One goal after another, each the largest return that it was trained for."""
        bars = self.base.rules.episode_bars
        accounts = env.batch_size[0]
        goals = GoalAfterGoal(accounts, self.goal, desired=self.wanted["high"], bars=bars)
        return appended(super().judged_in(env), goals)

    def _episodes(self, market: Market, accounts: int, seed: int, **changed: Any) -> TransformedEnv:
        """As many episodes side by side, on bars of this market."""
        settings = {**self.seen, **self.settings, **changed}
        env = TradingEnv(market, accounts, emit=self.emitted(), seed=seed, **settings)
        return self._with_goals(self._shown(env), accounts, seed)

    def _reached(self, env: EnvBase, policy: Policy) -> Figures:
        """How episodes end under a policy."""
        tensordict = env.reset()
        alive = torch.ones(env.batch_size[0], 1, dtype=torch.bool)
        success, distance, earned = (torch.zeros(env.batch_size[0], 1) for _ in range(3))
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            while bool(alive.any()):
                tensordict, following = env.step_and_maybe_reset(policy(tensordict))
                then = tensordict.get("next")
                ends = then.get("done") & alive
                achieved, desired = then.get(ACHIEVED), then.get(DESIRED)
                success = torch.where(ends, self.goal.reached(achieved, desired).float(), success)
                distance = torch.where(ends, (achieved - desired).abs(), distance)
                earned = torch.where(ends, achieved, earned)
                alive = alive & ~ends
                tensordict = following
        return {
            "goal_success": float(success.mean()),
            "goal_distance": float(distance.mean()),
            "episode_return": float(earned.mean()),
        }

    def _judged(self, market: Market, accounts: int, seed: int, policy: Policy) -> Figures:
        figures = self._reached(self._episodes(market, accounts, seed), policy)
        exploring = self._reached(self._episodes(market, accounts, seed), explores(policy))
        figures["stochastic_goal_success"] = exploring["goal_success"]
        return figures

    def evaluate(self, policy: Policy) -> Figures:
        """How many episodes on the validation split end at their goal; and over all of it."""
        figures = self._judged(self.parts.validation, WHILE_TRAINING, 1_000_000, policy)
        return super().evaluate(policy) | figures

    def judge(self, policy: Policy, split: str) -> Judged:
        """The same for more episodes, and as an agent that goes on from goal to goal is judged."""
        market = getattr(self.parts, split)
        seed = {"validation": 2_000_000, "test": 4_000_000}[split]
        figures = self._judged(market, AT_THE_END, seed, policy)
        others: dict[str, tuple[Callable[[TradingEnv], Policy], dict[str, Any]]] = {
            "buy_and_hold": (BuyAndHold, BUYS_ONCE),
            "nothing": (partial(ConstantPolicy, action=0.0), {}),
            "random": (RandomPolicy, {}),
        }
        reached = {"agent": figures}
        for name, (make, changed) in others.items():
            env = self._episodes(market, AT_THE_END, seed, **changed)
            reached[name] = self._reached(env, make(env.base_env))
        judged = super().judge(policy, split)
        rows: dict[str, Mapping[str, Value]] = {**judged.rows}
        rows |= {name: {**rows.get(name, {}), **each} for name, each in reached.items()}
        low, high, length = self.wanted["low"], self.wanted["high"], self.base.rules.episode_bars
        facts = {
            "goals": f"{AT_THE_END:,} episodes of {length:,} bars; all other figures are of the"
            " whole split, where a goal follows another",
            "goal": f"a return of {low:.1%}" + (f" to {high:.1%}" if high > low else "")
            + f", within {self.goal.tolerance:.2%} at the end; over the whole split {high:.1%}",
        }  # fmt: skip
        return replace(
            judged, title="Trading for a return", rows=rows,
            facts={**judged.facts, **facts}, figures={**judged.figures, **figures},
        )  # fmt: skip
