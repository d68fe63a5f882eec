"""One bar of N accounts: the core of the environment, a pure function over plain tensors.

:func:`advance` takes accounts that have just seen the close of bar t to the close of bar t + 1:
interest, the order of the decision (at the next open, or at the close it saw), margin, mark,
reward. It reads the market's tables at bar t + 1 only, and compiles as a whole. Choices are nested
``torch.where`` rather than combined masks, which compiled code is slow at.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trading_torchrl import risk
from trading_torchrl.envs import actions as read
from trading_torchrl.envs import ledger, objectives, rewards, terms
from trading_torchrl.envs.accounts import FIXED, Fields, Rules, look, read_columns
from trading_torchrl.envs.packing import Packs, pack, unpack
from trading_torchrl.envs.terms import Bar

GOES_ON, TERMINATED, TRUNCATED, UNREADABLE = 0, 1, 2, 3
"""How a bar ended for an account; the environment refuses unreadable actions afterwards."""


def advance(
    held: Packs[str],
    remembered: Tensor | None,
    asked: Fields,
    prices: Tensor,
    measures: Tensor,
    features: Tensor,
    days: Tensor,
    rules: Rules,
) -> tuple[Packs[str], Tensor | None, Fields, Packs[terms.Key]]:
    """One bar.

    Args:
        held: fields of :func:`~trading_torchrl.envs.accounts.new_accounts`, packed.
        remembered: what the objectives remember, if they are wanted.
        asked: ``action`` ``[N, A]``, float in [-1, 1] or int64 names; hybrid accounts have the
            names in ``action_name``.
        prices: float64 ``[S * T, columns]``.
        measures: float32 ``[S * T, measures]``.
        features: float32 ``[S * T, F]`` (F may be 0).
        days: int64 ``[T]``, trading day of each bar.
        rules: see :class:`Rules`.

    Returns:
        the fields that changed, packed; what the memory is to take in; what the environment
        shows: ``observation``, ``reward`` and ``ends`` (how the bar ended, see above); and the
        emitted values, packed.
    """
    state = unpack(held)
    # Whoever steps on after the last bar stays on it: rows beyond belong to the next symbol.
    now = (state["bar"] + 1).clamp(max=rules.bars - 1)
    at = state["symbol"] * rules.bars + now[:, None]
    price = read_columns(prices, rules.columns, at)
    price |= read_columns(measures, rules.measures, at)
    fill_price = price["open"] if rules.fill == "next_open" else state["price"]
    cash, units, entry = state["cash"], state["units"], state["entry"]
    new: Fields = {"bar": now}

    interest = torch.zeros_like(cash)
    if rules.borrow:
        interest = rules.borrow * ledger.borrowed(cash, units, state["price"])
        cash = cash - interest
    if rules.limits.daily:
        new["day"] = days[now]
        fresh = new["day"] != state["day"]
        new["day_equity"] = torch.where(fresh, state["equity"], state["day_equity"])
        new["day_trades"] = torch.where(fresh, 0.0, state["day_trades"])

    value = units * fill_price
    equity = cash + value.sum(-1)
    wanted, smoothed, name, order = _read(state, asked, value, equity, rules)
    reduce, increase = _permit(state, new, name, order, value, rules)
    if rules.margin:
        excess = ledger.margin_excess(cash, units, fill_price, rules.maintenance)
        called = (excess < 0)[:, None]
        reduce = torch.where(called, value.abs(), reduce)
        increase = torch.where(called, 0.0, increase)
    # Only a sale that is made pays for a purchase, so what is not made goes before the funding.
    partly = torch.where(reduce < rules.min_trade, 0.0, reduce)
    reduce = torch.where(reduce < value.abs(), partly, reduce)
    if "fill_volume" in price:
        reduce = torch.where(price["fill_volume"] > 0, reduce, 0.0)
        increase = torch.where(price["fill_volume"] > 0, increase, 0.0)
    increase = ledger.funded(reduce, increase, value, equity, rules.carries, rules.cost)
    increase = torch.where(increase < rules.min_trade, 0.0, increase)
    new_units = ledger.after_order(units, order.side, reduce, increase, fill_price)
    done = ledger.fill(cash, units, entry, new_units, fill_price, rules.cost)
    realised, traded, fees = done.realised, done.traded, done.fees + interest
    turnover = traded.abs()

    if rules.margin:
        hit, at = ledger.liquidation(
            done.cash, done.units, price["open"], price["high"], price["low"], rules.maintenance
        )
        left = torch.where(hit[:, None], 0.0, done.units)
        if "volume" in price:
            left = torch.where(price["volume"] > 0, left, done.units)
        done = ledger.fill(done.cash, done.units, done.entry, left, at, rules.cost)
        realised, traded, fees = realised + done.realised, traded + done.traded, fees + done.fees
        turnover = turnover + done.traded.abs()

    equity = ledger.mark(done.cash, done.units, price["close"])
    new |= {
        "cash": done.cash,
        "equity": equity,
        "peak": torch.maximum(state["peak"], equity),
        "units": done.units,
        "entry": done.entry,
        "price": price["close"],
        "since_trade": torch.where(turnover > 0, 0.0, state["since_trade"] + 1),
    }
    fills = torch.where(turnover > 0, 1.0, 0.0).sum(-1)
    if "smoothed" in state:
        new["smoothed"] = smoothed
    if "trades" in state:
        new["trades"] = state["trades"] + fills.float()
    if rules.limits.daily:
        new["day_trades"] = new["day_trades"] + fills
    if rules.counts_names:
        again = torch.where(name == state["last_name"], state["repeats"] + 1, 1)
        new["last_name"] = torch.where(turnover > 0, name, state["last_name"])
        new["repeats"] = torch.where(turnover > 0, again, state["repeats"])

    bar = Bar(
        action=wanted,
        smoothed=smoothed,
        name=name,
        traded=traded,
        realised=realised,
        fees=fees,
        units_before=units,
        units=done.units,
        entry_before=entry,
        entry=done.entry,
        price_before=state["price"],
        fill_price=fill_price,
        price=price,
        equity_before=state["equity"],
        equity=equity,
        peak=new["peak"],
        floor=rules.floor,
        cap=rules.cap,
    )
    views: Tensor | None = None
    latest: Tensor | None = None
    if remembered is not None:
        views, counted, latest = objectives.objectives(
            bar, state, remembered, new["since_trade"], rules.activity_window
        )
        new |= counted
    reward: Tensor
    if rules.reward == "objectives":
        assert views is not None
        reward = views
    elif callable(rules.reward):
        reward = rules.reward(bar)[:, None]
    else:
        worth, kept = rewards.REWARDS[rules.reward](bar, state, rules.risk_aversion)
        reward = worth[:, None]
        new |= kept

    shown, emitted = look(state | new, measures, features, rules)
    shown["reward"] = reward.float()
    if "objectives" in rules.emit:
        assert views is not None
        emitted[terms.TERMS] = views
    emitted |= {
        terms.EMITTED[name][0]: terms.flow(name, bar) for name in rules.emit if name in terms.FLOWS
    }

    ends = torch.where(now < state["end"], float(GOES_ON), TRUNCATED)
    ends = torch.where(equity > rules.ruin, ends, TERMINATED)
    readable = wanted.sum(-1)
    shown["ends"] = torch.where(readable == readable, ends, UNREADABLE).float()[:, None]
    changed = {name: new[name] for name in state if name not in FIXED}
    return pack(changed), latest, shown, pack(terms.wide(emitted))


def _read(
    state: Fields, asked: Fields, value: Tensor, equity: Tensor, rules: Rules
) -> tuple[Tensor, Tensor, Tensor, read.Order]:
    """The action as asked for, as carried out, its name, and the order it is."""
    if rules.actions == "target":
        wanted = asked["action"].double().clamp(-1, 1)
        order = read.read_target(
            wanted, value, equity, cap=rules.cap, short=rules.short, min_trade=rules.min_trade
        )
        return wanted, wanted, read.target_bin_of(wanted), order
    if rules.actions == "continuous":
        wanted, smoothed, name = _by_number(state, asked["action"], rules)
    elif rules.actions == "discrete":
        wanted, smoothed, name = _by_name(state, asked["action"], value)
    else:
        named = (state["mode"] == read.DISCRETE)[:, None]
        readings = zip(
            _by_name(state, asked["action_name"], value),
            _by_number(state, asked["action"], rules),
            strict=True,
        )
        wanted, smoothed, name = [torch.where(named, *both) for both in readings]
    order = read.read_continuous(
        smoothed,
        value,
        equity,
        cap=rules.cap,
        leverage=rules.carries,
        short=rules.short,
        min_trade=rules.min_trade,
    )
    return wanted, smoothed, name, order


def _by_number(state: Fields, given: Tensor, rules: Rules) -> tuple[Tensor, Tensor, Tensor]:
    """A continuous action as asked for, as carried out, and its name."""
    wanted = given.double().clamp(-1, 1)
    smoothed = read.smooth(state["smoothed"], wanted, rules.smoothing)
    return wanted, smoothed, read.name_of(smoothed)


def _by_name(state: Fields, given: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A name as the continuous action it stands for, which is carried out as it is, and itself."""
    winning = read.winning(state["units"], state["price"], state["entry"])
    name, wanted = read.read_names(given, value, winning)
    return wanted, wanted, name


def _permit(
    state: Fields, new: Fields, name: Tensor, order: read.Order, value: Tensor, rules: Rules
) -> tuple[Tensor, Tensor]:
    """What the limits leave of an order: (reduce, increase)."""
    limits, reduce, increase = rules.limits, order.reduce, order.increase
    grow = risk.may_grow(state["equity"], new.get("day_equity"), new.get("day_trades"), limits)
    if grow is not None:
        increase = torch.where(grow[:, None], increase, 0.0)
    if limits.repeats is not None:
        fresh = torch.where(name == state["last_name"], state["repeats"] < limits.repeats, True)
        increase = torch.where(fresh, increase, 0.0)
    if limits.drawdown is not None:
        fallen = risk.drawdown(state["equity"], state["peak"]) > limits.drawdown
        new["stopped"] = torch.where(fallen, True, state["stopped"])
        stop = new["stopped"][:, None]
        reduce = torch.where(stop, value.abs(), reduce)
        increase = torch.where(stop, 0.0, increase)
    return reduce, increase
