"""Every loss on three problems: shares of known optima, and the synthetic market, five seeds each.

    python results/learn_losses.py          # 135 runs, hours

Every run is `python recipes/offpolicy.py loss=<loss> env=<problem>` with its settings in
`recipes/conf/`; discrete losses choose among a grid of actions, and are judged by the best policy
on that grid. Updates a second are those of the market runs, one thread each, as many runs at a time
as there are cores.
"""

from typing import Any

from learn_market import over_seeds
from rows import Row, hand_over
from runs import SEEDS, train_all

from trading_torchrl.evaluation import interval

CONTINUOUS = ("sac", "sac_torchrl", "redq", "tqc", "crossq", "td3", "ddpg", "cql", "iql")
DISCRETE = ("sac_discrete", "dqn")
LEARNED_ON = {
    "Garleanu-Pedersen": "env=garleanu_pedersen",
    "planted leak": "env=planted_leak",
    "market": "env=long_short",
}
BAR = 0.95
HEAD = [
    "loss",
    "Garleanu-Pedersen",
    "planted leak",
    "market: Sharpe",
    "growth share",
    "updates a second",
]


def overrides(loss: str, problem: str) -> list[str]:
    """Of the recipe; SAC is what it trains with when nothing is said."""
    chosen = [] if loss == "sac" else [f"loss={loss}"]
    grid = ["env.actions=discrete"] if loss in DISCRETE else []
    return [problem, *chosen, *grid]


def share(runs: list[dict[str, Any]]) -> tuple[float, str]:
    """Of the optimum: mean over the seeds, and in words."""
    mean, half = interval([run["figures"]["optimum_share"] for run in runs])
    return mean, f"{mean:.4f} +- {half:.4f}"


def main() -> None:
    """Trains, and compares."""
    losses = (*CONTINUOUS, *DISCRETE)
    found = train_all(
        {
            f"{loss} {name}": overrides(loss, problem)
            for name, problem in LEARNED_ON.items()
            for loss in losses
        }
    )
    rows, table = [], [HEAD]
    for loss in losses:
        cells = [loss]
        for problem in ("Garleanu-Pedersen", "planted leak"):
            mean, text = share(found[f"{loss} {problem}"])
            said = f"{loss}: {problem}, share of the optimum"
            rows.append(Row(said, text, f">= {BAR}", mean >= BAR))
            cells.append(text)
        runs = found[f"{loss} market"]
        cells += [over_seeds(runs, figure)[1] for figure in ("sharpe_ratio_mean", "growth_share")]
        speed, half = interval([run["runtime"]["updates_per_second"] for run in runs])
        table.append([*cells, f"{speed:.0f} +- {half:.0f}"])
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds and, on the market, paths;"
        " speed depends on the machine and on what ran beside."
    )
    hand_over("Losses, one by one", note, rows, table)


if __name__ == "__main__":
    main()
