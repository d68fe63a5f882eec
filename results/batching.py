"""N accounts in one batch against each alone, and the compiled step against the uncompiled.

    python results/batching.py              # every mode, a few minutes

The modes and the script of actions, with forced partial resets, are those of
`tests/envs/test_trading.py`.
"""

import argparse
import sys
from pathlib import Path

import torch
from rows import Row, hand_over
from tqdm import tqdm

from trading_torchrl.data import synthetic_market

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "envs"))

from test_trading import MODES, build, differing, play, script

RESETS = (7, 23, 61)


def main() -> None:
    """Plays every mode together, alone and compiled."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accounts", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    market = synthetic_market(symbols=6, bars=2_000, seed=11, volatility=2.0)
    unequal, farthest = 0, 0.0
    for mode in tqdm(MODES, desc="modes"):
        settings = MODES[mode]
        together = build(market, arguments.accounts, **settings)
        actions = script(together, arguments.steps)
        rollout = play(together, actions, RESETS)
        for account in range(arguments.accounts):
            alone = build(market, 1, first_account=account, **settings)
            single = play(alone, actions[:, account : account + 1], RESETS)
            unequal += len(differing(single, rollout[account : account + 1]))
        emit = {*settings.get("emit", ()), "equity"} if settings.get("emit") != "all" else "all"
        eager, compiled = (
            play(
                build(market, arguments.accounts, **{**settings, "emit": emit, "compiled": on}),
                actions,
                RESETS,
            )["next", "account", "equity"]
            for on in (False, True)
        )
        farthest = max(farthest, float((compiled / eager - 1).abs().max()))
    note = (
        f"{len(MODES)} modes, {arguments.accounts} accounts, {arguments.steps} bars, automatic"
        f" resets and forced partial ones after bars {', '.join(map(str, RESETS))}."
    )
    rows = [
        Row("keys that differ between together and alone", str(unequal), "0", unequal == 0),
        Row(
            "equity, compiled against uncompiled, relative",
            f"{farthest:.2g}",
            "at most 1e-12",
            farthest <= 1e-12,
        ),
    ]
    hand_over("One batch equals each account alone", note, rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
