"""Trading a market."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import hydra.errors
import hydra.utils
import torch
from checks import check_names, names_of
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import EnvBase, Transform, TransformedEnv

from tasks.markets import Parts, parts_of
from tasks.option_judging import WatchedOptions
from tasks.task import RETURN, ROW, Figures, Goals, Judged, Policy
from tasks.whole_splits import WholeSplits
from trading_torchrl.data import REGIMES, Scaler, regime_labels
from trading_torchrl.envs import MarketWindow, RunningOption, Showing, Signals, TradingEnv
from trading_torchrl.envs.actions import NAMES, TARGET_BINS, target_bin_of
from trading_torchrl.envs.terms import OBJECTIVES, TERMS
from trading_torchrl.envs.transforms import OfTheBar
from trading_torchrl.modules import OptionPolicy, TradingPotential
from trading_torchrl.objectives import Column
from trading_torchrl.replay import StoredByIndex
from trading_torchrl.risk import Limits

SUITABLE: dict[str, tuple[Any, ...]] = {
    "actions": ("continuous", "target", "discrete"),
    "assets": (1,),
    "reward": ("growth", "log_return", "differential_sharpe", "professional"),
}
"""Settings of the environment that an actor with one number, or one name, a step is trained in."""

SET_ELSEWHERE = ("market", "num_envs", "emit", "packed", "scaler", "window", "seed", "device")
"""Arguments of the environment that follow from other settings."""

EPISODES = ("episode_bars", "random_start", "random_symbols")
"""Settings of training alone: policies are judged over a whole split."""


SHOWN: Mapping[str, tuple[NestedKey | Column, float]] = {
    name: (Column(TERMS, OBJECTIVES.index(name)), weight)
    for name, weight in (("profit", 0.38), ("risk", 0.24), ("timing", 0.10))
}
"""What a learned potential foresees where objectives are shown, as these are weighed."""

SCENES = ("share", "unrealised")
"""What options are decided by, beside equity and index."""

TURBULENT = REGIMES.index("high_volatility")


def reward_of(given: Any) -> Any:
    """A reward's name as it is, or one's own, from its class or function and its settings."""
    if not isinstance(given, Mapping):
        return given
    try:
        return hydra.utils.instantiate(given)
    except hydra.errors.InstantiationException as error:
        raise SystemExit(f"env.reward: {error}") from error


def limits_of(given: Any) -> Limits | None:
    """From a mapping of those that there are."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ValueError(f"env.limits is a mapping, {{drawdown: 0.1}} say, or null; got {given!r}")
    check_names("env.limits", given, Limits)
    return Limits(**given)


def appended(env: EnvBase, transform: Transform) -> TransformedEnv:
    """An environment with one transform more."""
    if not isinstance(env, TransformedEnv):
        return TransformedEnv(env, transform)
    env.append_transform(transform)
    return env


class MadeOf(NamedTuple):
    """What trading is made of."""

    market: Mapping[str, Any]
    """settings"""
    env: Mapping[str, Any]
    """settings"""
    num_envs: int
    window: int | None
    seed: int
    earlier: Mapping[str, Any]
    """state of the task that networks come from"""
    options: bool = False
    """whether options are carried out in it"""
    parts: Parts | None = None
    """of the market, where they are there already"""


class Trading:
    """An agent on a market; judged with one account a symbol over a whole split."""

    name = "trading"
    score = "sharpe_ratio_mean"

    def __init__(self, made_of: MadeOf, shows: tuple[str, ...] = (), rewards: int = 1) -> None:
        market, env, num_envs, window, seed, earlier, self.options, parts = made_of
        self.shows, self.rewards = (*shows, *(SCENES if self.options else ())), rewards
        self.signals = SHOWN if "objectives" in shows else RETURN
        check_names("env", env, TradingEnv, SET_ELSEWHERE)
        env = {**env, "limits": limits_of(env.get("limits"))}
        env |= {"reward": reward_of(env["reward"])} if "reward" in env else {}
        for name, allowed in SUITABLE.items():
            if name == "reward" and callable(env.get(name)):
                continue
            if name in env and env[name] not in allowed:
                raise ValueError(
                    f"this recipe trains with env.{name} {' or '.join(map(str, allowed))}, got"
                    f" {env[name]!r}"
                )
        self.parts = parts or parts_of(market)
        self.symbols = self.parts.symbols
        self.scaler = self._scaler(earlier.get("scaler"))
        self.settings = env
        self.seen: dict[str, Any] = {"window": window, "scaler": self.scaler}
        base = self._trained_in(num_envs, seed, self.emitted())
        self.base = base
        self.env: EnvBase = self._shown(base)
        self.kind: Any = base.rules.actions
        self.in_keys: tuple[NestedKey, ...] = (
            ("observation",) if window is None else ("observation", "window")
        )
        self.stored: tuple[Any, ...] = (*ROW, "market", ("next", "market"))
        self.actions = base.rules.assets
        if self.kind == "discrete":
            self.in_keys = (*self.in_keys, "action_mask")
            self.stored = (*self.stored, "action_mask", ("next", "action_mask"))
            self.actions = len(NAMES)
        features = 0 if window is None else window * base.table.shape[-1] * base.rules.assets
        self.inputs = len(base.observation_names) + features
        self.goals: Goals | None = None
        judged = {name: value for name, value in env.items() if name not in EPISODES}
        self.splits = WholeSplits(self.parts, base, {**self.seen, **judged}, self.judged_in)
        self._hours = sorted(set(self._hour_of_bars.tolist()))
        self.places = TARGET_BINS * len(REGIMES) * len(self._hours)

    def emitted(self) -> tuple[str, ...]:
        """What the environment shows besides."""
        return tuple(dict.fromkeys(("equity", "share", "value", "index", *self.shows)))

    def turbulent(self, rows: TensorDictBase) -> Tensor:
        """Where the regime that a decision knew of is high volatility."""
        scene = self._scenes[self._row(rows)]
        return torch.div(scene, len(self._hours), rounding_mode="floor") == TURBULENT

    def potential(self) -> TradingPotential | None:
        """Rules of thumb about a position; they read features off the observation."""
        return TradingPotential(self.base.observation_names) if self.base.window is None else None

    @property
    def _hour_of_bars(self) -> Tensor:
        return self.parts.train.timestamps // 3_600_000_000_000 % 24

    @cached_property
    def _scenes(self) -> Tensor:
        """Regime and hour of every bar of every symbol, one after the other; -1 is not known."""
        market = self.parts.train
        regime = regime_labels(market, reference=market).long()
        hour = torch.searchsorted(torch.tensor(self._hours), self._hour_of_bars)[:, None]
        scene = regime * len(self._hours) + hour
        return torch.where(regime < 0, -1, scene).T.flatten()

    def place_of(self, batch: TensorDictBase) -> Tensor:
        """Position in seven bins, regime (of the last 60 bars) and hour of the day."""
        after = batch["next"]
        scene = self._scenes[self._row(after)]
        held = target_bin_of(after["account", "share"][..., 0] / self.base.rules.cap)
        known = scene + held * (self.places // TARGET_BINS)
        return torch.where(scene < 0, -1, known)

    def _row(self, seen: TensorDictBase) -> Tensor:
        """Of the market's table, by symbol and bar ``[*]``."""
        return (seen["market", "symbol"] * self.base.rules.bars + seen["market", "bar"])[..., 0]

    def _scaler(self, saved: Mapping[str, Any] | None) -> Scaler:
        """Networks that were trained with a scaler go on with it."""
        market = self.parts.train
        if saved is None:
            return Scaler.fit(market)
        scaler = Scaler(saved["mean"], saved["std"], **saved["_extra_state"])
        try:
            scaler.check(market.feature_names)
        except ValueError as error:
            raise SystemExit(f"the earlier run saw other features: {error}") from None
        return scaler

    def _trained_in(self, accounts: int, seed: int, emit: tuple[str, ...]) -> TradingEnv:
        """Errors name a setting as the command line has it."""
        try:
            return TradingEnv(
                self.parts.train, accounts, emit=emit, seed=seed,
                **self.seen, **self.settings,
            )  # fmt: skip
        except ValueError as error:
            known = str(error).split("=")[0].split(" ")[0] in names_of(TradingEnv)
            raise ValueError(f"env.{error}" if known else f"env: {error}") from error

    def _shown(self, env: TradingEnv) -> EnvBase:
        """With what the agent sees besides, and what options are decided by and carried on."""
        shown: list[OfTheBar | RunningOption] = []
        shown += [] if env.window is None else [MarketWindow.of(env)]
        shown += [Signals.of(env), RunningOption()] if self.options else []
        return Showing(env, *shown) if shown else env

    def judged_in(self, env: TradingEnv) -> EnvBase:
        """An environment of a whole split with all that the agent sees but preferences."""
        return self._shown(env)

    def population(self, members: int, episodes: int) -> EnvBase:
        """The environment with symbols and starts that are the same for all members."""
        env = self._trained_in(members * episodes, 0, ("index",))
        env.draw_alike(members)
        return self._shown(env)

    def meta(self, accounts: int, seed: int) -> EnvBase:
        """The environment on bars that no agent learns from."""
        market = self.parts.meta
        if market is None:
            raise ValueError(
                "weights are learned on bars of their own: set some aside by market.meta=0.1"
            )
        emit = ("equity", "index", *(SCENES if self.options else ()))
        env = TradingEnv(market, accounts, emit=emit, seed=seed, **self.seen, **self.settings)
        return self._shown(env)

    def watched(self, batch: TensorDictBase) -> tuple[Tensor, Tensor | None, Tensor]:
        """Actions, fills, ends."""
        return batch["action"], batch["next", "trade", "value"], batch["next", "done"]

    def replay_transform(self) -> StoredByIndex:
        """Rows are stored by their place in the market."""
        return StoredByIndex.of(self.base)

    def evaluate(self, policy: Policy) -> Figures:
        """Over the whole validation split."""
        if not isinstance(policy, OptionPolicy):
            return self.splits.evaluate(policy)
        watched = WatchedOptions(policy, policy.options)
        return self.splits.evaluate(watched) | watched.figures()

    def judge(self, policy: Policy, split: str) -> Judged:
        """Over a whole split, beside policies that need no learning."""
        if not isinstance(policy, OptionPolicy):
            return self.splits.judge(policy, split)
        market = getattr(self.parts, split)
        labels = regime_labels(market, reference=self.parts.train).long()

        def regime_of(rows: TensorDictBase) -> Tensor:
            return labels[rows["market", "bar"][..., 0], rows["market", "symbol"][..., 0]]

        watched = WatchedOptions(policy, policy.options, regime_of, REGIMES)
        judged = self.splits.judge(watched, split)
        years = len(market) * len(market.symbols) / market.bars_per_year
        return replace(
            judged, options=watched.table(years), figures={**judged.figures, **watched.figures()}
        )

    def state_dict(self) -> dict[str, Any]:
        """Scaler, symbols, and a fingerprint of the prices that were trained and chosen on."""
        return {
            "scaler": self.scaler.state_dict(),
            "symbols": list(self.symbols),
            "prices_sha256": self._prices,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refuses other prices: nothing that was learned would mean the same on them."""
        if state["prices_sha256"] != self._prices:
            new = [name for name in self.symbols if name not in state["symbols"]]
            known = f"; of {', '.join(new)} it knows nothing, init= begins with it" if new else ""
            raise SystemExit(
                "the prices are not those that this run was trained on: bring the files back as"
                f" they were, or start a new run{known}"
            )
        self.scaler.load_state_dict(state["scaler"])

    @cached_property
    def _prices(self) -> str:
        return sha256(
            (self.parts.train.sha256() + self.parts.validation.sha256()).encode()
        ).hexdigest()
