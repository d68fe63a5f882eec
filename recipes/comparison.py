"""What a comparison says: figures of every setting, differences to the first, curves, speed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from many_runs import Done

from trading_torchrl.evaluation import (
    Difference,
    Interval,
    clock_of,
    curves_picture,
    differences_picture,
    frames_to,
    interval,
    learning_curve,
    paired_difference,
    write_json,
)
from trading_torchrl.evaluation.page import image, listed, page, paragraph, section, table
from trading_torchrl.evaluation.tables import interval_of, shown_as

CHOSEN = {
    "sharpe_ratio_mean": (
        "sharpe_ratio_mean", "growth", "growth_share", "max_drawdown", "action_entropy", "turnover",
    ),
    "optimum_share": ("optimum_share", "stochastic_share", "action_entropy"),
    "goal_success": (
        "goal_success", "stochastic_goal_success", "goal_distance", "action_entropy",
    ),
    "return": ("return", "stochastic_return", "action_entropy"),
}  # fmt: skip
"""Figures that are shown of a task which reports the first one."""

ABOUT_FIGURES = (
    "± is half of the 95 % interval of the mean over seeds; where a figure's error over symbols is"
    " known, it comes on top, as if symbols were independent."
)
ABOUT_DIFFERENCES = (
    "Seed by seed, ± half of the 95 % interval of the mean difference (Student's t), on the data"
    " that all were judged on. Pairs are the seeds that both have a number for, figure by figure"
    " where these differ. * marks an interval that excludes 0. One in twenty does so by chance"
    " alone, so that among many some will."
)
ABOUT_SPEED = (
    "Speed depends on the machine, and on how many runs were beside each other. Runs that were"
    " interrupted do not count."
)


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

    def figure_rows(self) -> list[list[str]]:
        """Of the table of figures, its head first."""
        figures = self.figures
        head = ["setting", "seeds", *(shown_as(each).label for each in figures)]
        rows = [
            [name, str(len(self.runs[name])),
             *(_plus_minus(*self.interval(name, each), shown_as(each).style) for each in figures)]
            for name in self.settings
        ]  # fmt: skip
        if self.reach:
            figure, level = self.reach
            head.append(f"{self.clock} to {shown_as(figure).label} {level:g}")
            for row in rows:
                row.append(_arrival(self.reached(row[0]).values()))
        return [head, *rows]

    def difference_rows(self) -> list[list[str]]:
        """Of the table of differences, its head first."""
        first, *others = self.settings
        figures = self.figures
        head = [f"difference to {first}", "pairs", *(shown_as(each).label for each in figures)]
        rows = []
        for name in others:
            apart = [self.difference(name, each) for each in figures]
            counts = [str(each.pairs) for each in apart]
            pairs = ", ".join(counts if len(set(counts)) > 1 else counts[:1])
            cells = [
                _plus_minus(each.mean, each.half_width, _signed(shown_as(figure).style))
                + (" *" if each.clear else "")
                for figure, each in zip(figures, apart, strict=True)
            ]
            rows.append([name, pairs, *cells])
        return [head, *rows] if others else []

    def speed_rows(self) -> list[list[str]]:
        """Of the table of speed, its head first."""
        styles = {"updates_per_second": ",.0f", "seconds": ",.1f"}
        head = ["on this machine", "updates a second", "seconds a run"]
        rows = [
            [name, *(_plus_minus(*self.speed(name, key), style) for key, style in styles.items())]
            for name in self.settings
        ]
        return [head, *rows]

    def text(self) -> str:
        """For a terminal."""
        parts = [aligned(self.figure_rows())]
        if apart := self.difference_rows():
            parts.append(aligned(apart) + "\n* the 95 % interval excludes 0")
        parts.append(aligned(self.speed_rows()))
        for done in self.failed:
            said = "\n".join(f"    {line}" for line in done.failure.splitlines())
            parts.append(
                f"failed: {done.job.name}, seed {done.job.seed}: {done.job.folder}\n{said}"
            )
        return "\n\n".join(parts)

    def write(self, folder: Path) -> None:
        """Leaves ``comparison.json`` and ``comparison.html``."""
        write_json(folder / "comparison.json", self.summary())
        title = f"{' · '.join(self.settings)}" if len(self.settings) < 4 else "Settings compared"
        (folder / "comparison.html").write_text(page(title, self._sections()), encoding="utf-8")

    def _sections(self) -> Iterable[str]:
        seeds = sorted({run["seed"] for run in self.all_runs})
        lengths = sorted({run[self.clock] for run in self.all_runs})
        yield section("What was compared", listed({
            "recipe": f"recipes/{self.recipe}.py",
            "all settings": " ".join(self.common) or "as the recipe has them",
            "judged on": f"the {self.split} split",
            "seeds": ", ".join(map(str, seeds)),
            f"{self.clock} a run": ", ".join(f"{each:,}" for each in lengths),
            **{name: " ".join(each) or "as the recipe has it"
               for name, each in self.settings.items() if " ".join(each) != name},
        }))  # fmt: skip
        if self.failed:
            told = "".join(
                f"<p>{escape(done.job.name)}, seed {done.job.seed}: {escape(str(done.job.folder))}"
                f"</p><pre>{escape(done.failure)}</pre>"
                for done in self.failed
            )
            yield section("Runs that failed, and are missing below", told)
        shown = [shown_as(each) for each in self.figures]
        meant = "".join(f" {each.label}: {each.meaning}." for each in shown if each.meaning)
        about = paragraph(ABOUT_FIGURES + meant)
        yield section("Figures", html_table(self.figure_rows()) + about)
        if apart := self.difference_rows():
            heading = f"Differences to {next(iter(self.settings))}"
            told = html_table(apart) + paragraph(ABOUT_DIFFERENCES)
            if self.all_runs:
                drawn = differences_picture(self._differences(), next(iter(self.settings)))
                told += image(drawn, "Differences with 95 % intervals; blue ones exclude 0")
            yield section(heading, told)
        if curves := self._curves():
            text = (
                "While learning, on the validation split: mean of the seeds, and the range from the"
                " lowest to the highest"
            )
            yield section("Learning curves", image(curves_picture(curves, self.clock), text))
        yield section("Speed", html_table(self.speed_rows()) + paragraph(ABOUT_SPEED))

    def _differences(self) -> dict[str, dict[str, Difference]]:
        """To the first setting, by the label of the figure."""
        others = list(self.settings)[1:]
        return {
            shown_as(figure).label: {name: self.difference(name, figure) for name in others}
            for figure in self.figures
        }

    def _curves(self) -> dict[str, dict[str, Any]]:
        found = {}
        for figure in self.figures:
            curves = {
                name: curve
                for name, runs in self.runs.items()
                if (
                    curve := learning_curve([r["evaluations"] for r in runs.values()], figure)
                ).frames
            }
            if curves:
                found[shown_as(figure).label] = curves
        return found


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


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text, columns under each other, the first to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """The same for a page; what is marked stands out."""
    head, *body = [[escape(cell) for cell in row] for row in rows]
    marked = [
        [f"<strong>{cell}</strong>" if cell.endswith("*") else cell for cell in row] for row in body
    ]
    return table(head, marked)


def _expect(wanted: Iterable[str], there: Mapping[str, Any], said: str) -> None:
    for name in wanted:
        if name not in there:
            plain = [each for each in there if "/" not in each]
            raise SystemExit(f"{said} {name!r}; there are {', '.join(plain)}")


def _plus_minus(mean: float, half_width: float, style: str) -> str:
    if not math.isfinite(mean):
        return "n/a"
    half = f" ± {half_width:{style.replace('+', '')}}" if math.isfinite(half_width) else ""
    return f"{mean:{style}}{half}"


def _signed(style: str) -> str:
    return style if style.startswith("+") else f"+{style}"


def _arrival(frames: Iterable[float]) -> str:
    """The median and how many; those that never arrive count as later than all others."""
    known = list(frames)
    if not known:
        return "n/a"
    there = sum(map(math.isfinite, known))
    middle = median(known)
    if math.isfinite(middle):
        return f"{middle:,.0f} ({there} of {len(known)})"
    return f"{'no median' if there else 'never'} ({there} of {len(known)})"
