"""Environment steps per second: ours against its peers, in one run on one machine.

    python benchmarks/environment.py                    # everything, a quarter of an hour
    python benchmarks/environment.py --quick            # short rounds, for a look
    python benchmarks/environment.py --only "numba*" "gym*"

Every contestant runs in a process of its own on the same data. A round measures each of them
once, in shuffled order, so that what else the machine does falls on all of them; the table shows
medians over the rounds. Absolute figures move between machines: the ratios are the result.
"""

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from contestants import Contestant, NotAvailable, limits, peers
from market import FEATURES, random_walk, write_market
from tqdm import tqdm

from trading_torchrl.machine import processor

REFERENCE = "gym-trading-env"
UNSTEADY = 0.25


def quartiles_of(rates: Sequence[float]) -> tuple[float, float]:
    """First and third quartile; of one rate, itself."""
    if len(rates) < 2:
        return rates[0], rates[0]
    low, _, high = quantiles(rates, n=4, method="inclusive")
    return low, high


@dataclass(frozen=True)
class Bar:
    """A ratio of two contestants that we want to reach."""

    name: str
    numerator: str
    denominator: str
    required: float


@dataclass(frozen=True)
class Result:
    """What came of one contestant: its rounds in steps per second, or why there are none."""

    contestant: Contestant
    rates: list[float]
    reason: str = ""

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return median(self.rates)

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile over the rounds."""
        return quartiles_of(self.rates)


BATCHES = (1, 16, 256, 4_096, 16_384)
LARGE = 16_384
"""Accounts from which a contestant gets a new process each round: with large arrays its rate
differs from process to process, and hardly within one."""


def ours() -> list[Contestant]:
    """Our own environment: every loop, emission, number of assets and batch; and windows.

    `script` is `ours.py` in the interpreter that runs the benchmark.
    """

    def contestant(name: str, batch: int, **options: str | int) -> Contestant:
        return Contestant(name, "ours.py", options, batch=batch)

    grid = [
        contestant(name_of(loop, emit, assets, batch), batch, loop=loop, emit=emit, assets=assets)
        for assets in (1, 10)
        for loop in ("step", "collector")
        for emit in ("minimum", "everything", "packed")
        for batch in BATCHES
        if assets == 1 or emit != "packed"
    ]
    windows = [
        contestant(f"ours, step W{window}, 4096", 4_096, loop="step", window=window)
        for window in (10, 64)
    ]
    return grid + windows


def name_of(loop: str, emit: str, assets: int, batch: int) -> str:
    """How one of ours is called: `ours, Collector, everything, ten assets, 256`."""
    parts = ["ours", "step" if loop == "step" else "Collector"]
    parts += {"minimum": [], "everything": ["everything"], "packed": ["everything packed"]}[emit]
    parts += ["ten assets"] * (assets == 10)
    return ", ".join([*parts, str(batch)])


BARS = [
    Bar("Collector, 4,096, vs gym-trading-env", "ours, Collector, 4096", "gym-trading-env", 60.0),
    Bar("Collector, 16,384, vs gym-trading-env", "ours, Collector, 16384", "gym-trading-env", 100),
    Bar("Collector, 4,096, vs FinRL, 1 stock", "ours, Collector, 4096", "FinRL, 1 stock", 1_000.0),
    Bar("Collector, 16, vs DummyVecEnv", "ours, Collector, 16", "SB3 DummyVecEnv of 16", 2.0),
    Bar("window 10, 4,096, vs TorchTrade", "ours, step W10, 4096", "TorchTrade W10, 4096", 2.0),
    Bar("window 64, 4,096, vs TorchTrade", "ours, step W64, 4096", "TorchTrade W64, 4096", 2.0),
    Bar("stepped, 16,384, vs numba", "ours, step, 16384", "numba core, 16384", 0.5),
    *(
        Bar(
            f"everything vs minimum, {batch:,}",
            f"ours, step, everything, {batch}",
            f"ours, step, {batch}",
            0.5,
        )
        for batch in BATCHES
    ),
    *(
        Bar(
            f"everything packed vs minimum, {batch:,}",
            f"ours, step, everything packed, {batch}",
            f"ours, step, {batch}",
            0.5,
        )
        for batch in BATCHES
    ),
    *(
        Bar(
            f"Collector, everything packed vs minimum, {batch:,}",
            f"ours, Collector, everything packed, {batch}",
            f"ours, Collector, {batch}",
            0.5,
        )
        for batch in BATCHES
    ),
]


def chosen(contestants: Iterable[Contestant], patterns: Sequence[str]) -> list[Contestant]:
    """The contestants whose name matches one of the shell patterns; all without patterns."""
    return [c for c in contestants if not patterns or any(fnmatch(c.name, p) for p in patterns)]


def race(
    contestants: Sequence[Contestant],
    market: Path,
    *,
    symbols: int,
    threads: int,
    rounds: int,
    seconds: float,
    seed: int,
) -> list[Result]:
    """Starts all contestants, measures them in interleaved rounds and closes them again."""
    rates: dict[str, list[float]] = {c.name: [] for c in contestants}
    reasons: dict[str, str] = {}
    shuffle = random.Random(seed).shuffle
    try:
        starting = tqdm(contestants, desc="start", unit="contestant", dynamic_ncols=True)
        for contestant in starting:
            starting.set_postfix_str(contestant.name)
            try:
                contestant.start(market, symbols, threads)
            except NotAvailable as missing:
                reasons[contestant.name] = f"not installed: {missing}"
                contestant.close()
        running = [c for c in contestants if c.name not in reasons]
        with tqdm(total=rounds * len(running), desc="rounds", dynamic_ncols=True) as progress:
            for _ in range(rounds):
                order = list(running)
                shuffle(order)
                for contestant in order:
                    progress.set_postfix_str(contestant.name)
                    progress.update()
                    if contestant.name in reasons:
                        continue
                    try:
                        if contestant.batch >= LARGE and rates[contestant.name]:
                            contestant.close()
                            contestant.start(market, symbols, threads)
                        rates[contestant.name].append(contestant.measure(seconds))
                    except NotAvailable as failed:
                        reasons[contestant.name] = f"failed: {failed}"
    finally:
        for contestant in contestants:
            contestant.close()
    return [
        Result(c, [] if c.name in reasons else rates[c.name], reasons.get(c.name, ""))
        for c in contestants
    ]


def figure(value: float) -> str:
    """A rate to three digits: 84.1k, 1.72M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def results_table(results: Sequence[Result]) -> list[list[str]]:
    """Rows of the main table, header first."""
    rows = [
        [
            "environment",
            "version",
            "batch",
            "window",
            "features",
            "bytes/frame",
            "MB",
            "steps/s",
            "quartiles",
            f"x {REFERENCE}",
        ]
    ]
    reference = next((r for r in results if r.contestant.name == REFERENCE and r.rates), None)
    for result in results:
        name, facts = result.contestant.name, result.contestant.facts
        if not result.rates:
            rows.append([name, *[""] * 6, "not measured", "", ""])
            continue
        low, high = result.quartiles
        unsteady = " (unsteady)" if high - low > UNSTEADY * result.median else ""
        rows.append(
            [
                name,
                str(facts["version"]),
                f"{result.contestant.batch:,}",
                str(facts["window"]),
                str(facts["features"]),
                f"{facts['bytes_per_frame']:,}",
                f"{facts['rss_mb']:.0f}",
                figure(result.median),
                f"{figure(low)} to {figure(high)}{unsteady}",
                f"{result.median / reference.median:.3g}" if reference else "",
            ]
        )
    return rows


def ratio(bar: Bar, results: Mapping[str, Result]) -> float | None:
    """The ratio of the medians, or None where a side was not measured."""
    sides = [results.get(name) for name in (bar.numerator, bar.denominator)]
    if any(side is None or not side.rates for side in sides):
        return None
    return results[bar.numerator].median / results[bar.denominator].median


def bars_table(results: Mapping[str, Result]) -> list[list[str]]:
    """Rows of the table of bars, header first."""
    rows = [["bar", "required", "measured", ""]]
    for bar in BARS:
        measured = ratio(bar, results)
        shown = "not measured" if measured is None else f"{measured:.3g}"
        verdict = "" if measured is None else ("reached" if measured >= bar.required else "MISSED")
        rows.append([bar.name, f"{bar.required:g}", shown, verdict])
    return rows


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table in markdown whose columns also line up in a terminal."""
    widths = [max(3, *(len(row[k]) for row in rows)) for k in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def report(results: Sequence[Result], settings: dict[str, Any]) -> dict[str, Any]:
    """Everything a later reader needs, for the JSON file."""
    by_name = {r.contestant.name: r for r in results}
    return {
        "settings": settings,
        "machine": {
            "platform": platform.platform(),
            "processor": processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "contestants": [
            {
                "name": r.contestant.name,
                **({"reason": r.reason} if r.reason else {}),
                **r.contestant.facts,
                "rates": r.rates,
                "median": r.median if r.rates else None,
                "quartiles": r.quartiles if r.rates else None,
            }
            for r in results
        ],
        "bars": [
            {
                "name": bar.name,
                "numerator": bar.numerator,
                "denominator": bar.denominator,
                "required": bar.required,
                "measured": ratio(bar, by_name),
            }
            for bar in BARS
        ],
    }


def busy() -> float | None:
    """Processes that wanted a core in the last minute, where the system tells it."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 0.3 seconds")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bars", type=int, default=20_000)
    parser.add_argument("--symbols", type=int, default=4, help="for contestants that take several")
    parser.add_argument(
        "--threads",
        type=int,
        default=int(os.environ.get("OMP_NUM_THREADS", "1")),
        help="of each contestant; OMP_NUM_THREADS where set, else one core each",
    )
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).resolve().parent / "results.json"
    )
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.rounds, arguments.seconds = 2, 0.3
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark and writes `<output>.json` and the same tables as `<output>.md`."""
    arguments = arguments_of(argv)
    contestants = chosen([*peers(), *limits(), *ours()], arguments.only)
    if not contestants:
        print(f"No contestant matches {arguments.only}; use shell patterns such as 'numba*'.")
        return 2
    began = time.perf_counter()
    load = [busy()]
    with tempfile.TemporaryDirectory() as folder:
        market = Path(folder) / "market.npz"
        # FinRL's 30 stocks decide how many symbols the file holds.
        symbols = max(30, arguments.symbols)
        write_market(market, random_walk(arguments.bars, symbols, FEATURES, arguments.seed))
        # Ten assets apart from the rest: all at once would need more memory than a laptop has.
        heats = [
            [c for c in contestants if ("ten assets" in c.name) is ten] for ten in (False, True)
        ]
        results = [
            result
            for heat in heats
            for result in race(
                heat,
                market,
                symbols=arguments.symbols,
                threads=arguments.threads,
                rounds=arguments.rounds,
                seconds=arguments.seconds,
                seed=arguments.seed,
            )
        ]
    settings = {
        name: getattr(arguments, name)
        for name in ("rounds", "seconds", "seed", "bars", "symbols", "threads", "only")
    }
    # Neighbours on the machine cost every contestant, those with more threads most of all.
    settings["load"] = [*load, busy()]
    settings["minutes"] = round((time.perf_counter() - began) / 60, 1)
    parts = [
        markdown(results_table(results)),
        markdown(bars_table({r.contestant.name: r for r in results})),
        f"{arguments.rounds} rounds of {arguments.seconds:g} s, {arguments.threads} thread(s) "
        f"each, {processor()}, {os.cpu_count()} cores. Freed memory is kept (glibc's mmap and trim "
        "thresholds), for every contestant alike.",
    ]
    absent = "\n".join(f"- {r.contestant.name}: {r.reason}" for r in results if r.reason)
    tables = "\n\n".join([*parts, absent] if absent else parts)
    print(f"\n{tables}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report(results, settings), indent=2) + "\n")
    arguments.output.with_suffix(".md").write_text(tables + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
