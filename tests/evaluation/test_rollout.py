"""Following a policy over a whole market, against hand-written loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDictBase

from trading_torchrl.data import Market, synthetic_market
from trading_torchrl.data.features import WARMUP
from trading_torchrl.envs import LONG_SHORT, TradingEnv
from trading_torchrl.evaluation import (
    ConstantPolicy,
    RandomPolicy,
    TrendPolicy,
    follow,
    sharpe,
    simple_returns,
    whole_split,
)

HOUR = 3_600_000_000_000
START = WARMUP - 1


@pytest.fixture(scope="module")
def market() -> Market:
    return synthetic_market(symbols=3, bars=300, seed=4)


def market_of(*paths: list[float]) -> Market:
    """Closes after the warm-up; each bar opens at the close before."""
    close = torch.tensor([[100.0] * WARMUP + path for path in paths], dtype=torch.float64).T
    opening = torch.cat([close[:1], close[:-1]])
    return Market(
        symbols=tuple(f"S{i}" for i in range(len(paths))),
        timestamps=torch.arange(len(close)) * HOUR,
        open=opening,
        high=torch.maximum(opening, close),
        low=torch.minimum(opening, close),
        close=close,
        volume=torch.ones_like(close),
        bars_per_year=252.0,
    )


def test_each_account_trades_its_symbol_over_every_bar(market: Market) -> None:
    env = whole_split(market, compiled=False)
    seen = env.reset()
    assert seen["market", "symbol"][:, 0].tolist() == [0, 1, 2]
    assert seen["market", "bar"][:, 0].tolist() == [START] * 3
    account = follow(env, ConstantPolicy(env))
    assert account.equity.shape == account.share.shape == account.fees.shape == (3, 300 - START)
    for values in account:
        assert values.dtype == torch.float64
    assert (account.equity[:, 0] == 10_000).all()
    assert (account.share[:, 0] == 0).all()
    assert (account.fees[:, 0] == 0).all()
    assert int(env._now.accounts["bar"].min()) == 299


def restless(tensordict: TensorDictBase) -> TensorDictBase:
    """Actions all over the place that depend on what is seen and on nothing else."""
    seen = tensordict["observation"].double().sum(-1, keepdim=True)
    return tensordict.set("action", torch.sin(1_000 * seen).float())


@pytest.mark.parametrize("settings", [{}, LONG_SHORT, {"actions": "target", "fill": "close"}])
def test_follow_is_the_step_by_step_loop(market: Market, settings: dict[str, Any]) -> None:
    given = follow(whole_split(market, compiled=False, **settings), restless)

    env = TradingEnv(
        market, 3, episode_bars=None, random_start=False, random_symbols=False, compiled=False,
        emit=("equity", "share", "fees"), **settings,
    )  # fmt: skip
    seen = env.reset()
    for bar in range(300 - START):
        for name in ("equity", "share", "fees"):
            assert torch.equal(
                getattr(given, name)[:, bar], seen["account", name][:, 0].double()
            ), (name, bar)
        if bar == 299 - START:
            break
        assert not seen["done"].any()
        seen = env.step(restless(seen))["next"].exclude("reward")
    assert seen["truncated"].all()
    assert (given.fees > 0).any()


def test_buy_and_hold_by_hand() -> None:
    """10,000 buys 100 units but for the costs, and keeps them."""
    market = market_of([110, 121, 99], [90, 90, 99])
    env = whole_split(market, compiled=False, actions="target", max_position=1.0)
    seen: list[float] = []

    def once(tensordict: TensorDictBase) -> TensorDictBase:
        """All in; later targets are what drift makes of it anyway."""
        seen.append(float(tensordict["account", "share"][0, 0]))
        return tensordict.set("action", torch.ones(2, 1))

    account = follow(env, once)
    units = 10_000 / (1.0003 * 100)
    for row, prices in enumerate(([110, 121, 99], [90, 90, 99])):
        expected = [10_000, *[units * price for price in prices]]
        assert account.equity[row].tolist() == pytest.approx(expected)
    assert account.fees[:, 1].tolist() == pytest.approx([3e-4 * units * 100] * 2)
    assert (account.fees[:, 2:] == 0).all()
    assert seen == pytest.approx([0, 1, 1])


def test_gross_returns_are_before_costs() -> None:
    market = market_of([110, 110, 99])
    actions = iter([1.0, 0.0, 1.0])
    env = whole_split(
        market, compiled=False, actions="target", max_position=0.5, commission=0.01, slippage=0.0
    )

    def scripted(tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict.set("action", torch.full((1, 1), next(actions)))

    account = follow(env, scripted)
    # 50 units win 10 each; sold; 10,3xx x .5 falls by 10 % in the last bar.
    assert account.gross[0].tolist() == pytest.approx([0.05, 0.0, -0.05])
    net = simple_returns(account.equity)
    paid = account.fees[:, 1:] / account.equity[:, :-1]
    assert torch.allclose(net, account.gross - paid, atol=1e-15)
    assert (paid > 0).all()


def test_a_ruined_account_stays_where_it_ended() -> None:
    """It neither comes back with the price nor pays again; its neighbour goes on."""
    crash, calm = [100.0, 0.1, 100.0, 200.0, 50.0], [100.0, 101.0, 102.0, 103.0, 104.0]
    market = market_of(crash, calm)
    env = whole_split(market, compiled=False, actions="target", max_position=1.0)
    account = follow(env, ConstantPolicy(env))
    left = 10_000 / (1.0003 * 100) * 0.1
    assert left < 25
    assert account.equity[0, 2:].tolist() == pytest.approx([left] * 4)
    assert len(set(account.equity[0, 2:].tolist())) == 1
    assert len(set(account.share[0, 2:].tolist())) == 1
    assert (account.fees[0, 3:] == 0).all()
    assert (simple_returns(account.equity)[0, 2:] == 0).all()
    units = 10_000 / (1.0003 * 100)
    assert account.equity[1].tolist() == pytest.approx([10_000, *[units * price for price in calm]])
    assert float(sharpe(simple_returns(account.equity), 252.0)[0]) < 0


def test_policies_get_what_they_ask_for(market: Market) -> None:
    env = whole_split(market, compiled=False, emit=("drawdown", "name"))
    asked: list[set[Any]] = []

    def policy(tensordict: TensorDictBase) -> TensorDictBase:
        asked.append(set(tensordict.keys(True, True)))
        return tensordict.set("action", torch.zeros(3, 1))

    account = follow(env, policy)
    wanted = {("account", "drawdown"), ("trade", "name"), ("market", "bar"), ("account", "equity")}
    assert all(wanted <= keys for keys in asked)
    assert len(asked) == 299 - START
    assert (account.equity == 10_000).all()


def test_follow_starts_over_each_time(market: Market) -> None:
    env = whole_split(market, compiled=False)
    first, second = (follow(env, ConstantPolicy(env, 0.8)) for _ in range(2))
    for one, two in zip(first, second, strict=True):
        assert torch.equal(one, two)


def test_progress_changes_nothing(market: Market, capsys: pytest.CaptureFixture[str]) -> None:
    env = whole_split(market, compiled=False)
    quiet = follow(env, ConstantPolicy(env))
    assert not capsys.readouterr().err
    told = follow(env, ConstantPolicy(env), progress="validation")
    assert "validation" in capsys.readouterr().err
    assert torch.equal(quiet.equity, told.equity)


def test_no_gradient_is_kept(market: Market) -> None:
    env = whole_split(market.bars(0, 80), compiled=False)
    layer = torch.nn.Linear(len(env.observation_names), 1)

    def policy(tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict.set("action", layer(tensordict["observation"]).tanh())

    assert not follow(env, policy).equity.requires_grad


def test_baselines_by_their_descriptions(market: Market) -> None:
    env = whole_split(market, compiled=False, **LONG_SHORT)
    seen = env.reset()
    assert (ConstantPolicy(env, -0.3)(seen)["action"] == torch.tensor(-0.3)).all()
    drawn = torch.stack([(policy := RandomPolicy(env, 1))(seen)["action"].clone()] + [
        policy(seen)["action"].clone() for _ in range(2_000)
    ])  # fmt: skip
    assert drawn.min() >= -1
    assert drawn.max() <= 1
    assert float(drawn.mean()) == pytest.approx(0, abs=0.03)
    assert float(drawn.var()) == pytest.approx(1 / 3, abs=0.02)

    trend = TrendPolicy(env, threshold=0.002)
    sides = 0
    for _ in range(150):
        side = trend(seen)["action"][:, 0]
        for account in range(3):
            bar, symbol = int(seen["market", "bar"][account]), account
            close = market.close[:, symbol]
            ratio = float(close[bar - 9 : bar + 1].mean() / close[bar - 19 : bar + 1].mean()) - 1
            if abs(abs(ratio) - 0.002) < 1e-6:
                continue
            if abs(ratio) > 0.002:
                assert float(side[account]) == (1 if ratio > 0 else -1)
                sides += 1
            else:
                held = float(seen["account", "share"][account])
                assert float(side[account]) == pytest.approx(min(max(held, -1), 1), abs=1e-6)
        seen = env.step(seen)["next"].exclude("reward")
    assert 30 < sides < 440


def test_baselines_act_in_either_mode_of_a_hybrid_environment(market: Market) -> None:
    env = TradingEnv(market, 4, actions="hybrid", emit=("trades",), episode_bars=50, compiled=False)
    for policy in (RandomPolicy(env), ConstantPolicy(env, 0.9)):
        after = env.rollout(10, policy)["next"]
        assert (after["account", "trades"][:, -1] > 0).all()
