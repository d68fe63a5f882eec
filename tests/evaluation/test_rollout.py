"""Following a policy over a whole market, against hand-written loops."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from torchrl.envs.utils import ExplorationType, exploration_type, set_exploration_type
from torchrl.modules import Delta, ProbabilisticActor

from trading_torchrl.data import Market, synthetic_market
from trading_torchrl.data.features import WARMUP
from trading_torchrl.envs import LONG_SHORT, TradingEnv
from trading_torchrl.evaluation import (
    BuyAndHold,
    ConstantPolicy,
    RandomPolicy,
    TrendPolicy,
    follow,
    sharpe,
    simple_returns,
    tempered,
    whole_split,
)
from trading_torchrl.modules import make_actor

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
    for values in account:
        assert values.shape == (3, 300 - START)
        assert values.dtype == torch.float64
    assert (account.equity[:, 0] == 10_000).all()
    for name in ("share", "fees", "value", "unrealised"):
        assert (getattr(account, name)[:, 0] == 0).all()
    assert account.action[:, 0].isnan().all()
    assert (account.action[:, 1:] == 1).all()
    assert account.actions.shape == (3 * (299 - START),)
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
        emit=("equity", "share", "fees", "value", "unrealised"), **settings,
    )  # fmt: skip
    seen = env.reset()
    for bar in range(300 - START):
        for group, name in (
            ("account", "equity"), ("account", "share"), ("account", "fees"), ("trade", "value"),
            ("account", "unrealised"),
        ):  # fmt: skip
            expected = seen[group, name][:, 0].double()
            assert torch.equal(getattr(given, name)[:, bar], expected), (name, bar)
        if bar == 299 - START:
            break
        assert not seen["done"].any()
        decided = restless(seen)
        assert torch.equal(given.action[:, bar + 1], decided["action"][:, 0].double())
        seen = env.step(decided)["next"].exclude("reward")
    assert seen["truncated"].all()
    for values in (given.fees, given.value, given.unrealised):
        assert (values != 0).any()


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


@pytest.mark.parametrize("cap", [1.0, 0.15])
def test_it_buys_once_whatever_the_cap(cap: float) -> None:
    paths = [110, 121, 99], [90, 90, 99]
    market = market_of(*paths)
    env = whole_split(market, compiled=False, actions="continuous", smoothing=1, max_position=cap)
    account = follow(env, BuyAndHold(env))
    units = cap * 10_000 / 100 if cap < 1 else 10_000 / (1.0003 * 100)
    for row, prices in enumerate(paths):
        cash = 10_000 - 1.0003 * units * 100
        expected = [10_000, *[cash + units * price for price in prices]]
        assert account.equity[row].tolist() == pytest.approx(expected)
    assert (account.value != 0).tolist() == [[False, True, False, False]] * 2
    keeps_up = whole_split(market, compiled=False, actions="target", max_position=0.15)
    assert (follow(keeps_up, ConstantPolicy(keeps_up)).value != 0).sum() > 2


@pytest.mark.parametrize("settings", [LONG_SHORT, {}, {"actions": "discrete"}])
def test_what_cannot_buy_at_once_is_refused(market: Market, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"actions='continuous', smoothing=1, assets=1; got"):
        BuyAndHold(whole_split(market, compiled=False, **settings))


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
    assert (account.value[0, 3:] == 0).all()
    assert account.unrealised[0, 2:].unique().tolist() == pytest.approx([left - 10_000 / 1.0003])
    assert account.action[0, 3:].isnan().all()
    assert account.actions.shape == (2 + 5,)
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
        torch.testing.assert_close(one, two, rtol=0, atol=0, equal_nan=True)


def test_progress_changes_nothing(market: Market, capsys: pytest.CaptureFixture[str]) -> None:
    env = whole_split(market, compiled=False)
    quiet = follow(env, ConstantPolicy(env))
    assert not capsys.readouterr().err
    told = follow(env, ConstantPolicy(env), progress="validation")
    shown = not os.environ.get("TQDM_DISABLE")  # which tqdm reads when it is imported
    assert ("validation" in capsys.readouterr().err) == shown
    assert torch.equal(quiet.equity, told.equity)


@pytest.mark.parametrize("settings", [{"assets": 2}, {"packed": True}])
def test_environments_it_cannot_read_are_refused(market: Market, settings: dict[str, Any]) -> None:
    env = whole_split(market, compiled=False, **settings)
    with pytest.raises((ValueError, KeyError), match=r"(2 assets|equity, share.*packed)"):
        follow(env, ConstantPolicy(env))


def test_an_environment_that_shows_too_little_is_refused(market: Market) -> None:
    env = TradingEnv(market, 3, episode_bars=None, compiled=False, emit=("equity", "share"))
    with pytest.raises(KeyError, match=r"does not show fees, value, unrealised.*whole_split"):
        follow(env, ConstantPolicy(env))


def test_names_and_hybrid_actions(market: Market) -> None:
    """Names as they are; of hybrid accounts what was acted on, whichever of the two."""
    env = whole_split(market, compiled=False, actions="discrete")
    account = follow(env, ConstantPolicy(env, 2))
    assert (account.action[:, 1:] == 2).all()
    for mode, expected in (("continuous", 0.3), ("discrete", 0.55)):
        env = whole_split(market, compiled=False, actions="hybrid", mode=mode)

        def act(tensordict: TensorDictBase) -> TensorDictBase:
            return tensordict.update(
                {"action": torch.full((3, 1), 0.3), "action_name": torch.full((3,), 2)}
            )

        account = follow(env, act)
        assert account.actions.tolist() == pytest.approx([expected] * 3 * (299 - START))


def actor_for(env: TradingEnv) -> ProbabilisticActor:
    torch.manual_seed(0)
    return make_actor(len(env.observation_names), 1, hidden=[8])


def test_deterministic_unless_told_to_explore(market: Market) -> None:
    env = whole_split(market, compiled=False, **LONG_SHORT)
    actor = actor_for(env)
    calm = follow(env, actor)
    assert torch.equal(calm.actions, follow(env, actor).actions)
    torch.manual_seed(1)
    wild = follow(env, actor, exploration=ExplorationType.RANDOM)
    torch.manual_seed(1)
    again = follow(env, actor, exploration=ExplorationType.RANDOM)
    assert torch.equal(wild.actions, again.actions)
    assert float(wild.actions.std()) > 2 * float(calm.actions.std())
    with set_exploration_type(ExplorationType.RANDOM):
        assert torch.equal(calm.actions, follow(env, actor).actions)
        assert exploration_type() is ExplorationType.RANDOM


def test_temperature_widens_or_narrows_what_is_explored(market: Market) -> None:
    env = whole_split(market, compiled=False, **LONG_SHORT)
    actor = actor_for(env)
    calm = follow(env, actor).actions

    def explored(policy: Any) -> torch.Tensor:
        torch.manual_seed(1)
        return follow(env, policy, exploration=ExplorationType.RANDOM).actions

    wild = explored(actor)
    assert torch.equal(explored(tempered(actor, 1.0)), wild)
    assert torch.equal(follow(env, tempered(actor, 3.0)).actions, calm)
    spread = [float(explored(tempered(actor, t)).std()) for t in (0.2, 0.5, 1.0, 2.0)]
    assert spread == sorted(spread)
    assert float((explored(tempered(actor, 1e-6)) - calm).abs().max()) < 1e-4


def test_temperature_of_names() -> None:
    """Logits 0 and log 10 at temperature 2: 1 to the root of 10."""
    constant = TensorDictModule(
        lambda seen: torch.tensor([1.0, 10.0]).log().expand(len(seen), 2),
        in_keys=["observation"],
        out_keys=["logits"],
    )
    actor = ProbabilisticActor(
        constant, in_keys=["logits"], distribution_class=torch.distributions.Categorical
    )
    torch.manual_seed(0)
    seen = TensorDict({"observation": torch.zeros(20_000, 1)}, [20_000])
    with set_exploration_type(ExplorationType.RANDOM):
        drawn = tempered(actor, 2.0)(seen)["action"]
    odds = 10**0.5
    assert float(drawn.double().mean()) == pytest.approx(odds / (1 + odds), abs=0.015)


def test_no_temperature_without_a_distribution() -> None:
    actor = make_actor(2, 1, hidden=[4])
    for policy, temperature in ((actor[:1], 1.0), (actor, 0.0), (actor, -1.0)):
        with pytest.raises(ValueError, match="temperature above 0"):
            tempered(policy, temperature)
    centre = ProbabilisticActor(actor[0], in_keys=["loc"], distribution_class=Delta)
    with pytest.raises(ValueError, match="needs a scale or logits"):
        tempered(centre, 1.0)


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
