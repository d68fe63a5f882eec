"""How an experiment hands over its figures: rows of figure, value, bar and whether it is met."""

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import trading_torchrl
from trading_torchrl.evaluation import interval

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = (".py", ".yaml")


def sources(*more: Path, recipes: bool = True) -> bytes:
    """A fingerprint of the package, of the recipes and their settings, and of ``more`` files."""
    code = sorted(Path(trading_torchrl.__file__).parent.rglob("*.py"))
    if recipes:
        code += sorted(each for each in (ROOT / "recipes").rglob("*") if each.suffix in SUFFIXES)
    digest = hashlib.sha256()
    for source in [*code, *more]:
        digest.update(source.read_bytes())
    return digest.digest()


class Row(NamedTuple):
    """One figure; ``met`` is None where it is reported without a bar."""

    figure: str
    value: str
    bar: str = ""
    met: bool | None = None


def said(values: Sequence[float]) -> str:
    """Mean and 95 % interval over the seeds."""
    mean, half = interval(values)
    return f"{mean:.3f} +- {half:.3f}"


def hand_over(
    title: str, note: str, rows: Sequence[Row], table: Sequence[Sequence[str]] = ()
) -> None:
    """Prints the rows for a reader and, as the last line, for `run.py`; exits with 1 on a miss.

    ``table`` says the same side by side, its head first; it stands before the rows on the page.
    """
    for row in rows:
        verdict = {True: "met", False: "MISSED", None: ""}[row.met]
        print(f"{row.figure:58} {row.value:32} {row.bar:28} {verdict}")
    told = {"title": title, "note": note, "rows": [row._asdict() for row in rows], "table": table}
    print(json.dumps(told))
    sys.exit(any(row.met is False for row in rows))
