"""The environment's money: known answers by hand, and random accounts against decimals."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from reference_account import Account, Candle, Rules
from tensordict import TensorDict

from trading_torchrl.data import Market
from trading_torchrl.data.features import WARMUP
from trading_torchrl.envs import TradingEnv
from trading_torchrl.risk import Limits

HOUR = 3_600_000_000_000
EMIT = ("equity", "cash", "units", "realised", "unrealised", "fees", "value")
FREE = {"commission": 0.0, "slippage": 0.0}
TARGET: dict[str, Any] = {"actions": "target", "short": True, "max_position": 1.0, **FREE}
CONTINUOUS: dict[str, Any] = {"actions": "continuous", "max_position": 1.0, "smoothing": 1, **FREE}
CASES = int(os.environ.get("LEDGER_CASES", "1000"))
ACCOUNTS = 25
"""that share one set of random rules"""

Candles = Sequence[tuple[float, float, float, float]]


def flat(price: float, bars: int = 1) -> list[tuple[float, float, float, float]]:
    return [(price, price, price, price)] * bars


def market_of(
    *symbols: Candles,
    start: float = 100.0,
    volume: Sequence[Sequence[float]] | None = None,
    hours: float = 1.0,
    bars_per_year: float = 252.0,
) -> Market:
    """Bars of some symbols, after the warm-up at one price; account i can trade from bar 0 on."""
    bars = np.array([[(start,) * 4] * WARMUP + list(candles) for candles in symbols])
    volumes = np.ones(bars.shape[:2])
    if volume is not None:
        volumes[:, WARMUP - 1 :] = volume
    prices = torch.from_numpy(bars.transpose(2, 1, 0).copy())
    return Market(
        symbols=tuple(f"S{i}" for i in range(len(symbols))),
        timestamps=(torch.arange(bars.shape[1]) * hours * HOUR).long(),
        open=prices[0],
        high=prices[1],
        low=prices[2],
        close=prices[3],
        volume=torch.from_numpy(volumes.T.copy()),
        bars_per_year=bars_per_year,
    )


def play(
    market: Market, orders: NDArray[Any] | Sequence[Any], num_envs: int = 1, /, **rules: Any
) -> dict[str, NDArray[Any]]:
    """Plays actions [T, N, A] from the end of the warm-up: what was emitted, [T, N, ...].

    With ``num_envs=1`` the accounts' dimension is left out on both sides.
    """
    env = TradingEnv(
        market,
        num_envs,
        emit=EMIT,
        episode_bars=len(market) - WARMUP,
        random_start=False,
        random_symbols=False,
        compiled=False,
        **rules,
    )
    dtype = torch.int64 if env.rules.actions == "discrete" else torch.float32
    given = torch.as_tensor(np.asarray(orders), dtype=dtype)
    state = env.reset()
    rows: list[dict[str, torch.Tensor]] = []
    for action in given:
        shaped = action.reshape(env.action_spec.shape)
        after = env.step(TensorDict({**state, "action": shaped}, env.batch_size))["next"]
        row = {key: after["trade" if key == "value" else "account", key] for key in EMIT}
        row |= {key: after[key] for key in ("reward", "terminated", "truncated")}
        rows.append(row)
        state = after.exclude("reward")
    shown = {key: torch.stack([row[key] for row in rows]).numpy() for key in rows[0]}
    for key in ("equity", "cash", "fees", "reward", "terminated", "truncated"):
        shown[key] = shown[key][..., 0]
    return {key: value[:, 0] for key, value in shown.items()} if num_envs == 1 else shown


def close_to(value: Any) -> Any:
    return pytest.approx(value, rel=1e-12, abs=1e-7)


@pytest.mark.parametrize("mode", ["continuous", "target", "discrete"])
def test_constant_price_without_costs_leaves_equity(mode: str) -> None:
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 7, 100) if mode == "discrete" else rng.uniform(-1, 1, 100)
    rules = {**TARGET, "actions": mode, "cash": 1e6, "max_position": 0.7}
    played = play(market_of(flat(100, 100)), actions, **rules)
    assert np.abs(played["value"]).sum() > 1e6
    np.testing.assert_allclose(played["equity"], 1e6, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", ["continuous", "target", "discrete"])
def test_constant_price_with_costs_loses_the_fees(mode: str) -> None:
    rng = np.random.default_rng(1)
    actions = rng.integers(0, 7, 100) if mode == "discrete" else rng.uniform(-1, 1, 100)
    rules = {**TARGET, "actions": mode, "cash": 1e6, "commission": 0.001, "spread": 0.002}
    played = play(market_of(flat(100, 100)), actions, **rules)
    assert played["fees"].sum() > 1_000
    assert played["fees"] == close_to(0.002 * np.abs(played["value"][:, 0]))
    left = 1e6 - played["fees"].cumsum()
    np.testing.assert_allclose(played["equity"], left, rtol=0, atol=1e-6)


def test_flip_pays_once_on_all_it_trades() -> None:
    rules = {**TARGET, "max_position": 0.5, "commission": 0.001}
    played = play(market_of(flat(100, 2)), [1.0, -1.0], **rules)
    # Buys 5,000; then from 50 long to 4,997.50 short.
    assert played["value"][:, 0] == close_to([5_000, -9_997.5])
    assert played["units"][:, 0] == close_to([50, -49.975])
    assert played["fees"] == close_to([5, 9.9975])
    assert played["equity"] == close_to([9_995, 9_985.0025])
    assert played["cash"] == close_to([4_995, 9_995 - 9.9975 + 4_997.5])


def test_full_close_realises_the_profit_before_costs() -> None:
    bars = [*flat(100), (110, 110, 110, 110), (120, 120, 120, 120)]
    played = play(market_of(bars), [0.5, 0.0, -1.0], **{**CONTINUOUS, "commission": 0.01})
    assert played["units"][:, 0] == close_to([50, 50, 0])
    assert played["unrealised"][:, 0] == close_to([0, 500, 0])
    assert played["realised"][:, 0] == close_to([0, 0, 1_000])
    assert played["cash"][-1] == played["equity"][-1] == close_to(10_000 - 50 + 1_000 - 60)


def test_average_entry_price() -> None:
    bars = [*flat(100), *flat(200), (200, 300, 200, 300), *flat(300)]
    # 1,000 at 100 and, with 11,000, another 1,000 at 200: 15 units for 2,000. 5 go at 200.
    shares = [0.1, 3_000 / 11_000, 2_000 / 11_000, 0.0]
    played = play(market_of(bars), shares, **TARGET)
    assert played["units"][:, 0] == pytest.approx([10, 15, 10, 0], rel=1e-6)
    assert played["realised"][:, 0] == pytest.approx([0, 0, 5 * 200 / 3, 10 * 500 / 3], rel=1e-6)
    assert played["unrealised"][:, 0] == pytest.approx([0, 1_000, 10 * 500 / 3, 0], rel=1e-6)


def test_gap_through_the_drawdown_stop_fills_at_the_open() -> None:
    bars = [*flat(100), (100, 100, 85, 85), (70, 80, 70, 80), (80, 80, 80, 80)]
    rules = {**TARGET, "short": False, "limits": Limits(drawdown=0.1)}
    played = play(market_of(bars), [1.0, 1.0, 1.0, 1.0], **rules)
    assert played["units"][:, 0] == close_to([100, 100, 0, 0])
    assert played["equity"] == close_to([10_000, 8_500, 7_000, 7_000])


def test_after_a_drawdown_stop_nothing_is_opened_until_the_episode_ends() -> None:
    # The stop's own fill gaps up, back to a drawdown of 5 %.
    bars = [*flat(100), (100, 100, 85, 85), (95, 95, 95, 95), (95, 95, 95, 95)]
    rules = {**TARGET, "short": False, "limits": Limits(drawdown=0.1)}
    played = play(market_of(bars), [1.0, 1.0, 1.0, 1.0], **rules)
    assert played["equity"] == close_to([10_000, 8_500, 9_500, 9_500])
    assert played["units"][:, 0] == close_to([100, 100, 0, 0])


def test_daily_loss_blocks_growth_until_the_next_day() -> None:
    # Four bars a day; the first four are of one day.
    bars = [*flat(100), (100, 100, 90, 90), *flat(90, 2), *flat(90)]
    rules = {**CONTINUOUS, "limits": Limits(daily_loss=0.03)}
    actions = [0.5, 0.5, 0.5, -0.5, 0.5]
    played = play(market_of(bars, hours=6), actions, **rules)
    # 5,000 and 2,500 bought, 750 lost; blocked, halved, and free again.
    assert played["units"][:4, 0] == close_to([50, 75, 75, 37.5])
    assert played["units"][4, 0] > 37.5


def test_daily_trades_block_growth_only() -> None:
    rules = {**CONTINUOUS, "limits": Limits(daily_trades=2)}
    actions = [0.25, 0.25, 0.25, -0.5, 0.25]
    # The first bar after the warm-up begins a day of four.
    played = play(market_of(flat(100, 5), hours=6), actions, **rules)
    assert played["units"][:, 0] == close_to([25, 43.75, 43.75, 21.875, 21.875 + 0.25 * 78.125])


def test_repeated_trades_are_refused() -> None:
    rules = {**CONTINUOUS, "limits": Limits(repeats=2)}
    played = play(market_of(flat(100, 5)), [0.25, 0.25, 0.25, 0.5, 0.25], **rules)
    # A quarter of what is left, twice; then half of it, and a quarter again.
    assert played["units"][:, 0] == close_to([25, 43.75, 43.75, 71.875, 78.90625])


def test_short_is_liquidated_at_its_exact_price() -> None:
    # 20,000 - 100 p = 0.25 x 100 p at p = 160.
    bars = [*flat(100), (100, 200, 100, 180), *flat(180)]
    played = play(market_of(bars), [-1.0, -1.0, 0.0], **TARGET)
    assert played["units"][:, 0] == close_to([-100, 0, 0])
    assert played["equity"] == close_to([10_000, 4_000, 4_000])
    assert played["realised"][:, 0] == close_to([0, -6_000, 0])


def test_leveraged_long_is_liquidated_with_costs() -> None:
    # 20,000 less what its own cost needs; then units x p - debt = 0.25 x units x p.
    bars = [*flat(100), (100, 100, 50, 55)]
    rules = {**TARGET, "short": False, "leverage": 2.0, "max_position": 2.0, "commission": 0.002}
    played = play(market_of(bars), [1.0, 1.0], **rules)
    bought = 20_000 / 1.004
    debt = bought * 1.002 - 10_000
    price = debt / (0.75 * bought / 100)
    assert played["units"][:, 0] == close_to([bought / 100, 0])
    assert played["equity"][1] == close_to(bought / 100 * price * 0.998 - debt)
    assert played["fees"][1] == close_to(0.002 * bought / 100 * price)


def test_hedged_account_is_liquidated_at_one_pace() -> None:
    # Halfway to the worst of both: 75 and 125, equity 5,000 on 20,000 gross.
    bars = [*flat(100), (100, 100, 50, 60)], [*flat(100), (100, 150, 100, 140)]
    rules = {**TARGET, "leverage": 2.0, "assets": 2}
    played = play(market_of(*bars), [(1.0, -1.0), (1.0, -1.0)], **rules)
    assert played["units"] == close_to(np.array([[100, -100], [0, 0]]))
    assert played["realised"][1] == close_to([-2_500, -2_500])
    assert played["equity"] == close_to([10_000, 5_000])


@pytest.mark.parametrize("fill", ["next_open", "close"])
def test_gap_through_the_margin_fills_at_the_open(fill: str) -> None:
    bars = [*flat(100), (170, 200, 150, 150), *flat(150)]
    played = play(market_of(bars), [-1.0, -1.0, 0.0], **TARGET, fill=fill)
    assert played["units"][:, 0] == close_to([-100, 0, 0])
    assert played["equity"] == close_to([10_000, 3_000, 3_000])


def test_margin_call_stands_in_for_the_order() -> None:
    # 158 leaves 4,200 on 15,800; the gap to 165 leaves 3,500 on 16,500, and nothing to flip to.
    bars = [*flat(100), (100, 158, 100, 158), (165, 165, 120, 120)]
    played = play(market_of(bars), [-1.0, -1.0, 1.0], **TARGET)
    assert played["units"][:, 0] == close_to([-100, -100, 0])
    assert played["equity"] == close_to([10_000, 4_200, 3_500])


def test_no_trade_without_volume() -> None:
    bars = flat(100, 3), flat(100, 3)
    volume = [[1, 0, 1, 1], [1, 1, 1, 1]]
    rules = {**TARGET, "max_position": 0.5, "assets": 2}
    played = play(market_of(*bars, volume=volume), [(1.0, 1.0)] * 3, **rules)
    assert played["units"] == close_to(np.array([[0, 50], [50, 50], [50, 50]]))
    rules["fill"] = "close"
    played = play(market_of(*bars, volume=volume), [(1.0, 1.0)] * 3, **rules)
    assert played["units"] == close_to(np.array([[50, 50], [50, 50], [50, 50]]))


def test_close_fills_look_at_the_volume_of_their_own_bar() -> None:
    rules = {**TARGET, "fill": "close"}
    played = play(market_of(flat(100, 2), volume=[[0, 1, 1]]), [1.0, 1.0], **rules)
    assert played["units"][:, 0] == close_to([0, 100])


@pytest.mark.parametrize(("volume", "left"), [([1, 1, 0, 1], 0), ([1, 1, 1, 0], -100)])
def test_liquidation_needs_volume_in_its_own_bar(volume: list[float], left: float) -> None:
    # With close fills the order's bar is the one before.
    bars = [*flat(100), *flat(100), (100, 200, 100, 180)]
    rules = {**TARGET, "fill": "close"}
    played = play(market_of(bars, volume=[volume]), [-1.0, -1.0, -1.0], **rules)
    assert played["units"][:, 0] == close_to([-100, -100, left])


def test_a_sale_without_volume_pays_for_nothing() -> None:
    bars = flat(100, 2), flat(100, 2)
    volume = [[1, 1, 0], [1, 1, 1]]
    rules = {**TARGET, "short": False, "assets": 2}
    played = play(market_of(*bars, volume=volume), [(1.0, 0.0), (0.0, 1.0)], **rules)
    assert played["units"] == close_to(np.array([[100, 0], [100, 0]]))
    assert played["cash"] == close_to([0, 0])


def test_a_sale_too_small_to_be_made_pays_for_nothing() -> None:
    bars = flat(100, 2), flat(100, 2)
    rules = {**TARGET, "short": False, "assets": 2, "min_trade": 500.0}
    # 200 are left, and 400 from a sale under the minimum would make the purchase large enough.
    played = play(market_of(*bars), [(0.5, 0.48), (0.46, 0.6)], **rules)
    assert played["units"] == pytest.approx(np.array([[50, 48], [50, 48]]), rel=1e-6)
    assert played["cash"] == pytest.approx([200, 200], rel=1e-5)


def test_borrowing_costs_every_bar() -> None:
    market = market_of(flat(100, 4), bars_per_year=100.0)
    played = play(market, [-1.0, 0.0, 0.0, 0.0], **TARGET, borrow_rate=0.1)
    assert played["fees"] == close_to([0, 10, 0, 0])
    continuous = {**CONTINUOUS, "short": True, "borrow_rate": 0.1}
    played = play(market, [-1.0, 0.0, 0.0, 0.0], **continuous)
    assert played["equity"] == close_to([10_000, 9_990, 9_980, 9_970])
    # On the 10,000 that are borrowed, and on the interest itself.
    continuous |= {"max_position": 2.0, "leverage": 2.0}
    played = play(market, [1.0, 0.0, 0.0, 0.0], **continuous)
    debt = [10_000 * 1.001**bar for bar in range(4)]
    assert played["cash"] == close_to([-owed for owed in debt])


@pytest.mark.parametrize(("low", "ruined"), [(0.2, True), (0.25, True), (0.26, False)])
def test_ruin_is_terminated(low: float, ruined: bool) -> None:
    bars = [*flat(100), (100, 100, low, low), *flat(low)]
    rules = {**TARGET, "short": False}
    played = play(market_of(bars), [1.0, 1.0, 1.0], **rules)
    assert played["equity"][1] == close_to(100 * low)
    assert played["terminated"].tolist()[:2] == [False, ruined]
    assert played["truncated"].tolist() == [False, False, not ruined]


def test_a_short_can_lose_more_than_there_is() -> None:
    played = play(market_of([*flat(100), *flat(250)]), [-1.0, -1.0], **TARGET)
    assert played["equity"] == close_to([10_000, -5_000])
    assert played["terminated"].tolist() == [False, True]


def test_no_dust_is_left() -> None:
    market = market_of(flat(100, 3))
    # 74 % of 1,000 leave 260, of 96 they would leave 24.96.
    played = play(market, [0.05, 0.1, -0.74], **CONTINUOUS)
    assert played["units"][:, 0] == pytest.approx([0, 10, 2.6], rel=1e-6)
    played = play(market, [0.1, -0.904, -0.74], **CONTINUOUS)
    assert played["units"][:, 0] == pytest.approx([10, 0.96, 0], rel=1e-6, abs=0)


def test_small_trades_are_not_made_but_full_closes_are() -> None:
    rules = {**CONTINUOUS, "max_position": 0.02}
    bars = [*flat(100), *flat(100), (100, 100, 10, 10), *flat(10)]
    # 24 is too little; 200 is bought, worth 20 later, and sold.
    played = play(market_of(bars), [0.12, 1.0, 0.0, -0.2], **rules)
    assert played["units"][:, 0] == close_to([0, 2, 2, 0])
    assert played["value"][:, 0] == close_to([0, 200, 0, -20])


def test_small_half_of_a_flip_is_dropped() -> None:
    # 300 and 10,000 are wanted and 10,000 can be carried: 291 is under the minimum.
    bars = flat(100, 2), flat(100, 2)
    actions = [(0.9, 0.0), (-0.03, 1.0)]
    for min_trade, units in (250.0, [-2.9126214, 97.0873786]), (295.0, [0, 97.0873786]):
        played = play(market_of(*bars), actions, **{**TARGET, "assets": 2, "min_trade": min_trade})
        assert played["units"][1] == pytest.approx(units, rel=1e-7)


def test_cap_binds_at_trades_not_on_drift() -> None:
    bars = [*flat(100), (100, 200, 100, 200), *flat(200)]
    rules = {**CONTINUOUS, "max_position": 0.15}
    played = play(market_of(bars), [1.0, 1.0, 1.0], **rules)
    # At the cap before the second bar, over it after: 3,000 of 11,500.
    assert played["units"][:, 0] == close_to([15, 15, 15])
    played = play(market_of(bars), [0.5, 1.0, 1.0], **rules)
    # 750 first, then the room that is left: 15 % of 10,000 less 750.
    assert played["units"][:, 0] == close_to([7.5, 15, 15])


def test_two_assets_share_what_the_account_can_carry() -> None:
    rules = {**TARGET, "assets": 2, "commission": 0.001}
    actions = [(1.0, 0.5), (-0.5, 0.5)]
    played = play(market_of(flat(100, 2), flat(100, 2)), actions, **rules)
    # 15,000 wanted; 10,000 carry 10,000 / 1.001.
    carried = 10_000 / 1.001
    assert played["value"][0] == close_to([carried * 2 / 3, carried / 3])
    assert played["cash"][0] == close_to(0)
    held, equity = played["value"][0], played["equity"]
    gross = np.abs(100 * played["units"]).sum(-1)
    assert gross == close_to(equity)
    # Then the first asset is sold in full, and equity less that cost carries what grows.
    sold = held[0]
    grows = np.array([0.5 * equity[0], 0.5 * equity[0] - held[1]])
    share = (equity[0] - 0.001 * sold - held[1]) / (1.001 * grows.sum())
    assert share < 1
    assert played["value"][1] == close_to([-sold - share * grows[0], share * grows[1]])


@pytest.mark.parametrize("price", [0.7, 3.3, 86.38, 100.0])
def test_no_profit_is_no_winner(price: float) -> None:
    # Bought twice at one price: the average is that price, whatever a float64 makes of it.
    rules = {**CONTINUOUS, "actions": "discrete", "max_position": 0.9, "commission": 0.001}
    for names in [2, 1, 6], [1, 1, 6], [1, 2, 6], [1, 2, 1, 6]:
        played = play(market_of(flat(price, len(names)), start=price), names, **rules)
        assert played["value"][-1, 0] == 0


def random_rules(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of an environment; every rule is on about half the time."""

    def maybe(value: Any, otherwise: Any = None) -> Any:
        return value if rng.random() < 0.5 else otherwise

    leverage = maybe(float(rng.uniform(1, 4)), 1.0)
    return {
        "actions": str(rng.choice(["continuous", "target", "discrete"])),
        "short": bool(rng.random() < 0.6),
        "assets": int(rng.integers(1, 4)),
        "max_position": float(rng.choice([0.15, 0.5, 1.0, rng.uniform(0.05, 4)])),
        "fill": str(rng.choice(["next_open", "close"])),
        "cash": 1e6,
        "commission": maybe(float(rng.choice([2e-4, 1e-3, 1e-2])), 0.0),
        "slippage": maybe(float(rng.choice([1e-4, 2e-3])), 0.0),
        "spread": maybe(float(rng.uniform(0, 4e-3)), 0.0),
        "borrow_rate": maybe(float(rng.uniform(0, 1)), 0.0),
        "leverage": leverage,
        "maintenance": float(rng.uniform(0.02, 0.95 / leverage)),
        # With 0, what a float64 rounds away would be a trade.
        "min_trade": float(rng.choice([0.01, 25.0, 5_000.0, 50_000.0])),
        "smoothing": int(rng.choice([1, 3, 4, 6])),
        "limits": Limits(
            exposure=maybe(float(rng.uniform(0.3, 4))),
            drawdown=maybe(float(rng.uniform(0.02, 0.3))),
            daily_loss=maybe(float(rng.uniform(0.005, 0.1))),
            daily_trades=maybe(int(rng.integers(1, 8))),
            repeats=maybe(int(rng.integers(1, 4))),
        ),
    }


def random_market(rng: np.random.Generator, bars: int, symbols: int) -> Market:
    """Walks with jumps, gaps between close and open, flat bars and bars without volume."""
    shape = (bars + 1, symbols)
    volatility = np.exp(rng.uniform(np.log(0.001), np.log(0.08), symbols))

    def moves(share: float, size: float) -> NDArray[Any]:
        jumps = (rng.random(shape) < share) * rng.normal(0, size, shape)
        return rng.normal(0, 1, shape) * volatility + jumps

    gaps = moves(0.1, 0.2) * (rng.random(shape) < rng.choice([0.0, 0.5, 1.0]))
    inside = moves(0.05, 0.3)
    gaps += (rng.random(shape) < rng.choice([0.0, 0.04])) * rng.choice(
        [-3.0, -1.0, 0.4, 0.8], shape
    )
    still = rng.random(shape) < rng.choice([0.0, 0.2])
    still[0] = True
    gaps[still], inside[still] = 0.0, 0.0
    start = np.exp(rng.uniform(np.log(0.5), np.log(5_000), symbols))
    close = start * np.exp((gaps + inside).cumsum(0))
    open_ = np.concatenate([start[None], close[:-1]]) * np.exp(gaps)
    reach = [np.exp(np.abs(moves(0.05, 0.2)) * ~still) for _ in range(2)]
    high, low = np.maximum(open_, close) * reach[0], np.minimum(open_, close) / reach[1]
    volume = (rng.random(shape) >= rng.choice([0.0, 0.15])) * 1.0

    def warmed(values: NDArray[Any], first: NDArray[Any]) -> torch.Tensor:
        before = np.broadcast_to(first, (WARMUP - 1, symbols))
        return torch.from_numpy(np.concatenate([before, values]))

    return Market(
        symbols=tuple(f"S{i}" for i in range(symbols)),
        timestamps=(torch.arange(WARMUP + bars) * rng.choice([3, 5, 24]) * HOUR).long(),
        open=warmed(open_, start),
        high=warmed(high, start),
        low=warmed(low, start),
        close=warmed(close, start),
        volume=warmed(volume, np.ones(symbols)),
        bars_per_year=float(rng.choice([50, 252, 1_638])),
    )


def random_actions(rng: np.random.Generator, mode: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """``[T, N, A]``, with repetitions, zeros and extremes."""
    if mode == "discrete":
        actions = rng.integers(0, 7, shape)
    else:
        actions = rng.uniform(-1.1, 1.1, shape).astype(np.float32)
        kind = rng.random(shape)
        actions[kind < 0.15] = 0
        actions[kind > 0.9] = np.sign(actions[kind > 0.9])
    again = rng.random(shape) < 0.3
    for bar in range(1, shape[0]):
        actions[bar] = np.where(again[bar], actions[bar - 1], actions[bar])
    return actions


def reference_rules(rules: dict[str, Any], bars_per_year: float) -> Rules:
    renamed = {key: value for key, value in rules.items() if key not in ("assets", "limits")}
    renamed["mode"], renamed["cap"] = renamed.pop("actions"), renamed.pop("max_position")
    return Rules(**renamed, bars_per_year=Decimal(bars_per_year), **vars(rules["limits"]))


class Difference(NamedTuple):
    """Where the environment and the reference are furthest apart."""

    error: float
    where: str
    cases: int
    bars: int


def compare_accounts(seed: int, accounts: int = ACCOUNTS, bars: int = 25) -> Difference:
    """One random set of rules, ``accounts`` accounts: the largest difference, in money.

    An account is compared until it is ruined. A flag that differs counts as infinite.
    """
    rng = np.random.default_rng(seed)
    rules = random_rules(rng)
    assets = rules["assets"]
    market = random_market(rng, bars, accounts * assets)
    actions = random_actions(rng, rules["actions"], (bars, accounts, assets))
    played = play(market, actions, accounts, **rules)
    if accounts == 1:
        played = {key: value[:, None] for key, value in played.items()}
    reference = reference_rules(rules, market.bars_per_year)
    names = ("open", "high", "low", "close", "volume")
    table = {name: getattr(market, name).tolist() for name in names}
    days = market.days.tolist()
    worst, where, compared = 0.0, "", 0
    for number in range(accounts):
        symbols = range(number * assets, (number + 1) * assets)

        def candles(at: int, symbols: range = symbols) -> list[Candle]:
            bars_of = [
                {name: Decimal(table[name][at][symbol]) for name in names} for symbol in symbols
            ]
            return [Candle(**bar, day=days[at]) for bar in bars_of]

        before = candles(WARMUP - 1)
        account = Account(reference, assets, before[0].day)
        for bar in range(bars):
            now = candles(WARMUP + bar)
            result = account.step(actions[bar, number].tolist(), before, now)
            before, compared = now, compared + 1
            wanted: dict[str, list[Decimal]] = {
                "equity": [result.equity],
                "cash": [result.cash],
                "fees": [result.fees],
                "realised": result.realised,
                "unrealised": result.unrealised,
                "value": result.traded,
                "units": result.units,
            }
            for key, values in wanted.items():
                shown = np.ravel(played[key][bar, number]).tolist()
                for i, (a, b) in enumerate(zip(shown, values, strict=True)):
                    error = abs(float(Decimal(a) - b)) if math.isfinite(a) else math.inf
                    if key == "units":
                        error *= float(now[i].close)
                    if error > worst:
                        worst, where = error, f"{key}[{i}] account {number} bar {bar}: {a} not {b}"
            flags = result.terminated, bar == bars - 1 and not result.terminated
            if flags != (played["terminated"][bar, number], played["truncated"][bar, number]):
                worst, where = math.inf, f"done account {number} bar {bar}"
            if result.terminated or worst > 1e-3:
                break
        if worst > 1e-3:
            break
    return Difference(worst, f"seed {seed} {where} {rules}" if where else "", accounts, compared)


def test_random_accounts_match_decimal() -> None:
    results = [compare_accounts(seed) for seed in range(math.ceil(CASES / ACCOUNTS))]
    apart = [result.where for result in results if result.error > 1e-6]
    assert not apart, f"{len(apart)} of {len(results)} sets of rules differ, first: {apart[0]}"


def test_equity_is_cash_and_positions() -> None:
    rng = np.random.default_rng(5)
    market = random_market(rng, 200, 60)
    actions = random_actions(rng, "target", (200, 20, 3))
    rules = {"actions": "target", "short": True, "leverage": 2.0, "max_position": 0.8, "cash": 1e6}
    played = play(market, actions, 20, assets=3, **rules)
    close = market.close[WARMUP:].numpy().reshape(200, 20, 3)
    alive = ~played["terminated"].cumsum(0).astype(bool)
    held = played["cash"] + (played["units"] * close).sum(-1)
    assert alive.sum() > 1_000
    np.testing.assert_allclose(played["equity"][alive], held[alive], rtol=0, atol=1e-6)


def test_log_rewards_add_up_to_growth() -> None:
    rng = np.random.default_rng(6)
    market = random_market(rng, 100, 20)
    actions = random_actions(rng, "target", (100, 20, 1))
    rules = {"actions": "target", "short": True, "reward": "log_return", "cash": 1e6}
    played = play(market, actions, 20, **rules)
    rewards = played["reward"].astype(np.float64).cumsum(0)
    alive = ~played["terminated"].cumsum(0).astype(bool)
    growth = np.log(played["equity"][alive] / 1e6)
    assert np.abs(growth).max() > 0.05
    # Rewards are float32.
    np.testing.assert_allclose(rewards[alive], growth, rtol=0, atol=2e-6)
