"""Every figure of docs/results.md: runs the experiments, prints each bar beside its figure.

    python results/run.py                   # what is not yet measured for this code
    python results/run.py oracles --again   # one experiment, anew
    python results/run.py learn_losses:ddpg # some rows of one, where its script takes their names

An experiment is a script beside this one that prints its rows as its last line. What it printed is
kept with a fingerprint of the package and of the script, so that an interrupted run goes on where
it stopped, and changed code is measured anew. The page keeps the parts that were not measured
again; each says at which commit, and on which processor, it was measured.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rows import ROOT, sources
from tqdm import tqdm

from trading_torchrl.machine import processor

HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache"
PAGE = ROOT / "docs" / "results.md"

EXPERIMENTS = (
    "ledger",
    "engines",
    "batching",
    "lookahead",
    "oracles",
    "martingale",
    "reference",
    "learn_reference",
    "learn_market",
    "learn_pendulum",
    "learn_losses",
    "learn_discrete",
    "learn_symbols",
    "learn_offline",
    "learn_curiosity",
    "learn_hindsight",
    "learn_shaping",
    "learn_front",
    "learn_objectives",
    "learn_full_stack",
    "learn_four_rooms",
    "learn_options",
    "learn_onpolicy",
    "learn_evolution",
    "kills",
    "kill_actors",
)
TRAINING = tuple(
    name for name in EXPERIMENTS if name.startswith("learn_") or name.startswith("kill")
)


def fingerprint(asked: str) -> str:
    """Of all the code a figure depends on."""
    name, *_ = asked.split(":")
    own = [HERE / f"{each}.py" for each in (name, "rows", "runs", "exact")] + [
        ROOT / "constraints.txt"
    ]
    if name.startswith("learn_"):  # they share lists of runs
        own += [*sorted(HERE.glob("learn_*.py")), HERE / "weights_at_rest.py"]
    own += sorted((ROOT / "tests" / "envs").glob("*.py"))
    return sources(*own, recipes=name in TRAINING).hex()


def measured(asked: str) -> dict[str, Any] | None:
    """What an experiment, or a part of one, printed for this very code, if it ran."""
    try:
        kept = json.loads((CACHE / f"{asked}.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return kept if kept["fingerprint"] == fingerprint(asked) else None


def measure(asked: str) -> dict[str, Any]:
    """Runs an experiment, or a part of one, and keeps what it printed."""
    began = time.perf_counter()
    name, *parts = asked.split(":")
    done = subprocess.run(
        [sys.executable, str(HERE / f"{name}.py"), *parts],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    lines = done.stdout.strip().splitlines()
    try:
        kept = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        raise SystemExit(
            f"results/{name}.py printed no rows (exit code {done.returncode})"
        ) from None
    kept |= {"fingerprint": fingerprint(asked), "seconds": round(time.perf_counter() - began, 1)}
    kept |= {"commit": commit(), "processor": f"{processor()}, {os.cpu_count()} cores"}
    CACHE.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=CACHE, delete=False) as file:
        json.dump(kept, file, indent=1)
    os.replace(file.name, CACHE / f"{asked}.json")
    return kept


def commit() -> str:
    """What stands in the working tree."""
    head, changed = (
        subprocess.run(["git", *asked], capture_output=True, text=True, cwd=ROOT).stdout.strip()
        for asked in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "-uno"])
    )
    return f"{head} with changes" if changed else head


def section(name: str, result: dict[str, Any]) -> str:
    """An experiment as a part of the page."""
    lines = [
        f"## {result['title']}",
        "",
        f"`python results/{name}.py`, {result['seconds']:.0f} s at {result['commit']},"
        f" {result['processor']}. {result['note']}",
        "",
    ]
    if result["table"]:
        lines += [*markdown(result["table"]), ""]
    verdicts = {True: "met", False: "**missed**", None: ""}
    figures = [
        [row["figure"], row["value"], row["bar"], verdicts[row["met"]]] for row in result["rows"]
    ]
    return "\n".join([*lines, *markdown([["figure", "measured", "bar", ""], *figures])])


def renewed(there: str, asked: str, result: dict[str, Any]) -> str:
    """A part of the page with the rows that were measured anew; its head says so."""
    name, *parts = asked.split(":")
    rows = [line for line in section(name, result).splitlines() if line.startswith("| ")]
    fresh = {first_cell(line): line for line in rows}
    said = f"Anew, {', '.join(parts)}: "
    lines = [
        fresh.get(first_cell(line), line) if line.startswith("| ") else line
        for line in there.splitlines()
        if not line.startswith(said)
    ]
    stamp = f"{said}{result['seconds']:.0f} s at {result['commit']}, {result['processor']}."
    title, gap, note, *rest = lines
    return "\n".join([title, gap, note, stamp, *rest])


def first_cell(line: str) -> str:
    """What a row of a table is of."""
    return line.split("|")[1].strip()


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, its head first."""
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return [head, "|" + "---|" * len(rows[0]), *body]


def page(results: dict[str, dict[str, Any]]) -> str:
    """The whole page; what is not among the results stays as it is."""
    head = (
        "# Results\n\nWritten by `make results`, all seeds, nothing left out. Each part says at"
        " which commit it was measured; `make results` measures anew what code has changed since."
        " Speed and memory against other libraries are in"
        " [benchmarks/results.md](../benchmarks/results.md), written by `make benchmark`."
    )
    there = sections_of(PAGE.read_text()) if PAGE.exists() else {}
    there |= {name: section(name, result) for name, result in results.items() if ":" not in name}
    for asked, result in results.items():
        name, *parts = asked.split(":")
        if parts:
            there[name] = renewed(there[name], asked, result)
    return "\n\n".join([head, *(there[name] for name in EXPERIMENTS if name in there)]) + "\n"


def sections_of(text: str) -> dict[str, str]:
    """Parts of a page by the experiment they are of."""
    parts = ["## " + part.strip() for part in text.split("\n## ")[1:]]
    return {part.split("`python results/", 1)[1].split(".py`", 1)[0]: part for part in parts}


def main(argv: Sequence[str] | None = None) -> int:
    """Measures what is missing, writes the page; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    parser.add_argument("--again", action="store_true", help="measure although it is measured")
    arguments = parser.parse_args(argv)
    unknown = {each.split(":")[0] for each in arguments.experiments} - set(EXPERIMENTS)
    if unknown:
        parser.error(f"no experiment {sorted(unknown)[0]!r}; there are {', '.join(EXPERIMENTS)}")
    wanted = arguments.experiments or EXPERIMENTS
    bar = tqdm(wanted, desc="experiments")
    for name in bar:
        bar.set_postfix_str(name)
        if arguments.again or measured(name) is None:
            measure(name)
    known = dict.fromkeys([*EXPERIMENTS, *wanted])
    results = {name: kept for name in known if (kept := measured(name)) is not None}
    PAGE.write_text(page(results))
    missed = 0
    for name, result in results.items():
        print(f"\n{result['title']} ({name})")
        for row in result["rows"]:
            verdict = {True: "met", False: "MISSED", None: ""}[row["met"]]
            missed += row["met"] is False
            print(f"  {row['figure']:58} {row['value']:34} {row['bar']:30} {verdict}")
    absent = [name for name in EXPERIMENTS if name not in results]
    if absent:
        print(f"\nnot measured for this code: {', '.join(absent)}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
