"""Policies on whole splits of a market, beside those that need no learning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property, partial
from typing import Any

from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType

from tasks.markets import Parts, predictable, unpredictable
from tasks.task import Figures, Judged, Policy
from trading_torchrl.data import Knobs, Market
from trading_torchrl.envs import OraclePolicy, TradingEnv
from trading_torchrl.envs.oracles import KNOWLEDGE
from trading_torchrl.envs.reference.share import share_of
from trading_torchrl.evaluation import (
    Account,
    BuyAndHold,
    RandomPolicy,
    follow,
    growth,
    judge,
    judge_each,
    judge_pooled,
    sharpe,
    simple_returns,
    whole_split,
)

MOST_SYMBOLS = 50
"""With more, a table of symbols is no longer read."""

BY_SYMBOL = ("agent", "buy_and_hold")

BUYS_ONCE: dict[str, Any] = {"actions": "continuous", "smoothing": 1, "compiled": False}
"""What buy-and-hold needs, whatever the agent's actions are; compiling takes longer than its steps.
"""

POOLED = {"agent": "agent, equal weight", "buy_and_hold": "equal_weight"}
"""Policies that are judged as one portfolio of all symbols too, and what these are called."""

OF_OTHERS = ("sharpe_ratio_mean", "sharpe_error", "growth", "growth_error", "max_drawdown")
"""Figures of other policies that stand among the agent's."""


def days_of(market: Market) -> str:
    """The first and the last."""
    first, last = market.dates[[0, -1]].astype("datetime64[D]")
    return f"{first} to {last}"


def share(figures: Figures, best: Figures, name: str) -> float:
    """Of the best policy's figure; NaN where that is not above 0."""
    return figures[name] / best[name] if best[name] > 0 else math.nan


class WholeSplits:
    """Judges policies with one account a symbol, over a whole split.

    Args:
        parts: of a market.
        trained: the environment that policies are trained in.
        settings: of environments that policies are judged in.
        shown: such an environment with all that a policy sees besides.
    """

    def __init__(
        self,
        parts: Parts,
        trained: TradingEnv,
        settings: Mapping[str, Any],
        shown: Callable[[TradingEnv], EnvBase],
    ) -> None:
        self.parts, self.rules, self.kind = parts, trained.rules, trained.rules.actions
        self.settings, self.shown = dict(settings), shown

    def on(self, market: Market, **changed: Any) -> TradingEnv:
        """An environment for a whole market; with settings of its own, where there are."""
        return whole_split(market, **(self.settings | changed))

    @cached_property
    def _validation(self) -> TradingEnv:
        return self.on(self.parts.validation)

    @cached_property
    def _best(self) -> Figures | None:
        """The full oracle's figures on the validation split, where there is one."""
        oracles = self._oracles(self.parts.validation, self.parts.knobs)
        if "oracle_full" not in oracles:
            return None
        env = self.on(self.parts.validation, actions="target")
        account = follow(env, oracles["oracle_full"])
        return judge(account, self.parts.validation.bars_per_year, "target")

    def evaluate(self, policy: Policy) -> Figures:
        """Deterministic over the whole validation split, and Sharpe of the stochastic policy."""
        env, years = self._validation, self.parts.validation.bars_per_year
        run = partial(follow, self.shown(env), policy)
        figures = judge(run(), years, self.kind)
        exploring = judge(run(exploration=ExplorationType.RANDOM), years, self.kind)
        if self._best is not None:
            figures["growth_share"] = share(figures, self._best, "growth")
        figures["stochastic_sharpe"] = exploring["sharpe_ratio_mean"]
        return figures

    def judge(self, policy: Policy, split: str) -> Judged:
        """The policy beside those that need no learning, and on a martingale."""
        market = getattr(self.parts, split)
        accounts = self._followed(market, self.parts.knobs, policy, progress=split)
        years = market.bars_per_year
        rows: dict[str, Figures] = {}
        for name, found in self._each_judged(accounts, years).items():
            rows[name] = found
            if name in POOLED and len(market.symbols) > 1:
                rows[POOLED[name]] = judge_pooled(accounts[name], years)
        control, knobs = None, self.parts.knobs
        if knobs is not None and predictable(knobs):
            still = unpredictable(market, knobs)
            traded = self._followed(still, None, policy, progress="martingale")
            control = self._each_judged(traded, years)
        count = len(market.symbols)
        facts = {
            "split": f"{split}: {count} symbols, {len(market):,} bars each, {days_of(market)}",
            "episodes": "one account a symbol, from the first bar to the last",
            **self._terms(),
        }
        if len(market.symbols) > 1:
            facts["equal weight"] = (
                "all symbols in one portfolio, an equal part in each at the start. What symbols do"
                " at different times cancels out: compare the two columns with each other"
            )
        figures = self._summary(rows, control) | self._shares(accounts, years)
        pictured = {"accounts": accounts, "kind": self.kind, "bars_per_year": years}
        symbols = self._by_symbol(accounts, years)
        return Judged("Trading agent", facts, figures, rows, control, symbols, pictured)

    def _each_judged(self, accounts: Mapping[str, Account], years: float) -> dict[str, Figures]:
        return {name: judge(each, years, self._kind_of(name)) for name, each in accounts.items()}

    def _by_symbol(
        self, accounts: Mapping[str, Account], years: float
    ) -> dict[str, dict[str, Figures]]:
        """Where symbols have names, and a table of them is still read."""
        names = self.parts.symbols
        if len(names) > MOST_SYMBOLS:
            return {}
        each = {name: judge_each(accounts[name], names, years) for name in BY_SYMBOL}
        return {symbol: {name: each[name][symbol] for name in BY_SYMBOL} for symbol in names}

    def _terms(self) -> dict[str, str]:
        """At what costs and under which limits it trades."""
        rules, spread = self.rules, self.settings.get("spread", 0.0)
        limits = {name: each for name, each in asdict(rules.limits).items() if each is not None}
        borrow = rules.borrow * self.parts.train.bars_per_year
        return {
            "costs": f"{1e4 * rules.cost:g} bps of the traded value, half the spread among them",
            "spread": f"{1e4 * spread:g} bps",
            "borrow rate": f"{borrow:.2%} a year",
            "limits": ", ".join(f"{name} {limit:g}" for name, limit in limits.items()) or "none",
            "fills": "at the next open" if rules.fill == "next_open" else "at the close",
        }

    def _summary(
        self, rows: Mapping[str, Figures], control: Mapping[str, Figures] | None
    ) -> Figures:
        """The agent's figures, and what others reached."""
        figures = dict(rows["agent"])
        for name in (*POOLED.values(), "buy_and_hold", "random", "oracle_full"):
            row = rows.get(name, {})
            figures |= {f"{name}/{each}": row[each] for each in OF_OTHERS if each in row}
        if control is not None:
            for figure in ("gross_profit", "gross_profit_error", "net_profit", "net_profit_error"):
                figures[f"martingale/{figure}"] = control["agent"][figure]
        return figures

    def _kind_of(self, policy: str) -> Any:
        """How the actions of a policy are named."""
        if policy == "buy_and_hold":
            return BUYS_ONCE["actions"]
        return "target" if policy.startswith("oracle_") else self.kind

    def _shares(self, accounts: Mapping[str, Account], bars_per_year: float) -> Figures:
        """Of what the full oracle reached on the same paths, where there is one."""
        if "oracle_full" not in accounts:
            return {}
        own, best = (simple_returns(accounts[name].equity) for name in ("agent", "oracle_full"))
        figures: Figures = {}
        for name, figure in (("sharpe", sharpe), ("growth", growth)):
            found = share_of(figure(own, bars_per_year), figure(best, bars_per_year))
            figures |= {f"{name}_share": found.share, f"{name}_share_error": found.error}
        return figures

    def _oracles(
        self, market: Market, knobs: Knobs | tuple[Knobs, ...] | None
    ) -> dict[str, Policy]:
        """The best policies of a synthetic market, by what they know; they set targets."""
        if knobs is None or not predictable(knobs):
            return {}
        rules = self.rules
        band: dict[str, Any] = {
            "cap": rules.cap, "short": rules.short, "risk_aversion": rules.risk_aversion
        }  # fmt: skip
        return {f"oracle_{each}": OraclePolicy(market, knobs, each, **band) for each in KNOWLEDGE}

    def _followed(
        self,
        market: Market,
        knobs: Knobs | tuple[Knobs, ...] | None,
        policy: Policy,
        *,
        progress: str,
    ) -> dict[str, Account]:
        """What became of every policy on this market, at the same costs."""
        env = self.on(market)
        seen = self.shown(env)
        runs: dict[str, Account] = {"agent": follow(seen, policy, progress=progress)}
        runs["agent, exploring"] = follow(
            seen, policy, progress=progress, exploration=ExplorationType.RANDOM
        )
        once = self.on(market, **BUYS_ONCE)
        runs["buy_and_hold"] = follow(once, BuyAndHold(once), progress="buy_and_hold")
        runs["random"] = follow(env, RandomPolicy(env), progress="random")
        best = self._oracles(market, knobs)
        if best:
            env = self.on(market, actions="target")
        return runs | {name: follow(env, each, progress=name) for name, each in best.items()}
