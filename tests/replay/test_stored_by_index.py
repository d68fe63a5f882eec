"""Rows stored by their place in the market come back as the environment showed them."""

import subprocess
import sys

import pytest
import torch
from torchrl.data import (
    LazyMemmapStorage,
    LazyStackStorage,
    LazyTensorStorage,
    ListStorage,
    RandomSampler,
    TensorDictReplayBuffer,
)
from torchrl.envs import TransformedEnv

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import LONG_SHORT, MarketWindow, TradingEnv
from trading_torchrl.replay import StoredByIndex

KINDS = {
    "one_asset": {**LONG_SHORT},
    "names": {"actions": "discrete"},
    "assets": {"actions": "target", "assets": 3, "max_position": 0.5},
    "smoothed_assets": {"actions": "continuous", "assets": 2},
    "window": {**LONG_SHORT, "window": 32},
    "window_of_one_bar": {**LONG_SHORT, "window": 1},
    "window_assets": {"actions": "target", "assets": 3, "max_position": 0.5, "window": 16},
}


@pytest.fixture(scope="module")
def market():
    return synthetic_market(symbols=5, bars=400, seed=3, volatility=2.0)


def build(market, num_envs=4, **settings):
    """The environment, and the one that trading is seen through."""
    settings = {"compiled": False, "episode_bars": 7, "emit": ["index", "equity"], **settings}
    env = TradingEnv(market, num_envs, **settings)
    return env, env if env.window is None else TransformedEnv(env, MarketWindow.of(env))


def buffer(env, storage=None, size=1_000, **settings):
    storage = LazyTensorStorage(size) if storage is None else storage
    return TensorDictReplayBuffer(storage=storage, transform=StoredByIndex.of(env), **settings)


def played(env, seen, steps=20):
    """``[N * steps]`` of random play over several episodes."""
    torch.manual_seed(0)
    env.set_seed(0)
    rows = seen.rollout(steps, break_when_any_done=False).reshape(-1)
    assert rows["next", "done"].sum() >= 2 * env.batch_size[0]
    return rows


def assert_shown(found, rows):
    for key, value in rows.items(True, True):
        assert found[key].dtype == value.dtype, key
        assert torch.equal(found[key], value), key


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sampled_is_what_was_shown(market, kind):
    env, seen = build(market, **KINDS[kind])
    rows = played(env, seen)
    replay = buffer(env, sampler=RandomSampler(), batch_size=300)
    replay.extend(rows)
    assert_shown(replay[:], rows)
    sample, info = replay.sample(return_info=True)
    assert sample["next", "done"].any()
    assert_shown(sample, rows[info["index"]])


def test_episodes_that_ended_are_not_mixed_up(market):
    """After an end the next root is of another episode, while ``next`` is of the old one."""
    env, seen = build(market, window=16)
    rows = played(env, seen).reshape(4, 20)
    ended = rows["next", "done"][:, :-1].squeeze(-1)
    root, following = rows["window"][:, 1:], rows["next", "window"][:, :-1]
    assert (root[ended] != following[ended]).flatten(1).any(1).all()
    assert torch.equal(root[~ended], following[~ended])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_the_market_is_stored_but_its_index(market, kind):
    env, seen = build(market, **KINDS[kind])
    rows = played(env, seen)
    replay = buffer(env)
    replay.extend(rows)
    stored = replay._storage._storage
    assets = env.rules.assets
    features = 0 if "window" in kind else assets * env.table.shape[-1]
    own = len(env.observation_names) - features
    assert own < 5 * assets + 3
    for place in (stored, stored["next"]):
        assert "window" not in set(place.keys())
        assert place["observation"].shape == (1_000, own)
        assert set(place["market"].keys()) == {"symbol", "bar"}
        assert place["market", "symbol"].shape == (1_000, assets)
        assert place["market", "symbol"].dtype == torch.int16
        assert place["market", "bar"].shape == (1_000, 1)
        assert place["market", "bar"].dtype == torch.int32
    assert torch.equal(stored["observation"][:80], rows["observation"][:, features:])


@pytest.mark.parametrize("kind", ["assets", "window"])
def test_rows_that_go_in_stay_as_they_are(market, kind):
    env, seen = build(market, **KINDS[kind])
    rows = played(env, seen)
    before = rows.clone()
    replay = buffer(env, batch_size=50)
    replay.extend(rows.lock_())
    assert set(rows.keys(True, True)) == set(before.keys(True, True))
    assert_shown(rows, before)
    stored = replay._storage._storage[: len(rows)]
    kept = stored.clone()
    replay.sample()["observation"].zero_()
    rows.apply(lambda value: value.zero_())
    assert_shown(stored, kept)


def test_only_some_keys_as_a_recipe_stores_them(market):
    env, seen = build(market, window=16)
    rows = played(env, seen)
    keys = ["observation", "action", "market"]
    after = [("next", key) for key in ("observation", "reward", "terminated", "market")]
    replay = buffer(env)
    replay.extend(rows.select(*keys, *after))
    assert_shown(replay[:], rows.select(*keys, *after, "window", ("next", "window")))


def test_one_row_at_a_time(market):
    env, seen = build(market, window=16)
    rows = played(env, seen)[:5]
    replay = buffer(env)
    for row in rows.unbind(0):
        replay.add(row)
    assert_shown(replay[:], rows)


@pytest.mark.parametrize("kind", ["assets", "window"])
def test_reading_a_full_buffer_changes_nothing_in_it(market, kind):
    """All rows of a full one are handed out as the storage itself."""
    env, seen = build(market, **KINDS[kind])
    rows = played(env, seen)
    replay = buffer(env, size=len(rows))
    replay.extend(rows)
    kept = replay._storage._storage.clone()
    for _ in range(2):
        assert_shown(replay[:], rows)
    stored = replay._storage._storage
    assert set(stored.keys(True, True)) == set(kept.keys(True, True))
    assert_shown(stored, kept)
    replay.extend(rows)


@pytest.mark.parametrize("storage", [LazyMemmapStorage, ListStorage, LazyStackStorage])
@pytest.mark.parametrize("kind", ["assets", "window"])
def test_other_storages(market, storage, kind):
    """Some hand out the very rows they hold."""
    env, seen = build(market, **KINDS[kind])
    rows = played(env, seen)
    replay = buffer(env, storage(100), batch_size=50)
    replay.extend(rows)
    for _ in range(3):
        sample, info = replay.sample(return_info=True)
        assert_shown(sample, rows[info["index"]])


def test_a_table_of_another_environment_shows_other_bars(market):
    """What comes out is read from the table: it was not stored somewhere after all."""
    env, seen = build(market)
    rows = played(env, seen)
    replay = TensorDictReplayBuffer(
        storage=LazyTensorStorage(100), transform=StoredByIndex(env.table + 1, env.rules.bars)
    )
    replay.extend(rows)
    features = env.table.shape[-1]
    found = replay[:]["observation"]
    assert torch.equal(found[:, :features], rows["observation"][:, :features] + 1)
    assert torch.equal(found[:, features:], rows["observation"][:, features:])


def test_an_environment_must_show_its_index(market):
    with pytest.raises(ValueError, match=r"emit=\[..., 'index'\], its emit is \['equity'\]"):
        StoredByIndex.of(build(market, emit=["equity"])[0])


def test_rows_without_an_index_are_refused(market):
    env, seen = build(market)
    rows = played(env, seen)
    for rest in (rows.exclude("market"), rows.exclude(("next", "market"))):
        with pytest.raises(KeyError, match=r"a row needs .* in the root and in next"):
            buffer(env).extend(rest)


def test_symbols_must_fit_two_bytes():
    StoredByIndex(torch.zeros(32_767, 1), bars=1)
    with pytest.raises(ValueError, match="at most 32,767 symbols"):
        StoredByIndex(torch.zeros(32_768, 1), bars=1)


BIG = """
from dataclasses import replace
import torch
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from trading_torchrl.data import synthetic_market, with_features
from trading_torchrl.envs import LONG_SHORT, TradingEnv
from trading_torchrl.replay import StoredByIndex

def memory(name):  # in MB, VmRSS now or VmHWM at most so far
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1e3

drawn = synthetic_market(symbols=8, bars=8_000)
market = with_features(replace(drawn, columns={}, hidden={}))
env = TradingEnv(market, 100, window=64, compiled=False, **LONG_SHORT)
assert env.table.shape[-1] == 23
keys = ["observation", "action", "market"]
keys += [("next", key) for key in ("observation", "reward", "terminated", "market")]
torch.manual_seed(0)
rows = env.rollout(20, break_when_any_done=False).select(*keys).reshape(-1)
before = memory("VmRSS")
replay = TensorDictReplayBuffer(
    storage=LazyTensorStorage(200_000), transform=StoredByIndex.of(env), batch_size=256
)
for _ in range(100):
    replay.extend(rows)
sample = replay.sample()
used = memory("VmHWM") - before
assert len(replay) == 200_000
assert sample["window"].shape == sample["next", "window"].shape == (256, 64, 23)
stored = replay._storage._storage.values(True, True)
own = sum(each.untyped_storage().nbytes() for each in stored) / 1e6
table = replay.transform[0].rows._windows.untyped_storage().nbytes() / 1e6
shown = 2 * 200_000 * sample["window"][0].nbytes / 1e6
print(own, table, shown, used)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_200_000_rows():
    """With windows of 64 bars, as docs/agents.md has it."""
    run = subprocess.run([sys.executable, "-c", BIG], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rows, table, shown, used = map(float, run.stdout.splitlines()[-1].split())
    print(f"rows {rows:.1f} MB, table {table:.1f} MB; windows would take {shown:,.0f} MB")
    assert 10 < rows < 15
    assert 5 < table < 8
    assert shown > 2_300
    assert used < 200  # of the process, whatever else was allocated on the way
