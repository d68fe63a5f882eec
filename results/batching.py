"""N accounts in one batch against each alone, compiled against not, hybrid against pure ones.

    python results/batching.py              # every mode, a few minutes

The modes and the script of actions, with forced partial resets, are those of
`tests/envs/test_trading.py`; what is hybrid those of `tests/envs/test_migration.py`.
"""

import argparse
import sys
from pathlib import Path

import torch
from rows import Row, hand_over
from tqdm import tqdm

from trading_torchrl.data import Market, synthetic_market
from trading_torchrl.envs import DiscreteInContinuous
from trading_torchrl.envs import actions as read
from trading_torchrl.envs.migration import EMIT
from trading_torchrl.evaluation import RandomPolicy

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "envs"))

from test_migration import SETTINGS, all_three, unlike_pure
from test_trading import MODES, build, differing, play, script

RESETS = (7, 23, 61)


def unlike_in_hybrid(market: Market, accounts: int, steps: int) -> int:
    """Accounts that came out otherwise in a hybrid environment than in the mode they were in."""
    return sum(
        int(unlike_pure(*all_three(market, accounts, steps, RESETS, **settings)).sum())
        for settings in tqdm(SETTINGS.values(), desc="hybrid")
    )


def unlike_migrated(market: Market, accounts: int, steps: int) -> int:
    """Accounts of random names that came out otherwise as numbers, without smoothing."""
    by_name, by_number = (
        build(market, accounts, actions=actions, smoothing=1, short=True, emit=EMIT)
        for actions in ("discrete", "continuous")
    )
    migrated = DiscreteInContinuous(RandomPolicy(by_name), by_number)
    one = by_name.rollout(steps, RandomPolicy(by_name), break_when_any_done=False)["next"]
    two = by_number.rollout(steps, migrated, break_when_any_done=False)["next"]
    same = (one.exclude("action_mask") == two).all(dim=1)
    unlike = torch.zeros(accounts, dtype=torch.bool)
    for value in same.values(True, True):
        unlike |= ~value.flatten(1).all(1)
    return int(unlike.sum())


def round_trips() -> int:
    """Names other than ADD_TO_WINNER that come back from the number they stand for."""
    names = torch.arange(read.ADD_TO_WINNER)[:, None]
    back = []
    for dtype in (torch.float32, torch.float64):
        for held in (-1.0, 0.0, 1.0):
            value = torch.full(names.shape, held, dtype=dtype)
            for wins in (False, True):
                number = read.continuous_from_discrete(names, value, torch.full(names.shape, wins))
                back.append(read.name_of(number) == names)
    return int(torch.stack(back).all(0).sum())


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
    size = arguments.accounts, arguments.steps
    hybrid, migrated = unlike_in_hybrid(market, *size), unlike_migrated(market, *size)
    trips = round_trips()
    note = (
        f"{len(MODES)} modes, {arguments.accounts} accounts, {arguments.steps} bars, automatic"
        f" resets and forced partial ones after bars {', '.join(map(str, RESETS))}. Hybrid accounts"
        f" under {len(SETTINGS)} settings, against a continuous and a discrete environment with the"
        " same actions: all that is shown must have the same bits. A random discrete policy in a"
        " continuous environment with smoothing=1 likewise."
    )
    rows = [
        Row("keys that differ between together and alone", str(unequal), "0", unequal == 0),
        Row(
            "equity, compiled against uncompiled, relative",
            f"{farthest:.2g}",
            "at most 1e-12",
            farthest <= 1e-12,
        ),
        Row("hybrid equals pure: accounts that differ", str(hybrid), "0", hybrid == 0),
        Row("names among numbers: accounts that differ", str(migrated), "0", migrated == 0),
        Row("round trip of the six names", f"{trips} of 6 come back", "6 of 6", trips == 6),
    ]
    hand_over("One batch equals each account alone", note, rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
