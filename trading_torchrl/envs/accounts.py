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
from trading_torchrl.envs import objectives, rewards, terms

Fields = dict[str, Tensor]


@dataclass(frozen=True)
class Rules:
    """Everything that is fixed while an environment lives; the compiled core specialises on it."""

    actions: Literal["continuous", "target", "discrete"]
    short: bool
    fill: Literal["next_open", "close"]
    reward: str
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
    def counts_names(self) -> bool:
        """Whether trades are compared with the one before."""
        return self.limits.repeats is not None or self.reward == "professional"

    @property
    def judges(self) -> bool:
        """Whether the objectives' terms are wanted."""
        return self.reward == "objectives" or "objectives" in self.emit


def new_accounts(
    rules: Rules, symbol: Tensor, start: Tensor, prices: Tensor, days: Tensor
) -> Fields:
    """Accounts with nothing but cash, at the close of bar ``start`` [N] of ``symbol`` [N, A]."""
    row = prices[symbol * rules.bars + start[:, None]]
    price = {name: row[..., i].clone() for i, name in enumerate(rules.columns)}

    # Every field is a tensor of its own: shared ones would make the core compile twice.
    def account(value: float) -> Tensor:
        return torch.full_like(start, value, dtype=torch.float64)

    def asset(value: float) -> Tensor:
        return torch.full_like(symbol, value, dtype=torch.float64)

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
        "since_trade": asset(0),
    }
    if rules.actions == "continuous" or "smoothed_action" in rules.emit:
        fields["smoothed"] = asset(0)
    if "trades" in rules.emit:
        fields["trades"] = account(0)
    if rules.limits.drawdown is not None:
        fields["stopped"] = account(0).bool()
    if rules.limits.daily:
        fields["day"] = days[start]
        fields["day_equity"] = account(rules.cash)
        fields["day_trades"] = account(0)
    if rules.counts_names:
        fields["last_name"] = torch.full_like(symbol, -1)
        fields["repeats"] = torch.zeros_like(symbol)
    for name, begin in rewards.STATE.get(rules.reward, {}).items():
        fields[name] = asset(0).bool() if isinstance(begin, bool) else account(begin)
    if rules.judges:
        fields |= objectives.new_memory(rules.activity_window, start, symbol)
    return fields


def merge(mask: Tensor, new: Fields, old: Fields) -> Fields:
    """``new`` where ``mask`` [N], else ``old``."""

    def shaped(before: Tensor) -> Tensor:
        return mask if before.ndim == 1 else mask[:, None]  # rings have time before accounts

    return {name: torch.where(shaped(before), new[name], before) for name, before in old.items()}


def settle(state: Fields, changed: Fields, stepping: Tensor | None = None) -> Fields:
    """The accounts after a bar.

    Rings are written in place, one slot an account, rather than copied whole at every bar.

    Args:
        state: before.
        changed: what :func:`~trading_torchrl.envs.bar.advance` says changed.
        stepping: which accounts ``[N]`` took part, if not all.
    """
    new = state | changed
    if "row" in new:
        row = new.pop("row")
        for name in objectives.RINGS:
            ring, latest = state[f"{name}_ring"].flatten(0, 1), new.pop(f"{name}_latest")
            if stepping is not None:
                latest = torch.where(stepping[:, None], latest, ring[row])
            ring.index_copy_(0, row, latest)
    return new if stepping is None else merge(stepping, new, state)


def split_row(row: Tensor, rules: Rules) -> tuple[Tensor, Fields]:
    """A row of the feature table: the features, and the measures by name in float64."""
    width = row.shape[-1] - len(rules.measures)
    measured = {name: row[..., width + i].double() for i, name in enumerate(rules.measures)}
    return row[..., :width], measured


def look(state: Fields, features: Tensor, rules: Rules) -> tuple[Fields, terms.Emitted]:
    """What accounts see as they stand: observation and mask, and the emitted holdings."""
    value = state["units"] * state["price"]
    part = 1 / state["equity"].clamp(min=rules.floor)
    own = [
        value * (part / rules.cap)[:, None],
        10 * state["units"].sign() * (1 - state["entry"] / state["price"]),
        state["since_trade"] / (state["since_trade"] + 10),
    ]
    if rules.actions == "continuous":
        own.append(state["smoothed"])
    fallen = risk.drawdown(state["equity"], state["peak"])
    common = [(state["cash"] * part)[:, None], fallen[:, None]]
    parts = [part.float() for part in own + common]
    measured: Fields = {}
    if features.shape[-1]:
        row = features[state["symbol"] * rules.bars + state["bar"][:, None]]
        seen, measured = split_row(row, rules)
        parts.insert(0, seen.flatten(1))
    shown = {"observation": torch.cat(parts, -1)}
    if rules.actions == "discrete":
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
    return shown, emitted
