"""Rows of a replay buffer as a file: what comes back, what is refused, a full disk."""

import resource

import pytest
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import LONG_SHORT, TradingEnv
from trading_torchrl.replay import StoredByIndex, fill, load_replay, save_replay, spec_of
from trading_torchrl.state_file import CheckpointError, checksum, save


def buffer(room, transform=None):
    return TensorDictReplayBuffer(
        storage=LazyTensorStorage(room), batch_size=4, transform=transform
    )


def rows(count, start=0):
    number = torch.arange(start, start + count, dtype=torch.float32)[:, None]
    return TensorDict(
        {"observation": number, "action": -number, "next": {"reward": 10 * number}}, [count]
    )


def rewards(replay):
    return sorted(replay._storage._storage[: len(replay)]["next", "reward"].flatten().tolist())


@pytest.mark.parametrize(
    ("count", "kept", "wrapped"), [(5, 5, False), (8, 8, False), (11, 8, True)]
)
def test_filled_rows_come_back_and_more_go_behind_them(tmp_path, count, kept, wrapped):
    replay = buffer(8)
    for number in range(count):
        replay.extend(rows(1, number))
    path = tmp_path / "replay.pt"
    save_replay(path, replay, count, {"settings": {"env": {"cap": 1.0}}})
    saved = load_replay(path)
    assert (saved["filled"], saved["frames"], saved["wrapped"]) == (kept, count, wrapped)
    assert saved["settings"] == {"env": {"cap": 1.0}}
    assert saved["spec"] == {
        "action": ["float32", 1], "next.reward": ["float32", 1], "observation": ["float32", 1]
    }  # fmt: skip

    other = buffer(kept + 2)
    fill(other, saved)
    assert rewards(other) == [10.0 * n for n in range(count - kept, count)]
    other.extend(rows(2, 100))
    assert rewards(other) == [10.0 * n for n in (*range(count - kept, count), 100, 101)]


def test_rows_by_index_are_what_was_seen(tmp_path):
    market = synthetic_market(symbols=3, bars=400, seed=1)
    env = TradingEnv(market, 4, emit=["index"], episode_bars=50, compiled=False, **LONG_SHORT)
    seen = env.rollout(10, break_when_any_done=False).reshape(-1)
    replay = buffer(100, StoredByIndex.of(env))
    keys = ("observation", "action", "market", ("next", "observation"), ("next", "market"))
    replay.extend(seen.select(*keys))
    save_replay(tmp_path / "replay.pt", replay, 40, {})
    saved = load_replay(tmp_path / "replay.pt")
    assert saved["spec"]["market.bar"][0] == "int32"
    narrow = seen["observation"].shape[-1]
    assert saved["spec"]["observation"][1] < narrow  # what the market shows is not stored

    other = buffer(100, StoredByIndex.of(env))
    fill(other, saved)
    torch.testing.assert_close(other[:]["observation"], seen["observation"], rtol=0, atol=0)
    torch.testing.assert_close(
        other[:]["next", "observation"], seen["next", "observation"], rtol=0, atol=0
    )
    assert spec_of(env.fake_tensordict().select("action")) == {"action": ["float32", 1]}


def test_what_is_no_replay_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no rows yet"):
        save_replay(tmp_path / "empty.pt", buffer(4), 0, {})
    save(tmp_path / "other.pt", {"weights": torch.zeros(3)})
    with pytest.raises(CheckpointError, match="holds no replay"):
        load_replay(tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match="cannot be read"):
        checksum(tmp_path / "nothing.pt")
    (tmp_path / "text.pt").write_text("nothing of the kind, at some length: " * 3)
    with pytest.raises(CheckpointError, match="does not begin like"):
        checksum(tmp_path / "text.pt")


def test_a_flipped_byte_is_found_and_files_are_told_apart(tmp_path):
    paths = [tmp_path / f"{number}.pt" for number in range(3)]
    for path, start in zip(paths, (0, 0, 1), strict=True):
        replay = buffer(8)
        replay.extend(rows(8, start))
        save_replay(path, replay, 8, {})
    assert checksum(paths[0]) == checksum(paths[1]) != checksum(paths[2])
    content = bytearray(paths[0].read_bytes())
    content[-1] ^= 0x10
    paths[0].write_bytes(content)
    with pytest.raises(CheckpointError, match="its checksum does not fit"):
        load_replay(paths[0])


def test_a_full_disk_is_an_error_and_what_was_there_stays(tmp_path):
    path, replay = tmp_path / "replay.pt", buffer(20_000)
    replay.extend(rows(8))
    save_replay(path, replay, 8, {})
    before = path.read_bytes()
    replay.extend(rows(10_000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 1_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="cannot be written"):
            save_replay(path, replay, 10_008, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["replay.pt"]
