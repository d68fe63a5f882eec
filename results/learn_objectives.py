"""Several objectives in place of one reward, on the synthetic market.

    python results/learn_objectives.py      # 20 runs, half an hour

Every run is `python recipes/offpolicy.py` with `objectives=fixed`, `regime`, `learned` and
without.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rows import Row, hand_over, said
from runs import SEEDS, figures, paired, train_all

MARKET = ["env=long_short"]
RUNS = {
    "off": MARKET,
    "fixed": [*MARKET, "objectives=fixed"],
    "regime": [*MARKET, "objectives=regime"],
    "learned": [*MARKET, "objectives=learned"],
}
MOST, ALIKE, STILL = 0.6, 0.5, 0.1
SHOWN = ("sharpe_ratio_mean", "growth_share", "action_entropy", "max_drawdown")


def weights(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """At the end, by objective; mean of the seeds."""
    told = [run["objectives"] for run in runs]
    named = [key for key in told[0] if key.endswith("_weight")]
    return {
        key.removeprefix("reward/").removesuffix("_weight"): sum(each[key] for each in told)
        / len(told)
        for key in named
    }


def moves(run: Mapping[str, Any]) -> float:
    """From the lowest to the highest of the last evaluations, of the weight that moves most."""
    last = run["evaluations"][-4:]
    named = [key for key in last[0] if key.endswith("_weight")]
    return max(max(row[key] for row in last) - min(row[key] for row in last) for key in named)


def main() -> None:
    """Trains, and compares."""
    found = train_all(RUNS)
    rows = []
    for name in ("off", "fixed", "regime", "learned"):
        for figure in SHOWN:
            rows.append(Row(f"market, {name}: {figure}", said(figures(found[name], figure))))
        if name != "off":
            less = paired("sharpe_ratio_mean", found[name], found["off"])
            text = f"{less.mean:+.3f} +- {less.half_width:.3f}"
            rows.append(Row(f"market, {name} less off: Sharpe, paired", text))
            text = ", ".join(f"{each} {mean:.0%}" for each, mean in weights(found[name]).items())
            rows.append(Row(f"market, {name}: weights at the end", text))
    learned = weights(found["learned"])
    most = max(learned.values())
    rows.append(Row("learned: largest weight", f"{most:.2f}", f"<= {MOST}", most <= MOST))
    spread = min(run["objectives"]["reward/weight_network_entropy"] for run in found["learned"])
    rows.append(Row("learned: entropy of the weights, lowest of the seeds", f"{spread:.2f}",
                    f"> {ALIKE}", spread > ALIKE))  # fmt: skip
    moved = max(moves(run) for run in found["learned"])
    rows.append(Row("learned: furthest that a weight moves over the last 4 evaluations",
                    f"{moved:.3f}", f"<= {STILL}", moved <= STILL))  # fmt: skip
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t). Synthetic"
        " market, long-short; agents are judged by what they earn, whatever they learned from."
    )
    hand_over("Several objectives", note, rows)


if __name__ == "__main__":
    main()
