"""Settings of a trading environment: checked, and turned into the rules its core runs by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from trading_torchrl.data.market import Market
from trading_torchrl.envs import own_reward, rewards, terms
from trading_torchrl.envs.accounts import Rules
from trading_torchrl.envs.columns import columns_for, measures_for
from trading_torchrl.risk import Limits

LONG_ONLY: dict[str, Any] = {
    "actions": "continuous",
    "short": False,
    "max_position": 0.15,
    "risk_aversion": 67.0,
}
LONG_SHORT: dict[str, Any] = {
    "actions": "target",
    "short": True,
    "max_position": 1.0,
    "risk_aversion": 10.0,
}
"""The two ready configurations: ``TradingEnv(market, 64, **LONG_SHORT)``."""

ACTIONS = ("continuous", "target", "discrete", "hybrid")
MODES = ("continuous", "discrete", "alternate")
"""What the episodes of a hybrid environment may act on."""

ROUNDING = 1e-9
"""Share of the cash below which an order is rounding, even where every trade is welcome."""

FILLS = ("next_open", "close")
REWARDS = (*rewards.REWARDS, "objectives")


def make_rules(
    market: Market,
    *,
    actions: Any,
    short: bool,
    assets: int,
    max_position: float,
    fill: Any,
    reward: str | own_reward.OwnReward,
    risk_aversion: float,
    emit: Iterable[str],
    window: int | None,
    episode_bars: int | None,
    cash: float,
    commission: float,
    slippage: float,
    spread: float,
    borrow_rate: float,
    leverage: float,
    maintenance: float,
    min_trade: float,
    smoothing: int,
    limits: Limits | None,
    activity_window: int,
) -> Rules:
    """The rules these settings mean on this market; a setting that makes no sense is refused.

    The arguments are those of :class:`~trading_torchrl.envs.TradingEnv`.
    """
    one_of("actions", actions, ACTIONS)
    one_of("fill", fill, FILLS)
    own = not isinstance(reward, str)
    if isinstance(reward, str):
        one_of("reward", reward, REWARDS)
    at_least("assets", assets, 1)
    at_least("smoothing", smoothing, 1)
    at_least("activity_window", activity_window, 2)
    share = "a share: 2 bps are 0.0002"
    within("commission", commission, 0.0, 1.0, share)
    within("slippage", slippage, 0.0, 1.0, share)
    within("spread", spread, 0.0, 1.0, share)
    within("borrow_rate", borrow_rate, 0.0, 1.0, "a share a year: 0.03 is 3 %")
    within("max_position", max_position, 1e-6, 100.0, "a share of equity: 0.15 is 15 %")
    within("maintenance", maintenance, 0.0, 1.0, "a share of gross exposure")
    within("cash", cash, 1e-6, 1e15, "money")
    within("min_trade", min_trade, 0.0, cash, "money, at most the cash")
    within("leverage", leverage, 1.0, 100.0, "a multiple of equity, 1 is none")
    within("risk_aversion", risk_aversion, 0.0, 1e6, "1 is log growth")
    if leverage * maintenance >= 1:
        raise ValueError(
            f"maintenance={maintenance} at leverage={leverage} would liquidate every full position"
            f" at once; it must be below 1 / leverage = {1 / leverage:g}"
        )
    symbols = len(market.symbols)
    if assets > symbols:
        raise ValueError(
            f"assets={assets}, but this market has {symbols} symbols; at most that many"
        )
    for symbol, traded in zip(market.symbols, market.volume.amax(0).tolist(), strict=True):
        if traded <= 0:
            raise ValueError(
                f"{symbol} has no volume in any bar, so that nothing could ever be traded;"
                " write a volume of 1 where it is not known"
            )
    emitted = _emitted(emit, window)
    wanted = (*emitted, "objectives") if reward == "objectives" else emitted
    columns, measures = columns_for(market, short or leverage > 1), measures_for(wanted)
    if own:
        measures = measures_for((*wanted, "volatility"))
        own_reward.check(reward, assets, (*columns, *measures), cash, max_position)
    return Rules(
        actions=actions,
        short=short,
        fill=fill,
        reward=reward,
        risk_aversion=risk_aversion,
        cash=cash,
        cap=max_position,
        cost=commission + slippage + spread / 2,
        borrow=borrow_rate / market.bars_per_year,
        leverage=leverage,
        maintenance=maintenance,
        min_trade=max(min_trade, ROUNDING * cash),
        smoothing=smoothing,
        limits=limits or Limits(),
        emit=emitted,
        activity_window=activity_window,
        columns=columns,
        measures=measures,
        bars=len(market),
        episode_bars=episode_bars or len(market),
        assets=assets,
    )


def first_starts(market: Market, window: int | None, episode_bars: int | None) -> tuple[int, int]:
    """The first and the last bar an episode may start at, once features and window are whole.

    A market cut out of a longer one, features and all, has its warm-up behind it.
    """
    if window is not None:
        at_least("window", window, 1)
    if episode_bars is not None:
        at_least("episode_bars", episode_bars, 1)
    length = episode_bars or 1
    first = max(market.warmup, (window or 1) - 1)
    last = len(market) - 1 - length
    if last < first:
        longest = len(market) - 1 - first
        shorter = f"use shorter episodes, of at most {longest} bars, or" if longest > 0 else "use"
        raise ValueError(
            f"episode_bars={episode_bars} after {first} bars of warm-up need {first + length + 1}"
            f" bars, this market has {len(market)}; {shorter} more data"
        )
    return first, last if episode_bars else first


def hybrid_mode(actions: str, mode: str | None) -> str | None:
    """The mode of a hybrid environment's episodes; other environments have none."""
    if actions == "hybrid":
        mode = "alternate" if mode is None else mode
        one_of("mode", mode, MODES)
    elif mode is not None:
        raise ValueError(f"mode={mode!r} needs actions='hybrid', got actions={actions!r}")
    return mode


def _emitted(emit: Iterable[str], window: int | None) -> tuple[str, ...]:
    """The names to emit, in the order of the table; a window is offered through its index."""
    if emit == "all":
        return tuple(terms.EMITTED)
    wanted = {emit} if isinstance(emit, str) else set(emit)
    if window is not None:
        wanted.add("index")
    unknown = sorted(wanted - terms.EMITTED.keys())
    if unknown:
        raise ValueError(
            f"emit: {unknown[0]!r} is not known; allowed are {', '.join(terms.EMITTED)}, or 'all'"
        )
    return tuple(name for name in terms.EMITTED if name in wanted)


def one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    """Refuses a value that is not among the allowed."""
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is not known; allowed are {', '.join(allowed)}")


def at_least(name: str, value: int, least: int) -> None:
    """Refuses what is not a whole number, or too small a one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, got {value!r}")


def within(name: str, value: float, low: float, high: float, unit: str) -> None:
    """Refuses a number outside its range, NaN, and what is no number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and low <= value <= high):
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}] ({unit}), got {value!r}")
