"""SAC on problems whose best policy is known: shares of the optimum, five seeds each.

    python results/learn_reference.py       # 35 runs, a quarter of an hour

Every run is `python recipes/offpolicy.py env=<problem>` with its settings in
`recipes/conf/learn/<problem>.yaml`. Shares are the deterministic averaged actor's at the end of
training, on 256 episodes of noise it was not trained on and, for the best policy, the same noise.
"""

import math
from pathlib import Path

import torch
from rows import Row, hand_over
from runs import SEEDS, train_all

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.envs.reference import Merton
from trading_torchrl.evaluation import interval
from trading_torchrl.modules import make_actor

GP = "env=garleanu_pedersen"
SHARES = {
    "Garleanu-Pedersen": ([GP], 0.99),
    "Garleanu-Pedersen, reward (p + 3 noise) x": ([GP, "+env.reward_noise=3.0"], 0.97),
    "Garleanu-Pedersen, risk 1": ([GP, "+env.risk=1.0"], 0.98),
    "Garleanu-Pedersen, decay .2, cost 2": ([GP, "+env.decay=0.2", "+env.cost=2.0"], 0.98),
    "OU spread": (["env=ou_spread"], 0.95),
    "Planted leak": (["env=planted_leak"], 0.95),
}
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
    settings = {name: given for name, (given, _) in SHARES.items()} | {MERTON: ["env=merton"]}
    found = train_all(settings)
    rows = []
    for name, (_, bar) in SHARES.items():
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
