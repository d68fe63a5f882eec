"""One agent for all preferences between two objectives, against the front that is known.

    python results/learn_front.py           # 5 runs, five minutes

Every run is `python recipes/offpolicy.py env=garleanu_pedersen objectives=pareto`.
"""

from rows import Row, hand_over, said
from runs import SEEDS, figures, train_all

RUNS = {"front": ["env=garleanu_pedersen", "objectives=pareto"]}
FRONT = 0.95


def main() -> None:
    """Trains, and compares."""
    runs = train_all(RUNS)["front"]
    share, least = (figures(runs, name) for name in ("front_share", "least_optimum_share"))
    trading = runs[0]["figures"]["reference_trading"]
    rows = [
        Row("share of the front's hypervolume", said(share)),
        Row("the same, lowest of the seeds", f"{min(share):.4f}", f">= {FRONT}",
            min(share) >= FRONT),
        Row("share of the optimum at the worst preference", said(least)),
    ]  # fmt: skip
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t)."
        " Garleanu-Pedersen, gross profit against squared trades; nine costs of trading from 0.25"
        " to 4, one agent. Known is what the best rule reaches at each cost, on the same noise; the"
        f" reference point is gross 0 and trading {trading:.3f}."
    )
    hand_over("A front from one run", note, rows)


if __name__ == "__main__":
    main()
