"""Nothing sees the future: features, every mode and reward, planted leaks, honest functions.

python results/lookahead.py             # five seeds, about three minutes
"""

import argparse
import sys
from pathlib import Path

import torch
from rows import Row, hand_over
from tqdm import tqdm

from trading_torchrl.data import Market, synthetic_market
from trading_torchrl.lookahead import check, find_lookahead

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from test_lookahead import HONEST


def tomorrow(market: Market) -> dict[str, torch.Tensor]:
    """The planted leak: the return of the next bar."""
    log = market.close.log()
    return {"tomorrow": torch.cat([log[1:], log[-1:]]) - log}


def main() -> None:
    """Looks for leaks where there are none, and where one was planted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cuts", type=int, default=16)
    arguments = parser.parse_args()
    tried = alarms = found = honest = 0
    for seed in tqdm(range(arguments.seeds), desc="seeds"):
        market = synthetic_market(symbols=3, bars=1_500, seed=4_000 + seed)
        planted = check(market, {"tomorrow": tomorrow}, arguments.cuts, seed)
        leaks = [planted.pop(name) for name in ("tomorrow", "tomorrow in an environment")]
        found += sum(leak is not None for leak in leaks)
        tried += len(planted)
        alarms += sum(result is not None for result in planted.values())
        for function in HONEST.values():
            leak = find_lookahead(function, market.bars(0, 400), arguments.cuts, seed)
            honest += leak is not None
    planted_times = 2 * arguments.seeds
    rows = [
        Row("leaks in the 23 features and all modes", f"{alarms} of {tried}", "0", alarms == 0),
        Row(
            "planted shift(-1) found, as a feature and in an environment",
            f"{found} of {planted_times}",
            "all",
            found == planted_times,
        ),
        Row(
            f"false alarms on {len(HONEST)} honest functions",
            f"{honest} of {len(HONEST) * arguments.seeds}",
            "0 on at least 20 functions",
            honest == 0 and len(HONEST) >= 20,
        ),
    ]
    note = f"{arguments.seeds} seeds, {arguments.cuts} cuts each (half of them in environments)."
    hand_over("No look-ahead", note, rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
