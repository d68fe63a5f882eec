"""Runs of a recipe over settings and seeds, two at a time; a run that is there is not repeated."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rows import sources
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
RUNS = Path(__file__).resolve().parent / ".cache" / "runs"
SEEDS = range(5)


def train_all(
    settings: Mapping[str, Sequence[str]], seeds: Sequence[int] = SEEDS, recipe: str = "offpolicy"
) -> dict[str, list[dict[str, Any]]]:
    """Trains with each list of overrides and each seed; their metrics by name, in seed order.

    Every run has one thread, so what it learns does not depend on how many run beside it.
    """
    wanted = [(name, seed) for name in settings for seed in seeds]
    found: dict[tuple[str, int], dict[str, Any]] = {}
    pool = ThreadPoolExecutor(max(1, os.cpu_count() or 2))
    try:
        runs = {
            each: pool.submit(train, [*settings[each[0]], f"seed={each[1]}"], recipe)
            for each in wanted
        }
        for each in tqdm(wanted, desc="runs"):
            found[each] = runs[each].result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return {name: [found[name, seed] for seed in seeds] for name in settings}


def train(overrides: Sequence[str], recipe: str = "offpolicy") -> dict[str, Any]:
    """Metrics of one run, with its folder under `folder`; an interrupted run is gone on with."""
    digest = hashlib.sha256(json.dumps([recipe, *overrides]).encode() + sources()).hexdigest()
    folder = RUNS / digest[:24]
    metrics = folder / "metrics.json"
    if not finished(metrics):
        stopped = json.loads(metrics.read_text())["stopped"] if metrics.exists() else ""
        if stopped and not stopped.startswith("SIG"):
            raise SystemExit(f"{folder}: this run was stopped: {stopped}")
        started = list(folder.glob("checkpoints/frames_*.pt"))
        if not started:
            shutil.rmtree(folder, ignore_errors=True)
        begin = [f"hydra.run.dir={folder}", *overrides, "threads=1", "market.report_split=test"]
        given = [f"resume={folder}"] if started else begin
        command = [sys.executable, str(ROOT / "recipes" / f"{recipe}.py"), *given]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
        if not finished(metrics):
            said = (done.stdout + done.stderr)[-2000:]
            raise SystemExit(f"{' '.join(command)} did not come to its end:\n{said}")
    return json.loads(metrics.read_text()) | {"folder": str(folder)}


def finished(metrics: Path) -> bool:
    """Whether a run came to its end; one that was stopped has no final figures."""
    return metrics.exists() and bool(json.loads(metrics.read_text())["figures"])
