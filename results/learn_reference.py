"""SAC on problems whose best policy is known: shares of the optimum, five seeds each.

    python results/learn_reference.py       # 35 runs, a quarter of an hour

Every run is `python recipes/offpolicy.py env=<problem>` with its settings in
`recipes/conf/learn/<problem>.yaml`. Shares are the deterministic averaged actor's at the end of
training, on 256 episodes of noise it was not trained on and, for the best policy, the same noise.
"""

import math
from pathlib import Path
from typing import Any

import torch
from rows import Row, hand_over
from runs import SEEDS, train_all

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.envs.reference import GarleanuPedersen, Merton
from trading_torchrl.evaluation import interval
from trading_torchrl.modules import make_actor

SHARES: dict[str, tuple[str, dict[str, Any], float]] = {
    "Garleanu-Pedersen": ("garleanu_pedersen", {}, 0.99),
    "Garleanu-Pedersen, reward (p + 3 noise) x": ("garleanu_pedersen", {"reward_noise": 3.0}, 0.97),
    "Garleanu-Pedersen, risk 0.1": ("garleanu_pedersen", {"risk": 0.1}, 0.98),
    "Garleanu-Pedersen, decay .2, cost 2": ("garleanu_pedersen", {"decay": 0.2, "cost": 2.0}, 0.98),
    "OU spread": ("ou_spread", {}, 0.95),
    "Planted leak": ("planted_leak", {}, 0.95),
}
"""Problem, settings, and the share to reach."""

MERTON = "Merton"
LAST = 3


def merton_share(folder: Path, hidden: list[int]) -> float:
    """The share of wealth that a trained policy holds."""
    env = Merton(1)
    actor = make_actor(1, 1, hidden)
    actor.load_state_dict(Checkpoints(folder / "checkpoints").newest()[1]["averaged"])
    with torch.no_grad():
        return float(actor.get_dist(env.reset()).mode) * env.limit


def main() -> None:
    """Trains, and compares with the best policies."""
    settings = {
        name: [f"env={problem}", *(f"+env.{key}={value}" for key, value in given.items())]
        for name, (problem, given, _) in SHARES.items()
    }
    found = train_all(settings | {MERTON: ["env=merton"]})
    rows = []
    for name, (problem, given, bar) in SHARES.items():
        final = [run["figures"]["optimum_share"] for run in found[name]]
        mean, half = interval(final)
        rows.append(
            Row(f"{name}: share of the optimum", f"{mean:.4f} +- {half:.4f}", f">= {bar}",
                mean >= bar)
        )  # fmt: skip
        last = [each["optimum_share"] for run in found[name] for each in run["evaluations"][-LAST:]]
        mean = math.fsum(last) / len(last)
        rows.append(
            Row(f"{name}: mean of the last {LAST} evaluations", f"{mean:.4f}, lowest"
                f" {min(last):.4f}", f">= {bar}", mean >= bar)
        )  # fmt: skip
        if problem == "garleanu_pedersen":
            env = GarleanuPedersen(1, **given)
            myopic = env.mean_reward(env.myopic_rule) / env.value
            rows.append(Row(f"{name}: what the myopic rule reaches", f"{myopic:.4f}"))
    held = [merton_share(Path(run["folder"]), [64, 64]) for run in found[MERTON]]
    mean, half = interval(held)
    worst = max(abs(each - 0.75) for each in held)
    rows.append(
        Row("Merton: share of wealth held", f"{mean:.3f} +- {half:.3f}, furthest {worst:.3f} off",
            "0.75 within 0.05", abs(mean - 0.75) <= 0.05)
    )  # fmt: skip
    rows.append(
        Row("Merton: every seed", f"furthest {worst:.3f} off", "0.75 within 0.05", worst <= 0.05)
    )
    note = f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t)."
    hand_over("SAC on problems with known answers", note, rows)


if __name__ == "__main__":
    main()
