"""Rewards, through the environment, against scalar loops written from their descriptions."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase

from trading_torchrl.data import Market
from trading_torchrl.data.features import WARMUP
from trading_torchrl.envs import TradingEnv

HOUR = 3_600_000_000_000
CASH = 10_000.0
FREE = {"commission": 0.0, "slippage": 0.0}
TARGET = {"actions": "target", "short": True, "max_position": 1.0}
DIRECT = {"actions": "continuous", "max_position": 1.0, "smoothing": 1}
BUY_SMALL, BUY_MEDIUM, BUY_LARGE, SELL_PARTIAL, SELL_ALL, ADD_TO_WINNER = range(1, 7)


def market_of(opens: NDArray[Any], closes: NDArray[Any]) -> Market:
    """Bars [T, S] after a warm-up at 100; row 0 is the first bar that orders fill in."""
    quiet = np.full((WARMUP, opens.shape[1]), 100.0)
    first, last = (torch.from_numpy(np.concatenate([quiet, part])) for part in (opens, closes))
    return Market(
        symbols=tuple(f"S{i}" for i in range(opens.shape[1])),
        timestamps=torch.arange(len(first)) * HOUR,
        open=first,
        high=torch.maximum(first, last),
        low=torch.minimum(first, last),
        close=last,
        volume=torch.ones_like(first),
        bars_per_year=252.0,
    )


def wild_market(bars: int, symbols: int, seed: int, volatility: float = 0.02) -> Market:
    """Random walks with gaps between a close and the next open."""
    rng = np.random.default_rng(seed)
    moves = rng.normal(0, volatility, (2 * bars, symbols)).cumsum(0)
    return market_of(100 * np.exp(moves[::2]), 100 * np.exp(moves[1::2]))


def steps_of(*closes: float) -> Market:
    """One symbol; every bar opens at the close before."""
    path = np.array([100.0, *closes])[:, None]
    return market_of(path[:-1], path[1:])


def play(market: Market, orders: Any, /, **settings: Any) -> TensorDictBase:
    """Plays actions [T, N, A] from the end of the warm-up, episodes in a row: [T, N] of "next"."""
    given = torch.as_tensor(np.asarray(orders))
    if given.ndim == 1:
        given = given[:, None, None]
    options: dict[str, Any] = {
        "episode_bars": len(market) - WARMUP,
        "random_start": False,
        "random_symbols": False,
        "emit": "all",
        "compiled": False,
        "assets": given.shape[2],
        **settings,
    }
    env = TradingEnv(market, given.shape[1], **options)
    discrete = env.rules.actions == "discrete"
    seen, rows = env.reset(), []
    for action in given:
        action = action.long() if discrete else action.float()
        seen["action"] = action.reshape(env.action_spec.shape)
        before, seen = env.step_and_maybe_reset(seen)
        rows.append(before["next"])
    return torch.stack(rows)


def reward_of(played: TensorDictBase) -> NDArray[Any]:
    return played["reward"][..., 0].double().numpy()


def equity_of(played: TensorDictBase) -> NDArray[Any]:
    """[T + 1, N], the start included."""
    equity = played["account", "equity"][..., 0].numpy()
    return np.concatenate([np.full((1, equity.shape[1]), CASH), equity])


@pytest.mark.parametrize("settings", [TARGET, DIRECT, {**TARGET, "assets": 3}])
def test_log_returns_add_up_to_the_log_of_the_whole(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    market = wild_market(200, 9, seed=1)
    actions = rng.uniform(-1, 1, (200, 3, settings.get("assets", 1)))
    played = play(market, actions, reward="log_return", **settings)
    equity = equity_of(played)
    assert np.abs(np.log(equity[-1] / CASH)).min() > 0.01
    np.testing.assert_allclose(reward_of(played).sum(0), np.log(equity[-1] / CASH), atol=2e-6)
    np.testing.assert_allclose(reward_of(played), np.log(equity[1:] / equity[:-1]), atol=1e-8)


def test_log_return_of_a_total_loss_is_finite() -> None:
    played = play(steps_of(100, 100, 1e-9, 1e-9), [1.0, 0.0, 0.0], reward="log_return", **DIRECT)
    rewards = reward_of(played)[:, 0]
    equity = equity_of(played)[:, 0]
    assert equity[3] <= 0.01
    assert rewards[2] == pytest.approx(math.log(0.01 / equity[2]), rel=1e-6)  # a millionth of cash
    assert played["terminated"][2].all()


def test_growth_by_hand() -> None:
    """Half of 10,000 bought, kept at half, sold, at costs of 1 %."""
    settings = {**TARGET, "commission": 0.01, "slippage": 0.0, "max_position": 0.5, "min_trade": 0}
    played = play(steps_of(100, 110, 88), [1.0, 1.0, 0.0], **settings, risk_aversion=7.0)
    first = (10_000 - 50, 50.0)  # 50 units at 100
    units = 0.5 * 9_950 / 100  # rebalanced at the open of 100, then each gains 10
    paid = 0.01 * (50 - units) * 100
    second = (9_950 - paid + units * 10, paid)
    paid = 0.01 * units * 110  # closed at the open of 110
    bars = [first, second, (second[0] - paid, paid)]
    before = 10_000.0
    for reward, (equity, paid) in zip(reward_of(played)[:, 0], bars, strict=True):
        gross = (equity + paid - before) / before
        assert reward == pytest.approx(math.log(equity / before) - 3 * gross**2, abs=1e-8)
        before = equity


@pytest.mark.parametrize("risk_aversion", [1.0, 10.0, 67.0])
@pytest.mark.parametrize("assets", [1, 3])
def test_growth_is_log_growth_less_a_variance_penalty(risk_aversion: float, assets: int) -> None:
    rng = np.random.default_rng(2)
    played = play(
        wild_market(150, 6, seed=2),
        rng.uniform(-1, 1, (150, 2, assets)),
        risk_aversion=risk_aversion,
        **TARGET,
    )
    equity, fees = equity_of(played), played["account", "fees"][..., 0].numpy()
    for account in range(2):
        for bar in range(150):
            before, after = float(equity[bar, account]), float(equity[bar + 1, account])
            gross = (after + float(fees[bar, account])) / before - 1
            expected = math.log(after / before) - (risk_aversion - 1) / 2 * gross * gross
            assert reward_of(played)[bar, account] == pytest.approx(expected, rel=1e-5, abs=1e-8)


class MoodySaffell:
    """Differential Sharpe ratio, one return at a time (2001, equations 9 to 11)."""

    def __init__(self) -> None:
        self.a, self.b = 0.0, 0.01**2

    def __call__(self, gained: float) -> float:
        delta_a, delta_b = gained - self.a, gained * gained - self.b
        worth = (self.b * delta_a - self.a * delta_b / 2) / (self.b - self.a * self.a) ** 1.5
        self.a += 0.01 * delta_a
        self.b += 0.01 * delta_b
        return worth


def test_differential_sharpe_starts_as_documented() -> None:
    """From a = 0 and b = 1e-4 the first reward is return / 0.01."""
    settings = {**TARGET, **FREE, "reward": "differential_sharpe"}
    rewards = reward_of(play(steps_of(101, 102.01), [1.0, 1.0], **settings))[:, 0]
    assert rewards[0] == pytest.approx(0.01 / 0.01, rel=1e-6)
    # a = 1e-4, b = 1e-4: (1e-4 x 0.0099 - 0) / (1e-4 - 1e-8)^1.5
    assert rewards[1] == pytest.approx(0.99 / (1 - 1e-4) ** 1.5, rel=1e-6)


def test_differential_sharpe_is_the_scalar_loop_and_forgets_at_an_episodes_end() -> None:
    rng = np.random.default_rng(3)
    market = wild_market(100, 4, seed=3)
    actions = rng.uniform(-1, 1, (250, 4, 1))
    played = play(market, actions, reward="differential_sharpe", episode_bars=100, **TARGET)
    equity, done = played["account", "equity"][..., 0].numpy(), played["done"][..., 0].numpy()
    assert done.sum(0).tolist() == [2] * 4
    for account in range(4):
        sharpe, before = MoodySaffell(), CASH
        for bar in range(250):
            after = float(equity[bar, account])
            expected = sharpe(after / before - 1)
            assert reward_of(played)[bar, account] == pytest.approx(expected, rel=2e-6, abs=1e-7)
            before = after
            if done[bar, account]:
                sharpe, before = MoodySaffell(), CASH


def test_partial_resets_forget_the_reset_accounts_only() -> None:
    market = wild_market(60, 3, seed=4)
    env = TradingEnv(
        market, 3, reward="differential_sharpe", episode_bars=60, random_start=False,
        random_symbols=False, compiled=False, **TARGET,
    )  # fmt: skip
    seen, loops = env.reset(), [MoodySaffell() for _ in range(3)]
    before = [CASH] * 3
    for bar in range(40):
        seen["action"] = torch.tensor([[1.0], [-1.0], [0.5]])
        seen = env.step(seen)["next"]
        for account in range(3):
            after = float(seen["account", "equity"][account])
            expected = loops[account](after / before[account] - 1)
            assert float(seen["reward"][account]) == pytest.approx(expected, rel=2e-6, abs=1e-7)
            before[account] = after
        seen = seen.exclude("reward")
        if bar in (6, 20):
            again = 1 if bar == 6 else 2
            mask = torch.zeros(3, 1, dtype=torch.bool)
            mask[again] = True
            seen = env.reset(TensorDict({**seen, "_reset": mask}, batch_size=3)).exclude("_reset")
            loops[again], before[again] = MoodySaffell(), CASH


class Judged(NamedTuple):
    """A professional reward of one asset: what it earned, its habits, and why."""

    earned: float
    habits: float
    reasons: set[str]


class Desk:
    """The professional reward of one asset in one account, from its units and prices alone."""

    def __init__(self, cap: float) -> None:
        self.cap = cap
        self.units, self.entry, self.since = 0.0, 0.0, 0
        self.last_name: int | None = None
        self.reduced = self.boosted = False

    def __call__(
        self, units: float, opening: float, close: float, seen: float, equity: float,
        action: float, name: int,
    ) -> Judged:  # fmt: skip
        held, change = self.units, units - self.units
        reasons: set[str] = set()
        flips = held * units < 0
        ends = held != 0 and (units == 0 or flips)
        stays = held * units > 0
        shrinks = stays and abs(units) < abs(held)
        grows = stays and abs(units) > abs(held)
        pnl = 0.0
        if ends or shrinks:
            closed = held if ends else held - units
            realised = closed * (opening - self.entry)
            roi = realised / (abs(closed) * self.entry)
            factor = 1 + 2 * roi
            reasons.add("winner" if realised > 0 else "loser")
            if factor < 0.5:
                factor = 0.5
                reasons.add("roi floor")
            elif factor > 3:
                factor = 3.0
                reasons.add("roi ceiling")
            if abs(action) > 0.5:
                factor *= 1.2
                reasons.add("decisive")
            conservative = abs(held) * seen / equity <= self.cap / 2
            factor *= 1.2 if conservative else 0.8
            reasons.add("conservative" if conservative else "aggressive")
            if shrinks:
                factor *= 0.8
                reasons.add("partial")
            elif self.reduced:
                factor *= 1.1
                reasons.add("staged")
            else:
                reasons.add("whole")
            if self.boosted:
                factor *= 1.3
                reasons.add("boosted")
            pnl = 100 * realised / equity * factor
        if flips:
            reasons.add("flip")

        won = held * (opening - self.entry) > 0
        if stays:
            self.reduced |= shrinks
            self.boosted |= grows and won
        else:
            self.reduced = self.boosted = False
        if grows:
            self.entry = (held * self.entry + change * opening) / units
        elif not stays:
            self.entry = opening
        patience = 0.0
        if stays and not shrinks:
            winning = units * (close - self.entry) > 0
            patience = 0.01 if winning else 0.005
            reasons.add("patient winner" if winning else "patient loser")

        idle = min(self.since / 100, 1.0) if stays else 0.0
        if idle:
            reasons.add("idle" if idle < 1 else "idle for long")
        repeat = float(change != 0 and name == self.last_name)
        if repeat:
            reasons.add("repeat")
        if change:
            self.last_name, self.since = name, 0
        else:
            self.since += 1
        self.units = units
        habits = -0.62 * patience - 0.06 * idle - 0.08 * repeat
        return Judged(0.62 * pnl, habits, reasons)


BRANCHES = {
    "winner", "loser", "roi floor", "roi ceiling", "decisive", "conservative", "aggressive",
    "partial", "staged", "whole", "boosted", "patient winner", "patient loser", "idle",
    "idle for long", "repeat",
}  # fmt: skip


def judge(
    market: Market, orders: NDArray[Any], /, **settings: Any
) -> tuple[NDArray[Any], NDArray[Any], set[str]]:
    """(rewards [T, N], what they should be, branches hit)."""
    played = play(market, orders, reward="professional", **settings)
    steps, accounts, assets = orders.shape
    equity, units = equity_of(played), played["account", "units"].numpy()
    fees = played["account", "fees"][..., 0].numpy()
    carried = played["trade", "smoothed_action"].double().numpy()
    names = played["trade", "name"].numpy()
    opening, close = market.open.numpy(), market.close.numpy()
    expected = np.zeros((steps, accounts))
    hit: set[str] = set()
    for account in range(accounts):
        desks = [Desk(settings["max_position"]) for _ in range(assets)]
        for bar in range(steps):
            row, before = bar + WARMUP, float(equity[bar, account])
            for asset, desk in enumerate(desks):
                symbol = (account * assets + asset) % len(market.symbols)
                judged = desk(
                    float(units[bar, account, asset]),
                    float(opening[row, symbol]),
                    float(close[row, symbol]),
                    float(close[row - 1, symbol]),
                    before,
                    float(carried[bar, account, asset]),
                    int(names[bar, account, asset]),
                )
                expected[bar, account] += judged.earned + judged.habits / assets
                hit |= judged.reasons
            expected[bar, account] -= 0.20 * 100 * float(fees[bar, account]) / before
    return reward_of(played), expected, hit


@pytest.mark.parametrize("mode", ["continuous", "discrete", "target", "assets"])
def test_professional_reward_in_every_branch(mode: str) -> None:
    rng = np.random.default_rng(5)
    market = wild_market(260, 24, seed=5, volatility=0.05)
    assets = 3 if mode == "assets" else 1
    shape = (260, 8 if mode == "assets" else 24, assets)
    actions = rng.uniform(-1, 1, shape)
    actions[rng.random(shape) < 0.4] = 0.0
    if mode == "discrete":
        actions = rng.integers(0, 7, shape)
        actions[rng.random(shape) < 0.4] = 0
    actions[90:210, ::2] = 0  # time enough to be idle for long
    settings: dict[str, Any] = {"max_position": 0.6, "leverage": 1.0, "short": True}
    if mode in ("continuous", "discrete"):
        settings |= {"actions": mode, "short": False}
        settings |= {"smoothing": 1} if mode == "continuous" else {}
        # A wish for nothing holds in these modes and closes in the other.
    else:
        settings |= {"actions": "target", "min_trade": 400.0}
        actions = np.where(actions == 0, np.roll(actions, 1, axis=0), actions)
        for bar in range(90, 210):  # exactly what is held already: no trade
            actions[bar, ::2] = actions[90, ::2]
    rewards, expected, hit = judge(market, actions, **settings)
    missing = (BRANCHES | ({"flip"} if "target" in settings.values() else set())) - hit
    if mode in ("target", "assets"):
        missing -= {"idle for long", "idle"}  # targets drift and trade again
    assert not missing
    np.testing.assert_allclose(rewards, expected, rtol=2e-5, atol=2e-6)


def professional(closes: list[float], orders: list[float], /, **settings: Any) -> list[float]:
    options = {**DIRECT, **FREE, "reward": "professional", **settings}
    return reward_of(play(steps_of(*closes), orders, **options))[:, 0].tolist()


def test_professional_winner_by_hand() -> None:
    """80 units from 100 to 110 and out: 8 % of 10,000, roi 10 %, decisive, aggressive."""
    rewards = professional([100, 110, 110], [0.8, 0.0, -1.0])
    held = -0.01 * 0.62
    sold = 0.62 * (100 * 800 / 10_800) * 1.2 * 1.2 * 0.8
    assert rewards == pytest.approx([0.0, held, sold], rel=1e-6)


def test_professional_loser_by_hand() -> None:
    """40 units lose 20 % and go: roi -20 %, decisive, conservative."""
    rewards = professional([100, 80, 80], [0.4, 0.0, -1.0])
    held = -0.005 * 0.62
    sold = 0.62 * (100 * -800 / 9_200) * (1 - 0.4) * 1.2 * 1.2
    assert rewards == pytest.approx([0.0, held, sold], rel=1e-6)


def test_professional_exit_in_stages_by_hand() -> None:
    rewards = professional([100, 110, 110, 110], [0.8, 0.0, -0.5, -1.0])
    part = 0.62 * (100 * 400 / 10_800) * 1.2 * 0.8 * 0.8  # 8,800 of 10,800 is above half the cap
    part -= 0.06 * 0.01  # a bar has passed since the purchase
    last = 0.62 * (100 * 400 / 10_800) * 1.2 * 1.2 * 1.2 * 1.1  # 4,400 is below, |-1| is decisive
    assert rewards[2:] == pytest.approx([part, last], rel=1e-6)


def test_professional_pays_for_adding_to_a_winner_not_to_a_loser() -> None:
    """30 units at 100, 20 % more of what is left at 110 (or 90), out at 110 (or 90) again."""
    for price, boost in ((110.0, 1.3), (90.0, 1.0)):
        rewards = professional([100, price, price, price], [0.3, 0.0, 0.2, -1.0])
        equity = 7_000 + 30 * price
        units = 30 + 0.2 * 7_000 / price
        entry = (30 * 100 + 0.2 * 7_000) / units
        gain = units * (price - entry)
        roi = price / entry - 1
        factor = (1 + 2 * roi) * 1.2 * (1.2 if units * price <= equity / 2 else 0.8) * boost
        assert rewards[3] == pytest.approx(0.62 * 100 * gain / equity * factor, rel=1e-5)


def test_professional_cost_and_repeat_by_hand() -> None:
    settings = {"commission": 0.01, "slippage": 0.0}
    rewards = professional([100, 99, 98], [0.2, 0.2, 0.5], **settings)
    # 20 units for 2,000: 20 in fees, 0.2 % of equity.
    assert rewards[0] == pytest.approx(-0.20 * 0.2, rel=1e-6)
    # 0.2 x 7,980 more under the same name; all of it loses 1 a unit.
    paid = 0.01 * 0.2 * 7_980
    second = -0.20 * 100 * paid / 9_980 - 0.08 - 0.62 * 0.005
    assert rewards[1] == pytest.approx(second, rel=1e-6)
    # 0.5 of what is left, under another name.
    equity = 9_980 - paid - (20 + 15.96)
    paid = 0.01 * 0.5 * (equity - (20 + 15.96) * 99)
    third = -0.20 * 100 * paid / equity - 0.62 * 0.005
    assert rewards[2] == pytest.approx(third, rel=1e-6)


def test_professional_flip_closes_the_old_position_and_forgets_it() -> None:
    settings = {**TARGET, "smoothing": 3}
    rewards = professional([110, 110, 100], [0.4, -0.4, 0.0], **settings)
    # 40 units win 10 each: 4,400 of 10,400 is conservative under a cap of 1, |-0.4| not decisive.
    flipped = 0.62 * (100 * 400 / 10_400) * 1.2 * 1.2
    assert rewards[:2] == pytest.approx([0.0, flipped], rel=1e-6)
    # The short is closed where it was opened: nothing won.
    assert rewards[2] == pytest.approx(0.0, abs=1e-9)


def test_a_position_at_its_entry_price_is_no_winner() -> None:
    """Bought in parts at 100, where it stays; the rounding of its entry wins nothing."""
    bought = [0.2, 0.45, 0.8, 0.5, 0.0]
    rewards = professional([100] * 5, bought)
    assert rewards == pytest.approx([0.0, *[-0.0031] * 4], abs=1e-9)
    # Nor is it boosted when the price rises afterwards: 1.3 is for adding to a winner.
    rewards = professional([100] * 4 + [110] * 2, [*bought, -1.0])
    units = 100 - 80 * 0.55 * 0.2 * 0.5
    equity = 10_000 + units * 10
    sold = 0.62 * (100 * units * 10 / equity) * 1.2 * 1.2 * 0.8
    assert rewards[5] == pytest.approx(sold, rel=1e-6)


def test_a_new_position_is_not_charged_for_the_time_before_it() -> None:
    """Time is counted since the position's last trade: opening it is one."""
    at_once = professional([100] * 3, [0.5, 0.0, 0.0])
    after_a_while = professional([100] * 53, [0.0] * 50 + [0.5, 0.0, 0.0])
    assert at_once == pytest.approx([0.0, -0.0031, -0.0031 - 0.0006], abs=1e-7)
    assert after_a_while[:50] == [0.0] * 50
    assert after_a_while[50:] == pytest.approx(at_once, abs=1e-7)


def test_objectives_reward_is_the_terms_that_are_shown() -> None:
    rng = np.random.default_rng(6)
    played = play(
        wild_market(80, 3, seed=6),
        rng.uniform(-1, 1, (80, 3, 1)),
        reward="objectives",
        **TARGET,
    )
    terms = played["objectives", "terms"]
    assert played["reward"].shape == (80, 3, 5)
    assert (terms.flatten(0, 1).std(0) > 0).all()
    assert (played["reward"] == terms).all()
