"""Hindsight replay: bits to flip, and a return to reach on a market; with it and without.

    python results/learn_hindsight.py       # 30 runs, three quarters of an hour

Every run is `python recipes/offpolicy.py` with its settings in `recipes/conf/`. Without hindsight
the same agent, with the same goals before it, learns from the rewards that it got. Policies are
deterministic where they are judged, on goals of their own.
"""

from typing import Any

from rows import Row, hand_over, said
from runs import SEEDS, figures, paired, train_all

FLIP = ["env=bit_flip", "loss=dqn"]
FORTY = [
    *FLIP, "env.bits=40", "total_frames=1_000_000", "buffer_size=1_000_000", "lr_end=1e-5",
    "updates_per_frame=0.03125", "tau=0.05", "actor_average=0.02", "evaluate_every=100_000",
    "checkpoint_every=500_000",
]  # fmt: skip
TRADE = [
    "env=long_only", "her=on", "her.goal.low=-0.02", "her.goal.high=0.04", "her.goal.sparse=true",
    "market.knobs.predictability=5", "total_frames=96_000",
]  # fmt: skip
RUNS = {
    "15 bits, with": [*FLIP, "her=on"],
    "15 bits, without": [*FLIP, "her=off"],
    "40 bits, with": [*FORTY, "her=on"],
    "40 bits, without": [*FORTY, "her=off"],
    "trading, with": TRADE,
    "trading, without": [*TRADE, "her.k=0"],
}
SOLVED, NEVER, MORE = 0.99, 0.01, 0.30


def first_solved(run: dict[str, Any]) -> float:
    """Frames until an evaluation reached the bar."""
    solved = [each["frames"] for each in run["evaluations"] if each["score"] >= SOLVED]
    return solved[0] if solved else float("inf")


def main() -> None:
    """Trains, and compares."""
    found = train_all(RUNS)
    rows = []
    for task in ("15 bits", "40 bits"):
        learned, not_learned = (
            figures(found[f"{task}, {each}"], "score") for each in ("with", "without")
        )
        lowest, highest = min(learned), max(not_learned)
        rows.append(Row(f"{task}: solved with hindsight, lowest of the seeds", f"{lowest:.3f}",
                        f">= {SOLVED}", lowest >= SOLVED))  # fmt: skip
        frames = ", ".join(f"{first_solved(run):,.0f}" for run in found[f"{task}, with"])
        rows.append(Row(f"{task}: frames until {SOLVED:.0%} were solved, each seed", frames))
        rows.append(Row(f"{task}: solved without, highest of the seeds", f"{highest:.3f}",
                        f"<= {NEVER}", highest <= NEVER))  # fmt: skip
    runs = {each: found[f"trading, {each}"] for each in ("with", "without")}
    for name, each in runs.items():
        for what in ("goal_success", "stochastic_goal_success", "goal_distance"):
            rows.append(Row(f"trading, {name}: {what}", said(figures(each, what))))
    more = paired("goal_success", *runs.values())
    rows.append(Row("trading: goal_success with less without, paired",
                    f"{more.mean:+.3f} +- {more.half_width:.3f}", f">= {MORE}",
                    more.mean >= MORE))  # fmt: skip
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t). Bits: every"
        " step flips one, and there are as many steps as bits. Trading: 96,000 bars on a synthetic"
        " market five times as predictable as the default, long only, 300 bars an episode, a return"
        " drawn from -2 % to 4 % to be hit within 0.1 % at the end, a reward nowhere else; without"
        " hindsight is k=0, the same goals, rewards as they were."
    )
    hand_over("Hindsight replay", note, rows)


if __name__ == "__main__":
    main()
