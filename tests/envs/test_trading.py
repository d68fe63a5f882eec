"""TradingEnv as an environment: specs, batching, resets, seeds, errors."""

import dataclasses
import subprocess
import sys

import pytest
import torch
from tensordict import TensorDict, assert_close
from torchrl.collectors import Collector
from torchrl.envs import EnvBase, TransformedEnv
from torchrl.envs.utils import check_env_specs

from trading_torchrl.data import Scaler, synthetic_market
from trading_torchrl.envs import LONG_ONLY, LONG_SHORT, MarketWindow, TradingEnv
from trading_torchrl.envs.actions import NAMES
from trading_torchrl.envs.terms import EMITTED
from trading_torchrl.risk import Limits

MODES = {
    "long_only": LONG_ONLY,
    "long_short": LONG_SHORT,
    "continuous_short": {
        "actions": "continuous",
        "short": True,
        "leverage": 2.0,
        "max_position": 2.0,
    },
    "discrete": {"actions": "discrete"},
    "discrete_short_assets": {"actions": "discrete", "short": True, "assets": 3},
    "hybrid": {"actions": "hybrid"},
    "hybrid_short_assets": {"actions": "hybrid", "short": True, "assets": 3, "emit": "all"},
    "target_assets": {"actions": "target", "assets": 3, "max_position": 0.5, "emit": "all"},
    "close_fills": {"actions": "target", "fill": "close"},
    "window": {"window": 32, "assets": 2},
    "objectives": {"reward": "objectives", "emit": "all", "short": True},
    "long_memory": {"reward": "objectives", "actions": "target", "activity_window": 40},
    "professional": {"reward": "professional", "emit": "all"},
    "differential_sharpe": {"reward": "differential_sharpe"},
    "limits": {
        "limits": Limits(exposure=0.8, drawdown=0.05, daily_loss=0.01, daily_trades=3, repeats=2),
        "borrow_rate": 0.05,
        "spread": 1e-4,
    },
}


@pytest.fixture(scope="module")
def market():
    return synthetic_market(symbols=4, bars=700, seed=3, volatility=2.0)


def build(market, num_envs=4, **settings):
    return TradingEnv(market, num_envs, **{"compiled": False, "episode_bars": 40, **settings})


def script(env, steps, seed=0):
    """The same actions for an account whatever batch it sits in: ``[steps, N, ...]``."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {}
    for key, spec in env.full_action_spec.items():
        shape = (steps, *spec.shape)
        if spec.dtype == torch.int64:
            drawn[key] = torch.randint(0, len(NAMES), shape, generator=generator)
        else:
            drawn[key] = 2.4 * torch.rand(shape, generator=generator) - 1.2
    return TensorDict(drawn, [steps, *env.batch_size])


def play(env, actions, reset_at=()):
    """Steps through scripted actions with automatic resets, and forced partial ones."""
    seen, tensordict = [], env.reset()
    for step, action in enumerate(actions):
        tensordict.update(action)
        before, tensordict = env.step_and_maybe_reset(tensordict)
        seen.append(before.clone())
        if step in reset_at:
            tensordict["_reset"] = (env._account % 2 == 0)[:, None]
            tensordict = env.reset(tensordict)
            tensordict.pop("_reset", None)
    return torch.stack(seen, 1)


def differing(one, two):
    """Keys whose values are not bit for bit the same."""
    same = (one == two).all(dim=0).all(dim=0) if one.ndim == 2 else (one == two).all(dim=0)
    assert set(one.keys(True, True)) == set(two.keys(True, True))
    return [key for key, value in same.items(True, True) if not value.all()]


@pytest.mark.parametrize("mode", MODES)
def test_specs(market, mode):
    check_env_specs(build(market, **MODES[mode]))


@pytest.mark.parametrize("mode", MODES)
def test_batch_equals_alone_bit_for_bit(market, mode):
    together = build(market, 5, **MODES[mode])
    actions = script(together, 90)
    rollout = play(together, actions, reset_at=(7, 23))
    assert rollout["next", "done"].sum() > 5
    for account in range(5):
        alone = build(market, 1, first_account=account, **MODES[mode])
        single = play(alone, actions[:, account : account + 1], reset_at=(7, 23))
        assert not differing(single, rollout[account : account + 1])


def test_account_reset_at_odd_times_is_untouched_by_others(market):
    env = build(market, 4)
    actions = script(env, 30)
    quiet, disturbed = play(env, actions), play(build(market, 4), actions, reset_at=(5, 11))
    odd, even = [1, 3], [0, 2]
    assert not differing(quiet[odd], disturbed[odd])
    assert (quiet["observation"][even] != disturbed["observation"][even]).any()


@pytest.mark.parametrize(
    "mode",
    ["long_only", "objectives", "long_memory", "target_assets", "discrete_short_assets", "hybrid"],
)
def test_compiled_equals_eager(market, mode):
    eager, compiled = (build(market, 6, compiled=c, **MODES[mode]) for c in (False, True))
    actions = script(eager, 60)
    a, b = play(eager, actions, reset_at=(9,)), play(compiled, actions, reset_at=(9,))
    money, rest = a["next", "account", "equity"], b["next", "account", "equity"]
    assert ((money - rest).abs() <= 1e-12 * money.abs()).all()
    assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", ["long_only", "window", "limits", "hybrid"])
def test_fast_loop_is_torchrls_loop(market, mode):
    fast, slow = build(market, 3, **MODES[mode]), build(market, 3, **MODES[mode])
    actions = script(fast, 60)
    one, two = fast.reset(), slow.reset()
    for action in actions:
        one.update(action)
        two.update(action)
        one["extra"] = two["extra"] = torch.arange(3)
        before_one, one = fast.step_and_maybe_reset(one)
        before_two, two = EnvBase.step_and_maybe_reset(slow, two)
        for left, right in ((before_one, before_two), (one, two)):
            assert not differing(left, right)


def test_accounts_that_sit_a_step_out_stay_as_they_were(market):
    env = build(market, 3)
    tensordict = env.reset()
    for action in script(env, 6):
        tensordict.update(action)
        tensordict = env.step(tensordict)["next"].exclude("reward")
    before = {name: value.clone() for name, value in env._now.accounts.items()}
    tensordict["action"] = torch.tensor([[1.0], [float("nan")], [1.0]])  # which nobody reads
    tensordict["_step"] = torch.tensor([True, False, True])
    after = env.step(tensordict)["next"]
    assert (after["observation"][1] == tensordict["observation"][1]).all()
    assert after["reward"][1] == 0
    for name, value in env._now.accounts.items():
        assert (value[1] == before[name][1]).all()
    assert (env._now.accounts["bar"][[0, 2]] == before["bar"][[0, 2]] + 1).all()


def test_same_seed_same_rollout_in_a_new_process():
    code = (
        "import torch;from trading_torchrl.data import synthetic_market;"
        "from trading_torchrl.envs import TradingEnv;torch.manual_seed(5);"
        "m=synthetic_market(3,700,seed=1);e=TradingEnv(m,8,emit='all',episode_bars=20,seed=9,compiled=False);"
        "r=e.rollout(60,break_when_any_done=False);"
        "print(*[float(v.double().sum()).hex() for v in r.values(True,True)])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    other = subprocess.run(
        [sys.executable, "-c", code.replace("seed=9", "seed=10")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert other != runs[0]


def test_set_seed_starts_over(market):
    env = build(market, 4, emit=("index",))
    env.set_seed(4)
    first = [env.reset()["market", "bar"] for _ in range(3)]
    env.set_seed(4)
    again = [env.reset()["market", "bar"] for _ in range(3)]
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert not (first[0] == first[1]).all()


def test_goes_on_from_its_state_bit_for_bit(market):
    env = build(market, 4, emit="all", reward="objectives")
    actions = script(env, 60)
    whole = play(env, actions)
    first = build(market, 4, emit="all", reward="objectives")
    tensordict = first.reset()
    for action in actions[:33]:
        tensordict.update(action)
        _, tensordict = first.step_and_maybe_reset(tensordict)
    saved = first.state_dict()
    second = build(market, 4, emit="all", reward="objectives", seed=99)
    second.load_state_dict(saved)
    for step, action in enumerate(actions[33:], 33):
        tensordict.update(action)
        before, tensordict = second.step_and_maybe_reset(tensordict)
        assert not differing(before["next"], whole[:, step]["next"])


def test_accounts_of_another_environment_are_refused(market):
    saved = build(market, 4)
    saved.reset()
    for other, name in (
        (build(market, 3), "accounts was"),
        (build(market, 4, limits=Limits(repeats=2)), "limits was"),
        (build(market, 4, actions="target"), "actions was continuous there and is target here"),
        (build(market.bars(0, 600), 4), "bars was 700 there and is 600 here"),
    ):
        with pytest.raises(ValueError, match=f"do not fit this environment: {name}"):
            other.load_state_dict(saved.state_dict())


def test_a_part_of_a_longer_market_is_warm_from_its_first_bar(market):
    whole = build(market, 2, random_start=False, emit=("index",))
    part = build(market.bars(100, 300), 2, random_start=False, emit=("index",))
    assert whole.reset()["market", "bar"][0] == market.warmup == 63
    assert part.reset()["market", "bar"][0] == 0
    assert build(market.bars(20, 300), 1).first_start == 43


def test_a_symbol_without_any_volume_is_refused(market):
    silent = dataclasses.replace(market, volume=market.volume * torch.tensor([1, 1, 0, 1]))
    with pytest.raises(ValueError, match="SYN002 has no volume in any bar"):
        build(silent)


def test_moving_to_another_device_is_refused(market):
    env = build(market, 2)
    assert env.to("cpu") is env
    with pytest.raises(ValueError, match="build one with device='meta'"):
        env.to("meta")


def test_writing_to_what_was_shown_moves_no_account(market):
    env, other = build(market, 3, emit="all"), build(market, 3, emit="all")
    one, two = env.reset(), other.reset()
    for action in script(env, 30):
        one.update(action)
        two.update(action)
        one, two = (e.step(td)["next"] for e, td in ((env, one), (other, two)))
        assert not differing(one, two)
        for value in one.values(True, True):
            value.zero_()
        one = one.exclude("reward")
        two = two.exclude("reward")


def test_stepping_on_after_the_data_ended_stays_on_the_last_bar(market):
    env = build(market, 2, emit="all", episode_bars=None, random_start=False)
    tensordict = env.reset()
    for _ in range(len(market) + 10):
        tensordict["action"] = torch.ones(2, 1)
        tensordict = env.step(tensordict)["next"].exclude("reward")
    assert tensordict["truncated"].all()
    assert (tensordict["market", "bar"] == len(market) - 1).all()


@pytest.mark.parametrize("compiled", [False, True])
def test_collector_sees_every_bar_once(market, compiled):
    env = build(market, 4, emit=("index",), compiled=compiled)
    collector = Collector(env, frames_per_batch=4 * 50, total_frames=4 * 100)
    batches = [batch.clone() for batch in collector]
    collector.shutdown()
    data = torch.cat(batches, 1)
    bar, following = data["market", "bar"], data["next", "market", "bar"]
    assert (following == bar + 1).all()
    goes_on = ~data["next", "done"][:, :-1]
    assert (following[:, :-1][goes_on] == bar[:, 1:][goes_on]).all()


def test_starts_and_symbols_are_spread_evenly(market):
    env = build(market, 4000, assets=2, emit=("index",))
    tensordict = env.reset()
    symbol, bar = tensordict["market", "symbol"], tensordict["market", "bar"]
    assert (symbol[:, 0] != symbol[:, 1]).all()
    pairs = torch.bincount((symbol.sort(-1).values * torch.tensor([4, 1])).sum(-1), minlength=16)
    assert pairs[pairs > 0].shape == (6,)
    assert (pairs[pairs > 0] - 4000 / 6).abs().max() < 5 * (4000 / 6) ** 0.5
    assert bar.min() >= env.first_start
    assert bar.max() <= env.last_start
    low, high = bar.min(), bar.max()
    assert low < env.first_start + 10
    assert high > env.last_start - 10


def test_window_is_the_last_bars_features(market):
    env = build(market, 3, window=16, assets=2)
    env = TransformedEnv(env, MarketWindow.of(env))
    check_env_specs(env)
    rollout = env.rollout(20)
    where = rollout["next", "market"]
    for account in range(3):
        for asset in range(2):
            bar = int(where["bar"][account, 7, 0])
            symbol = int(where["symbol"][account, 7, asset])
            expected = market.features[bar - 15 : bar + 1, symbol]
            assert (rollout["next", "window"][account, 7, asset] == expected).all()


def test_window_is_rebuilt_from_what_a_buffer_stores(market):
    from torchrl.data import LazyTensorStorage, ReplayBuffer

    env = build(market, 3, window=16)
    whole = TransformedEnv(env, MarketWindow.of(env)).rollout(30)
    stored = whole.exclude("window", ("next", "window")).flatten()
    buffer = ReplayBuffer(storage=LazyTensorStorage(90), batch_size=32)
    buffer.append_transform(MarketWindow.of(env))
    buffer.extend(stored)
    sample, info = buffer.sample(return_info=True)
    flat = whole.flatten()
    for row, index in zip(sample, info["index"], strict=True):
        assert (row["window"] == flat[index]["window"]).all()
        assert (row["next", "window"] == flat[index]["next", "window"]).all()


def test_scaler_is_applied_and_checked(market):
    scaler = Scaler.fit(market)
    plain, scaled = build(market), build(market, scaler=scaler)
    features = len(market.feature_names)
    expected = scaler(plain.reset()["observation"][:, :features])
    assert (scaled.reset()["observation"][:, :features] == expected).all()
    foreign = Scaler(torch.zeros(2), torch.ones(2), ["a", "b"])
    with pytest.raises(ValueError, match="features"):
        build(market, scaler=foreign)


def test_names_match_the_observation(market):
    for mode in MODES.values():
        env = build(market, **mode)
        assert env.reset()["observation"].shape[-1] == len(env.observation_names)


def test_only_what_is_asked_for_is_emitted(market):
    quiet = build(market, emit=()).rollout(2)
    assert not {"account", "trade", "market"} & set(quiet["next"].keys())
    judged = build(market, emit=(), reward="objectives").rollout(2)
    assert set(judged["next"].keys()) == set(quiet["next"].keys())
    loud = build(market, emit="all").rollout(2)["next"].keys(True, True)
    assert all(key in loud for keys in EMITTED.values() for key in keys)


@pytest.mark.parametrize("mode", MODES)
def test_packed_values_are_the_named_ones(market, mode):
    settings = {**MODES[mode], "emit": "all", "episode_bars": 7}
    packed, named = build(market, 4, packed=True, **settings), build(market, 4, **settings)
    check_env_specs(packed, seed=0)
    rollouts = []
    for env in (packed, named):
        env.set_seed(0)
        torch.manual_seed(0)
        seen = env.rollout(3)["next"][:, -1].exclude("reward")
        seen["_reset"] = torch.tensor([[True], [False], [True], [False]])  # now ends fall apart
        seen = env.reset(seen)
        rollouts.append(
            env.rollout(20, tensordict=seen, auto_reset=False, break_when_any_done=False)
        )
    first, second = rollouts
    assert len(list(first.keys(True, True))) < len(list(second.keys(True, True))) - 20
    packed.give_names(first)
    assert set(first.keys(True, True)) == set(second.keys(True, True))
    ended = first["next", "done"].sum(0)
    assert ((ended > 0) & (ended < 4)).any()
    assert (first == second).all()


def test_a_collector_hands_packed_values_over(market):
    env = build(market, 4, emit=("equity", "fees", "objectives"), packed=True)
    for compact in (False, True):
        collector = Collector(
            env, frames_per_batch=32, total_frames=32, compact_obs=compact, use_buffers=True
        )
        batch = env.give_names(next(iter(collector)))
        collector.shutdown()
        assert batch["account", "equity"].shape == (4, 8, 1)
        assert (("next", "account", "equity") in batch.keys(True)) is not compact


@pytest.mark.parametrize("compiled", [False, True])
def test_a_bad_action_is_refused_and_harms_nothing(market, compiled):
    env = build(market, 3, compiled=compiled)
    tensordict = env.reset()
    before = {name: value.clone() for name, value in env._now.accounts.items()}
    tensordict["action"] = torch.tensor([[0.5], [float("nan")], [0.5]])
    with pytest.raises(ValueError, match=r"account 1 got the action \[nan\] at bar"):
        env.step(tensordict)
    assert all((before[name] == value).all() for name, value in env._now.accounts.items())


def test_a_name_that_does_not_exist_is_refused(market):
    env = build(market, 2, actions="discrete")
    tensordict = env.reset().set("action", torch.tensor([0, 7]))
    with pytest.raises(ValueError, match=r"account 1 got the action \[7\].*0 to 6"):
        env.step(tensordict)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"commission": -1e-4}, r"commission must lie in \[0, 1\].*-0.0001"),
        ({"slippage": 1.5}, "slippage"),
        ({"spread": float("nan")}, "spread"),
        ({"actions": "box"}, "actions='box'.*continuous, target, discrete, hybrid"),
        ({"mode": "discrete"}, "mode='discrete' needs actions='hybrid', got actions='continuous'"),
        ({"actions": "hybrid", "mode": "both"}, "mode='both'.*continuous, discrete, alternate"),
        ({"fill": "vwap"}, "fill='vwap'.*next_open, close"),
        ({"reward": "pnl"}, "reward='pnl'.*growth, log_return"),
        ({"emit": ("equty",)}, "'equty' is not known.*equity"),
        ({"assets": 9}, "assets=9.*4 symbols"),
        ({"assets": 0}, "assets must be a whole number, at least 1"),
        ({"num_envs": 0}, "num_envs"),
        ({"num_envs": 2.0}, "num_envs must be a whole number"),
        ({"episode_bars": 5_000}, "episode_bars=5000.*this market has 700"),
        ({"window": 690}, "this market has 700"),
        ({"max_position": 0.0}, "max_position"),
        ({"leverage": 0.5}, "leverage"),
        ({"leverage": 4.0, "maintenance": 0.25}, "must be below 1 / leverage = 0.25"),
        ({"cash": 0.0}, "cash"),
        ({"min_trade": 20_000.0}, "min_trade"),
        ({"smoothing": 0}, "smoothing"),
        ({"risk_aversion": -1.0}, "risk_aversion"),
    ],
)
def test_bad_settings_are_refused_with_what_is_allowed(market, settings, message):
    with pytest.raises(ValueError, match=message):
        build(market, **settings)


@pytest.mark.parametrize(
    "limit", [{"drawdown": 0.0}, {"daily_loss": 1.5}, {"repeats": -1}, {"exposure": 0}]
)
def test_bad_limits_are_refused(limit):
    with pytest.raises(ValueError, match=next(iter(limit))):
        Limits(**limit)


def test_random_rollout_obeys_the_mask(market):
    env = build(market, 64, actions="discrete", emit=("units", "unrealised"))
    tensordict = env.reset()
    mask = tensordict["action_mask"]
    assert mask[:, :4].all()
    assert not mask[:, 4:].any()
    tensordict["action"] = torch.full((64,), 3)
    for _ in range(3):
        tensordict = env.step(tensordict)["next"].exclude("reward")
        tensordict["action"] = torch.zeros(64, dtype=torch.long)
    held = tensordict["account", "units"][:, 0] > 0
    assert held.all()
    assert tensordict["action_mask"][:, 4:6].all()
    winning = tensordict["account", "unrealised"][:, 0] > 0
    assert 0 < winning.sum() < 64
    assert not tensordict["action_mask"][~winning, 6].any()


def test_empty_reset_mask_changes_nothing(market):
    env = build(market, 3)
    tensordict = env.reset()
    before = {name: value.clone() for name, value in env._now.accounts.items()}
    env.reset(TensorDict({"_reset": torch.zeros(3, 1, dtype=torch.bool)}, batch_size=3))
    assert all((before[name] == value).all() for name, value in env._now.accounts.items())
    assert tensordict is not None
