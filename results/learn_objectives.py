"""Several objectives: a front from one run, and the synthetic market with objectives for a reward.

    python results/learn_objectives.py      # 20 runs, half an hour

Every run is `python recipes/offpolicy.py` with `objectives=pareto`, `fixed`, `regime` and `off`.
"""

from rows import Row, hand_over, said
from runs import SEEDS, figures, paired, train_all

MARKET = ["env=long_short"]
RUNS = {
    "front": ["env=garleanu_pedersen", "objectives=pareto"],
    "off": MARKET,
    "fixed": [*MARKET, "objectives=fixed"],
    "regime": [*MARKET, "objectives=regime"],
}
FRONT = 0.95
SHOWN = ("sharpe_ratio_mean", "growth_share", "action_entropy", "max_drawdown")


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
    for name in ("off", "fixed", "regime"):
        for figure in SHOWN:
            rows.append(Row(f"market, {name}: {figure}", said(figures(found[name], figure))))
        if name != "off":
            less = paired("sharpe_ratio_mean", found[name], found["off"])
            text = f"{less.mean:+.3f} +- {less.half_width:.3f}"
            rows.append(Row(f"market, {name} less off: Sharpe, paired", text))
            told = found[name][0]["objectives"]
            parts = {
                key.removeprefix("reward/").removesuffix("_share"): value
                for key, value in told.items()
                if key.endswith("_share")
            }
            text = ", ".join(f"{each} {value:.0%}" for each, value in parts.items())
            rows.append(Row(f"market, {name}: parts of what is learned from, seed 0", text))
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t). Front:"
        " Garleanu-Pedersen, gross profit against squared trades, nine costs of trading from 0.25"
        " to 4 with one agent; known is what the best rule reaches at each of them, on the same"
        f" noise; the reference point is gross 0 and trading {trading:.3f}."
    )
    hand_over("Several objectives", note, rows)


if __name__ == "__main__":
    main()
