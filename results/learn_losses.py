"""Every loss on three problems: shares of known optima, and the synthetic market, five seeds each.

    python results/learn_losses.py          # 165 runs and those of learn_offline.py, hours
    python results/learn_losses.py ddpg     # this loss alone

Every run is `python recipes/offpolicy.py loss=<loss> env=<problem>` with its settings in
`recipes/conf/`; discrete losses choose among a grid of actions, and are judged by the best policy
on that grid. CQL and IQL are made for stored rows: what counts of them on Garleanu-Pedersen is what
they learn there from a replay of mixed quality, by the runs of `learn_offline.py`; what they learn
online is told beside it. Updates a second are those of a short run on the market, one thread, with
nothing else running.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import learn_offline
from learn_market import over_seeds
from rows import Row, hand_over
from runs import SEEDS, alone, train_all
from tqdm import tqdm

from trading_torchrl.evaluation import interval

CONTINUOUS = ("sac", "sac_torchrl", "redq", "tqc", "crossq", "td3", "ddpg", "cql", "iql")
DISCRETE = ("sac_discrete", "dqn")
OFFLINE = {"cql": "CQL", "iql": "IQL"}
"""Losses that are made for stored rows, by their names in learn_offline.py."""
COLLECTED = "Garleanu-Pedersen"
"""The problem whose stored rows they learn from."""
LEARNED_ON = {
    "Garleanu-Pedersen": "env=garleanu_pedersen",
    "planted leak": "env=planted_leak",
    "market": "env=long_short",
}
SHORT = ["stop_at=256_000", "evaluate_every=2_304_000", "checkpoint_every=2_304_000"]
"""A ninth of a run, and nothing but training."""
BAR = 0.95
HEAD = [
    "loss",
    "Garleanu-Pedersen",
    "from stored rows",
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


def speed(loss: str) -> float:
    """Updates a second of a short run, collecting included."""
    metrics, _ = alone([*overrides(loss, LEARNED_ON["market"]), *SHORT])
    return float(metrics["runtime"]["updates_per_second"])


def main(argv: Sequence[str] | None = None) -> None:
    """Trains, and compares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = (*CONTINUOUS, *DISCRETE)
    parser.add_argument("losses", nargs="*", metavar="LOSS", help=", ".join(every))
    losses = parser.parse_args(argv).losses or every
    if set(losses) - set(every):
        parser.error(f"no loss {sorted(set(losses) - set(every))[0]!r}; there are {every}")
    found = train_all(
        {
            f"{loss} {name}": overrides(loss, problem)
            for name, problem in LEARNED_ON.items()
            for loss in losses
        }
    )
    stores = set(losses) & set(OFFLINE)
    offline = learn_offline.learned_all(COLLECTED) if stores else {}
    speeds = {loss: speed(loss) for loss in tqdm(losses, desc="speed")}
    rows, table = [], [HEAD]
    for loss in losses:
        online, leak = (share(found[f"{loss} {name}"]) for name in (COLLECTED, "planted leak"))
        stored = share(offline[OFFLINE[loss]]) if loss in OFFLINE else None
        said = f"{loss}: {COLLECTED}, share of the optimum"
        if stored:
            rows.append(Row(f"{said}, online", online[1]))
            said += ", from stored rows"
        counted = {said: stored or online, f"{loss}: planted leak, share of the optimum": leak}
        rows += [
            Row(each, text, f">= {BAR}", mean >= BAR) for each, (mean, text) in counted.items()
        ]
        cells = [loss, online[1], stored[1] if stored else "", leak[1]]
        runs = found[f"{loss} market"]
        cells += [over_seeds(runs, figure)[1] for figure in ("sharpe_ratio_mean", "growth_share")]
        table.append([*cells, f"{speeds[loss]:.0f}"])
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds and, on the market, paths;"
        " speed is with one thread and nothing else running. All is learned online, but for the"
        " column from stored rows: that is what counts of CQL and IQL on Garleanu-Pedersen."
    )
    hand_over("Losses, one by one", note, rows, table)


if __name__ == "__main__":
    main()
