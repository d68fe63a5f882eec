"""All parts together, without each of them, and none: on the synthetic market.

    python results/learn_full_stack.py      # 30 runs, an hour

The settings of `recipes/conf/sweep/ablation.yaml`, which `python recipes/compare.py sweep=ablation`
compares too. Every run is `python recipes/offpolicy.py` with as many frames and updates. Agents are
judged as traders, whatever they learned from.
"""

from rows import Row, hand_over, said
from runs import SEEDS, figures, paired, sweep, train_all

RUNS = sweep("ablation")
SHOWN = (
    "sharpe_ratio_mean", "growth", "max_drawdown", "action_entropy", "largest_name_share",
    "position_std",
)  # fmt: skip
COMPARED = ("sharpe_ratio_mean", "growth", "action_entropy")
ALIVE, MOST = 0.3, 0.6
"""Entropy and largest share of one name at which the monitor warns."""


def main() -> None:
    """Trains, and compares."""
    found = train_all(RUNS)
    rows = []
    for name, runs in found.items():
        for figure in SHOWN:
            rows.append(Row(f"{name}: {figure}", said(figures(runs, figure))))
    everything, *others = found
    for name in others:
        for figure in COMPARED:
            less = paired(figure, found[everything], found[name])
            clear = " *" if less.clear else ""
            text = f"{less.mean:+.3f} +- {less.half_width:.3f}{clear}"
            rows.append(Row(f"{everything} less {name}: {figure}, paired", text))
    entropy = min(figures(found[everything], "action_entropy"))
    rows.append(Row("everything: entropy of deterministic actions, lowest of the seeds",
                    f"{entropy:.2f}", f">= {ALIVE}", entropy >= ALIVE))  # fmt: skip
    share = max(figures(found[everything], "largest_name_share"))
    rows.append(Row("everything: share of the most frequent name, highest of the seeds",
                    f"{share:.2f}", f"<= {MOST}", share <= MOST))  # fmt: skip
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t), * where that of"
        " a difference excludes 0. Synthetic market, long and short, 512,000 frames. Agents with"
        " goals are judged in one account as others are, a goal of 2 % over every 100 bars."
    )
    hand_over("The full stack, and without each part", note, rows)


if __name__ == "__main__":
    main()
