"""Runs of a recipe over settings and seeds, on the test split; none is repeated."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "recipes"))
from many_runs import Done, Job, command, run_all

__all__ = ["SEEDS", "command", "train_all"]

RUNS = Path(__file__).resolve().parent / ".cache" / "runs"
SEEDS = range(5)


def train_all(
    settings: Mapping[str, Sequence[str]], seeds: Sequence[int] = SEEDS, recipe: str = "offpolicy"
) -> dict[str, list[dict[str, Any]]]:
    """Trains with each list of overrides and each seed; their metrics by name, in seed order."""
    jobs = [
        Job.of(name, seed, recipe, overrides, "test", RUNS)
        for name, overrides in settings.items()
        for seed in seeds
    ]
    found: dict[tuple[str, int], Done] = {}
    with closing(run_all(jobs, os.cpu_count() or 1)) as coming:
        for done in tqdm(coming, total=len(jobs), desc="runs"):
            found[done.job.name, done.job.seed] = done
    failed = [done for done in found.values() if done.failure]
    if failed:
        raise SystemExit(
            "\n\n".join(f"{each.job.folder}: {each.job.name}, seed {each.job.seed}:\n{each.failure}"
                        for each in failed)
        )  # fmt: skip
    return {name: [found[name, seed].metrics for seed in seeds] for name in settings}
