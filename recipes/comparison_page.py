"""The page of a comparison: what was compared, its tables, pictures of differences and curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from comparison import Comparison
from comparison_tables import difference_rows, figure_rows, speed_rows

from trading_torchrl.evaluation import (
    Difference,
    curves_picture,
    differences_picture,
    learning_curve,
)
from trading_torchrl.evaluation.page import image, listed, page, paragraph, section, table
from trading_torchrl.evaluation.tables import shown_as

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


def page_of(compared: Comparison) -> str:
    """As one file of HTML, pictures within."""
    names = compared.settings
    return page(" · ".join(names) if len(names) < 4 else "Settings compared", _sections(compared))


def _sections(compared: Comparison) -> Iterable[str]:
    seeds = sorted({run["seed"] for run in compared.all_runs})
    lengths = sorted({run[compared.clock] for run in compared.all_runs})
    yield section("What was compared", listed({
        "recipe": f"recipes/{compared.recipe}.py",
        "all settings": " ".join(compared.common) or "as the recipe has them",
        "judged on": f"the {compared.split} split",
        "seeds": ", ".join(map(str, seeds)),
        f"{compared.clock} a run": ", ".join(f"{each:,}" for each in lengths),
        **{name: " ".join(each) or "as the recipe has it"
           for name, each in compared.settings.items() if " ".join(each) != name},
    }))  # fmt: skip
    if compared.failed:
        told = "".join(
            f"<p>{escape(done.job.name)}, seed {done.job.seed}: {escape(str(done.job.folder))}"
            f"</p><pre>{escape(done.failure)}</pre>"
            for done in compared.failed
        )
        yield section("Runs that failed, and are missing below", told)
    shown = [shown_as(each) for each in compared.figures]
    meant = "".join(f" {each.label}: {each.meaning}." for each in shown if each.meaning)
    about = paragraph(ABOUT_FIGURES + meant)
    yield section("Figures", _marked(figure_rows(compared)) + about)
    if apart := difference_rows(compared):
        heading = f"Differences to {next(iter(compared.settings))}"
        told = _marked(apart) + paragraph(ABOUT_DIFFERENCES)
        if compared.all_runs:
            drawn = differences_picture(_differences(compared), next(iter(compared.settings)))
            told += image(drawn, "Differences with 95 % intervals; blue ones exclude 0")
        yield section(heading, told)
    if curves := _curves(compared):
        text = (
            "While learning, on the validation split: mean of the seeds, and the range from the"
            " lowest to the highest"
        )
        yield section("Learning curves", image(curves_picture(curves, compared.clock), text))
    yield section("Speed", _marked(speed_rows(compared)) + paragraph(ABOUT_SPEED))


def _differences(compared: Comparison) -> dict[str, dict[str, Difference]]:
    """To the first setting, by the label of the figure."""
    others = list(compared.settings)[1:]
    return {
        shown_as(figure).label: {name: compared.difference(name, figure) for name in others}
        for figure in compared.figures
    }


def _curves(compared: Comparison) -> dict[str, dict[str, Any]]:
    found = {}
    for figure in compared.figures:
        curves = {
            name: curve
            for name, runs in compared.runs.items()
            if (curve := learning_curve([r["evaluations"] for r in runs.values()], figure)).frames
        }
        if curves:
            found[shown_as(figure).label] = curves
    return found


def _marked(rows: Sequence[Sequence[str]]) -> str:
    """A table, in which what is marked stands out."""
    head, *body = [[escape(cell) for cell in row] for row in rows]
    marked = [
        [f"<strong>{cell}</strong>" if cell.endswith("*") else cell for cell in row] for row in body
    ]
    return table(head, marked)
