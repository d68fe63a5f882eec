"""Rows about learned weights of objectives: none takes all, they differ, they come to rest."""

from collections.abc import Mapping, Sequence
from typing import Any

from rows import Row
from runs import settled

MOST, ALIKE, STILL = 0.6, 0.5, 0.1


def rows_of(name: str, runs: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Over the last four evaluations, the worst of the seeds."""
    most = settled(runs, "_largest")[1]
    alike = settled(runs, "weight_network_entropy")[0]
    moved = settled(runs, "_weight")[2]
    return [
        Row(f"{name}: largest weight in any row", f"{most:.2f}", f"<= {MOST}", most <= MOST),
        Row(f"{name}: entropy of the weights, lowest", f"{alike:.2f}", f"> {ALIKE}", alike > ALIKE),
        Row(f"{name}: furthest that a mean weight moves", f"{moved:.3f}", f"<= {STILL}",
            moved <= STILL),
    ]  # fmt: skip


def at_the_end(runs: Sequence[Mapping[str, Any]], end: str) -> dict[str, float]:
    """By objective; mean of the seeds."""
    told = [run["objectives"] for run in runs]
    named = [key for key in told[0] if key.endswith(end)]
    return {
        key.removeprefix("reward/").removesuffix(end): sum(each[key] for each in told) / len(told)
        for key in named
    }


def by_objective(figures: Mapping[str, float], form: str) -> str:
    """One after the other, for a cell."""
    return ", ".join(f"{name} {value:{form}}" for name, value in figures.items())
