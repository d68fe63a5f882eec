"""The table of names, the bins, and what orders can and cannot do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torchrl.envs import TransformedEnv

from trading_torchrl.data import Market, synthetic_market
from trading_torchrl.envs import MarketWindow, TradingEnv
from trading_torchrl.envs import actions as read

NAMES = (
    "HOLD", "BUY_SMALL", "BUY_MEDIUM", "BUY_LARGE", "SELL_PARTIAL", "SELL_ALL", "ADD_TO_WINNER",
)  # fmt: skip
HOLD, SMALL, MEDIUM, LARGE, PARTIAL, ALL, ADD = range(7)
SIZES = (0.0, 0.25, 0.55, 0.85, -0.5, -1.0, 0.4)
BIT = 1e-5  # more than the rounding of a float32
EDGES = [
    (-1.0, ALL), (-0.95 - BIT, ALL), (-0.95, ALL), (-0.95 + BIT, PARTIAL), (-0.5, PARTIAL),
    (-0.1 - BIT, PARTIAL), (-0.1, PARTIAL), (-0.1 + BIT, HOLD), (-0.0, HOLD), (0.0, HOLD),
    (0.1 - BIT, HOLD), (0.1, SMALL), (0.4 - BIT, SMALL), (0.4, MEDIUM), (0.7 - BIT, MEDIUM),
    (0.7, LARGE), (1.0, LARGE),
]  # fmt: skip


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


@pytest.fixture(scope="module")
def market() -> Market:
    return synthetic_market(symbols=3, bars=700, seed=2)


def test_the_table_of_names() -> None:
    assert read.NAMES == NAMES
    assert read.SIZES == SIZES
    given = (
        read.HOLD, read.BUY_SMALL, read.BUY_MEDIUM, read.BUY_LARGE, read.SELL_PARTIAL,
        read.SELL_ALL, read.ADD_TO_WINNER,
    )  # fmt: skip
    assert given == tuple(range(7))


def test_bins_at_every_edge() -> None:
    actions = column(*[action for action, _ in EDGES])
    assert read.name_of(actions)[:, 0].tolist() == [name for _, name in EDGES]


def first_step(
    market: Market, actions: list[float], dtype: torch.dtype = torch.float32, **options: Any
) -> torch.Tensor:
    """Names the environment gives to first actions, one account each."""
    env = TradingEnv(
        market, len(actions), smoothing=1, emit=("name",), compiled=False, **options
    )  # fmt: skip
    seen = env.reset()
    seen["action"] = torch.tensor(actions, dtype=dtype)[:, None]
    return env.step(seen)["next", "trade", "name"][:, 0]


def test_the_environment_names_actions_by_their_bins(market: Market) -> None:
    generator = torch.Generator().manual_seed(0)
    actions = (2 * torch.rand(500, generator=generator) - 1).tolist()
    expected = []
    for action in actions:
        size = abs(action)
        if size < 0.1:
            expected.append(HOLD)
        elif action > 0:
            expected.append(SMALL if size < 0.4 else MEDIUM if size < 0.7 else LARGE)
        else:
            expected.append(PARTIAL if size < 0.95 else ALL)
    assert first_step(market, actions).tolist() == expected
    assert set(expected) == {HOLD, SMALL, MEDIUM, LARGE, PARTIAL, ALL}


def test_the_environment_bins_the_edges_like_the_table(market: Market) -> None:
    """Policies act in float32: its -0.95, -0.1, 0.1, 0.4 and 0.7 lie in the bins these begin."""
    edges = [-0.95, -0.1, 0.1, 0.4, 0.7]
    names = [ALL, PARTIAL, SMALL, MEDIUM, LARGE]
    assert read.name_of(torch.tensor(edges)).tolist() == names
    assert first_step(market, edges).tolist() == names


def test_a_sale_of_ninety_five_per_cent_closes(market: Market) -> None:
    env = TradingEnv(market, 1, smoothing=1, emit=("units",), compiled=False, min_trade=1.0)
    seen = env.reset()
    for action in (1.0, -0.95):
        seen["action"] = torch.tensor([[action]])
        seen = env.step(seen)["next"].exclude("reward")
    assert float(seen["account", "units"]) == 0


@pytest.mark.parametrize("name", range(6))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip_from_a_name_and_back(name: int, dtype: torch.dtype) -> None:
    value, winning = torch.tensor([[0.0]], dtype=dtype), torch.tensor([[False]])
    action = read.continuous_from_discrete(torch.tensor([[name]]), value, winning)
    assert action.dtype == dtype
    assert float(action) == pytest.approx(SIZES[name])
    assert int(read.name_of(action)) == name


@pytest.mark.parametrize(
    ("value", "winning", "action"),
    [(500.0, True, 0.4), (-500.0, True, -0.4), (500.0, False, 0.0), (-500.0, False, 0.0)],
)
def test_add_to_winner_takes_the_side_of_its_position(
    value: float, winning: bool, action: float
) -> None:
    given = read.continuous_from_discrete(
        torch.tensor([[ADD]]), column(value), torch.tensor([[winning]])
    )
    assert float(given) == action


def test_winning_is_more_than_rounding() -> None:
    units, price = column(1, -1, 1, -1, 1, 0), column(101, 99, 99, 101, 100 * (1 + 1e-13), 101)
    entry = column(100, 100, 100, 100, 100, 0)
    wins = read.winning(units, price, entry)[:, 0].tolist()
    assert wins == [True, True, False, False, False, False]


def test_add_to_winner_in_the_environment(market: Market) -> None:
    """Of many accounts, after a purchase and a few bars, winners grow and the others hold."""
    env = TradingEnv(
        market, 64, actions="discrete", emit=("units", "unrealised", "raw_action"), compiled=False,
        max_position=0.5,
    )  # fmt: skip
    seen = env.reset()
    for name in (SMALL, HOLD, HOLD):
        seen["action"] = torch.full((64,), name)
        seen = env.step(seen)["next"].exclude("reward")
    before, wins = seen["account", "units"][:, 0], seen["account", "unrealised"][:, 0] > 0
    assert 0 < wins.sum() < 64
    assert (seen["action_mask"][:, ADD] == wins).all()
    seen["action"] = torch.full((64,), ADD)
    after = env.step(seen)["next"]
    assert ((after["account", "units"][:, 0] > before) == wins).all()
    assert (after["account", "units"][~wins, 0] == before[~wins]).all()
    asked = after["trade", "raw_action"][:, 0]
    assert torch.equal(asked, torch.where(wins, 0.4, 0.0))


@pytest.mark.parametrize(
    ("value", "winning", "short", "allowed"),
    [
        (0.0, False, False, {HOLD, SMALL, MEDIUM, LARGE}),
        (0.0, False, True, {HOLD, SMALL, MEDIUM, LARGE, PARTIAL, ALL}),
        (700.0, False, False, {HOLD, SMALL, MEDIUM, LARGE, PARTIAL, ALL}),
        (700.0, True, False, {HOLD, SMALL, MEDIUM, LARGE, PARTIAL, ALL, ADD}),
        (1_480.0, True, False, {HOLD, PARTIAL, ALL}),  # 20 of room, and 25 is the smallest trade
        (1_475.0, True, False, {HOLD, SMALL, MEDIUM, LARGE, PARTIAL, ALL, ADD}),
        (-700.0, False, True, {HOLD, SMALL, MEDIUM, LARGE, PARTIAL, ALL}),
        (-700.0, True, True, {HOLD, SMALL, MEDIUM, LARGE, PARTIAL, ALL, ADD}),
        (-1_480.0, True, True, {HOLD, SMALL, MEDIUM, LARGE}),
    ],
)
def test_masks(value: float, winning: bool, short: bool, allowed: set[int]) -> None:
    mask = read.discrete_mask(
        column(value), torch.tensor([10_000.0]).double(), torch.tensor([[winning]]),
        cap=0.15, short=short, min_trade=25.0,
    )  # fmt: skip
    assert mask.shape == (1, 1, 7)
    assert {name for name in range(7) if mask[0, 0, name]} == allowed


def test_names_that_the_mask_forbids_do_nothing(market: Market) -> None:
    """And so do the allowed ones something, but for HOLD and trades that are too small."""
    env = TradingEnv(market, 64, actions="discrete", emit=("value",), compiled=False)
    generator = torch.Generator().manual_seed(1)
    seen = env.reset()
    idle = busy = 0
    for _ in range(60):
        names = torch.randint(0, 7, (64,), generator=generator)
        mask = seen["action_mask"][torch.arange(64), names]
        seen["action"] = names
        seen = env.step(seen)["next"].exclude("reward")
        traded = seen["trade", "value"][:, 0] != 0
        assert not traded[~mask].any()
        assert not traded[names == HOLD].any()
        idle, busy = idle + int((~mask).sum()), busy + int(traded.sum())
    assert idle > 500
    assert busy > 500


def test_target_bins() -> None:
    edges = [-1 + 2 * k / 7 for k in range(8)]
    for k in range(7):
        middle = (edges[k] + edges[k + 1]) / 2
        for action in (edges[k] + 1e-9, middle, edges[k + 1] - 1e-9):
            assert int(read.target_bin_of(column(action))) == k
    assert read.target_bin_of(column(-1, 1))[:, 0].tolist() == [0, 6]


def test_smoothing_by_hand() -> None:
    """Over a window of 3 the newest counts a half: 1, 0, 0 from rest is .5, .25, .125."""
    smoothed, seen = column(0.0), []
    for action in (1.0, 0.0, 0.0):
        smoothed = read.smooth(smoothed, column(action), 3)
        seen.append(float(smoothed))
    assert seen == [0.5, 0.25, 0.125]
    assert float(read.smooth(column(0.3), column(-0.8), 1)) == pytest.approx(-0.8)


numbers = st.floats(-1, 1, allow_nan=False)
money = st.floats(100, 1e6)
shares = st.floats(-1.5, 1.5).map(lambda share: round(share, 9))
caps = st.floats(0.01, 2.0)
SMALLEST = 25.0


@given(action=numbers, share=shares, equity=money, cap=caps, short=st.booleans(),
       leverage=st.floats(1, 3))  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_continuous_orders(
    action: float, share: float, equity: float, cap: float, short: bool, leverage: float
) -> None:
    assume(min(abs(abs(action) - 0.1), abs(abs(action) - 0.95)) > BIT)
    value = share * equity if short else abs(share) * equity
    order = read.read_continuous(
        column(action), column(value), column(equity)[0],
        cap=cap, leverage=leverage, short=short, min_trade=SMALLEST,
    )  # fmt: skip
    side, reduce, increase = (float(part) for part in order)
    held = abs(value)
    after = value + side * (reduce + increase)
    assert reduce >= 0
    assert increase >= 0
    assert reduce == 0 or increase == 0
    assert reduce <= held
    assert after * value >= -1e-9 * equity**2  # never a flip
    assert short or after >= -1e-9 * equity
    if abs(action) < 0.1:
        assert reduce == increase == 0
    if increase:
        assert abs(after) <= cap * equity * (1 + 1e-12)
        assert action * after > 0
        free = max(leverage * equity - held, 0.0)
        wanted = abs(action) * cap * free
        assert increase == pytest.approx(min(wanted, max(cap * equity - held, 0.0)))
    if reduce:
        assert action * value < 0
        closes = abs(action) >= 0.95 or held * (1 - abs(action)) < SMALLEST
        if not math.isclose(held * (1 - abs(action)), SMALLEST, rel_tol=1e-9):
            assert reduce == (held if closes else pytest.approx(abs(action) * held))
    if action * value < 0 and abs(action) >= 0.1:
        assert reduce > 0


@given(action=numbers, share=shares, equity=money, cap=caps, short=st.booleans())
@settings(max_examples=400, deadline=None)
def test_target_orders(action: float, share: float, equity: float, cap: float, short: bool) -> None:
    value = share * equity if short else abs(share) * equity
    order = read.read_target(
        column(action), column(value), column(equity)[0],
        cap=cap, short=short, min_trade=SMALLEST,
    )  # fmt: skip
    side, reduce, increase = (float(part) for part in order)
    assert 0 <= reduce <= abs(value)
    assert increase >= 0
    if increase and reduce:  # a flip closes all that is held
        assert reduce == abs(value)
    wanted = action * cap * equity
    wanted = wanted if short else max(wanted, 0.0)
    wanted = wanted if abs(wanted) >= SMALLEST else 0.0
    after = value + side * (reduce + increase)
    assert after == pytest.approx(wanted, rel=1e-9, abs=1e-9 * equity)
    assert abs(after) <= cap * equity * (1 + 1e-9)


@given(seed=st.integers(0, 10_000), short=st.booleans(), cap=st.floats(0.05, 1.0))
@settings(max_examples=15, deadline=None)
def test_no_action_flips_or_passes_the_cap_in_the_environment(
    seed: int, short: bool, cap: float
) -> None:
    env = TradingEnv(
        MARKET, 32, short=short, max_position=cap, seed=seed, compiled=False, episode_bars=100,
        emit=("units", "share", "value", "equity", "index"),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    seen = env.reset()
    for _ in range(25):
        before = seen["account", "units"][:, 0]
        seen["action"] = 2 * torch.rand(32, 1, generator=generator) - 1
        seen = env.step(seen)["next"].exclude("reward")
        units, value = seen["account", "units"][:, 0], seen["trade", "value"][:, 0]
        assert (units * before >= 0).all()
        assert short or (units >= 0).all()
        grown = units.abs() > before.abs()
        bar, symbol = seen["market", "bar"][:, 0], seen["market", "symbol"][:, 0]
        fill, close = MARKET.open[bar, symbol], MARKET.close[bar, symbol]
        paid = 3e-4 * value.abs()
        at_fill = seen["account", "equity"][:, 0] - units * (close - fill) + paid
        assert ((units * fill).abs()[grown] <= cap * at_fill[grown] * (1 + 1e-9)).all()
        assert (value.abs()[value != 0] >= 25 - 1e-6).logical_or(units[value != 0] == 0).all()


@given(seed=st.integers(0, 10_000), cap=st.floats(0.05, 0.9))
@settings(max_examples=15, deadline=None)
def test_targets_are_hit_at_the_fill_in_the_environment(seed: int, cap: float) -> None:
    env = TradingEnv(
        MARKET, 32, actions="target", short=True, max_position=cap, seed=seed, compiled=False,
        emit=("units", "value", "equity", "index"), min_trade=0.0,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    seen = env.reset()
    for _ in range(10):
        action = 2 * torch.rand(32, 1, generator=generator) - 1
        seen["action"] = action
        seen = env.step(seen)["next"].exclude("reward")
        units, value = seen["account", "units"][:, 0], seen["trade", "value"][:, 0]
        bar, symbol = seen["market", "bar"][:, 0], seen["market", "symbol"][:, 0]
        fill, close = MARKET.open[bar, symbol], MARKET.close[bar, symbol]
        at_fill = seen["account", "equity"][:, 0] - units * (close - fill) + 3e-4 * value.abs()
        share = units * fill / at_fill
        assert ((share - action[:, 0].double() * cap).abs() < 1e-9).all()


@pytest.mark.parametrize(("actions", "assets"), [("discrete", 1), ("discrete", 3), ("hybrid", 2)])
@pytest.mark.parametrize("window", [None, 8])
def test_random_names_are_those_that_the_mask_allows(
    actions: Any, assets: int, window: int | None
) -> None:
    base = TradingEnv(MARKET, 64, actions=actions, assets=assets, window=window, compiled=False)
    env = base if window is None else TransformedEnv(base, MarketWindow.of(base))
    torch.manual_seed(0)
    rows = env.rollout(40)
    names = rows["action_name" if actions == "hybrid" else "action"]
    mask = rows["action_mask"].unflatten(-1, (assets, 7))
    chosen = mask.gather(-1, names.reshape(64, 40, assets, 1))
    assert chosen.all()
    assert not mask.all()
    assert len(names.unique()) == 7


MARKET = synthetic_market(symbols=3, bars=700, seed=6, volatility=3.0)
