"""recipes/impala.py through its command line: resume, actors that die, a learner that dies."""

import os
import re
import signal
import subprocess
import time

import pytest
from running import (
    FEW_BARS,
    SHORT,
    command,
    done,
    metrics_of,
    run,
    same,
    stopped_and_resumed,
    with_changes,
)

TINY = [
    "hidden=[16]", "threads=1", "alerts=none", "env.num_envs=8", "batch_size=16",
    "steps_per_batch=8", "log_every=128",
]  # fmt: skip
GRID = [
    *TINY, "env=garleanu_pedersen", "+env.steps=20", "total_frames=1_280", "evaluate_every=640",
    "checkpoint_every=320",
]  # fmt: skip
MARKET = [*TINY, *SHORT]
POLE = [*TINY, "env=cartpole", "total_frames=1_280", "evaluate_every=640", "checkpoint_every=320"]
LONG = [
    *TINY, "env=garleanu_pedersen", "total_frames=50_000_000", "evaluate_every=50_000_000",
    "checkpoint_every=2_560", "log_every=640", "actors=2",
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "stop_at"),
    [
        (MARKET, 384),
        ([*GRID, "lag=3", "normalise.observations=true"], 896),
        ([*POLE, "loss=ppo"], 896),
    ],
    ids=["market", "behind", "cartpole"],
)
def test_a_run_of_one_process_resumes_bit_for_bit(tmp_path, settings, stop_at):
    whole = done("impala", tmp_path / "whole", *settings)
    assert whole["updates"] >= 5
    assert same(whole, stopped_and_resumed(tmp_path / "halves", settings, stop_at, "impala"))
    assert (tmp_path / "whole" / "report.html").exists()
    evaluated = run("evaluate", None, f"run={tmp_path / 'whole'}", "split=validation")
    assert evaluated.returncode == 0, evaluated.stderr


@pytest.mark.parametrize(
    "settings",
    [
        [*MARKET, "window=8", "count_places=true", "normalise.observations=true"],
        [*MARKET, "env.actions=discrete", "loss=a2c"],
    ],
    ids=["window", "names"],
)
def test_actors_apart_collect_all_that_is_learned_from_and_watched(tmp_path, settings):
    found = done("impala", tmp_path / "run", *settings, "actors=1", "stop_at=384")
    assert found["updates"] == 3
    ended = run("impala", None, f"resume={tmp_path / 'run'}", "stop_at=null", "actors=2")
    assert ended.returncode == 0, ended.stderr
    found = metrics_of(tmp_path / "run")
    assert found["frames"] == 640
    assert found["figures"]
    alone = run("impala", None, f"resume={tmp_path / 'run'}", "total_frames=768", "actors=0")
    assert "this run had actors apart, and goes on with some" in alone.stderr


def test_actors_on_ray_build_what_the_recipe_does(tmp_path):
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'trading-torchrl[ray]'")
    found = done("impala", tmp_path / "run", *GRID, "actors=1", "distributed=ray", "max_lag=8")
    assert found["frames"] == 1_280
    assert found["figures"]
    assert found["runtime"]["replaced"] == 0


def test_ctrl_c_saves_and_ends_all_actors(tmp_path):
    folder = tmp_path / "run"
    learner = subprocess.Popen(
        command("impala", folder, *LONG), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, start_new_session=True,
    )  # fmt: skip
    until(lambda: any((folder / "checkpoints").glob("frames_*[1-9]*.pt")))
    actors = children(learner.pid)
    os.killpg(learner.pid, signal.SIGINT)  # as a terminal does
    out, _ = learner.communicate(timeout=60)
    assert learner.returncode == 0
    assert "stopped: SIGINT" in out
    assert "takes its place" not in out
    assert len(actors) == 2
    assert not alive(actors)


def children(process):
    """Processes of actors, by what began them."""
    said = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout
    rows = [line.split(None, 2) for line in said.splitlines()]
    spawned = [row for row in rows if "multiprocessing.spawn" in row[2]]
    return {int(pid) for pid, parent, _ in spawned if int(parent) == process}


def alive(processes):
    def runs(process):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        return True

    return {each for each in processes if runs(each)}


def until(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_dead_actors_are_replaced_and_a_dead_learner_leaves_nothing_behind(tmp_path):
    folder, said = tmp_path / "run", tmp_path / "said"
    loud = {"TQDM_MININTERVAL": "0.1", "PYTHONUNBUFFERED": "1"}
    with open(said, "w") as err:
        learner = subprocess.Popen(
            command("impala", folder, *LONG), stdout=err, stderr=err,
            env=os.environ | loud, start_new_session=True,
        )  # fmt: skip

    def frames():
        return int((re.findall(r"(\d+)/50000000", said.read_text()) or ["0"])[-1])

    def saved():
        names = (folder / "checkpoints").glob("frames_*.pt")
        return max((int(each.stem.split("_")[1]) for each in names), default=0)

    try:
        until(lambda: saved() > 0)
        first = children(learner.pid)
        assert len(first) == 2
        os.kill(min(first), signal.SIGKILL)
        until(lambda: len(alive(children(learner.pid)) - {min(first)}) == 2, 30)
        before = frames()
        until(lambda: frames() > before + 10_000)
        assert f"(process {min(first)}) ended with exit code -9" in said.read_text()
        until(lambda: "delivers again" in said.read_text(), 30)

        actors, before = children(learner.pid), frames()
        learner.send_signal(signal.SIGKILL)
        learner.wait()
        until(lambda: not alive(actors), 15)
        assert saved() >= before - 2_560 - 128
    finally:
        learner.kill()
    ended = run("impala", None, f"resume={folder}", f"stop_at={saved() + 1_280}")
    assert ended.returncode == 0, ended.stderr
    assert metrics_of(folder)["runtime"]["replaced"] == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["actors=-1"], "actors must not be negative"),
        (["ahead=0"], "ahead must be a whole number of at least 1"),
        (["distributed=here"], "distributed is processes or ray, got 'here'"),
        (["distributed=ray"], "distributed=ray needs actors=1 or more"),
        (["actors=1", "address=auto"], "address=auto is of a Ray cluster"),
        (["actors=1", "lag=2"], "lag=2 is for actors=0"),
        (["max_lag=2"], "max_lag=2 is for actors=1 or more"),
        (["batch_size=100"], "must be a multiple of env.num_envs=1024"),
        (["icm=on"], "icm: curiosity learns beside the agent"),
        (["loss=sac", "+temperature={start: 1.0, least: 0.0, entropy: auto}", "+critics=2"],
         "learns from what is stored, and here nothing is"),
        (["actors=1", "distributed=ray", "address=127.0.0.1:1", *MARKET],
         "Ray at address=127.0.0.1:1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(tmp_path, settings, said):
    ended = run("impala", tmp_path / "refused", *with_changes(FEW_BARS, *settings))
    assert ended.returncode != 0
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
