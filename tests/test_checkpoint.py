"""Checkpoints: the way to disk and back, damage, strangers' files, full disks and sudden death."""

import io
import math
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import threading
import warnings
from collections import OrderedDict, namedtuple
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import nn

from trading_torchrl import state_file
from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.state_file import CheckpointError, load, save


def small(number=0):
    return {"weights": torch.full((4,), float(number)), "frames": number}


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def damage(path, byte=-1):
    """Turns one bit of a file over."""
    content = bytearray(path.read_bytes())
    content[byte] ^= 0x10
    path.write_bytes(content)


def assert_same(a, b, place="state"):
    assert type(a) is type(b), place
    if isinstance(a, dict):
        assert list(a) == list(b), place
        for key in a:
            assert_same(a[key], b[key], f"{place}[{key!r}]")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), place
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{place}[{index}]")
    elif isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride()), place
        assert a.requires_grad == b.requires_grad, place
        assert torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)), place
    else:
        assert a == b or (a != a and b != b), place


# --- There and back


def test_every_type_comes_back(tmp_path):
    state = {
        "tensors": [
            torch.randn(3, 2),
            torch.randn(3, 2).T,
            torch.tensor(math.nan, dtype=torch.float64),
            torch.arange(5),
            torch.tensor([True, False]),
            torch.ones(2, dtype=torch.bfloat16),
            torch.ones(2, dtype=torch.complex64),
            torch.empty(0, 4),
            torch.ones(3, requires_grad=True),
            nn.Parameter(torch.ones(2)),
            nn.Parameter(torch.ones(2), requires_grad=False),
            torch.ones(1).expand(4),
            torch.ones(2, dtype=torch.complex64).mul(1j).conj(),
            torch.get_rng_state(),
        ],
        "numbers": (0, -1, 2**31, -(2**63), 2**128 + 1, 2**2039 - 1, 0.1, -0.0, math.inf, math.nan),
        "rest": (None, True, False, "", "é\ud800", b"\x00\xff", (), [], {}),
        "torch": (torch.Size([2, 3]), torch.Size([]), torch.float32, torch.uint16, torch.bool),
        "devices": (torch.device("cpu"), torch.device("cuda:1")),
        ("account", "position"): {3: "three", None: "none", True: "true", 2.5: "half"},
        "ordered": OrderedDict(z=1, a=OrderedDict()),
        "random": random.getstate(),
    }
    save(tmp_path / "new" / "folder" / "all.pt", state)
    assert_same(load(tmp_path / "new" / "folder" / "all.pt"), state)
    assert names(tmp_path / "new" / "folder") == ["all.pt"]


def test_training_goes_on_from_a_checkpoint_as_if_nothing_had_happened(tmp_path):
    def build(seed):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        return network, torch.optim.AdamW(network.parameters(), lr=1e-2)

    def train(network, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            network(torch.randn(16, 3)).square().mean().backward()
            optimizer.step()

    network, optimizer = build(0)
    train(network, optimizer, 3)
    state = {
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
    }
    save(tmp_path / "it.pt", state)
    train(network, optimizer, 3)

    again, its_optimizer = build(1)
    loaded = load(tmp_path / "it.pt")
    assert loaded["network"]._metadata == state["network"]._metadata
    again.load_state_dict(loaded["network"])
    its_optimizer.load_state_dict(loaded["optimizer"])
    torch.set_rng_state(loaded["random"])
    train(again, its_optimizer, 3)
    assert_same(dict(again.state_dict()), dict(network.state_dict()))


def test_the_state_itself_is_left_alone(tmp_path):
    view = torch.arange(100.0)[10:12]
    parameter = nn.Parameter(torch.ones(2))
    state = {"view": view, "parameter": parameter, "list": [1]}
    save(tmp_path / "it.pt", state)
    assert state["view"] is view
    assert view.untyped_storage().nbytes() == 400
    assert state["parameter"] is parameter
    assert parameter.requires_grad


def test_a_view_does_not_take_its_whole_storage_along(tmp_path):
    large = torch.randn(1_000, 1_000)
    views = {
        "rows": large[3:5],
        "column": large[:, 7],
        "cross": large[:4, :4].T,
        "empty": large[:0],
    }
    save(tmp_path / "views.pt", views)
    assert (tmp_path / "views.pt").stat().st_size < 20_000
    loaded = load(tmp_path / "views.pt")
    for name, view in views.items():
        assert torch.equal(loaded[name], view), name


def test_tensors_that_share_all_their_memory_are_saved_once_and_share_it_again(tmp_path):
    weight = torch.randn(100, 100)
    save(tmp_path / "tied.pt", {"a": nn.Parameter(weight), "b": weight, "c": weight.T})
    assert (tmp_path / "tied.pt").stat().st_size < 1.2 * weight.nbytes
    loaded = load(tmp_path / "tied.pt")
    loaded["b"][0, 1] = 7.0
    assert loaded["a"][0, 1] == loaded["c"][1, 0] == 7.0


def test_attributes_of_tensors_stay_behind(tmp_path):
    tensor, parameter = torch.ones(2), nn.Parameter(torch.ones(2))
    tensor.owner = parameter.owner = object()
    save(tmp_path / "it.pt", {"tensor": tensor, "parameter": parameter})
    for loaded in load(tmp_path / "it.pt").values():
        assert torch.equal(loaded, torch.ones(2))
        assert not hasattr(loaded, "owner")


def test_a_checkpoint_is_as_readable_as_any_file_of_its_owner(tmp_path):
    save(tmp_path / "it.pt", small())
    (tmp_path / "other").touch()
    assert (tmp_path / "it.pt").stat().st_mode == (tmp_path / "other").stat().st_mode


# --- What is not saved


class Settings:
    pass


def with_bad_metadata():
    state = OrderedDict()
    state._metadata = {"version": Settings()}
    return state


def nested():
    with warnings.catch_warnings():  # about its being a prototype
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2)], layout=torch.strided)


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("state", "place", "kind"),
    [
        ({"env": {"settings": Settings()}}, "state['env']['settings']", "Settings"),
        ({"a": [1, (2, Settings)]}, "state['a'][1][1]", "type"),
        ({"a": np.float64(1.0)}, "state['a']", "numpy.float64"),
        ({"a": {"b": np.zeros(2)}}, "state['a']['b']", "numpy.ndarray"),
        ({"a": TensorDict({}, [])}, "state['a']", "TensorDict"),
        ({"a": Pair(1, 2)}, "state['a']", "Pair"),
        ({"a": {1, 2}}, "state['a']", "set"),
        ({"a": Path("x")}, "state['a']", "Path"),
        ({"a": math.sqrt}, "state['a']", "builtin_function"),
        ({"a": {("x", np.int64(1)): 1}}, "state['a'], key ('x', ", "numpy.int64"),
        ({"model": with_bad_metadata()}, "state['model']._metadata['version']", "Settings"),
        ({"a": torch.ones(2, 2).to_sparse()}, "state['a']", "sparse"),
        ({"a": torch.ones(2, device="meta")}, "state['a']", "meta"),
        ({"a": nested()}, "state['a']", "nested"),
        ({"a": b""}, "state['a']", "empty bytes"),
        ({"a": -(2**2039)}, "state['a']", "2039 bits"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_would_not_load_is_refused_at_its_place(tmp_path, state, place, kind):
    path = tmp_path / "it.pt"
    save(path, small(1))
    with pytest.raises(CheckpointError) as refused:
        save(path, {"fine": 1} | state)
    for part in (str(path), place, kind):
        assert part in str(refused.value)
    assert load(path)["frames"] == 1
    assert names(tmp_path) == ["it.pt"]


def with_itself():
    state = {"a": []}
    state["a"].append(state)
    return state


def with_two_readings(memory):
    return {"floats": memory, "integers": memory.view(torch.int32)}


@pytest.mark.parametrize(
    "state",
    [with_itself(), with_two_readings(torch.ones(2)), {"a": torch.empty(2, dtype=torch.int4)}],
    ids=["itself", "two readings", "half bytes"],
)
def test_what_torch_cannot_write_is_refused(tmp_path, state):
    with pytest.raises(CheckpointError, match=r"it\.pt: this state cannot be saved"):
        save(tmp_path / "it.pt", state)
    assert names(tmp_path) == []


# --- Damage


def test_any_flipped_bit_is_refused(tmp_path):
    path = tmp_path / "it.pt"
    save(path, small())
    content = path.read_bytes()
    assert len(content) < 10_000
    with open(path, "r+b", buffering=0) as file:
        for position, byte in enumerate(content):
            file.seek(position)
            file.write(bytes([byte ^ 1 << position % 8]))
            with pytest.raises(CheckpointError, match=r"it\.pt .*; delete it"):
                load(path)
            file.seek(position)
            file.write(bytes([byte]))
    assert_same(load(path), small())


def test_any_cut_is_refused_and_so_is_anything_added(tmp_path):
    path = tmp_path / "it.pt"
    save(path, small())
    length = path.stat().st_size
    os.truncate(path, length + 1)
    with pytest.raises(CheckpointError, match=r"it\.pt is cut or longer"):
        load(path)
    os.truncate(path, length)
    assert_same(load(path), small())
    for shorter in reversed(range(length)):
        os.truncate(path, shorter)
        with pytest.raises(CheckpointError, match=r"it\.pt is cut"):
            load(path)


def test_errors_say_what_is_wrong(tmp_path):
    with pytest.raises(CheckpointError, match=r"none\.pt cannot be read \(No such file"):
        load(tmp_path / "none.pt")
    torch.save(small(), tmp_path / "torch.pt")
    with pytest.raises(CheckpointError, match=r"torch\.pt does not begin like a checkpoint"):
        load(tmp_path / "torch.pt")
    save(tmp_path / "it.pt", small())
    damage(tmp_path / "it.pt")
    with pytest.raises(CheckpointError, match=r"it\.pt is damaged: its checksum"):
        load(tmp_path / "it.pt")


def test_another_format_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as later:
        later.setattr(state_file, "FORMAT", 2)
        save(tmp_path / "it.pt", small())
    with pytest.raises(CheckpointError, match=r"it\.pt is of format 2 .* reads 1"):
        load(tmp_path / "it.pt")


# --- Strangers' files


class Touch:
    """Creates a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def torch_bytes(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def pickle_bytes(value):
    return pickle.dumps(value, protocol=2)


@pytest.mark.parametrize("write", [torch_bytes, pickle_bytes])
def test_foreign_code_does_not_run(tmp_path, write):
    ran, path = tmp_path / "ran", tmp_path / "foreign.pt"
    payload = write({"weights": Touch(ran)})
    state_file.write(payload, path)  # header and checksum are right
    with pytest.raises(CheckpointError, match=r"foreign\.pt .* not safe to load"):
        load(path)
    assert not ran.exists()
    with suppress(RuntimeError):  # what it made of a bare pickle it refuses afterwards
        torch.load(io.BytesIO(payload), weights_only=False)
    assert ran.exists(), "the file was harmless, so this test shows nothing"


@pytest.mark.parametrize(
    ("payload", "fault"),
    [(torch_bytes([1]), "holds a list"), (b"", "cannot be loaded"), (b"PK", "cannot be loaded")],
    ids=["list", "empty", "torn"],
)
def test_what_is_no_state_is_refused(tmp_path, payload, fault):
    state_file.write(payload, tmp_path / "foreign.pt")
    with pytest.raises(CheckpointError, match=rf"foreign\.pt .*{fault}"):
        load(tmp_path / "foreign.pt")


# --- The checkpoints of a run


def test_the_newest_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run", keep=2)
    assert checkpoints.paths() == []
    for frames in (0, 5, 10, 999_999_999_999, 1_000_000_000_000):
        path = checkpoints.save(frames, small(frames))
        assert path == tmp_path / "run" / f"frames_{frames:012d}.pt"
        assert load(path)["frames"] == frames
    assert [path.name for path in checkpoints.paths()] == [
        "frames_1000000000000.pt",
        "frames_999999999999.pt",
    ]
    assert len(names(tmp_path / "run")) == 2


def test_the_one_just_written_stays_even_where_others_have_more_frames(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for frames in (100, 200, 50):
        path = checkpoints.save(frames, small(frames))
    assert [load(path)["frames"] for path in checkpoints.paths()] == [200, 50]
    assert path.exists()
    Checkpoints(tmp_path, keep=1).save(60, small(60))
    assert names(tmp_path) == ["frames_000000000060.pt"]


def test_the_best_outlives_the_others(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    for _ in range(2):
        path = checkpoints.save(1, small(1), best=True)
        assert path == tmp_path / "frames_000000000001.pt"
        assert path.read_bytes() == (tmp_path / "best.pt").read_bytes()
    for frames in (2, 3):
        checkpoints.save(frames, small(frames))
    assert names(tmp_path) == ["best.pt", "frames_000000000003.pt"]
    assert_same(checkpoints.best(), (tmp_path / "best.pt", small(1)))
    checkpoints.save(4, small(4), best=True)
    assert_same(checkpoints.best()[1], small(4))


def test_the_best_is_serialised_and_hashed_once(tmp_path, monkeypatch):
    calls = []

    def watch(module, name):
        real = getattr(module, name)

        def watched(*args):
            calls.append(name)
            return real(*args)

        monkeypatch.setattr(module, name, watched)

    watch(torch, "save")
    watch(state_file, "_digest")
    Checkpoints(tmp_path).save(1, small(1), best=True)
    assert calls == ["save", "_digest"]


def test_what_cannot_be_saved_does_not_become_the_best(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, small(1), best=True)
    before = names(tmp_path)
    with pytest.raises(CheckpointError, match=r"frames_000000000002\.pt: state\['it'\] is of type"):
        checkpoints.save(2, {"it": object()}, best=True)
    with pytest.raises(ValueError, match="frames must be 0 or more, got -1"):
        checkpoints.save(-1, small(), best=True)
    assert names(tmp_path) == before
    assert checkpoints.best()[1]["frames"] == checkpoints.newest()[1]["frames"] == 1


def test_a_best_one_that_is_damaged_is_replaced_by_the_next(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, small(1), best=True)
    damage(tmp_path / "best.pt")
    damage(tmp_path / "frames_000000000001.pt")
    checkpoints.save(2, small(2), best=True)
    assert_same(checkpoints.best(), (tmp_path / "best.pt", small(2)))


def test_damaged_ones_are_passed_over_with_a_warning(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    written = [checkpoints.save(frames, small(frames)) for frames in (1, 2, 3)]
    damage(written[2])
    written[1].write_bytes(written[1].read_bytes()[:-1])
    with pytest.warns(UserWarning, match="delete it") as warned:
        path, state = checkpoints.newest()
    assert path == written[0]
    assert_same(state, small(1))
    assert [path.name in str(w.message) for path, w in zip(written[:0:-1], warned, strict=True)]
    assert warned[0].filename == __file__


def test_nothing_is_warned_about_where_nothing_is_wrong(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, small(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoints.newest()[1]["frames"] == 1
        assert checkpoints.best()[1]["frames"] == 1, "without a best one the newest is it"


def test_the_best_is_the_last_resort_and_the_newest_is_the_best_ones(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, small(1), best=True)
    newest = checkpoints.save(2, small(2))
    checkpoints.paths()[-1].unlink()
    damage(newest)
    with pytest.warns(UserWarning, match="frames_000000000002"):
        assert_same(checkpoints.newest(), (tmp_path / "best.pt", small(1)))

    checkpoints.save(3, small(3))
    damage(tmp_path / "best.pt")
    with pytest.warns(UserWarning, match=r"best\.pt"):
        assert checkpoints.best()[1]["frames"] == 3


def test_where_none_loads_the_error_says_so(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run")
    with pytest.raises(CheckpointError, match="run: none of 0 checkpoints loads"):
        checkpoints.newest()
    path = checkpoints.save(1, small(1), best=True)
    damage(path)
    damage(tmp_path / "run" / "best.pt")
    for read in (checkpoints.newest, checkpoints.best):
        with (
            pytest.warns(UserWarning, match="damaged"),
            pytest.raises(CheckpointError, match="run: none of 2 checkpoints loads"),
        ):
            read()


def test_remains_of_killed_processes_are_removed_and_nothing_else(tmp_path):
    others = [".frames.tmp", ".notes", "frames_1.pt.pt", "frames_1.pt.tmp", "frames_x.pt", "notes"]
    remains = [".frames_000000000001.pt.4711.tmp", ".best.pt.4712.tmp"]
    for name in others + remains:
        (tmp_path / name).write_bytes(b"half of it")
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(2, small(2))
    checkpoints.save(3, small(3))
    assert names(tmp_path) == sorted([*others, "frames_000000000003.pt"])
    assert [path.name for path in checkpoints.paths()] == ["frames_000000000003.pt"]


def test_impossible_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"keep must be at least 1.* got 0"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(ValueError, match="frames must be 0 or more, got -1"):
        Checkpoints(tmp_path).save(-1, small())


# --- Full disks, power cuts, and sudden death


def test_on_the_disk_before_it_has_its_name_and_the_name_after(tmp_path, monkeypatch):
    """A power cut is not to be had in a test; the order of the real calls is."""
    calls = []

    def watch(name, describe):
        real = getattr(os, name)

        def watched(*args):
            calls.append((name, describe(*args)))
            return real(*args)

        monkeypatch.setattr(os, name, watched)

    def opened(descriptor):
        status = os.fstat(descriptor)
        return status.st_ino, status.st_size

    watch("fsync", opened)
    watch("replace", lambda source, target: (source.parent, target))
    save(tmp_path / "it.pt", small())
    file, folder = (tmp_path / "it.pt").stat(), tmp_path.stat()
    assert calls == [
        ("fsync", (file.st_ino, file.st_size)),
        ("replace", (tmp_path, tmp_path / "it.pt")),
        ("fsync", (folder.st_ino, folder.st_size)),
    ]

    calls.clear()
    path = Checkpoints(tmp_path).save(1, small(), best=True)
    written = [path.stat().st_ino for path in (tmp_path / "best.pt", path)]
    assert [each if name == "replace" else each[0] for name, each in calls] == [
        written[0], (tmp_path, tmp_path / "best.pt"), folder.st_ino,
        written[1], (tmp_path, path), folder.st_ino,
    ]  # fmt: skip


@contextmanager
def small_disk(folder):
    """One megabyte of disk, real where this process may mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield "No space left"
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def small_files(folder):
    """No file larger than half a megabyte."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limits[1]))
    try:
        yield "File too large"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("limited", [small_disk, small_files])
def test_without_room_the_error_says_so_and_the_last_one_stays(tmp_path, limited):
    folder = tmp_path / "disk"
    checkpoints = Checkpoints(folder, keep=1)
    with limited(folder) as reason:
        checkpoints.save(1, {"weights": torch.ones(75_000)}, best=True)
        kept = names(folder)
        for best, name in ((False, "frames_000000000002"), (True, "best")):
            with pytest.raises(CheckpointError, match=rf"{name}\.pt .*{reason}.* room"):
                checkpoints.save(2, {"weights": torch.ones(200_000)}, best)
            assert names(folder) == kept == ["best.pt", "frames_000000000001.pt"]
            for read, name in ((checkpoints.newest, kept[1]), (checkpoints.best, kept[0])):
                path, state = read()
                assert path.name == name
                assert torch.equal(state["weights"], torch.ones(75_000))
        checkpoints.save(2, {"weights": torch.ones(75_000)})
        assert names(folder) == ["best.pt", "frames_000000000002.pt"]


def test_with_room_for_the_best_only_it_is_newer(tmp_path):
    folder = tmp_path / "disk"
    checkpoints = Checkpoints(folder, keep=1)
    with small_disk(folder) as reason:
        checkpoints.save(1, {"weights": torch.ones(75_000)})
        with pytest.raises(CheckpointError, match=rf"frames_000000000002\.pt .*{reason}.* room"):
            checkpoints.save(2, {"weights": torch.full((100_000,), 2.0)}, best=True)
        assert names(folder) == ["best.pt", "frames_000000000001.pt"]
        assert torch.equal(checkpoints.newest()[1]["weights"], torch.ones(75_000))
        assert torch.equal(checkpoints.best()[1]["weights"], torch.full((100_000,), 2.0))


class Killed(BaseException):
    """Not an error that anything handles."""


def test_killed_between_the_two_no_checkpoint_believes_a_best_one_that_is_gone(
    tmp_path, monkeypatch
):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, small(1), best=True)
    real = os.replace

    def replace_then_die(source, target):
        real(source, target)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(os, "replace", replace_then_die)
        with pytest.raises(Killed):
            checkpoints.save(2, small(2), best=True)
    assert_same(checkpoints.newest()[1], small(1))
    assert_same(checkpoints.best(), (tmp_path / "best.pt", small(2)))
    checkpoints.save(2, small(2), best=True)
    assert_same(checkpoints.newest()[1], small(2))


# Imports once, then forks a child for every line: the first frames that the child saves.
SAVING = """
import os, sys
from pathlib import Path
import torch
from trading_torchrl.checkpoint import Checkpoints

checkpoints = Checkpoints(Path(sys.argv[1]), keep=1)
for line in sys.stdin:
    child = os.fork()
    if not child:
        frames = int(line)
        os.write(1, b"child %d\\n" % os.getpid())
        while True:
            state = {"weights": torch.full((250_000,), float(frames)), "best": frames // 2 * 2}
            checkpoints.save(frames, state, best=frames % 2 == 0)
            os.write(1, b"saved %d\\n" % frames)
            frames += 1
    os.waitpid(child, 0)
    os.write(1, b"gone\\n")
"""


def test_killed_at_any_moment_a_whole_checkpoint_is_left(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    chance = random.Random(0)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    saver = subprocess.Popen(
        [sys.executable, "-c", SAVING, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    last, interrupted = -1, 0
    with saver:
        for _ in range(12):
            saver.stdin.write(f"{last + 1}\n")
            saver.stdin.flush()
            child = int(saver.stdout.readline().removeprefix("child "))
            reported = int(saver.stdout.readline().removeprefix("saved "))
            death = threading.Timer(chance.uniform(0, 0.2), os.kill, (child, signal.SIGKILL))
            death.start()
            while (line := saver.stdout.readline()) != "gone\n":
                reported = int(line.removeprefix("saved "))
            death.join()

            with warnings.catch_warnings():
                warnings.simplefilter("error")
                path, state = checkpoints.newest()
                _, best = checkpoints.best()
            last = int(state["weights"][0])
            assert last in (reported, reported + 1)
            assert path.name == f"frames_{last:012d}.pt"
            assert torch.equal(state["weights"], torch.full((250_000,), float(last)))
            held = int(best["weights"][0])
            assert held in (state["best"], last + 1)
            assert held == best["best"] >= state["best"]
            assert torch.equal(best["weights"], torch.full((250_000,), float(held)))
            assert set(checkpoints.paths()[1:]) <= {tmp_path / f"frames_{last - 1:012d}.pt"}
            interrupted += any(name.endswith(".tmp") for name in names(tmp_path))
        saver.stdin.close()
    assert interrupted, "no kill came in the middle of a write, so this test shows nothing"
    checkpoints.save(last + 1, small())
    assert names(tmp_path) == ["best.pt", f"frames_{last + 1:012d}.pt"]
