"""Reference problems: the best policies earn their exact values, lesser rules exactly less.

    python results/reference.py             # every problem at several settings, two minutes

A value is exact for an episode as it is played: from second moments, in closed form, or by dynamic
programming. It is met if the average over the episodes lies within three standard errors of it.
Shares are of the best policy on the same noise.
"""

import argparse
from typing import Any

import torch
from rows import Row, hand_over
from tqdm import tqdm

from trading_torchrl.envs.reference import (
    BitFlip,
    Chain,
    FourRooms,
    GarleanuPedersen,
    Martingale,
    Merton,
    OUSpread,
    PlantedLeak,
    ReferenceProblem,
    SparseMaze,
    optimum_share,
)

BEST: list[tuple[type[ReferenceProblem], dict[str, Any]]] = [
    *(
        (GarleanuPedersen, settings)
        for settings in (
            {},
            {"action": "trade"},
            {"reward_noise": 2.0},
            {"risk": 1.0},
            {"risk": 0.1, "decay": 0.02},
            {"cost": 5.0},
            {"cost": 0.2, "decay": 0.5},
            {"decay": 1.0, "steps": 50},
        )
    ),
    *(
        (Merton, settings)
        for settings in (
            {},
            {"risk_aversion": 5.0},
            {"drift": 0.02, "rate": 0.05},
            {"volatility": 0.4},
            {"drift": 0.1, "risk_aversion": 1.5, "volatility": 0.25},
            {"rate": 0.0, "risk_aversion": 4.0},
        )
    ),
    *(
        (OUSpread, settings)
        for settings in (
            {},
            {"short": False},
            {"action": "continuous"},
            {"dt": 0.25},
            {"speed": 0.5, "round_trip": 1.0},
            {"round_trip": 0.1, "deviation": 0.5},
        )
    ),
    (PlantedLeak, {}),
    (PlantedLeak, {"volatility": 0.01, "distractors": 10}),
    (Martingale, {}),
    (Martingale, {"cost": 0.0, "memory": 8}),
    (Chain, {}),
    (Chain, {"length": 50, "discount": 0.999}),
    (SparseMaze, {}),
    (SparseMaze, {"size": 12, "layout": 3}),
    (FourRooms, {}),
    (FourRooms, {"slip": 0.1, "goal": (1, 11), "steps": 30}),
    (BitFlip, {}),
    (BitFlip, {"bits": 20, "steps": 9}),
]

RULES: list[dict[str, float]] = [
    {},
    {"risk": 1.0},
    {"risk": 0.1},
    {"cost": 0.2},
    {"cost": 5.0},
    {"decay": 0.02},
    {"decay": 0.5},
]

KNOWN = {"myopic": 0.9312, "cost-blind": 0.4327}
"""Shares of the optimum at the default settings, in the long run."""


def named(kind: type[ReferenceProblem], settings: dict[str, Any]) -> str:
    """A problem and what is not default about it."""
    chosen = ", ".join(f"{name} {value}" for name, value in settings.items())
    return f"{kind.__name__}{f' ({chosen})' if chosen else ''}"


def main() -> None:
    """Runs every problem's best policy, and Garleanu-Pedersen's lesser rules."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=4_096)
    parser.add_argument("--seed", type=int, default=1_000_000)
    arguments = parser.parse_args()
    n, seed = arguments.episodes, arguments.seed
    rows = []
    for kind, settings in tqdm(BEST, desc="best policies"):
        env = kind(n, **settings)
        found = optimum_share(env.best_policy(), env, episodes=n, seed=seed)
        rows.append(
            Row(
                f"{named(kind, settings)}: best policy",
                f"{found.best:.5f} +- {found.best_error:.5f}",
                f"{env.value:.5f} within 3 errors",
                abs(found.best - env.value) <= 3 * found.best_error + 1e-6,
            )
        )
    for changed in tqdm(RULES, desc="lesser rules"):
        # The usual scale of the action is the best rule's; a rule that trades more needs more.
        wide = GarleanuPedersen(256, steps=2_000, limit=100.0, **changed)
        for name, rule in (("myopic", wide.myopic_rule), ("cost-blind", wide.cost_blind_rule)):
            found = optimum_share(wide.policy_of(rule), wide, episodes=256, seed=seed)
            exact = wide.mean_reward(rule) / wide.value
            long_run = wide.rate(rule) / wide.rate(wide.best_rule)
            rows.append(
                Row(
                    f"{named(GarleanuPedersen, changed)}: {name} rule's share",
                    f"{found.share:.4f} +- {found.error:.4f}",
                    f"{exact:.4f} within 3 errors (long run {long_run:.4f})",
                    abs(found.share - exact) <= 3 * found.error,
                )
            )
            if not changed:
                rows.append(
                    Row(
                        f"Garleanu-Pedersen: {name} rule's exact share in the long run",
                        f"{long_run:.4f}",
                        f"{KNOWN[name]:.4f}",
                        abs(long_run - KNOWN[name]) < 5e-5,
                    )
                )
    bertram = OUSpread(dt=0.005, short=False, points=1_201)
    rows.append(
        Row(
            "OUSpread, dt 0.005, long or flat: rate in the long run",
            f"{bertram.rate:.5f}, from {bertram.thresholds[0]:.3f} to {bertram.thresholds[1]:.3f}",
            "Bertram's .02506 within 1 %",
            abs(bertram.rate / 0.02506 - 1) < 0.01,
        )
    )
    note = (
        f"{n:,} episodes for each best policy, from seed {seed:,}; lesser rules on 256 episodes of"
        " 2,000 steps on the best rule's noise, with actions that are never clipped."
    )
    hand_over("Reference problems", note, rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
