"""The environment's accounts against decimals: how far apart they are at worst.

    python results/ledger.py                    # 10,000 random accounts of 25 bars, about a minute
    python results/ledger.py --cases 100000

The rules, the markets and the reference are those of `tests/envs/test_ledger.py`.
"""

import argparse
import math
import sys
from pathlib import Path

import torch
from rows import Row, hand_over

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "envs"))

from test_ledger import ACCOUNTS, compare_accounts

ALLOWED = 1e-6


def main() -> None:
    """Compares, and prints what differs."""
    parser = argparse.ArgumentParser(description="the environment's ledger against decimals")
    parser.add_argument("--cases", type=int, default=10_000, help="random accounts")
    parser.add_argument("--seed", type=int, default=1_000_000, help="of the first set of rules")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cases = bars = 0
    largest, differing = 0.0, []
    for number in range(math.ceil(arguments.cases / ACCOUNTS)):
        result = compare_accounts(arguments.seed + number, ACCOUNTS)
        cases, bars = cases + result.cases, bars + result.bars
        largest = max(largest, result.error)
        if result.error > ALLOWED:
            differing.append(result.where)
            print(result.where)
    row = Row(
        f"largest error on 1,000,000, {cases:,} random accounts",
        f"{largest:.2g} ({len(differing)} sets of rules differ)",
        f"at most {ALLOWED:g}, 10,000 accounts",
        not differing and cases >= 10_000,
    )
    note = (
        f"{bars:,} bars of random rules (actions, assets, costs, borrow, margin, limits, bars"
        " without volume) against a scalar account in decimals of 50 digits that shares no code."
    )
    hand_over("Ledger against decimals", note, [row])


if __name__ == "__main__":
    main()
