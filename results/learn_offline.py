"""Learning from stored rows alone: CQL, IQL and cloning on what a worse policy collected.

    python results/learn_offline.py         # 40 runs, an hour

The data are the replays of `python recipes/offpolicy.py` runs that ended early, five seeds: on
Garleanu-Pedersen everything they did until their 32,000th frame, random and noisy actions among it;
on the synthetic market until 256,000 frames, a ninth of a full run. Each is learned from by
`python recipes/offline.py`. Judged are deterministic policies, on noise and paths of their own. To
beat who collected, seed by seed, is for the 95 % interval of the difference to lie above 0.
"""

from typing import Any

from rows import Row, hand_over, said
from runs import SEEDS, figures, paired, train_all, train_each

from trading_torchrl.envs.reference import GarleanuPedersen
from trading_torchrl.evaluation import interval

DATA = {
    "Garleanu-Pedersen": ["env=garleanu_pedersen", "total_frames=32_000", "replay.save=true"],
    "market": ["total_frames=256_000", "alerts=none", "replay.save=true"],
}
LEARN = {
    "Garleanu-Pedersen": {
        "BC": ["loss=bc", "updates=6_000"],
        "IQL": ["loss=iql", "updates=6_000"],
        "CQL": ["loss=cql", "updates=6_000"],
    },
    "market": {
        "BC": ["loss=bc", "updates=4_000"],
        "IQL": ["loss=iql", "loss.temperature=0.02", "updates=4_000"],
        "CQL": ["loss=cql", "loss.weight=0.01", "loss.drawn=4", "updates=3_000"],
    },
}


def learned(task: str, data: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Metrics of every loss on every seed's data, in the order of the seeds."""
    given = {
        name: [[f"data={run['folder']}", *settings] for run in data]
        for name, settings in LEARN[task].items()
    }
    return train_each(given, recipe="offline")


def learned_all(task: str) -> dict[str, list[dict[str, Any]]]:
    """The same, with the data collected; runs that are there are not repeated."""
    return learned(task, train_all({task: DATA[task]})[task])


def main() -> None:
    """Collects, learns, and compares with who collected."""
    rows = []
    data = train_all(DATA)

    task = "Garleanu-Pedersen"
    found = learned(task, data[task])
    best = GarleanuPedersen(1).value
    behaved = [run["data"]["mean_reward"] / best for run in found["BC"]]
    rows.append(Row(f"{task}: mean reward of the data, share of the optimum", said(behaved)))
    for name, runs in found.items():
        shares = figures(runs, "optimum_share")
        bar = ("", None) if name == "BC" else (">= 0.95", interval(shares).mean >= 0.95)
        rows.append(Row(f"{task}: {name}, share of the optimum", said(shares), *bar))

    task = "market"
    found = learned(task, data[task])
    sharpes = figures(data[task], "sharpe_ratio_mean")
    rows.append(Row(f"{task}: Sharpe of who collected", said(sharpes)))
    for name, runs in found.items():
        rows.append(Row(f"{task}: Sharpe of {name}", said(figures(runs, "sharpe_ratio_mean"))))
        more = paired("sharpe_ratio_mean", runs, data[task])
        text = f"{more.mean:+.3f} +- {more.half_width:.3f}"
        beats = more.mean - more.half_width > 0
        bar = ("", None) if name == "BC" else ("interval above 0", beats)
        rows.append(Row(f"{task}: {name} less who collected", text, *bar))
        rows.append(Row(f"{task}: growth a year of {name}", said(figures(runs, "growth"))))
    rows.append(Row(f"{task}: growth a year of who collected", said(figures(data[task], "growth"))))
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, each with data of its own, 95 % intervals over seeds"
        " (Student's t); who collected is judged deterministic, as it was when it ended."
    )
    hand_over("Offline training", note, rows)


if __name__ == "__main__":
    main()
