"""Runs of a recipe over settings and seeds, on the test split; none is repeated."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from tqdm import tqdm

from trading_torchrl.evaluation import paired_difference
from trading_torchrl.evaluation.comparing import Difference

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "recipes"))
from compare import settings_of
from many_runs import RECIPES, Job, command, run_all

__all__ = ["SEEDS", "alone", "figures", "paired", "settled", "sweep", "train_all", "train_each"]

RUNS = Path(__file__).resolve().parent / ".cache" / "runs"
SEEDS = range(5)


def sweep(name: str) -> dict[str, list[str]]:
    """Overrides by setting, of a file in ``recipes/conf/sweep``."""
    listed = OmegaConf.to_container(OmegaConf.load(RECIPES / "conf" / "sweep" / f"{name}.yaml"))
    return settings_of({"sweep": listed, "settings": None})


def figures(runs: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """One figure of each run."""
    return [run["figures"][name] for run in runs]


def paired(
    name: str, one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]
) -> Difference:
    """By how much this figure is more in the first runs than in the others, seed by seed."""
    by_seed = ({run["seed"]: run["figures"][name] for run in runs} for runs in (one, other))
    return paired_difference(*by_seed)


def settled(runs: Sequence[Mapping[str, Any]], end: str) -> tuple[float, float, float]:
    """Lowest, highest and furthest moved of all evaluated figures with this end, of any run.

    Over the last four evaluations of each run: learning is over by then, or nearly.
    """
    lowest, highest, furthest = float("inf"), float("-inf"), 0.0
    for run in runs:
        last = run["evaluations"][-4:]
        for name in (key for key in last[0] if key.endswith(end)):
            values = [row[name] for row in last]
            lowest, highest = min(lowest, *values), max(highest, *values)
            furthest = max(furthest, max(values) - min(values))
    return lowest, highest, furthest


def alone(overrides: Sequence[str]) -> tuple[dict[str, Any], float]:
    """Metrics of one run with one thread, nothing beside it, and its largest memory in MB."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        process = subprocess.Popen(
            command("offpolicy", folder, [*overrides, "threads=1"], resume=False),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=RECIPES.parent,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"offpolicy.py {' '.join(overrides)} did not come to its end")
        return json.loads((folder / "metrics.json").read_text()), used.ru_maxrss / 1024


def train_all(
    settings: Mapping[str, Sequence[str]], recipe: str = "offpolicy"
) -> dict[str, list[dict[str, Any]]]:
    """Trains with each list of overrides and each seed; their metrics by name, in seed order."""
    return train_each({name: [given for _ in SEEDS] for name, given in settings.items()}, recipe)


def train_each(
    settings: Mapping[str, Sequence[Sequence[str]]], recipe: str = "offpolicy"
) -> dict[str, list[dict[str, Any]]]:
    """The same with a list of overrides for each seed."""
    jobs = [
        Job.of(name, seed, recipe, overrides, "test", RUNS)
        for name, given in settings.items()
        for seed, overrides in zip(SEEDS, given, strict=True)
    ]
    runs = tqdm(run_all(jobs, os.cpu_count() or 1), total=len(jobs), desc="runs")
    found = {(done.job.name, done.job.seed): done for done in runs}
    failed = [done for done in found.values() if done.failure]
    if failed:
        raise SystemExit(
            "\n\n".join(f"{each.job.folder}: {each.job.name}, seed {each.job.seed}:\n{each.failure}"
                        for each in failed)
        )  # fmt: skip
    return {name: [found[name, seed].metrics for seed in SEEDS] for name in settings}
