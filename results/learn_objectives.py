"""Several objectives in place of one reward, on the synthetic market.

    python results/learn_objectives.py      # 20 runs, half an hour

Every run is `python recipes/offpolicy.py` with `objectives=fixed`, `regime`, `learned` and
without.
"""

from rows import Row, hand_over, said
from runs import SEEDS, figures, paired, train_all
from weights_at_rest import at_the_end, by_objective, rows_of

MARKET = ["env=long_short", "alerts=warn"]
RUNS = {
    "off": MARKET,
    "fixed": [*MARKET, "objectives=fixed"],
    "regime": [*MARKET, "objectives=regime"],
    "learned": [*MARKET, "objectives=learned"],
}
SHOWN = ("sharpe_ratio_mean", "growth_share", "action_entropy", "max_drawdown")


def main() -> None:
    """Trains, and compares."""
    found = train_all(RUNS)
    rows = []
    for name, runs in found.items():
        for figure in SHOWN:
            rows.append(Row(f"market, {name}: {figure}", said(figures(runs, figure))))
        if name == "off":
            continue
        less = paired("sharpe_ratio_mean", runs, found["off"])
        text = f"{less.mean:+.3f} +- {less.half_width:.3f}"
        rows.append(Row(f"market, {name} less off: Sharpe, paired", text))
        for end, what in (("_weight", "weights"), ("_share", "parts of all that is added")):
            text = by_objective(at_the_end(runs, end), ".0%")
            rows.append(Row(f"market, {name}: {what} at the end", text))
    aligned = by_objective(at_the_end(found["learned"], "_alignment"), "+.2f")
    rows.append(Row("market, learned: alignment with the result at the end", aligned))
    rows += rows_of("market, learned", found["learned"])
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t). Synthetic"
        " market, long-short; agents are judged by what they earn, whatever they learned from."
        " Rows with bars are of the last four evaluations, the worst of the seeds."
    )
    hand_over("Several objectives", note, rows)


if __name__ == "__main__":
    main()
