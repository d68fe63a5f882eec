"""All parts together, without each of them, and none: on the synthetic market.

    python results/learn_full_stack.py      # 30 runs, an hour

The settings of `recipes/conf/sweep/ablation.yaml`, which `python recipes/compare.py sweep=ablation`
compares too. Every run is `python recipes/offpolicy.py` with as many frames and updates. Agents are
judged as traders, whatever they learned from.
"""

from rows import Row, hand_over, said
from runs import SEEDS, figures, paired, sweep, train_all
from weights_at_rest import rows_of

RUNS = sweep("ablation")
SHOWN = {
    "Sharpe": "sharpe_ratio_mean",
    "growth": "growth",
    "drawdown": "max_drawdown",
    "entropy": "action_entropy",
    "largest name": "largest_name_share",
}
ALIVE, MOST = 0.3, 0.6
"""Entropy and largest share of one name at which the monitor warns."""


def main() -> None:
    """Trains, and compares."""
    found = train_all(RUNS)
    everything, *others = found
    table = [["", *SHOWN]]
    for name, runs in found.items():
        table.append([name, *(said(figures(runs, figure)) for figure in SHOWN.values())])
    rows = []
    for name in others:
        for what, figure in SHOWN.items():
            less = paired(figure, found[everything], found[name])
            clear = " *" if less.clear else ""
            text = f"{less.mean:+.3f} +- {less.half_width:.3f}{clear}"
            rows.append(Row(f"{everything} less {name}: {what}, paired", text))
    entropy = min(figures(found[everything], "action_entropy"))
    rows.append(Row("everything: entropy of deterministic actions, lowest of the seeds",
                    f"{entropy:.2f}", f">= {ALIVE}", entropy >= ALIVE))  # fmt: skip
    share = max(figures(found[everything], "largest_name_share"))
    rows.append(Row("everything: share of the most frequent name, highest of the seeds",
                    f"{share:.2f}", f"<= {MOST}", share <= MOST))  # fmt: skip
    rows += rows_of("everything", found[everything])
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t), * where that of"
        " a difference excludes 0. Synthetic market, long and short, 512,000 frames. Agents with"
        " goals are judged in one account as others are, a goal of 2 % over every 100 bars. Without"
        " relabelling the goals stay; without objectives the market's own reward, times 100, is"
        " added to the goal's; none has that reward alone, and no goals. Rows about weights are of"
        " the last four evaluations, the worst of the seeds."
    )
    hand_over("The full stack, and without each part", note, rows, table)


if __name__ == "__main__":
    main()
