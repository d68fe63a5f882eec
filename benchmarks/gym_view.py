"""The Gymnasium vector beside the TensorDict environment it views: steps a second.

    python benchmarks/gym_view.py           # a minute

Both step 1,024 accounts on one thread of one process, with the same actions, in rounds that take
turns. The view adds infos and numpy arrays to what the environment does.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from tqdm import tqdm

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import TradingEnv
from trading_torchrl.envs.gym import VectorGymView

ACCOUNTS = 1_024
REQUIRED = 0.5
"""Speed of the view, as a share of the environment's."""

DRAWN = 16
KINDS: dict[str, dict[str, Any]] = {
    "continuous": {},
    "discrete, with its mask": {"actions": "discrete"},
    "continuous, everything emitted": {"emit": "all"},
}


def loops(settings: dict[str, Any]) -> dict[str, Callable[[int], None]]:
    """Both ways to step, each with an environment of its own."""
    market = synthetic_market(symbols=5, bars=20_000, seed=0)
    core, view = (TradingEnv(market, ACCOUNTS, **settings) for _ in range(2))
    drawn = [core.action_spec.rand() for _ in range(DRAWN)]
    arrays = [action.numpy() for action in drawn]
    following = core.reset()
    vector = VectorGymView(view)
    vector.reset()

    def direct(steps: int) -> None:
        nonlocal following
        for step in range(steps):
            following.set("action", drawn[step % DRAWN])
            _, following = core.step_and_maybe_reset(following)

    def viewed(steps: int) -> None:
        for step in range(steps):
            vector.step(arrays[step % DRAWN])

    return {"TensorDict": direct, "Gymnasium vector": viewed}


def speeds(settings: dict[str, Any], steps: int, rounds: int) -> dict[str, float]:
    """Median account steps a second of both, measured in turns."""
    ways = loops(settings)
    for run in ways.values():
        run(steps)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            began = time.perf_counter()
            run(steps)
            seconds[name].append(time.perf_counter() - began)
    return {name: ACCOUNTS * steps / median(times) for name, times in seconds.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table, writes it as markdown and JSON; 1 where the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).resolve().parent / "gym_view.json"
    )
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    lines = [
        f"| {ACCOUNTS:,} accounts | TensorDict, steps/s | Gymnasium vector, steps/s | ratio |",
        "|---|---|---|---|",
    ]
    report, missed = {}, False
    for name, settings in tqdm(KINDS.items(), desc="kinds"):
        found = speeds(settings, arguments.steps, arguments.rounds)
        direct, viewed = found["TensorDict"], found["Gymnasium vector"]
        report[name] = {**found, "ratio": viewed / direct}
        missed |= viewed / direct < REQUIRED
        lines.append(f"| {name} | {direct:,.0f} | {viewed:,.0f} | {viewed / direct:.2f} |")
    verdict = "MISSED" if missed else "reached"
    lines += ["", f"Required: a ratio of at least {REQUIRED:g}, {verdict}."]
    text = "\n".join(lines) + "\n"
    print(f"\n{text}")
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    arguments.output.with_suffix(".md").write_text(text)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
