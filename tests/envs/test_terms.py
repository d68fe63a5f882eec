"""Every emitted value against scalar loops over the market's bars and the units held."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase

from trading_torchrl.data import Market, synthetic_market
from trading_torchrl.data.features import WARMUP
from trading_torchrl.envs import TradingEnv
from trading_torchrl.envs.memory import rings
from trading_torchrl.envs.terms import EMITTED, TERMS

CASH, COST = 10_000.0, 3e-4
SIZES = (0.0, 0.25, 0.55, 0.85, -0.5, -1.0, 0.4)
MONEY = {"equity", "cash", "realised", "unrealised", "fees", "value"}
OBJECTIVES = ("profit", "risk", "activity", "timing", "consistency")
MODES: dict[str, dict[str, Any]] = {
    "continuous": {"actions": "continuous", "max_position": 0.6},
    "target": {"actions": "target", "short": True, "max_position": 1.0},
    "discrete": {"actions": "discrete", "max_position": 0.6},
    "close_fills": {"actions": "target", "short": True, "fill": "close", "max_position": 1.0},
    "assets": {"actions": "target", "short": True, "assets": 3, "max_position": 0.5},
    "continuous_assets": {"actions": "continuous", "assets": 3, "max_position": 0.3},
    "short_window": {"actions": "target", "short": True, "activity_window": 7},
}


def gappy(market: Market, seed: int) -> Market:
    """The same bars, but none opens where the last one closed."""
    shift = np.exp(np.random.default_rng(seed).normal(0, 0.004, market.open.shape))
    opening = market.open * torch.from_numpy(shift)
    return Market(
        symbols=market.symbols,
        timestamps=market.timestamps,
        bars_per_year=market.bars_per_year,
        open=opening,
        high=torch.maximum(market.high, opening),
        low=torch.minimum(market.low, opening),
        close=market.close,
        volume=market.volume,
    )


@pytest.fixture(scope="module")
def market() -> Market:
    return gappy(synthetic_market(symbols=4, bars=1_700, seed=8, volatility=4.0), seed=8)


def play(
    market: Market, orders: torch.Tensor, /, **settings: Any
) -> tuple[TensorDictBase, TensorDictBase]:
    """Plays [T, N, A]: what was seen before each decision, and what came of it, ``[T, N]``."""
    options: dict[str, Any] = {"emit": "all", "episode_bars": 120, "compiled": False, **settings}
    env = TradingEnv(market, orders.shape[1], **options)
    seen, before, after = env.reset(), [], []
    for action in orders:
        seen["action"] = action.reshape(env.action_spec.shape)
        step, seen = env.step_and_maybe_reset(seen)
        before.append(step.exclude("next").clone())
        after.append(step["next"].clone())
    return torch.stack(before), torch.stack(after)


def random_actions(
    mode: str, steps: int, accounts: int, assets: int, seed: int = 0
) -> torch.Tensor:
    """Beyond [-1, 1] at times, and with stretches in which nothing is traded."""
    generator = torch.Generator().manual_seed(seed)
    shape = (steps, accounts, assets)
    if mode == "discrete":
        actions = torch.randint(0, 7, shape, generator=generator)
    else:
        actions = 2.4 * torch.rand(shape, generator=generator) - 1.2
    actions[torch.rand(shape, generator=generator) < 0.3] = 0
    actions[30:95, 0] = 0  # idle for more than 50 bars
    return actions


class Ring:
    """Deviation of the last few values, from the values themselves."""

    def __init__(self, window: int) -> None:
        self.window, self.values = window, list[float]()

    def __call__(self, value: float) -> float:
        self.values = [*self.values, value][-self.window :]
        mean = sum(self.values) / len(self.values)
        return math.sqrt(sum((value - mean) ** 2 for value in self.values) / len(self.values))


def volatility_at(market: Market, bar: int, symbol: int) -> float:
    """Weights .94^k on the squared log returns up to and with a bar, adding up to one.

    The first bar has no return and counts as one without.
    """
    closes = market.close[max(bar - 500, 0) : bar + 1, symbol].log().tolist()[::-1]
    squares = [(new - old) ** 2 for new, old in pairwise(closes)]
    squares += [0.0] if bar <= 500 else []
    weights = [0.94**k for k in range(len(squares))]
    total = sum(weight * square for weight, square in zip(weights, squares, strict=True))
    return math.sqrt(total / sum(weights))


class Reference:
    """One account, its values worked out from its units, its actions and the market's bars."""

    def __init__(
        self, market: Market, symbols: list[int], bar: int, mode: str, close_fills: bool,
        window: int,
    ) -> None:  # fmt: skip
        self.market, self.symbols, self.bar = market, symbols, bar
        self.mode, self.close_fills = mode, close_fills
        count = len(symbols)
        self.cash, self.equity, self.peak = CASH, CASH, CASH
        self.units, self.entry = [0.0] * count, [0.0] * count
        self.smoothed, self.since = [0.0] * count, [0] * count
        self.ever_traded = [False] * count
        self.trades = 0
        self.profits, self.actions = Ring(10), [Ring(window) for _ in range(count)]
        self.doubtful = False
        """whether the activity is not told: a deviation of actions at a threshold"""
        self.flow: dict[str, Any] = {
            name: [0.0] * count
            for name in (
                "realised", "value", "raw_action", "name", "entry_quality", "exit_quality",
                "momentum",
            )
        }  # fmt: skip
        self.flow["fees"] = 0.0
        self.objectives = dict.fromkeys(OBJECTIVES, 0.0)

    def price(self, column: str, asset: int, bar: int) -> float:
        return float(getattr(self.market, column)[bar, self.symbols[asset]])

    def volatility(self, asset: int) -> float:
        return volatility_at(self.market, self.bar, self.symbols[asset])

    def named(self, action: float) -> int:
        if self.mode == "target":
            return min(int((action + 1) * 3.5), 6)
        if -0.1 < action < 0.1:
            return 0
        if action > 0:
            return 1 if action < 0.4 else 2 if action < 0.7 else 3
        return 4 if action > -0.95 else 5

    def step(self, actions: list[float], units: list[float]) -> None:
        """One bar in which the account came to hold ``units``."""
        decided, now = self.bar, self.bar + 1
        count = len(units)
        flow: dict[str, Any] = {name: [0.0] * count for name in self.flow}
        flow["fees"] = 0.0
        held = list(self.units)
        recent = [self.ever_traded[i] and self.since[i] < 3 for i in range(count)]
        marked = [held[i] * (self.price("close", i, decided) - self.entry[i]) for i in range(count)]
        work = 0.0
        raw = []
        for i in range(count):
            fill = (
                self.price("close", i, decided) if self.close_fills else self.price("open", i, now)
            )
            u0, u1 = held[i], units[i]
            if self.mode == "discrete":
                name = int(actions[i])
                asked = SIZES[name]
                if name == 6:  # the mask that allowed it knew no later price
                    seen = self.price("close", i, decided)
                    winner = u0 * (seen - self.entry[i]) > 1e-9 * abs(u0 * seen)
                    asked = (0.4 if u0 > 0 else -0.4) if winner else 0.0
            else:
                asked = min(max(actions[i], -1.0), 1.0)
            self.smoothed[i] = (
                (self.smoothed[i] + asked) / 2 if self.mode == "continuous" else asked
            )
            flow["name"][i] = (
                name
                if self.mode == "discrete"
                else self.named(self.smoothed[i] if self.mode == "continuous" else asked)
            )
            flow["raw_action"][i] = asked
            raw.append(asked)
            flow["value"][i] = (u1 - u0) * fill
            self.cash -= flow["value"][i] + COST * abs(flow["value"][i])
            flow["fees"] += COST * abs(flow["value"][i])
            flips = u0 * u1 < 0
            leaves = flips or abs(u1) < abs(u0)
            enters = flips or abs(u1) > abs(u0)
            if leaves:
                gone = u0 if flips or u1 == 0 else u0 - u1
                flow["realised"][i] = gone * (fill - self.entry[i])
            if enters:
                bought = u1 if flips or u0 == 0 else u1 - u0
                kept = 0.0 if flips else u0
                self.entry[i] = (kept * self.entry[i] + bought * fill) / u1
            if u1 == 0:
                self.entry[i] = 0.0
            last = range(max(decided - 19, 0), decided + 1)
            high = max(self.price("high", i, at) for at in last)
            low = min(self.price("low", i, at) for at in last)
            cheap = 1 - 2 * min(max((fill - low) / (high - low), 0.0), 1.0)
            if enters:
                flow["entry_quality"][i] = cheap if u1 > 0 else -cheap
            if leaves:
                flow["exit_quality"][i] = -cheap if u0 > 0 else cheap
            trend = math.log(
                self.price("close", i, decided) / self.price("close", i, decided - 10)
            ) / (volatility_at(self.market, decided, self.symbols[i]) * math.sqrt(10))
            side = (u1 > 0) - (u1 < 0)
            flow["momentum"][i] = side * min(max(trend, -1.0), 1.0)
            if u1 != u0:
                self.ever_traded[i] = True
                self.since[i], self.trades = 0, self.trades + 1
            else:
                self.since[i] += 1
            work += max(abs(u0), abs(u1)) * fill
        self.bar, self.units, self.flow = now, list(units), flow
        self.doubtful = False
        value = [units[i] * self.price("close", i, now) for i in range(count)]
        self.equity = self.cash + sum(value)
        self.peak = max(self.peak, self.equity)
        self.judge(raw, marked, work, recent)

    def judge(self, raw: list[float], marked: list[float], work: float, recent: list[bool]) -> None:
        count = len(raw)
        held = self.held()
        open_profit = held["unrealised"]
        earned = sum(
            self.flow["realised"][i] + 0.3 * (open_profit[i] - marked[i]) for i in range(count)
        )
        profit = earned / work if work else 0.0
        profit *= 100 * (1.5 if profit < 0 else 1.0)
        swing = self.profits(profit)
        terms = {
            "profit": profit,
            "consistency": 0.2 if swing < 0.02 else -0.1 * swing,
        }
        risk = -0.5 * sum(held["volatility"]) / count
        if held["drawdown"] > 0.05:
            risk -= math.exp(10 * (held["drawdown"] - 0.05)) - 1
        if held["var95"] > 0.02:
            risk -= 50 * (held["var95"] - 0.02)
        if held["exposure"] > 0.95:
            risk -= 10 * (held["exposure"] - 0.95)
        terms["risk"] = risk
        activity = timing = 0.0
        for i in range(count):
            varied = self.actions[i](raw[i])
            self.doubtful |= min(abs(varied - 0.2), abs(varied - 0.3)) < 1e-6
            activity += 0.2 if varied > 0.3 else 0.1 if varied > 0.2 else 0.0
            activity -= 0.1 if self.since[i] > 50 else 0.0
            activity -= 0.05 if self.flow["value"][i] and recent[i] else 0.0
            activity += 0.05 if abs(raw[i]) > 0.3 else 0.0
            timing += 0.5 * (self.flow["entry_quality"][i] + self.flow["exit_quality"][i])
            timing += 0.3 * self.flow["momentum"][i]
        terms |= {"activity": activity / count, "timing": timing / count}
        self.objectives = terms

    def held(self) -> dict[str, Any]:
        """The values an account can read off as it stands."""
        assets = range(len(self.units))
        close = [self.price("close", i, self.bar) for i in assets]
        value = [self.units[i] * close[i] for i in assets]
        volatility = [self.volatility(i) for i in assets]
        return {
            "equity": self.equity,
            "cash": self.cash,
            "units": self.units,
            "share": [one / self.equity for one in value],
            "unrealised": [self.units[i] * (close[i] - self.entry[i]) for i in assets],
            "drawdown": (self.peak - self.equity) / self.peak,
            "exposure": sum(abs(one) for one in value) / self.equity,
            "volatility": volatility,
            "var95": 1.645 * sum(volatility[i] * abs(value[i]) for i in assets) / self.equity,
            "since_trade": self.since,
            "trades": self.trades,
            "smoothed_action": self.smoothed,
            "achieved": self.equity / CASH - 1,
        }

    def shown(self) -> dict[str, Any]:
        return {**self.held(), **self.flow}


def term(rows: TensorDictBase, name: str) -> torch.Tensor:
    """One of the objectives."""
    return rows[TERMS][..., OBJECTIVES.index(name)]


def compare(shown: TensorDictBase, expected: Reference, place: tuple[int, int]) -> None:
    """Every emitted value of one account at one bar."""
    values = expected.shown()
    names = set(EMITTED) - {"objectives", "index"}
    assert names == set(values)
    for name in names:
        given = shown[EMITTED[name][0]].double().tolist()
        wanted = values[name] if isinstance(values[name], list) else [values[name]]
        near = {"rel": 1e-9, "abs": 1e-6} if name in MONEY else {"rel": 1e-5, "abs": 1e-6}
        assert given == pytest.approx(wanted, **near), (name, place)
    for name, given in zip(OBJECTIVES, shown[TERMS].tolist(), strict=True):
        wanted = expected.objectives[name]
        assert given == pytest.approx(wanted, rel=1e-4, abs=3e-6), (name, place)
    assert shown["market", "bar"].tolist() == [expected.bar]
    assert shown["market", "symbol"].tolist() == expected.symbols


@pytest.mark.parametrize("mode", MODES)
def test_every_value_on_random_episodes(market: Market, mode: str) -> None:
    settings = MODES[mode]
    assets, kind = settings.get("assets", 1), settings["actions"]
    steps, accounts = 150, 2
    actions = random_actions(kind, steps, accounts, assets, seed=len(mode))
    before, after = play(market, actions, seed=4, **settings)
    flags = after["done"][..., 0]
    assert (flags.sum(0) == 1).all()
    doubts = 0
    for account in range(accounts):
        expected: Reference | None = None
        for bar in range(steps):
            if expected is None:
                expected = Reference(
                    market,
                    before["market", "symbol"][bar, account].tolist(),
                    int(before["market", "bar"][bar, account]),
                    kind,
                    settings.get("fill") == "close",
                    settings.get("activity_window", 20),
                )
            compare(before[bar, account], expected, (bar, account))
            expected.step(
                actions[bar, account].double().tolist(),
                after["account", "units"][bar, account].tolist(),
            )
            if expected.doubtful:
                doubts += 1
                expected.objectives["activity"] = float(term(after, "activity")[bar, account])
            compare(after[bar, account], expected, (bar, account))
            if flags[bar, account]:
                expected = None
    units, value = after["account", "units"], after["trade", "value"]
    assert doubts < 20
    assert (value != 0).double().mean() > 0.3
    assert (units == 0).any()
    assert kind != "target" or (units[1:] * units[:-1] < 0).any()


@pytest.mark.parametrize("settings", [MODES["continuous"], MODES["assets"], MODES["discrete"]])
def test_values_at_a_reset(market: Market, settings: dict[str, Any]) -> None:
    env = TradingEnv(market, 5, emit="all", compiled=False, **settings)
    env.rollout(3)
    seen = env.reset()
    for name, keys in EMITTED.items():
        for key in keys:
            value = seen[key]
            if name in ("equity", "cash"):
                assert (value == CASH).all()
            elif name == "volatility":
                bar, symbol = seen["market", "bar"][3, 0], seen["market", "symbol"][3, 0]
                assert float(value[3, 0]) == pytest.approx(
                    volatility_at(market, int(bar), int(symbol)), rel=1e-6
                )
            elif name != "index":
                assert (value == 0).all(), key


def test_every_value_has_its_shape_and_kind(market: Market) -> None:
    _, after = play(market, random_actions("target", 3, 2, 3), **MODES["assets"])
    per_asset = {
        "units", "share", "realised", "unrealised", "volatility", "since_trade", "entry_quality",
        "exit_quality", "momentum", "raw_action", "smoothed_action", "value", "name",
    }  # fmt: skip
    for name, keys in EMITTED.items():
        for key in keys:
            if name == "index":
                continue
            width = 3 if name in per_asset else 5 if name == "objectives" else 1
            assert after[key].shape == (3, 2, width), key
            kind = (
                torch.float64
                if name in MONEY | {"units"}
                else torch.int64
                if name in ("since_trade", "trades", "name")
                else torch.float32
            )
            assert after[key].dtype == kind, key


def test_volatility_at_the_first_start_counts_few_bars_as_it_should(market: Market) -> None:
    env = TradingEnv(
        market, 4, emit=("volatility",), episode_bars=10, random_start=False,
        random_symbols=False, compiled=False,
    )  # fmt: skip
    given = env.reset()["account", "volatility"][:, 0].tolist()
    assert env.first_start == WARMUP - 1
    assert given == pytest.approx(
        [volatility_at(market, WARMUP - 1, symbol) for symbol in range(4)], rel=1e-6
    )


def after_a_jump(market: Market, jump: int, change: Callable[[NDArray[Any]], None]) -> Market:
    """The market with its closes from a bar on changed; opens follow, ranges are widened."""
    close = market.close.numpy().copy()
    change(close[jump:])
    changed = torch.from_numpy(close)
    opening = torch.cat([changed[:1], changed[:-1]])
    return Market(
        symbols=market.symbols,
        timestamps=market.timestamps,
        bars_per_year=market.bars_per_year,
        open=opening,
        high=torch.maximum(opening, changed) * 1.001,
        low=torch.minimum(opening, changed) / 1.001,
        close=changed,
        volume=market.volume,
    )


def test_what_is_known_before_a_fill_knows_nothing_of_its_bar(market: Market) -> None:
    """A bar that doubles the price changes neither the quality nor the momentum of its own fill."""
    start = WARMUP - 1
    options: dict[str, Any] = {
        **MODES["target"], "random_start": False, "random_symbols": False, "episode_bars": 40,
    }  # fmt: skip
    actions = random_actions("target", 21, 4, 1)
    actions[-1] = 1.0
    actions[-2] = -0.4

    def double(closes: NDArray[Any]) -> None:
        closes *= 2

    quiet = after_a_jump(market, len(market) - 1, double)
    jumpy = after_a_jump(market, start + 21, double)
    names = [("trade", "entry_quality"), ("trade", "exit_quality"), ("trade", "momentum")]
    one, two = (play(m, actions, **options)[1] for m in (quiet, jumpy))
    assert (one["account", "equity"][20] != two["account", "equity"][20]).all()
    for name in names:
        assert (one[name][20] != 0).any()
        assert (one[name] == two[name]).all()


def test_qualities_by_hand() -> None:
    """Twenty bars between 90 and 110, then fills at 92 and 109."""
    bars = WARMUP + 4
    opening, close = torch.full((bars, 1), 100.0).double(), torch.full((bars, 1), 100.0).double()
    high, low = torch.full((bars, 1), 110.0).double(), torch.full((bars, 1), 90.0).double()
    opening[WARMUP], opening[WARMUP + 2] = 92, 109
    high[WARMUP - 22], low[WARMUP - 21] = 150, 50  # just too long ago for the first fill
    high[WARMUP], low[WARMUP] = 200, 20  # the bar of the first fill: known for the second
    market = Market(
        symbols=("A",), timestamps=torch.arange(bars) * 3_600_000_000_000, bars_per_year=252.0,
        open=opening, high=high, low=low, close=close, volume=torch.ones(bars, 1).double(),
    )  # fmt: skip
    options: dict[str, Any] = {
        "actions": "target", "short": True, "maintenance": 0.0, "max_position": 0.5,
        "random_start": False, "episode_bars": 4,
    }  # fmt: skip
    _, after = play(market, torch.tensor([1.0, 1.0, -0.5]).reshape(3, 1, 1), **options)
    entry, leave = after["trade", "entry_quality"][:, 0, 0], after["trade", "exit_quality"][:, 0, 0]
    assert float(entry[0]) == pytest.approx(1 - 2 * (92 - 90) / 20)
    assert float(leave[0]) == 0
    sold = 1 - 2 * (109 - 20) / 180  # cheapness: below 0 is dear
    assert float(leave[2]) == pytest.approx(-sold)  # a long sold
    assert float(entry[2]) == pytest.approx(-sold)  # a short opened in the same trade


def test_smoothing_takes_more_than_thirty_per_cent_of_white_noise(market: Market) -> None:
    actions = random_actions("continuous", 400, 8, 1, seed=3).clamp(-1, 1)
    actions[30:95, 0] = actions[130:195, 0]
    _, after = play(market, actions, emit=("raw_action", "smoothed_action"), episode_bars=500)
    raw, smoothed = after["trade", "raw_action"], after["trade", "smoothed_action"]
    assert (raw == actions).all()
    ratio = float(smoothed[20:].var() / raw[20:].var())
    assert ratio < 0.7
    assert ratio == pytest.approx(1 / 3, abs=0.03)  # weight / (2 - weight), a half on the newest


@pytest.mark.parametrize("window", [5, 35])
def test_rings_stay_exact_over_long_episodes(market: Market, window: int) -> None:
    """Terms against numpy over 1,200 bars, and what is remembered against the values."""
    steps, accounts = 1_200, 3
    actions = random_actions("target", steps, accounts, 1, seed=window)
    options: dict[str, Any] = {**MODES["target"], "activity_window": window, "episode_bars": 1_300}
    env = TradingEnv(
        market, accounts, emit=("objectives", "raw_action", "units", "realised", "unrealised",
        "value", "index"), random_start=False, random_symbols=False, compiled=False, **options,
    )  # fmt: skip
    seen, rows = env.reset(), []
    for action in actions:
        seen["action"] = action
        step, seen = env.step_and_maybe_reset(seen)
        rows.append(step["next"].clone())
    after = torch.stack(rows)
    assert not after["done"].any()

    profit = term(after, "profit").double().numpy()
    asked = actions[..., 0].clamp(-1, 1).double().numpy()
    for name, values, length in (("profit", profit, 10), ("action", asked, window)):
        memory = env._now.memory
        ring, step = rings(memory.rows, memory.windows)[name][:, 0].numpy(), memory.step
        assert len(ring) == length - 1
        latest_first = [(step - 1 - back) % len(ring) for back in range(len(ring))]
        np.testing.assert_array_equal(ring[latest_first], values[:-length:-1])

    swings = np.stack([profit[max(t - 9, 0) : t + 1].std(0) for t in range(steps)])
    expected = np.where(swings < 0.02, 0.2, -0.1 * swings)
    sure = np.abs(swings - 0.02) > 1e-6
    given = term(after, "consistency").numpy()
    assert 0.01 < (expected < 0).mean() < 0.99
    np.testing.assert_allclose(given[sure], expected[sure], atol=1e-7)

    varied = np.stack([asked[max(t - window + 1, 0) : t + 1].std(0) for t in range(steps)])
    since, hasty = np.zeros(accounts), np.zeros((steps, accounts))
    ever = np.zeros(accounts, dtype=bool)
    idle = np.zeros((steps, accounts))
    for t in range(steps):
        traded = after["trade", "value"][t, :, 0].numpy() != 0
        hasty[t] = traded & ever & (since < 3)
        ever |= traded
        since = np.where(traded, 0, since + 1)
        idle[t] = since > 50
    lively = np.where(varied > 0.3, 0.2, np.where(varied > 0.2, 0.1, 0.0))
    expected = lively - 0.1 * idle - 0.05 * hasty + 0.05 * (np.abs(asked) > 0.3)
    sure = (np.abs(varied - 0.3) > 1e-6) & (np.abs(varied - 0.2) > 1e-6)
    given = term(after, "activity").numpy()
    np.testing.assert_allclose(given[sure], expected[sure], atol=1e-6)


def test_rings_forget_at_an_episodes_end_and_nowhere_else(market: Market) -> None:
    """Two accounts that end at different times: each one's terms start over alone."""
    options: dict[str, Any] = {**MODES["target"], "random_start": False, "random_symbols": False}
    actions = random_actions("target", 90, 2, 1, seed=9)
    env = TradingEnv(market, 2, emit="all", compiled=False, episode_bars=60, **options)
    seen, rows = env.reset(), []
    for bar, action in enumerate(actions):
        seen["action"] = action
        step, seen = env.step_and_maybe_reset(seen)
        rows.append(step["next"].clone())
        if bar == 24:
            seen["_reset"] = torch.tensor([[True], [False]])
            seen = env.reset(seen).exclude("_reset")
    together = torch.stack(rows)
    _, alone = play(market, actions[25:85, :1], episode_bars=60, **options)
    _, whole = play(market, actions[:60], episode_bars=60, **options)
    assert (together[TERMS][25:85, 0] == alone[TERMS][:, 0]).all()
    assert (together[TERMS][:60, 1] == whole[TERMS][:, 1]).all()


@pytest.mark.parametrize("assets", [1, 2])
def test_an_account_that_sits_steps_out_remembers_as_if_they_had_not_been(
    market: Market, assets: int
) -> None:
    """Account 1 sits out every third step; its terms are those of its own bars alone."""
    options: dict[str, Any] = {**MODES["target"], "random_start": False, "random_symbols": False}
    options |= {"activity_window": 4, "emit": "all", "compiled": False, "assets": assets}
    actions = random_actions("target", 90, 2, assets, seed=11)
    env = TradingEnv(market, 2, **options)
    seen, rows = env.reset(), []
    for bar, action in enumerate(actions):
        seen["action"] = action
        seen["_step"] = torch.tensor([True, bar % 3 != 0])
        seen = env.step(seen)["next"]
        rows.append(seen.clone())
        seen = seen.exclude("reward")
    together = torch.stack(rows)
    took_part = torch.arange(90) % 3 != 0
    alone = TradingEnv(market, 1, first_account=1, **options)
    seen, rows = alone.reset(), []
    for action in actions[took_part, 1:]:
        seen = alone.step(seen.set("action", action))["next"]
        rows.append(seen.clone())
        seen = seen.exclude("reward")
    expected = torch.stack(rows)
    assert (together[TERMS][took_part, 1] == expected[TERMS][:, 0]).all()


def test_the_first_trade_of_an_episode_follows_no_other(market: Market) -> None:
    """A trade within 3 bars of the last costs 0.05: there is no last one."""
    _, after = play(market, torch.full((2, 1, 1), 0.9), **MODES["target"])
    assert float(after["trade", "value"][0]) != 0
    assert float(term(after, "activity")[0]) == pytest.approx(0.05)  # decisive, that is all


def test_objectives_at_their_thresholds_by_hand() -> None:
    """One asset falls by 10 % while 100 % of equity is in it."""
    bars = WARMUP + 3
    close = torch.full((bars, 1), 100.0).double()
    close[WARMUP + 1 :] = 90
    opening = torch.cat([close[:1], close[:-1]])
    market = Market(
        symbols=("A",), timestamps=torch.arange(bars) * 3_600_000_000_000, bars_per_year=252.0,
        open=opening, high=torch.maximum(opening, close), low=torch.minimum(opening, close),
        close=close, volume=torch.ones(bars, 1).double(),
    )  # fmt: skip
    options: dict[str, Any] = {
        "actions": "continuous", "smoothing": 1, "max_position": 1.0, "commission": 0.0,
        "slippage": 0.0, "random_start": False, "episode_bars": 3,
    }  # fmt: skip
    _, after = play(market, torch.tensor([1.0, 0.0, -1.0]).reshape(3, 1, 1), **options)
    terms = {name: term(after, name)[:, 0].tolist() for name in OBJECTIVES}
    # 100 units fall by 10: 0.3 x -1,000 of 10,000 at work, losses x 1.5; then all is realised, of
    # 9,000 at work, and the unrealised loss goes.
    assert terms["profit"] == pytest.approx(
        [0.0, 100 * 1.5 * -0.03, 100 * 1.5 * (-1_000 + 300) / 9_000]
    )
    weights = sum(0.94**k for k in range(WARMUP + 2))
    volatility = math.log(0.9) ** 2 / weights
    volatility = math.sqrt(volatility)
    risk = -math.expm1(10 * 0.05) - 50 * (1.645 * volatility - 0.02) - 10 * 0.05 - volatility / 2
    assert terms["risk"][0] == pytest.approx(-10 * 0.05)
    assert terms["risk"][1] == pytest.approx(risk, rel=1e-6)
    # Profits 0, -4.5, -11.7: steady at first, then deviations of 2.25 and 4.82.
    wobbles = [float(np.std(terms["profit"][: bar + 1])) for bar in range(3)]
    assert terms["consistency"] == pytest.approx([0.2, *[-0.1 * wobble for wobble in wobbles[1:]]])
    # The first action alone varies by nothing; 1 and 0 by .5; then by .816, with the close hasty.
    assert terms["activity"][1:] == pytest.approx([0.2, 0.2 - 0.05 + 0.05])
