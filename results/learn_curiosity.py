"""Curiosity: what its models learn, where it leads, and what it is worth; with it and without.

    python results/learn_curiosity.py       # 40 runs, half an hour

On the chain the models learn from random steps. All else is `python recipes/offpolicy.py` with
`icm=on` and `icm=off`: a maze with one reward, in which a share of the cells is found, and the
synthetic market, where places are position x regime x hour of the day.
"""

from itertools import pairwise
from typing import Any

import torch
from rows import Row, hand_over, said
from runs import SEEDS, figures, train_all
from tensordict import TensorDictBase
from torch import nn
from torchrl import torchrl_logger
from torchrl.data import LazyTensorStorage, ReplayBuffer

from trading_torchrl.descent import differentiate
from trading_torchrl.envs.reference import Chain
from trading_torchrl.evaluation import paired_difference
from trading_torchrl.modules import Curiosity, make_q_actor
from trading_torchrl.objectives import DQNLoss, ICMLoss
from trading_torchrl.replay import CuriosityReward

CELLS, BATCHES, BATCH = 20, 1_000, 256
LEFT, SMALL, VARIES = 0.05, 0.01, 0.3
MAZE = ["env=sparse_maze", "env.size=12", "loss=dqn"]
MARKET = ["env=long_short", "total_frames=256_000", "alerts=none", "count_places=true"]
ETAS = ("0.001", "0.01", "0.1", "1")
RUNS = {
    "maze, with": [*MAZE, "icm=on"],
    "maze, without": [*MAZE, "icm=off"],
    "market, with": [*MARKET, "icm=on"],
    "market, without": [*MARKET, "icm=off"],
}
SWEEP = {
    f"eta {eta}": [*MARKET[:1], "total_frames=64_000", "alerts=none", "icm=on", f"icm.eta={eta}"]
    for eta in ETAS
}
AT_MOST, MORE, NUMBERS = 0.6, 0.15, 500_000


def rows_of(seed: int) -> TensorDictBase:
    """Random steps on the chain."""
    torch.manual_seed(seed)
    return Chain(16, length=CELLS, seed=seed).rollout(400, break_when_any_done=False).reshape(-1)


def on_the_chain(seed: int) -> tuple[float, float, float]:
    """Forward error before, after so many batches, and its coefficient of variation by then."""
    rows = rows_of(seed)
    replay = ReplayBuffer(storage=LazyTensorStorage(len(rows)), batch_size=BATCH)
    replay.extend(rows)
    models = Curiosity(CELLS, 2, choices=True)
    loss = ICMLoss(models)
    trained = list(loss.parameters())
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=1e-5)
    step = [rows["observation"]], rows["action"], [rows["next", "observation"]]
    before = models.surprise(*step)
    for _ in range(BATCHES):
        out = loss(replay.sample())
        differentiate(out["loss_forward"] + out["loss_inverse"], trained, 1.0)
        optimizer.step()
    after = models.surprise(*step)
    return float(before.mean()), float(after.mean()), float(after.std() / after.mean())


def gradients_met() -> tuple[int, int]:
    """Parameters that got a gradient from the other's loss, and how many there are to look at.

    The agent learns from rewards that the models mixed; the models learn from features of the
    agent's own trunk.
    """
    rows = rows_of(0)[:BATCH]
    trunk = nn.Linear(CELLS, CELLS)
    agent = DQNLoss(make_q_actor(CELLS, choices=2, hidden=[32]), gamma=0.95)
    models = Curiosity(CELLS, 2, choices=True, body=trunk)
    reward = CuriosityReward(models, warmup_frames=0, warmup_batches=1)
    theirs = [*trunk.parameters(), *agent.parameters()]
    own = list(models.parameters())
    met = 0
    for loss, others in ((agent, own), (ICMLoss(models), theirs)):
        out = loss(reward(rows))
        sum(value for name, value in out.items() if name.startswith("loss_")).backward()
        met += sum(each.grad is not None for each in others)
        for each in [*own, *theirs]:
            each.grad = None
    return met, len(own) + len(theirs)


def coverage(runs: list[dict[str, Any]]) -> dict[int, float]:
    """By seed."""
    return {run["seed"]: run["state_coverage"] for run in runs}


def main() -> None:
    """Trains, and compares."""
    torchrl_logger.setLevel("WARNING")
    rows = []
    before, after, varies = zip(*(on_the_chain(seed) for seed in SEEDS), strict=True)
    left = max(a / b for a, b in zip(after, before, strict=True))
    rows.append(Row("chain: forward error before", said(list(before))))
    rows.append(Row(f"chain: after {BATCHES:,} batches, highest of the seeds", f"{max(after):.4f}",
                    f"< {SMALL}", max(after) < SMALL))  # fmt: skip
    rows.append(Row("chain: what is left of it, highest", f"{left:.2%}", f"<= {LEFT:.0%}",
                    left <= LEFT))  # fmt: skip
    rows.append(Row("chain: coefficient of variation, lowest", f"{min(varies):.2f}",
                    f"> {VARIES}", min(varies) > VARIES))  # fmt: skip
    met, looked = gradients_met()
    rows.append(Row("gradients: parameters that got any of the other's loss", f"{met} of {looked}",
                    "0", met == 0))  # fmt: skip

    found = train_all(RUNS | SWEEP)
    for task in ("maze", "market"):
        runs = {each: found[f"{task}, {each}"] for each in ("with", "without")}
        mean = {}
        for name, each in runs.items():
            values = list(coverage(each).values())
            mean[name] = sum(values) / len(values)
            bar: tuple[str, bool | None] = ("", None)
            if task == "maze" and name == "without":
                bar = (f"<= {AT_MOST}", mean[name] <= AT_MOST)
            rows.append(Row(f"{task}, {name}: coverage", said(values), *bar))
            if task == "market":
                sharpe = figures(each, "sharpe_ratio_mean")
                rows.append(Row(f"{task}, {name}: Sharpe", said(sharpe)))
        apart = paired_difference(*(coverage(each) for each in runs.values()))
        more = mean["with"] / mean["without"] - 1
        bar = (f">= {MORE:+.0%}", more >= MORE) if task == "maze" else ("", None)
        text = f"{apart.mean:+.3f} +- {apart.half_width:.3f} ({more:+.0%})"
        rows.append(Row(f"{task}: coverage with less without, paired", text, *bar))
    numbers = found["market, with"][0]["curiosity"]["numbers"]
    rows.append(Row("numbers that the models learn, on the market", f"{numbers:,}",
                    f"< {NUMBERS:,}", numbers < NUMBERS))  # fmt: skip
    parts = []
    for eta in ETAS:
        share = [run["curiosity"]["icm/intrinsic_share"] for run in found[f"eta {eta}"]]
        parts.append(sum(share) / len(share))
        rows.append(Row(f"eta {eta}: intrinsic part of the mixed reward", said(share)))
    rises = all(low < high for low, high in pairwise(parts))
    rows.append(Row("it grows with eta", "yes" if rises else "no", "yes", rises))
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t). Maze: 12 x 12,"
        " 100,000 frames. Market: 256,000 frames; Sharpe on the test paths. The intrinsic part is"
        " what surprises add over that and the mean of the absolute rest, in the last batch."
    )
    hand_over("Curiosity", note, rows)


if __name__ == "__main__":
    main()
