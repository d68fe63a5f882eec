"""Continuous against discrete actions: SAC on the synthetic market, five seeds each, paired.

    python results/learn_discrete.py        # 10 runs, half an hour

Both learn from the same market with the same seeds and budget: the two settings of
`recipes/conf/sweep/actions.yaml`, which `python recipes/compare.py sweep=actions` compares too.
They are evaluated often, so that the frames until a Sharpe ratio of 0.3 can be told. Differences
are seed by seed.
"""

from collections.abc import Mapping
from math import inf
from statistics import median
from typing import Any

from learn_market import over_seeds
from rows import Row, hand_over
from runs import SEEDS, paired, sweep, train_all

from trading_torchrl.evaluation import frames_to

OFTEN = ["env=long_short", "evaluate_every=25_600"]
RUNS = {name: [*OFTEN, *overrides] for name, overrides in sweep("actions").items()}
FIGURES = {
    "action_entropy": ("entropy of the deterministic names", 1),
    "sharpe_ratio_mean": ("Sharpe", 1),
    "growth": ("growth a year", 1),
    "max_drawdown": ("largest drawdown", -1),
}
"""What it is called, and whether more is better."""

MORE = 0.2
LEVEL = 0.3


def better(runs: Mapping[str, list[dict[str, Any]]], figure: str, sign: int) -> float:
    """By what part of the discrete agents' mean the continuous ones' is better."""
    one, other = (over_seeds(runs[name], figure)[0] for name in ("continuous", "discrete"))
    return sign * (one - other) / abs(other)


def main() -> None:
    """Trains, and compares."""
    runs = train_all(RUNS)
    rows = []
    others = 0
    for figure, (said, sign) in FIGURES.items():
        for name in RUNS:
            rows.append(Row(f"{name}: {said}", over_seeds(runs[name], figure)[1]))
        apart = paired(figure, *runs.values())
        gain = better(runs, figure, sign)
        text = f"{apart.mean:+.3f} +- {apart.half_width:.3f} ({gain:+.0%} better)"
        is_entropy = figure == "action_entropy"
        bar = ("target >= 20 % better", gain >= MORE) if is_entropy else ("", None)
        rows.append(Row(f"continuous less discrete: {said}", text, *bar))
        others += not is_entropy and gain >= MORE
    frames = {
        name: [frames_to(run["evaluations"], "sharpe_ratio_mean", LEVEL) for run in runs[name]]
        for name in RUNS
    }
    for name, found in frames.items():
        arrived = ", ".join(f"{each:,.0f}" for each in found)
        rows.append(Row(f"{name}: frames to a Sharpe ratio of {LEVEL}, each seed", arrived))
    one, other = (median(frames[name]) for name in RUNS)
    rows.append(Row("frames to it, continuous to discrete, medians", f"{one / other:.2f}",
                    "target <= 0.5", one <= 0.5 * other < inf))  # fmt: skip
    others += one <= (1 - MORE) * other < inf
    rows.append(Row("figures besides entropy that are 20 % better", f"{others} of 4",
                    "target >= 2", others >= 2))  # fmt: skip
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals; over seeds and paths for each kind,"
        " over seeds (Student's t) for differences. Entropy is of seven names, of which discrete"
        " agents choose one and continuous actions fall into seven equal bins of the target."
    )
    hand_over("Continuous against discrete actions", note, rows)


if __name__ == "__main__":
    main()
