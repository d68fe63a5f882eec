"""Round trips against trades worked out by hand and by a loop over bars."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from trading_torchrl.data import Market, synthetic_market
from trading_torchrl.envs import TradingEnv
from trading_torchrl.evaluation import (
    RoundTrips,
    profit_factor,
    round_trips,
    trade_length,
    win_rate,
)

NAN = math.nan


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def trips_of(*bars: tuple[float, float, float, float, float]) -> RoundTrips:
    """From (equity, position, traded, fees, unrealised) of each close, positions in money."""
    equity, position, value, fees, unrealised = (
        numbers(*column) for column in zip(*bars, strict=True)
    )
    return round_trips(equity, position / equity, value, fees, unrealised)


def test_two_trades_with_a_flip_at_a_gap_by_hand() -> None:
    """5 bought at 100, 10 sold at 120 (yesterday closed at 110), 5 bought back at 115; 1 % fees."""
    trips = trips_of(
        (1_000, 0, 0, 0, 0),
        (1_045, 550, 500, 5, 50),
        (1_108, -575, -1_200, 12, 25),
        (1_102.25, 0, 575, 5.75, 0),
        (1_102.25, 0, 0, 0, 0),
    )
    assert trips.profit.tolist() == pytest.approx([100 - 5 - 6, 25 - 6 - 5.75])
    assert trips.bars.tolist() == [1, 1]


def test_a_flip_of_unequal_sides_splits_the_fees() -> None:
    """2 held, 6 sold at 100: a third of the fees closes, two thirds open 4 short."""
    trips = trips_of(
        (1_000, 0, 0, 0, 0), (998, 200, 200, 2, 0), (992, -400, -600, 6, 0), (988, 0, 400, 4, 0)
    )
    assert trips.profit.tolist() == pytest.approx([-2 - 2, -4 - 4])


def test_growing_and_shrinking_is_one_trade() -> None:
    trips = trips_of(
        (100, 0, 0, 0, 0), (101, 20, 20, 0, 1), (103, 50, 30, 0, 3), (102, 10, -40, 1, 1),
        (103, 0, -10, 0, 0), (103, 0, 0, 0, 0),
    )  # fmt: skip
    assert trips.profit.tolist() == pytest.approx([3])
    assert trips.bars.tolist() == [3]


def test_what_is_open_at_the_end_is_closed_there() -> None:
    trips = trips_of((100, 0, 0, 0, 0), (99, 50, 51, 0, -1), (98, 49, 0, 0, -2))
    assert trips.profit.tolist() == pytest.approx([-2])
    assert trips.bars.tolist() == [2]


def test_what_is_held_at_the_start_is_opened_there() -> None:
    """At its value then: 30 it had won before do not count."""
    trips = trips_of((130, 80, 0, 0, 30), (135, 85, 0, 0, 35), (134, 0, -84, 0, 0))
    assert trips.profit.tolist() == pytest.approx([4])
    assert trips.bars.tolist() == [1]
    trips = trips_of((130, 80, 0, 0, 30), (134, 0, -84, 0, 0))
    assert trips.profit.tolist() == pytest.approx([4])


def test_opened_and_liquidated_between_two_closes() -> None:
    trips = trips_of((100, 0, 0, 0, 0), (60, 0, 3, 1, 0), (60, 0, 0, 0, 0))
    assert trips.profit.tolist() == [-40]
    assert trips.bars.tolist() == [0]


def test_paths_with_fewer_trades_end_in_nan() -> None:
    equity = numbers(100, 101, 103, 102)
    share = torch.stack([numbers(0, 1, 0, 1), numbers(0, 0, 1, 1), numbers(0, 0, 0, 0)])
    value = share.diff(dim=-1, prepend=torch.zeros(3, 1)) * 100
    nothing = torch.zeros(3, 4, dtype=torch.float64)
    trips = round_trips(equity.expand(3, 4), share, value, nothing, nothing)
    expected = torch.stack([numbers(3, -1), numbers(1, NAN), numbers(NAN, NAN)])
    torch.testing.assert_close(trips.profit, expected, equal_nan=True)
    assert win_rate(trips.profit).tolist() == pytest.approx([0.5, 1, NAN], nan_ok=True)
    assert profit_factor(trips.profit).tolist() == pytest.approx([3, NAN, NAN], nan_ok=True)
    assert trade_length(trips.bars).tolist() == pytest.approx([1, 2, NAN], nan_ok=True)


def test_nobody_trades() -> None:
    equity, nothing = torch.full((2, 5), 100.0), torch.zeros(2, 5)
    trips = round_trips(equity, nothing, nothing, nothing, nothing)
    assert trips.profit.shape == trips.bars.shape == (2, 0)
    for figure in (win_rate(trips.profit), profit_factor(trips.profit), trade_length(trips.bars)):
        assert figure.isnan().tolist() == [True, True]


def test_rates_by_hand() -> None:
    profit = numbers(10, -5, 0, -3, NAN)
    assert float(win_rate(profit)) == pytest.approx(1 / 4)
    assert float(profit_factor(profit)) == pytest.approx(10 / 8)
    assert float(profit_factor(numbers(-5, -3))) == 0
    assert float(trade_length(numbers(1, 4, NAN))) == pytest.approx(2.5)


def gapping(market: Market) -> Market:
    """Opens away from the close before."""
    generator = torch.Generator().manual_seed(3)
    moved = torch.randn(market.open.shape, generator=generator, dtype=torch.float64)
    opening = market.open * (0.01 * moved).exp()
    return replace(
        market,
        open=opening,
        high=torch.maximum(market.high, opening),
        low=torch.minimum(market.low, opening),
    )


def by_loop(rollout: dict[str, list[float]]) -> list[tuple[float, int]]:
    """Trades from realised profits, fills at known prices and fees of 3 bps, bar by bar."""
    trades: list[tuple[float, int]] = []
    units, profit, bars, entry_profit = 0.0, 0.0, 0, 0.0
    for price, now, realised, unrealised in zip(
        rollout["fill"], rollout["units"], rollout["realised"], rollout["unrealised"], strict=True
    ):
        profit += realised
        if units * now < 0:
            trades.append((profit - 3e-4 * abs(units) * price, bars))
            profit, bars = -3e-4 * abs(now) * price, 1
        else:
            profit -= 3e-4 * abs(now - units) * price
            bars += now != 0
            if units != 0 and now == 0:
                trades.append((profit, bars))
                profit, bars = 0.0, 0
        units, entry_profit = now, unrealised
    if units != 0:
        trades.append((profit + entry_profit, bars))
    return trades


@pytest.mark.parametrize("actions", ["target", "continuous"])
def test_trades_of_the_environment_by_a_loop(actions: str) -> None:
    market = gapping(synthetic_market(symbols=3, bars=400, seed=5))
    emit = ("equity", "share", "fees", "value", "unrealised", "realised", "units", "index")
    env = TradingEnv(
        market, 3, actions=actions, short=True, max_position=0.8, smoothing=1, maintenance=0.0,
        episode_bars=None, random_start=False, random_symbols=False, emit=emit, compiled=False,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    levels = torch.tensor([-1.0, -0.4, 0.0, 0.0, 0.4, 1.0])

    def act(tensordict):
        return tensordict.set("action", levels[torch.randint(6, (3, 1), generator=generator)])

    rollout = env.rollout(300, act)
    first, after = rollout[:, :1], rollout["next"]

    def path(group: str, name: str) -> torch.Tensor:
        return torch.cat([first[group, name], after[group, name]], 1)[..., 0].double()

    trips = round_trips(
        path("account", "equity"), path("account", "share"), path("trade", "value"),
        path("account", "fees"), path("account", "unrealised"),
    )  # fmt: skip
    flips = 0
    for symbol in range(3):
        bar = after["market", "bar"][symbol, :, 0]
        values = {
            "fill": market.open[bar, symbol].tolist(),
            **{
                name: after["account", name][symbol, :, 0].tolist()
                for name in ("units", "realised", "unrealised")
            },
        }
        units = after["account", "units"][symbol, :, 0]
        flips += int((units[1:] * units[:-1] < 0).sum())
        expected = by_loop(values)
        assert len(expected) > 20
        given = trips.profit[symbol, : len(expected)].tolist()
        assert given == pytest.approx([profit for profit, _ in expected], abs=1e-3)
        assert trips.bars[symbol, : len(expected)].tolist() == [bars for _, bars in expected]
        assert trips.profit[symbol, len(expected) :].isnan().all()
    assert (flips > 50) == (actions == "target")
    equity = path("account", "equity")
    earned = equity[:, -1] - equity[:, 0]
    torch.testing.assert_close(trips.profit.nansum(-1), earned, rtol=0, atol=1e-6)
