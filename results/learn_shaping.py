"""Potential shaping: the best policy stays, a learned potential learns, a maze is explored.

    python results/learn_shaping.py         # 10 runs, six minutes

Best policies are found by value iteration on small worlds, with rewards as the transform has them.
The maze is `python recipes/offpolicy.py` with `shaping=hand` and without.
"""

from statistics import mean
from typing import Any

import torch
from exact import POTENTIALS, best_ways, learn
from rows import Row, hand_over, said
from runs import SEEDS, figures, train_all
from torchrl import torchrl_logger
from torchrl.data import LazyTensorStorage, ReplayBuffer

from trading_torchrl.envs.reference import Chain, FourRooms, GridWorld, SparseMaze
from trading_torchrl.evaluation import paired_difference
from trading_torchrl.modules import Potential
from trading_torchrl.objectives import PotentialLoss
from trading_torchrl.replay import PotentialShaping

GAMMA = 0.95
CELLS, STEPS, BATCH, SMALL = 20, 5_000, 256, 0.01
MAZE = ["env=sparse_maze", "env.size=12", "loss=dqn"]
RUNS = {
    "maze, without": MAZE,
    "maze, hand": [*MAZE, "shaping=hand"],
}
MORE = 0.25


def worlds() -> dict[str, GridWorld]:
    """Small enough to be solved."""
    told: dict[str, Any] = {"observation": "cells", "discount": GAMMA}
    return {
        "chain": Chain(1, length=8, discount=GAMMA),
        "maze": SparseMaze(1, size=3, **told),
        "four rooms": FourRooms(1, slip=0.0, **told),
    }


def same_policies() -> dict[str, tuple[int, int]]:
    """By potential: how many best policies are those without one, and of how many."""
    same: dict[str, tuple[int, int]] = {}
    for world in worlds().values():
        none = PotentialShaping(lambda seen: seen[..., :1], gamma=GAMMA, weight=0.0)
        (wanted,) = best_ways(world, none)
        for name, make in POTENTIALS.items():
            potential = make(world, GAMMA)
            for weight in (0.1, 1.0):
                for cut_at in (None, 3):
                    shaping = PotentialShaping(potential, gamma=GAMMA, weight=weight)
                    (found,) = best_ways(world, shaping, cut_at)
                    yes, all_ = same.get(name, (0, 0))
                    same[name] = yes + int(found.equal(wanted)), all_ + 1
            # While it moves, ways that are as good may look a little apart; none is worse.
            shaping = PotentialShaping(potential, gamma=GAMMA, weight=0.1, step=1e-3)
            for found in best_ways(world, shaping, changes=10):
                yes, all_ = same[name]
                same[name] = yes + int(not (found & ~wanted).any()), all_ + 1
    return same


def on_the_chain(seed: int) -> float:
    """The loss of a learned potential after so many steps, on random walks; mean of the last 100.

    The reward comes at the end alone, and the slow copy follows as in the recipe.
    """
    torch.manual_seed(seed)
    rows = Chain(16, length=CELLS, seed=seed).rollout(400, break_when_any_done=False).reshape(-1)
    replay = ReplayBuffer(storage=LazyTensorStorage(len(rows)), batch_size=BATCH)
    replay.extend(rows)
    loss = PotentialLoss(Potential(CELLS, {"return": 1.0}), gamma=GAMMA)
    return mean(learn(loss, replay.sample, STEPS, lr=1e-4, tau=0.005)[-100:])


def main() -> None:
    """Solves, trains, compares."""
    torchrl_logger.setLevel("WARNING")
    rows = []
    for name, (yes, all_) in same_policies().items():
        rows.append(Row(f"best policies that a {name} potential leaves as they are",
                        f"{yes} of {all_}", "all", yes == all_))  # fmt: skip
    left = max(on_the_chain(seed) for seed in SEEDS)
    rows.append(Row(f"chain: loss of the potential after {STEPS:,} steps, highest of the seeds",
                    f"{left:.5f}", f"< {SMALL}", left < SMALL))  # fmt: skip

    found = train_all(RUNS)
    without, hand = (found[f"maze, {name}"] for name in ("without", "hand"))
    coverage = [{run["seed"]: run["state_coverage"] for run in runs} for runs in (hand, without)]
    for name, each in zip(("hand", "without"), coverage, strict=True):
        rows.append(Row(f"maze, {name}: coverage", said(list(each.values()))))
    apart = paired_difference(*coverage)
    more = sum(coverage[0].values()) / sum(coverage[1].values()) - 1
    rows.append(Row("maze: coverage with less without, paired",
                    f"{apart.mean:+.3f} +- {apart.half_width:.3f} ({more:+.0%})",
                    f">= {MORE:+.0%}", more >= MORE))  # fmt: skip
    for name in ("hand", "without"):
        rows.append(Row(f"maze, {name}: share of the optimum",
                        said(figures(found[f"maze, {name}"], "optimum_share"))))  # fmt: skip
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t). Worlds: chain,"
        " maze, four rooms; two weights, with and without episodes that are cut off, and each sweep"
        " while the weight moves. Maze: 12 x 12, 100,000 frames; the potential is minus the steps"
        " that the goal is away."
    )
    hand_over("Potential shaping", note, rows)


if __name__ == "__main__":
    main()
