"""The environment's accounts against decimals: how far apart they are at worst.

    python results/ledger.py                    # 10,000 random accounts of 25 bars, about a minute
    python results/ledger.py --cases 100000

The rules, the markets and the reference are those of `tests/envs/test_ledger.py`. The last line is
JSON.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "envs"))

from test_ledger import ACCOUNTS, compare_accounts

ALLOWED = 1e-6


def main() -> None:
    """Compares, prints what differs and a line of JSON; exits with 1 where something does."""
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
    summary = {
        "cases": cases,
        "bars": bars,
        "largest_error": largest,
        "allowed": ALLOWED,
        "differing_rules": len(differing),
    }
    print(
        f"{cases:,} accounts, {bars:,} bars on 1,000,000: largest error {largest:.3g},"
        f" {len(differing)} sets of rules differ"
    )
    print(json.dumps(summary))
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
