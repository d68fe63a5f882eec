"""Pictures of followed accounts and of training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter
from torch import Tensor

from trading_torchrl.envs.actions import NAMES, TARGET_BINS
from trading_torchrl.evaluation.comparing import Curve, Difference
from trading_torchrl.evaluation.metrics import LEAST_LEFT
from trading_torchrl.evaluation.rollout import Account
from trading_torchrl.monitoring.collapse import ALLOWED, names_of

COLOURS = ("#16508f", "#d1781f", "#2f8f5b", "#8a5fb0", "#c0392b", "#4aa3b8", "#a08b2c", "#6b7280")
"""Of policies, in their order."""

DASHES = ("-", "--", "-.", ":", (0, (8, 2)), (0, (4, 1, 1, 1, 1, 1)), (0, (1, 1)))
"""Of ways of learning; one fewer than colours, so that a pair of both comes again late."""

GRID, PALE = "#e5e7eb", "#9fb8d4"
SHOWN_BARS = 500


def growth_picture(
    accounts: Mapping[str, Account], bars_per_year: float, thick: str | None = None
) -> Figure:
    """Mean log growth of every policy over time; the one named ``thick`` stands out."""
    figure, axis = _one_axis(4.6)
    paths, colours = 0, _colours(accounts)
    for i, (name, account) in enumerate(accounts.items()):
        grown = _grown(account.equity).mean(0)
        axis.plot(
            _years(grown, bars_per_year),
            grown,
            color=colours[name],
            ls="-" if i < len(COLOURS) else "--",
            lw=2.2 if name == thick else 1.3,
            zorder=3 if name == thick else 2,
            label=name,
        )
        paths = len(account.equity)
    axis.axhline(0, color="grey", lw=0.7)
    axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axis.set_xlabel("years")
    axis.set_ylabel("log growth since the start")
    axis.legend(frameon=False, fontsize=9)
    axis.set_title(f"Net of costs, mean of {_counted(paths, 'symbol')}", fontsize=10, loc="left")
    return figure


def drawdown_picture(account: Account, bars_per_year: float) -> Figure:
    """How far below their peaks the accounts were: the mean, the middle 80 %, the worst."""
    figure, axis = _one_axis(3.0)
    fallen = account.equity / account.equity.cummax(-1).values - 1
    years = _years(fallen[0], bars_per_year)
    ends = np.quantile(fallen.numpy(), [0.1, 0.9], axis=0)
    several = len(fallen) > 1
    if several:
        axis.fill_between(years, *ends, color=PALE, alpha=0.6, lw=0, label="middle 80 % of symbols")
        axis.plot(years, fallen.amin(0), color=COLOURS[4], lw=0.9, label="worst symbol")
    axis.plot(years, fallen.mean(0), color=COLOURS[0], lw=1.8, label="mean" if several else None)
    axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axis.set_xlabel("years")
    axis.set_ylabel("below the peak")
    if several:
        figure.legend(frameon=False, fontsize=9, ncols=3, loc="outside upper right")
    return figure


def action_picture(account: Account, kind: str) -> Figure:
    """How often each name was the policy's output and, of numbers, their distribution."""
    actions = account.actions
    counts = names_of(actions, kind).bincount(minlength=ALLOWED[kind]).double()
    shares = (counts / counts.sum()).tolist()
    if kind == "discrete":
        figure, axis = _one_axis(3.2)
    else:
        figure = Figure(figsize=(10, 3.2), layout="constrained")
        axis, numbers = figure.subplots(1, 2)
        _plain(numbers)
        weights = torch.full_like(actions, 1 / max(len(actions), 1))
        numbers.hist(actions, bins=np.linspace(-1, 1, 42).tolist(), weights=weights, color=PALE)
        numbers.yaxis.set_major_formatter(PercentFormatter(1))
        numbers.set_xticks([-1, -0.5, 0, 0.5, 1])
        numbers.set_xlabel("action")
        numbers.set_ylabel("share of outputs")
    _plain(axis)
    bars = axis.barh(name_labels(kind), shares, color=COLOURS[0])
    axis.bar_label(bars, [f"{share:.1%}" for share in shares], padding=3, fontsize=8)
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.set_xlim(0, 1.15 * max(*shares, 1e-9))
    axis.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axis.set_xlabel("share of outputs")
    return figure


def name_labels(kind: str) -> list[str]:
    """What the bars of :func:`action_picture` stand for."""
    if kind != "target":
        return list(NAMES[: ALLOWED[kind]])
    edges = [2 * i / TARGET_BINS - 1 for i in range(TARGET_BINS + 1)]
    return [f"{low:+.2f} to {high:+.2f}" for low, high in pairwise(edges)]


def position_picture(
    accounts: Mapping[str, Account],
    names: Sequence[str],
    symbol: int = 0,
    bars: int = SHOWN_BARS,
) -> Figure:
    """Positions of some of the policies in one symbol over its first bars; the first is thick.

    Args:
        accounts: of all policies, so that each has its colour in every picture.
        names: whose positions are drawn.
        symbol: number of the symbol.
        bars: how many.
    """
    figure, axis = _one_axis(3.0)
    colours = _colours(accounts)
    for name in names:
        share = accounts[name].share[symbol, :bars]
        axis.plot(
            np.arange(len(share)),
            share,
            drawstyle="steps-post",
            color=colours[name],
            lw=1.6 if name == names[0] else 1.0,
            zorder=3 if name == names[0] else 2,
            label=name,
        )
    axis.axhline(0, color="grey", lw=0.7)
    axis.set_xlabel("bars")
    axis.set_ylabel("position / equity")
    if len(names) > 1:
        figure.legend(frameon=False, fontsize=9, ncols=len(names), loc="outside upper right")
    return figure


def training_picture(training: Sequence[Mapping[str, float]]) -> Figure:
    """A panel for every figure that was logged, over frames; NaN and what is missing leave gaps.

    Args:
        training: rows with ``frames`` and any other figures, some of which a row may lack; where
            all have ``updates``, over these.
    """
    clocks = ("frames", "updates")
    names = list(dict.fromkeys(name for row in training for name in row if name not in clocks))
    clock = "updates" if all("updates" in row for row in training) else "frames"
    if not names or not all(clock in row for row in training):
        raise ValueError(
            "training rows need 'frames' and at least one figure more, got rows with"
            f" {sorted({name for row in training for name in row})}"
        )
    columns = min(3, len(names))
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(10, 0.3 + 2.3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    for panel, name in zip(panels, names, strict=False):
        logged = [row for row in training if name in row]
        _plain(panel)
        panel.plot(
            [row[clock] for row in logged],
            [row[name] for row in logged],
            color=COLOURS[0] if name.startswith("eval") else COLOURS[1],
            lw=1.3,
            marker="." if len(logged) < 40 else None,
        )
        panel.set_title(name, fontsize=9, loc="left")
        panel.set_xlabel(clock, fontsize=8)
        panel.tick_params(labelsize=8)
        panel.xaxis.set_major_locator(MaxNLocator(4))
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    return figure


def curves_picture(figures: Mapping[str, Mapping[str, Curve]], clock: str = "frames") -> Figure:
    """A panel for every figure, in it a line for every way of learning and the range of its seeds.

    Args:
        figures: curves by the name of the figure, then of the setting; a setting has its colour
            and its dashes in all panels.
        clock: what they are over.
    """
    columns = min(2, len(figures))
    rows = math.ceil(len(figures) / columns)
    named = list(dict.fromkeys(name for curves in figures.values() for name in curves))
    figure = Figure(figsize=(10, 0.6 + 0.2 * len(named) + 2.9 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel in panels[len(figures) :]:
        panel.set_visible(False)
    for panel, (shown, curves) in zip(panels, figures.items(), strict=False):
        _plain(panel)
        for name, curve in curves.items():
            i = named.index(name)
            colour, dashes = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
            panel.fill_between(curve.frames, curve.low, curve.high, color=colour, alpha=0.15, lw=0)
            few = "." if len(curve.frames) < 40 else None
            panel.plot(
                curve.frames, curve.mean, color=colour, ls=dashes, lw=1.6, marker=few, label=name
            )
        panel.set_xlabel(clock)
        panel.set_ylabel(shown)
        panel.xaxis.set_major_locator(MaxNLocator(5))
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    handles = {text: handle for panel in panels for handle, text in zip(
        *panel.get_legend_handles_labels(), strict=True
    )}  # fmt: skip
    figure.legend(
        handles.values(), handles, frameon=False, fontsize=9, loc="outside upper left",
        handlelength=3.5,
    )  # fmt: skip
    return figure


def front_picture(names: Sequence[str], reached: Mapping[str, Tensor]) -> Figure:
    """What two objectives reach together: a line over the preferences for each who reached it.

    Args:
        names: of both objectives; the first is across.
        reached: ``[P, 2]`` each; more is better.
    """
    figure, axis = _one_axis(4.2)
    for i, (name, points) in enumerate(reached.items()):
        across, up = points.T.tolist()
        colour, dashes = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        axis.plot(across, up, color=colour, ls=dashes, lw=1.6, marker=".", label=name)
    axis.set_xlabel(names[0])
    axis.set_ylabel(names[1])
    axis.legend(frameon=False, fontsize=9)
    return figure


def differences_picture(figures: Mapping[str, Mapping[str, Difference]], first: str) -> Figure:
    """A panel for every figure: by how much each setting is apart from the first, with intervals.

    Args:
        figures: differences by the name of the figure, then of the setting.
        first: the setting that the others are compared with; it is the line at zero.
    """
    columns = min(2, len(figures))
    rows = math.ceil(len(figures) / columns)
    named = list(dict.fromkeys(name for apart in figures.values() for name in apart))
    height = 0.4 + rows * (0.9 + 0.28 * len(named))
    figure = Figure(figsize=(10, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
    for panel in panels[len(figures) :]:
        panel.set_visible(False)
    for panel, (shown, apart) in zip(panels, figures.items(), strict=False):
        _plain(panel)
        panel.axvline(0, color="black", lw=0.8)
        known = {name: each for name, each in apart.items() if math.isfinite(each.mean)}
        for name, each in known.items():
            half = each.half_width if math.isfinite(each.half_width) else 0.0
            panel.errorbar(
                each.mean, named.index(name), xerr=half, fmt="o", ms=4, capsize=3,
                color=COLOURS[0] if each.clear else COLOURS[1],
            )  # fmt: skip
        panel.set_title(f"{shown}, less {first}", fontsize=9, loc="left")
        panel.set_yticks(range(len(named)), named)
        panel.set_ylim(len(named) - 0.5, -0.5)
        panel.xaxis.set_major_locator(MaxNLocator(5))
    return figure


def _colours(accounts: Mapping[str, Account]) -> dict[str, str]:
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(accounts)}


def _grown(equity: Tensor) -> Tensor:
    return (equity / equity[:, :1]).clamp(min=LEAST_LEFT).log()


def _years(path: Tensor, bars_per_year: float) -> Tensor:
    return torch.arange(len(path)) / bars_per_year


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _one_axis(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(10, height), layout="constrained")
    axis = figure.subplots()
    _plain(axis)
    return figure, axis


def _plain(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(color=GRID, lw=0.7)
    axis.set_axisbelow(True)
    axis.margins(x=0.01)
