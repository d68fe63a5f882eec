"""Recipes through their real command lines, shrunken: what their tests share."""

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TINY = [
    "hidden=[16]", "threads=1", "batch_size=32", "alerts=none", "env.num_envs=8",
    "updates_per_frame=0.125", "warmup_frames=64", "log_every=160",
]  # fmt: skip
REFERENCE = [
    *TINY, "env=garleanu_pedersen", "+env.steps=20", "total_frames=1_280", "evaluate_every=640",
    "checkpoint_every=320",
]  # fmt: skip
FEW_BARS = [
    "market.train.paths=4", "market.train.bars=300", "market.validation.paths=2",
    "market.validation.bars=60", "market.test.paths=3", "market.test.bars=80",
    "++env.episode_bars=100",
]  # fmt: skip
SHORT = [
    "total_frames=640", "evaluate_every=320", "checkpoint_every=320", "+env.compiled=false",
    *FEW_BARS,
]  # fmt: skip
MARKET = [*TINY, *SHORT]


def with_changes(overrides, *others):
    """Overrides, of each setting the later one."""
    return list({each.split("=")[0]: each for each in (*overrides, *others)}.values())


def command(name, folder, *overrides):
    given = [] if folder is None else [f"hydra.run.dir={folder}"]
    return [sys.executable, str(ROOT / "recipes" / f"{name}.py"), *given, *overrides]


@functools.cache
def warm():
    """A process that has the libraries loaded already (warm.py)."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("warm.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.kill)
    return server


def run(name, folder, *overrides):
    """A recipe that came to its end: exit code and what it printed."""
    _, *argv = command(name, folder, *overrides)
    with tempfile.TemporaryDirectory() as kept:
        out, err = Path(kept, "out"), Path(kept, "err")
        out.touch(), err.touch()
        asked = {"argv": argv, "cwd": os.getcwd(), "env": dict(os.environ)}
        server = warm()
        print(json.dumps(asked | {"out": str(out), "err": str(err)}), file=server.stdin, flush=True)
        ended = json.loads(server.stdout.readline())
        return subprocess.CompletedProcess(argv, ended, out.read_text(), err.read_text())


def done(name, folder, *overrides):
    """Metrics of a run that came to its end."""
    ended = run(name, folder, *overrides)
    assert ended.returncode == 0, ended.stderr
    return metrics_of(folder)


def trained(folder, *overrides):
    return done("offpolicy", folder, *overrides)


def metrics_of(folder):
    return json.loads((folder / "metrics.json").read_text())


def same(first, second):
    """All but what comparisons leave out."""
    return all(first[key] == second[key] for key in first if key not in ("runtime", "stopped"))


def stopped_and_resumed(folder, overrides, stop_at, recipe="offpolicy"):
    first = done(recipe, folder, *overrides, f"stop_at={stop_at}")
    assert first["frames"] == stop_at
    assert first["figures"] == {}
    ended = run(recipe, None, f"resume={folder}", "stop_at=null")
    assert ended.returncode == 0, ended.stderr
    return metrics_of(folder)
