"""The control: a market where nothing can be earned, and policies that trade it all the same.

    python results/martingale.py            # 512 paths of 8,000 bars, a few minutes

Predictability 0 leaves prices without drift and without signal. Whoever trades them must come out
with a gross profit around 0 and a net profit below it by the costs.
"""

import argparse
from collections.abc import Callable

import torch
from rows import Row, hand_over
from tensordict import TensorDictBase
from torch import Tensor

from trading_torchrl.data import WARMUP, Knobs, synthetic_market
from trading_torchrl.envs import LONG_SHORT, OraclePolicy
from trading_torchrl.evaluation import RandomPolicy, TrendPolicy, follow, whole_split


def interval(values: Tensor) -> tuple[float, float]:
    """95 % interval of the mean over paths."""
    mean, error = float(values.mean()), float(values.std() / len(values) ** 0.5)
    return mean - 1.96 * error, mean + 1.96 * error


def main() -> None:
    """Trades the martingale in three ways."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paths", type=int, default=512)
    parser.add_argument("--bars", type=int, default=8_000)
    parser.add_argument("--seed", type=int, default=3_000)
    arguments = parser.parse_args()
    market = synthetic_market(
        arguments.paths, arguments.bars + WARMUP, arguments.seed, predictability=0.0
    )
    env = whole_split(market, **LONG_SHORT)
    policies: dict[str, Callable[[TensorDictBase], TensorDictBase]] = {
        "uniformly random targets": RandomPolicy(env, seed=0),
        "trend rule": TrendPolicy(env),
        # Believes the market to be the default one, and follows a signal that means nothing.
        "follower of the empty signal": OraclePolicy(market, Knobs(), "signal"),
    }
    rows = []
    for name, policy in policies.items():
        account = follow(env, policy, progress=name)
        net = account.equity[:, 1:] / account.equity[:, :-1] - 1
        low, high = (100 * side * market.bars_per_year for side in interval(account.gross.mean(1)))
        _, upper = (100 * side * market.bars_per_year for side in interval(net.mean(1)))
        rows += [
            Row(
                f"{name}: gross profit a year, 95 %",
                f"{low:+.2f} to {high:+.2f} %",
                "includes 0",
                low <= 0 <= high,
            ),
            Row(
                f"{name}: net profit a year, upper bound",
                f"{upper:+.2f} %",
                "under +1 %",
                upper < 1,
            ),
        ]
    note = (
        f"{arguments.paths} fresh paths of {arguments.bars:,} bars, predictability 0, long_short."
    )
    hand_over("Martingale: nothing to be earned", note, rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
