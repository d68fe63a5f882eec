"""recipes/evolve.py through its command line: alone and in turns, resume, kills, refusals."""

import os
import signal
import subprocess
import time

import pytest
from running import FEW_BARS, command, done, metrics_of, run, same

TINY = [
    "hidden=[8]", "threads=1", "alerts=none", "population=8", "episodes=2", "iterations=6",
    "evaluate_every=3", "checkpoint_every=2",
]  # fmt: skip
GRID = [*TINY, "env=garleanu_pedersen", "+env.steps=20", "rl.env.num_envs=8"]
MARKET = [*TINY, "+env.compiled=false", *FEW_BARS]
TURNS = [
    "hybrid=sac", "hybrid.frames=256", "hybrid.iterations=2",
    "rl.warmup_frames=64", "rl.updates_per_frame=0.125", "rl.batch_size=32",
]  # fmt: skip


def stopped_and_resumed(folder, overrides, stop_at):
    first = done("evolve", folder, *overrides, f"stop_at={stop_at}")
    assert first["updates"] == stop_at
    assert first["figures"] == {}
    ended = run("evolve", None, f"resume={folder}", "stop_at=null")
    assert ended.returncode == 0, ended.stderr
    return metrics_of(folder)


@pytest.mark.parametrize(
    ("settings", "stop_at"),
    [
        (GRID, 3),
        ([*MARKET, "explores=true", "shaped=z"], 4),
        ([*MARKET, *TURNS, "rl.env.num_envs=8"], 3),
        ([*TINY, "env=cartpole", "loss=dqn", "lr=1e-6", "lr_end=0.0"], 2),
    ],
    ids=["garleanu_pedersen", "market, drawn actions", "market, in turns", "cartpole"],
)
def test_resumes_bit_for_bit(tmp_path, settings, stop_at):
    whole = done("evolve", tmp_path / "whole", *settings)
    assert whole["updates"] == 6
    assert [row["updates"] for row in whole["evaluations"]] == [3, 6]
    assert same(whole, stopped_and_resumed(tmp_path / "halves", settings, stop_at))
    assert (tmp_path / "whole" / "report.html").exists()
    evaluated = run("evaluate", None, f"run={tmp_path / 'whole'}", "split=validation")
    assert evaluated.returncode == 0, evaluated.stderr


def test_begins_with_what_sac_learned_and_sac_with_what_evolved(tmp_path):
    learns = [
        "hidden=[8]", "threads=1", "alerts=none", "env=garleanu_pedersen", "+env.steps=20",
        "env.num_envs=8", "batch_size=32", "warmup_frames=64", "evaluate_every=320",
        "checkpoint_every=320", "total_frames=320", "actor_average=1.0",
    ]  # fmt: skip
    sac = done("offpolicy", tmp_path / "sac", *learns)
    still = ["iterations=1", "evaluate_every=1", "lr=1e-12", "lr_end=0.0", "weight_decay=0.0"]
    on = done("evolve", tmp_path / "on", *GRID, *still, f"init={tmp_path / 'sac'}")
    assert on["figures"]["score"] == pytest.approx(sac["figures"]["score"], abs=1e-6)
    assert (
        done("evolve", tmp_path / "new", *GRID, *still)["figures"]["score"]
        != on["figures"]["score"]
    )

    evolved = done("evolve", tmp_path / "evolved", *GRID)
    back = [*learns, f"init={tmp_path / 'evolved'}", "updates_per_frame=0.0"]
    again = done("offpolicy", tmp_path / "back", *back)
    assert again["updates"] == 0
    assert again["figures"]["score"] == pytest.approx(evolved["figures"]["score"], abs=1e-6)


def test_turns_alternate_and_the_better_policy_goes_on(tmp_path):
    found = done("evolve", tmp_path / "run", *GRID, *TURNS, "lr=0.05", "sigma=0.05")["hybrid"]
    assert found["frames"] == 3 * 256
    assert found["updates"] > 0
    same_policy = ["lr=1e-12", "lr_end=0.0", "weight_decay=0.0"]  # as good in every episode
    never = done("evolve", tmp_path / "never", *GRID, *TURNS, *same_policy)
    always = done(
        "evolve", tmp_path / "always", *GRID, *TURNS, *same_policy, "hybrid.threshold=0.4"
    )
    assert never["hybrid"]["taken"] == 0
    assert always["hybrid"]["taken"] == 3
    assert 0 <= found["taken"] <= 3


def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path):
    whole = done("evolve", tmp_path / "whole", *GRID, "iterations=20", "checkpoint_every=1")
    folder = tmp_path / "killed"
    asked = command("evolve", folder, *GRID, "iterations=20", "checkpoint_every=1")
    process = subprocess.Popen(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not list((folder / "checkpoints").glob("frames_*[1-9].pt")):
        assert time.monotonic() < until
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (folder / "metrics.json").exists()
    ended = run("evolve", None, f"resume={folder}")
    assert ended.returncode == 0, ended.stderr
    assert same(whole, metrics_of(folder))


def test_longer_than_it_was(tmp_path):
    done("evolve", tmp_path / "run", *GRID)
    ended = run("evolve", None, f"resume={tmp_path / 'run'}", "iterations=8")
    assert ended.returncode == 0, ended.stderr
    assert metrics_of(tmp_path / "run")["updates"] == 8


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["population=7"], "population must be even"),
        (["episodes=0"], "episodes must be a whole number of at least 1"),
        (["sigma=-1.0"], "sigma must be above 0"),
        (["elite=2.0"], "elite must be above 0 and at most 1"),
        (["shaped=log"], "shaped='log' is not known; allowed are rank, z"),
        (["iterations=0"], "iterations must be a whole number of at least 1"),
        (["loss=dqn"], "env.actions=discrete"),
        (["actors=-1"], "actors must not be negative"),
        (["address=auto"], "is of a Ray cluster"),
        (["hybrid=sac", "hybrid.threshold=1.0"], "hybrid.threshold must be at least 0 and below 1"),
        (["hybrid=sac", "hybrid.iterations=0"], "hybrid.iterations must be a whole number"),
        (["hybrid=sac", "loss=ppo"], "learns from the newest steps alone"),
    ],
    ids=lambda each: each[-1] if isinstance(each, list) else "",
)
def test_what_makes_no_sense_is_refused(tmp_path, wrong, said):
    ended = run("evolve", tmp_path / "run", *GRID, *wrong)
    assert ended.returncode == 1
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_members_try_on_ray_and_a_run_goes_on_here(tmp_path):
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'trading-torchrl[ray]'")
    here = done("evolve", tmp_path / "here", *GRID)
    folder = tmp_path / "apart"
    apart = done("evolve", folder, *GRID, "actors=2", "stop_at=3")
    assert apart["runtime"]["replaced"] == 0
    ended = run("evolve", None, f"resume={folder}", "stop_at=null", "actors=0")
    assert ended.returncode == 0, ended.stderr
    apart = metrics_of(folder)
    assert apart["frames"] == here["frames"]
    assert apart["figures"]["score"] == pytest.approx(here["figures"]["score"], abs=1e-4)
