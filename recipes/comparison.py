"""What a comparison says: figures of every setting, differences to the first, curves, speed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from many_runs import Done

from trading_torchrl.evaluation import (
    Difference,
    Interval,
    clock_of,
    frames_to,
    interval,
    learning_curve,
    paired_difference,
)
from trading_torchrl.evaluation.tables import interval_of

CHOSEN = {
    "goal_success": (
        "goal_success", "stochastic_goal_success", "goal_distance", "sharpe_ratio_mean", "growth",
        "max_drawdown", "action_entropy",
    ),
    "sharpe_ratio_mean": (
        "sharpe_ratio_mean", "growth", "growth_share", "max_drawdown", "action_entropy", "turnover",
    ),
    "optimum_share": ("optimum_share", "stochastic_share", "action_entropy"),
    "return": ("return", "stochastic_return", "action_entropy"),
}  # fmt: skip
"""Figures that are shown of a task which reports the first one."""


class Comparison:
    """Settings of a recipe, and what became of their runs."""

    def __init__(
        self,
        recipe: str,
        common: Sequence[str],
        settings: Mapping[str, Sequence[str]],
        split: str,
        figures: Sequence[str] | None,
        reach: tuple[str, float] | None,
    ) -> None:
        self.recipe, self.common, self.settings = recipe, common, settings
        self.split, self.asked, self.reach = split, figures, reach
        self.runs: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in settings}
        self.failed: list[Done] = []

    def add(self, done: Done) -> None:
        """Takes a run in; refuses it where it lacks a figure that is to be compared."""
        if done.failure:
            self.failed.append(done)
            return
        found = done.metrics["figures"]
        _expect(self.asked or (), found, f"{done.job.name!r} reports no figure")
        if self.reach:
            evaluated = done.metrics["evaluations"][-1:]
            there = evaluated[0] if evaluated else {}
            _expect([self.reach[0]], there, f"reach: evaluations of {done.job.name!r} have no")
        runs = self.runs[done.job.name]
        runs[done.job.seed] = done.metrics
        self.runs[done.job.name] = dict(sorted(runs.items()))

    @property
    def all_runs(self) -> list[dict[str, Any]]:
        """Of every setting."""
        return [run for runs in self.runs.values() for run in runs.values()]

    @property
    def figures(self) -> list[str]:
        """That were asked for, or the main ones of the task, as far as all runs report them."""
        if self.asked or not self.all_runs:
            return list(self.asked or ())
        wanted = chosen(self.all_runs[0]["figures"])
        common = [each for each in wanted if all(each in run["figures"] for run in self.all_runs)]
        if not common:
            raise SystemExit(
                f"not all of these settings report any of {', '.join(wanted)}: they learn different"
                " tasks, or give figures=[...]"
            )
        return common

    def interval(self, setting: str, figure: str) -> Interval:
        """Over the seeds, and over symbols where their error is known."""
        runs = self.runs[setting].values()
        names = {name for run in runs for name in run["figures"]}
        row = {name: [run["figures"].get(name, math.nan) for run in runs] for name in names}
        return interval_of(row, figure) if row else Interval(math.nan, math.nan)

    def difference(self, setting: str, figure: str) -> Difference:
        """To the first setting."""
        one, first = (
            {seed: run["figures"][figure] for seed, run in self.runs[name].items()}
            for name in (setting, next(iter(self.settings)))
        )
        return paired_difference(one, first)

    def reached(self, setting: str) -> dict[int, float]:
        """Frames, or updates, until the level, by seed."""
        assert self.reach is not None
        runs = self.runs[setting].items()
        return {seed: frames_to(run["evaluations"], *self.reach) for seed, run in runs}

    @property
    def clock(self) -> str:
        """What runs count by."""
        rows = [row for run in self.all_runs for row in run["evaluations"]]
        return clock_of(rows[0]) if rows else "frames"

    def speed(self, setting: str, figure: str) -> Interval:
        """Of the runs that went through in one go."""
        runs = [run for run in self.runs[setting].values() if in_one_go(run)]
        found = [run["runtime"][figure] for run in runs]
        return interval(found) if found else Interval(math.nan, math.nan)

    def summary(self) -> dict[str, Any]:
        """All of it, as plain mappings."""
        first = next(iter(self.settings))
        return {
            "recipe": self.recipe,
            "common": list(self.common),
            "split": self.split,
            "compared_with": first,
            "clock": self.clock,
            "settings": {name: self._told(name, first) for name in self.settings},
            "failed": [
                {"setting": done.job.name, "seed": done.job.seed, "folder": str(done.job.folder),
                 "said": done.failure}
                for done in self.failed
            ],
        }  # fmt: skip

    def _told(self, name: str, first: str) -> dict[str, Any]:
        runs, figures = self.runs[name], self.figures
        told: dict[str, Any] = {
            "overrides": list(self.settings[name]),
            "runs": {seed: run["folder"] for seed, run in runs.items()},
            "figures": {
                figure: self.interval(name, figure)._asdict()
                | {"seeds": {seed: run["figures"][figure] for seed, run in runs.items()}}
                for figure in figures
            },
        }
        if name != first:
            told["differences"] = {
                figure: (apart := self.difference(name, figure))._asdict() | {"clear": apart.clear}
                for figure in figures
            }
        if self.reach:
            figure, level = self.reach
            told["reach"] = {"figure": figure, "level": level, self.clock: self.reached(name)}
        told["curves"] = {figure: self._curve(name, figure) for figure in figures}
        told["runtime"] = {
            figure: self.speed(name, figure)._asdict()
            for figure in ("updates_per_second", "seconds")
        }
        return told

    def _curve(self, name: str, figure: str) -> dict[str, list[float]]:
        """By the clock's own name."""
        runs = self.runs[name].values()
        curve = learning_curve([run["evaluations"] for run in runs], figure)._asdict()
        return {self.clock: curve.pop("frames"), **curve}


def chosen(found: Mapping[str, float]) -> list[str]:
    """The main figures of a task, by what a run of it reports."""
    for sign, names in CHOSEN.items():
        if sign in found:
            return [name for name in names if name in found]
    return [name for name in found if "/" not in name and not name.endswith("_error")]


def in_one_go(run: Mapping[str, Any]) -> bool:
    """Whether a run's clock saw all of its updates."""
    clock = run["runtime"]
    return round(clock["updates_per_second"] * clock["training_seconds"]) >= run["updates"]


def _expect(wanted: Iterable[str], there: Mapping[str, Any], said: str) -> None:
    for name in wanted:
        if name not in there:
            plain = [each for each in there if "/" not in each]
            raise SystemExit(f"{said} {name!r}; there are {', '.join(plain)}")
