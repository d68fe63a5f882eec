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
from trading_torchrl.evaluation import (
    Interval,
    RandomPolicy,
    TrendPolicy,
    follow,
    interval,
    simple_returns,
    whole_split,
)


def yearly(returns: Tensor, bars_per_year: float) -> Interval:
    """95 % interval of the mean over paths, in percent a year, from returns of a bar ``[S, T]``."""
    return interval((100 * bars_per_year * returns.mean(1)).tolist())


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
        mean, half = yearly(account.gross, market.bars_per_year)
        low, high = mean - half, mean + half
        upper = sum(yearly(simple_returns(account.equity), market.bars_per_year))
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
