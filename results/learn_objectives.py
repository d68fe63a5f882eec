"""Several objectives: a front from one run, and the synthetic market with objectives for a reward.

    python results/learn_objectives.py      # 25 runs, half an hour

Every run is `python recipes/offpolicy.py` with `objectives=pareto`, `fixed`, `regime`, `learned`
and without.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rows import Row, hand_over, said
from runs import SEEDS, figures, paired, train_all

MARKET = ["env=long_short"]
RUNS = {
    "front": ["env=garleanu_pedersen", "objectives=pareto"],
    "off": MARKET,
    "fixed": [*MARKET, "objectives=fixed"],
    "regime": [*MARKET, "objectives=regime"],
    "learned": [*MARKET, "objectives=learned"],
}
FRONT, MOST, ALIKE, STILL = 0.95, 0.6, 0.5, 0.1
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
    share = figures(found["front"], "front_share")
    rows.append(Row("front: share of the hypervolume", said(share)))
    rows.append(Row("front: lowest of the seeds", f"{min(share):.4f}", f">= {FRONT}",
                    min(share) >= FRONT))  # fmt: skip
    least = figures(found["front"], "least_optimum_share")
    rows.append(Row("front: share of the optimum at the worst preference", said(least)))
    trading = found["front"][0]["figures"]["reference_trading"]
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
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t). Front:"
        " Garleanu-Pedersen, gross profit against squared trades, nine costs of trading from 0.25"
        " to 4 with one agent; known is what the best rule reaches at each of them, on the same"
        f" noise; the reference point is gross 0 and trading {trading:.3f}."
    )
    hand_over("Several objectives", note, rows)


if __name__ == "__main__":
    main()
