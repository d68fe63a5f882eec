"""Tables of a comparison, as rows of text: figures, differences to the first setting, speed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from comparison import Comparison

from trading_torchrl.evaluation.tables import shown_as


def figure_rows(compared: Comparison) -> list[list[str]]:
    """Of the table of figures, its head first."""
    figures = compared.figures
    head = ["setting", "seeds", *(shown_as(each).label for each in figures)]
    rows = [
        [name, str(len(compared.runs[name])),
         *(_plus_minus(*compared.interval(name, each), shown_as(each).style) for each in figures)]
        for name in compared.settings
    ]  # fmt: skip
    if compared.reach:
        figure, level = compared.reach
        head.append(f"{compared.clock} to {shown_as(figure).label} {level:g}")
        for row in rows:
            row.append(_arrival(compared.reached(row[0]).values()))
    return [head, *rows]


def difference_rows(compared: Comparison) -> list[list[str]]:
    """Of the table of differences, its head first."""
    first, *others = compared.settings
    figures = compared.figures
    head = [f"difference to {first}", "pairs", *(shown_as(each).label for each in figures)]
    rows = []
    for name in others:
        apart = [compared.difference(name, each) for each in figures]
        counts = [str(each.pairs) for each in apart]
        pairs = ", ".join(counts if len(set(counts)) > 1 else counts[:1])
        cells = [
            _plus_minus(each.mean, each.half_width, _signed(shown_as(figure).style))
            + (" *" if each.clear else "")
            for figure, each in zip(figures, apart, strict=True)
        ]
        rows.append([name, pairs, *cells])
    return [head, *rows] if others else []


def speed_rows(compared: Comparison) -> list[list[str]]:
    """Of the table of speed, its head first."""
    styles = {"updates_per_second": ",.0f", "seconds": ",.1f"}
    head = ["on this machine", "updates a second", "seconds a run"]
    rows = [
        [name, *(_plus_minus(*compared.speed(name, key), style) for key, style in styles.items())]
        for name in compared.settings
    ]
    return [head, *rows]


def as_text(compared: Comparison) -> str:
    """For a terminal."""
    parts = [aligned(figure_rows(compared))]
    if apart := difference_rows(compared):
        parts.append(aligned(apart) + "\n* the 95 % interval excludes 0")
    parts.append(aligned(speed_rows(compared)))
    for done in compared.failed:
        said = "\n".join(f"    {line}" for line in done.failure.splitlines())
        parts.append(f"failed: {done.job.name}, seed {done.job.seed}: {done.job.folder}\n{said}")
    return "\n\n".join(parts)


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
