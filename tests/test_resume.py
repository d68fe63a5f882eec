"""Going on from a saved state gives the bits that not stopping would have given."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import Compose, GymEnv, RewardSum, StepCounter, TransformedEnv

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import LONG_SHORT, MarketWindow, TradingEnv
from trading_torchrl.envs.reference import GarleanuPedersen
from trading_torchrl.modules import make_actor
from trading_torchrl.replay import StoredByIndex
from trading_torchrl.resume import (
    StopRequest,
    collector_state,
    parameters_sha256,
    replay_state,
    restore_collector,
    restore_replay,
)
from trading_torchrl.state_file import load, save

ACCOUNTS, STEPS, WINDOW = 4, 10, 16
KINDS = ("trading", "objectives", "window", "transforms", "garleanu_pedersen")


def trading(**settings):
    market = synthetic_market(symbols=3, bars=400, seed=1, volatility=2.0)
    return TradingEnv(market, ACCOUNTS, episode_bars=17, emit=["index"], compiled=False,
                      **{**LONG_SHORT, **settings})  # fmt: skip


def make_env(kind):
    """The environment, what rows go through into the replay buffer, and what the actor reads."""
    if kind == "garleanu_pedersen":
        return GarleanuPedersen(ACCOUNTS, steps=17), None, ["observation"]
    if kind == "transforms":
        seen = TransformedEnv(trading(), Compose(RewardSum(), StepCounter()))
        return seen, StoredByIndex.of(seen.base_env), ["observation"]
    if kind == "window":
        env = trading(window=WINDOW)
        counted = TransformedEnv(env, StepCounter())
        seen = TransformedEnv(counted, MarketWindow.of(env), auto_unwrap=False)
        return seen, StoredByIndex.of(env), ["observation", "window"]
    env = trading(reward="professional") if kind == "objectives" else trading()
    return env, StoredByIndex.of(env), ["observation"]


class Run:
    """A collector and a replay buffer, the actor changing with every batch."""

    def __init__(self, kind, seed, room=1_000, random_batches=0, track=False):
        torch.manual_seed(seed)
        env, transform, keys = make_env(kind)
        shown = env.observation_spec
        inputs = sum(shown[key].shape[1:].numel() for key in keys)
        self.actor = make_actor(inputs, 1, [8], keys)
        frames = ACCOUNTS * STEPS
        self.collector = Collector(
            env,
            self.actor,
            frames_per_batch=frames,
            total_frames=-1,
            init_random_frames=random_batches * frames,
            trust_policy=True,
            track_traj_ids=track,
            auto_register_policy_transforms=False,
        )
        self.batches = iter(self.collector)
        storage = LazyTensorStorage(room)
        self.replay = TensorDictReplayBuffer(storage=storage, batch_size=32, transform=transform)

    def go(self, batches):
        """Everything that was collected and sampled, and where it ended."""
        seen = []
        for _ in range(batches):
            batch = next(self.batches)
            self.replay.extend(batch.reshape(-1))
            seen.append({"batch": batch.clone(), "sample": self.replay.sample()})
            with torch.no_grad():
                for parameter in self.actor.parameters():
                    parameter.add_(0.05 * torch.randn_like(parameter))
        ends = {"replay": self.replay[:], "cursor": self.replay._writer._cursor}
        seen = [{name: each.to_dict() for name, each in one.items()} for one in seen]
        ends["replay"] = ends["replay"].to_dict()
        return {"seen": seen, **ends, "random": torch.get_rng_state()}

    def state(self):
        return {
            "actor": self.actor.state_dict(),
            "collector": collector_state(self.collector),
            "replay": replay_state(self.replay),
            "random": torch.get_rng_state(),
        }

    def restore(self, state):
        self.actor.load_state_dict(state["actor"])
        restore_collector(self.collector, state["collector"])
        restore_replay(self.replay, state["replay"])
        torch.set_rng_state(state["random"])


def go_on(path, out, kind, **settings):
    """What a new process does, or a new run in this one."""
    run = Run(kind, seed=99, **settings)
    run.restore(load(Path(path)))
    found = run.go(3)
    save(Path(out), found)
    return found


def assert_same(a, b, place="run"):
    assert type(a) is type(b), place
    if isinstance(a, dict):
        assert set(a) == set(b), place
        for key in a:
            assert_same(a[key], b[key], f"{place}[{key!r}]")
    elif isinstance(a, list):
        assert len(a) == len(b), place
        for index, (one, other) in enumerate(zip(a, b, strict=True)):
            assert_same(one, other, f"{place}[{index}]")
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype, place
        assert torch.equal(a, b), place
    else:
        assert a == b, place


def whole(folder, kind, **settings):
    """Six batches on end, with the state after three of them written to a file."""
    run = Run(kind, seed=0, **settings)
    run.go(3)
    save(folder / f"{kind}.pt", run.state())
    return run.go(3), folder / f"{kind}.pt"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "settings",
    [{}, {"room": 70}, {"random_batches": 4}, {"track": True}],
    ids=["plain", "wrapped", "random", "trajectories"],
)
def test_new_objects_go_on_bit_for_bit(tmp_path, kind, settings):
    expected, path = whole(tmp_path, kind, **settings)
    saved = load(path)["replay"]
    if "room" in settings:
        assert (saved["filled"], saved["cursor"]) == (70, 50)
    else:
        assert (saved["filled"], saved["cursor"]) == (120, 120)
    done = expected["seen"][0]["batch"]["next"]["done"]
    assert done.any()
    assert not done[:, :3].any()  # the state was saved in the middle of all episodes
    assert_same(go_on(path, tmp_path / "out.pt", kind, **settings), expected)


def test_a_new_process_goes_on_bit_for_bit(tmp_path):
    expected, script = {}, ["import test_resume"]
    for kind in KINDS:
        expected[kind], path = whole(tmp_path, kind, room=70)
        out = str(tmp_path / f"{kind}_out.pt")
        script.append(f"test_resume.go_on({str(path)!r}, {out!r}, {kind!r}, room=70)")
    found = subprocess.run(
        [sys.executable, "-c", "\n".join(script)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    for kind in KINDS:
        assert_same(load(tmp_path / f"{kind}_out.pt"), expected[kind], kind)


def test_a_run_that_went_astray_goes_back(tmp_path):
    """The same objects, whose buffer was filled with other rows meanwhile."""
    run = Run("window", seed=0, room=70)
    run.go(2)
    save(tmp_path / "good.pt", run.state())
    expected = run.go(3)
    run.go(1)
    saved = load(tmp_path / "good.pt")
    for _ in range(2):  # from one loaded state, twice
        run.restore(saved)
        run.collector.reset()  # writes over what it holds
        run.restore(saved)
        assert_same(run.go(3), expected)


def test_before_the_first_batch(tmp_path):
    first = Run("trading", seed=0)
    save(tmp_path / "start.pt", first.state())
    expected = first.go(2)
    second = Run("trading", seed=5)
    second.go(1)
    second.restore(load(tmp_path / "start.pt"))
    assert_same(second.go(2), expected)


def test_a_smaller_buffer_is_refused():
    run = Run("trading", seed=0)
    run.go(2)
    with pytest.raises(ValueError, match="80 rows were saved and the buffer holds 70"):
        restore_replay(Run("trading", seed=0, room=70).replay, replay_state(run.replay))


def test_another_environment_is_refused():
    state = collector_state(Run("trading", seed=0).collector)
    with pytest.raises(ValueError, match="reward was"):
        restore_collector(Run("objectives", seed=0).collector, state)


def test_an_environment_without_a_state_begins_an_episode():
    """Or the first row would lead from where the saved run was to where this one is."""

    def make():
        env = GymEnv("Pendulum-v1")
        env.set_seed(0)
        return Collector(env, frames_per_batch=5, total_frames=-1, init_random_frames=-1)

    saved, fresh = make(), make()
    next(iter(saved))
    restore_collector(fresh, collector_state(saved))
    angle, speed = fresh.env._env.unwrapped.state
    there = torch.tensor([angle, speed]).float()
    shown = fresh._carrier["observation"]
    torch.testing.assert_close(shown, torch.stack([there[0].cos(), there[0].sin(), there[1]]))
    assert fresh._frames == 5
    batch = next(iter(fresh))
    assert torch.equal(batch["observation"][0], shown)


# --- What tells runs apart


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


@pytest.mark.parametrize("name", ["0.weight", "1.running_var", "1.num_batches_tracked", "2.bias"])
def test_one_flipped_bit_shows(name):
    module = network()
    before = parameters_sha256(module)
    tensor = module.state_dict()[name].view(-1)
    bits = tensor.view(torch.int64 if tensor.element_size() == 8 else torch.int32)
    bits[-1] ^= 1
    assert parameters_sha256(module) != before
    bits[-1] ^= 1
    assert parameters_sha256(module) == before


def test_names_types_and_order_count():
    first, second = network(0), network(1)
    found = {
        parameters_sha256(first, second),
        parameters_sha256(second, first),
        parameters_sha256(first),
        parameters_sha256(network(0).double()),
        parameters_sha256(network(0).bfloat16()),
        parameters_sha256(nn.Sequential(nn.Identity(), *network(0))),
    }
    assert len(found) == 6


def test_equal_in_another_process():
    script = (
        "import test_resume as t; print(t.parameters_sha256(t.network(7), t.network(8).bfloat16()))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = parameters_sha256(network(7), network(8).bfloat16())
    assert found.stdout.split()[-1] == here


# --- Stopping


def handlers():
    return [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_does_not_wait(number):
    before = handlers()
    with StopRequest() as stop:
        assert not stop.asked
        os.kill(os.getpid(), number)
        assert stop.asked == number.name
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        assert handlers() != before
    assert handlers() == before


def test_handlers_come_back_after_an_error():
    before = handlers()
    with pytest.raises(RuntimeError, match="midway"), StopRequest():
        raise RuntimeError("midway")
    assert handlers() == before


def test_a_stop_request_can_be_used_again():
    stop = StopRequest()
    for _ in range(2):
        with stop:
            assert not stop.asked
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.asked == "SIGTERM"


def test_rows_are_the_buffers_own_until_they_are_saved(tmp_path):
    """As documented: a state is to be written away before the run goes on."""
    replay = TensorDictReplayBuffer(storage=LazyTensorStorage(4), batch_size=2)
    replay.extend(TensorDict({"a": torch.arange(4)}, [4]))
    state = replay_state(replay)
    save(tmp_path / "saved.pt", state)
    replay.extend(TensorDict({"a": torch.arange(10, 12)}, [2]))
    assert state["rows"]["a"].tolist() == [10, 11, 2, 3]
    assert load(tmp_path / "saved.pt")["rows"]["a"].tolist() == [0, 1, 2, 3]
