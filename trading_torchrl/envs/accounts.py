"""Accounts: the rules they live under, the fields they consist of, what they show.

Fields are plain tensors by name, ``[N]`` for an account and ``[N, A]`` for its assets; which there
are depends on the rules, so that nothing is kept that nobody asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trading_torchrl import risk
from trading_torchrl.envs import actions as read
from trading_torchrl.envs import rewards, terms
from trading_torchrl.envs.own_reward import OwnReward
from trading_torchrl.envs.packing import Packs, pack

Fields = dict[str, Tensor]

FIXED = ("symbol", "end", "mode")
"""Fields that last as long as an episode."""


@dataclass(frozen=True)
class Rules:
    """Everything that is fixed while an environment lives; the compiled core specialises on it."""

    actions: Literal["continuous", "target", "discrete", "hybrid"]
    short: bool
    fill: Literal["next_open", "close"]
    reward: str | OwnReward
    risk_aversion: float
    cash: float
    cap: float
    cost: float
    borrow: float
    """interest for one bar"""
    leverage: float
    maintenance: float
    min_trade: float
    smoothing: int
    limits: risk.Limits
    emit: tuple[str, ...]
    activity_window: int
    columns: tuple[str, ...]
    """of the price table"""
    measures: tuple[str, ...]
    """last columns of the feature table, which no observation shows"""
    bars: int
    episode_bars: int
    assets: int

    @property
    def margin(self) -> bool:
        """Whether an account can owe more than it has."""
        return self.short or self.leverage > 1

    @property
    def carries(self) -> float:
        """Largest gross exposure at a trade."""
        exposure = self.limits.exposure
        return self.leverage if exposure is None else min(self.leverage, exposure)

    @property
    def floor(self) -> float:
        """Smallest equity to divide by or to take the logarithm of."""
        return 1e-6 * self.cash

    @property
    def ruin(self) -> float:
        """Equity an account must keep above: enough for the smallest trade."""
        return max(self.min_trade, self.floor)

    @property
    def named(self) -> bool:
        """Whether accounts can act by name."""
        return self.actions in ("discrete", "hybrid")

    @property
    def counts_names(self) -> bool:
        """Whether trades are compared with the one before."""
        return self.limits.repeats is not None or self.reward == "professional"

    @property
    def judges(self) -> bool:
        """Whether the objectives' terms are wanted."""
        return self.reward == "objectives" or "objectives" in self.emit


def new_accounts(
    rules: Rules,
    symbol: Tensor,
    start: Tensor,
    prices: Tensor,
    days: Tensor,
    mode: Tensor | None = None,
) -> Fields:
    """Accounts with nothing but cash, at the close of bar ``start`` [N] of ``symbol`` [N, A].

    ``mode`` [N] is what hybrid accounts act on: ``CONTINUOUS`` or ``DISCRETE`` actions.
    """
    price = read_columns(prices, rules.columns, symbol * rules.bars + start[:, None])

    def account(value: float) -> Tensor:
        return torch.full_like(start, value, dtype=torch.float64)

    def asset(value: float, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.full_like(symbol, value, dtype=dtype)

    fields = {
        "symbol": symbol,
        "bar": start,
        "end": (start + rules.episode_bars).clamp(max=rules.bars - 1),
        "cash": account(rules.cash),
        "equity": account(rules.cash),
        "peak": account(rules.cash),
        "units": asset(0),
        "entry": asset(0),
        "price": price["close"],
        "since_trade": asset(0, torch.float32),
    }
    if mode is not None:
        fields["mode"] = mode
    if rules.actions != "target" or "smoothed_action" in rules.emit:
        fields["smoothed"] = asset(0)
    if "trades" in rules.emit:
        fields["trades"] = account(0).float()
    if rules.limits.drawdown is not None:
        fields["stopped"] = account(0).bool()
    if rules.limits.daily:
        fields["day"] = days[start]
        fields["day_equity"] = account(rules.cash)
        fields["day_trades"] = account(0)
    if rules.counts_names:
        fields["last_name"] = torch.full_like(symbol, -1)
        fields["repeats"] = torch.zeros_like(symbol)
    remembered = rewards.STATE.get(rules.reward, {}) if isinstance(rules.reward, str) else {}
    for name, begin in remembered.items():
        fields[name] = asset(0).bool() if isinstance(begin, bool) else account(begin)
    if rules.judges:
        fields["count"] = account(0)
    return fields


def held(fields: Fields) -> Packs[str]:
    """Accounts as they are kept from step to step: what no bar changes apart from the rest."""
    return pack({name: fields[name] for name in FIXED if name in fields}) | pack(
        {name: field for name, field in fields.items() if name not in FIXED}
    )


def merge(mask: Tensor, new: Packs[str], old: Packs[str]) -> Packs[str]:
    """``new`` where ``mask`` [N], else ``old``."""

    def shaped(before: Tensor) -> Tensor:
        return mask if before.ndim == 2 else mask[:, None]  # the names of a pack come first

    return {name: torch.where(shaped(before), new[name], before) for name, before in old.items()}


def read_columns(table: Tensor, names: tuple[str, ...], at: Tensor) -> Fields:
    """The columns of ``table`` [rows, names] by name, float64, at the rows ``at`` [N, A].

    Column after column: a row read whole is written out once before it is used.
    """
    return {name: table[:, i][at].double() for i, name in enumerate(names)}


def look(
    state: Fields, measures: Tensor, features: Tensor, rules: Rules
) -> tuple[Fields, terms.Emitted]:
    """What accounts see as they stand: observation and mask, and the emitted holdings."""
    value = state["units"] * state["price"]
    part = 1 / state["equity"].clamp(min=rules.floor)
    own = [
        value * (part / rules.cap)[:, None],
        10 * state["units"].sign() * (1 - state["entry"] / state["price"]),
        state["since_trade"] / (state["since_trade"] + 10),
    ]
    if rules.actions != "target":
        own.append(state["smoothed"])
    fallen = risk.drawdown(state["equity"], state["peak"])
    common = [(state["cash"] * part)[:, None], fallen[:, None]]
    parts = [part.float() for part in own + common]
    at = state["symbol"] * rules.bars + state["bar"][:, None]
    if features.shape[-1]:
        parts.insert(0, features[at].flatten(1))
    measured = read_columns(measures, rules.measures, at)
    shown = {"observation": torch.cat(parts, -1)}
    if rules.named:
        winning = read.winning(state["units"], state["price"], state["entry"])
        mask = read.discrete_mask(
            value,
            state["equity"],
            winning,
            cap=rules.cap,
            short=rules.short,
            min_trade=rules.min_trade,
        )
        shown["action_mask"] = mask.flatten(1)
    emitted = {
        terms.EMITTED[name][0]: terms.holdings(name, state | measured, rules.cash, rules.floor)
        for name in rules.emit
        if name not in terms.FLOWS and name not in ("objectives", "index")
    }
    if "mode" in state:
        emitted["account", "mode"] = state["mode"]
    if "index" in rules.emit:
        emitted |= {("market", name): state[name] for name in ("symbol", "bar")}
    return shown, emitted
