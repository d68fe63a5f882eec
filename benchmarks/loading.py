"""Loading: from CSV files to a validated market with features, and what an account takes.

    python benchmarks/loading.py            # a minute

Two sizes: 100 symbols of 10,000 bars, and one symbol of a million. Beside each time stands its
ratio to pandas alone reading the same files. Memory an account takes is measured on markets of
different sizes.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
from tqdm import tqdm

from trading_torchrl.data import (
    Market,
    Scaler,
    load_csv,
    synthetic_market,
    validate,
    with_features,
)
from trading_torchrl.envs import TradingEnv

SIZES = {"100 symbols x 10,000 bars": (100, 10_000), "1 symbol x 1,000,000 bars": (1, 1_000_000)}
SECONDS = 10.0
"""What "in seconds" is taken to mean: all steps of a size together."""


def write_csv(market: Market, folder: Path) -> None:
    """One file a symbol, as a user would have it."""
    for column, symbol in enumerate(market.symbols):
        bars = {
            name: getattr(market, name)[:, column].numpy()
            for name in ("open", "high", "low", "close", "volume")
        }
        frame = pd.DataFrame({"timestamp": market.dates, **bars})
        frame.to_csv(folder / f"{symbol}.csv", index=False)


def timed(work: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """Median seconds, and what came of it."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - began)
    return median(times), result


def load_times(symbols: int, bars: int, rounds: int) -> dict[str, float]:
    """Seconds of every step from files to a market that is ready to trade."""
    with tempfile.TemporaryDirectory() as name:
        folder, saved = Path(name) / "csv", Path(name) / "saved"
        folder.mkdir()
        write_csv(synthetic_market(symbols, bars, seed=0), folder)
        files = sorted(folder.iterdir())
        times = {}
        times["pandas alone"], _ = timed(lambda: [pd.read_csv(file) for file in files], rounds)
        times["load_csv, validated"], market = timed(lambda: load_csv(folder), rounds)
        times["validate again"], _ = timed(lambda: validate(market), rounds)
        times["23 features"], market = timed(lambda: with_features(market), rounds)
        times["scaler"], _ = timed(lambda: Scaler.fit(market), rounds)
        times["save"], _ = timed(lambda: market.save(saved), rounds)
        times["load saved (mapped)"], _ = timed(lambda: Market.load(saved), rounds)
        return times


def account_bytes() -> dict[int, float]:
    """Bytes an account takes, by the bars of a market of four symbols."""
    sizes = {}
    for bars in (1_000, 10_000, 100_000):
        env = TradingEnv(synthetic_market(4, bars, seed=0), 1_024, emit="all", compiled=False)
        env.reset()
        sizes[bars] = env.account_bytes
    return sizes


def main(argv: Sequence[str] | None = None) -> int:
    """Prints both tables, writes them as markdown and JSON; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).resolve().parent / "loading.json"
    )
    arguments = parser.parse_args(argv)
    report: dict[str, Any] = {}
    for name, (symbols, bars) in tqdm(SIZES.items(), desc="sizes"):
        report[name] = load_times(symbols, bars, arguments.rounds)
    missed = False
    lines = ["| step | seconds | x pandas alone |", "|---|---|---|"]
    for name, times in report.items():
        alone = times["pandas alone"]
        ours = sum(times[step] for step in ("load_csv, validated", "23 features", "scaler"))
        missed |= ours > SECONDS
        verdict = "reached" if ours <= SECONDS else "MISSED"
        lines.append(f"| **{name}** | | |")
        for step, seconds in times.items():
            lines.append(f"| {step} | {seconds:.3f} | {seconds / alone:.2f} |")
        lines.append(f"| load, features, scaler: at most {SECONDS:g} s, {verdict} | {ours:.3f} | |")
    sizes = account_bytes()
    same = len(set(sizes.values())) == 1
    lines += ["", "| bars of the market | bytes of an account, everything emitted |", "|---|---|"]
    lines += [f"| {bars:,} | {size:.0f} |" for bars, size in sizes.items()]
    lines += ["", f"Required: the same whatever the market, {'reached' if same else 'MISSED'}."]
    text = "\n".join(lines) + "\n"
    print(f"\n{text}")
    report["account_bytes"] = sizes
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    arguments.output.with_suffix(".md").write_text(text)
    return int(missed or not same)


if __name__ == "__main__":
    sys.exit(main())
