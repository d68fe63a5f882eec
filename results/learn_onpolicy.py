"""On-policy learners: known answers, how V-trace stands old steps, and the synthetic market.

    python results/learn_onpolicy.py        # 130 runs, most of an hour

PPO by `python recipes/onpolicy.py`, V-trace and uncorrected A2C by `python recipes/impala.py`,
which collects in one process here, so that each run is the same each time. How old its steps are is
set by `lag`: in updates, for all steps alike. SAC on the market is `python recipes/offpolicy.py`.
"""

import math
from collections.abc import Sequence
from itertools import takewhile
from statistics import fmean
from typing import Any

from learn_market import over_seeds
from rows import Row, hand_over, said
from runs import SEEDS, figures, paired, train_all

GP, OLD = "env=garleanu_pedersen", "env=ou_spread"
PPO = {
    "CartPole-v1": ["env=cartpole"],
    "Garleanu-Pedersen": [GP],
    "Garleanu-Pedersen, reward (p + 3 noise) x": [GP, "+env.reward_noise=3.0"],
    "Garleanu-Pedersen, std 0.5 at first": [GP, "std=0.5"],
    "market": ["env=long_short", "evaluate_every=200_000"],
    "market, names": ["env=long_short", "env.actions=discrete"],
}
LEARNERS = {
    "V-trace": ["loss=vtrace"],
    "A2C": ["loss=a2c", "+loss.normalise=false", "lmbda=1.0"],
}
"""Alike but for the correction: advantages as they are, up to the end of a stretch."""
LAGS = (1, 2, 4, 8, 16, 32, 64)
BARS = {
    "Garleanu-Pedersen": 0.99,
    "Garleanu-Pedersen, reward (p + 3 noise) x": 0.97,
    "Garleanu-Pedersen, std 0.5 at first": 0.97,
}
LOST, KEPT, FEWER = 0.10, 0.95, 0.8
SHARE, SHARPE = "optimum_share", "sharpe_ratio_mean"

Runs = list[dict[str, Any]]


def known_answers(ppo: dict[str, Runs], vtrace: Runs) -> list[Row]:
    """CartPole and Garleanu-Pedersen."""
    returns = figures(ppo["CartPole-v1"], "return")
    rows = [
        Row("PPO, CartPole-v1, 100,000 steps: mean return",
            f"{fmean(returns):.1f}, lowest seed {min(returns):.1f}", ">= 475",
            fmean(returns) >= 475)
    ]  # fmt: skip
    for name, bar in BARS.items():
        shares = figures(ppo[name], SHARE)
        rows.append(
            Row(f"PPO, {name}: share of the optimum", f"{said(shares)}, lowest {min(shares):.3f}",
                f">= {bar}", fmean(shares) >= bar)
        )  # fmt: skip
    shares = figures(vtrace, SHARE)
    rows.append(
        Row("V-trace, Garleanu-Pedersen: share of the optimum",
            f"{said(shares)}, lowest {min(shares):.3f}", ">= 0.97", fmean(shares) >= 0.97)
    )  # fmt: skip
    return rows


def aged(found: dict[str, Runs]) -> tuple[list[Row], list[list[str]]]:
    """Shares by how old steps are, and the lag at which it matters."""
    shares = {name: figures(runs, SHARE) for name, runs in found.items()}
    mean = {name: fmean(each) for name, each in shares.items()}
    head = ["lag in updates", *(f"{name}: share of the optimum" for name in LEARNERS)]
    table = [head] + [
        [str(lag), *(said(shares[f"{name}, lag {lag}"]) for name in LEARNERS)] for lag in (0, *LAGS)
    ]
    breaks = [lag for lag in LAGS if mean[f"A2C, lag {lag}"] <= mean["A2C, lag 0"] - LOST]
    if not breaks:
        return [Row("lag at which A2C has lost 10 points", "none", "one of these", False)], table
    lag = breaks[0]
    kept = mean[f"V-trace, lag {lag}"] / mean["V-trace, lag 0"]
    enough = KEPT * mean["V-trace, lag 0"]
    keeps = list(takewhile(lambda each: mean[f"V-trace, lag {each}"] >= enough, LAGS))
    return [
        Row("lag at which A2C has lost 10 points", f"{lag} updates"),
        Row(f"V-trace at a lag of {lag}, of its share without", f"{kept:.3f}", f">= {KEPT}",
            kept >= KEPT),
        Row("largest lag at which it keeps as much", f"{max(keeps, default=0)} updates"),
    ], table  # fmt: skip


def curve(runs: Runs) -> list[tuple[float, float]]:
    """Frames, and the mean Sharpe of the seeds on validation."""
    rows = zip(*(run["evaluations"] for run in runs), strict=True)
    return [(each[0]["frames"], fmean(row[SHARPE] for row in each)) for each in rows]


def frames_to(level: float, points: Sequence[tuple[float, float]]) -> float:
    """At which a curve is that high for the first time."""
    return next((frames for frames, height in points if height >= level), math.inf)


def market_rows(ppo: Runs, names: Runs, vtrace: Runs, sac: Runs) -> list[Row]:
    """Sharpe on the test split, and how soon."""
    learners = {"PPO": ppo, "PPO, names": names, "V-trace": vtrace, "SAC": sac}
    rows = []
    for name, runs in learners.items():
        most = max(figures(runs, "largest_name_share"))
        rows += [
            Row(f"market, {name}: Sharpe", over_seeds(runs, SHARPE)[1]),
            Row(f"market, {name}: growth, share of the full oracle's",
                over_seeds(runs, "growth_share")[1]),
            Row(f"market, {name}: largest share of one name", f"{most:.2f}"),
        ]  # fmt: skip
    rows.append(
        Row("market, PPO with names: largest share of one name, collapsed above 0.95",
            f"{max(figures(names, 'largest_name_share')):.2f}", "<= 0.95",
            max(figures(names, "largest_name_share")) <= 0.95)
    )  # fmt: skip
    apart = paired(SHARPE, ppo, sac)
    rows.append(
        Row("market: Sharpe, PPO less SAC, seed by seed",
            f"{apart.mean:+.3f} +- {apart.half_width:.3f}", "not clearly below 0",
            apart.mean >= -apart.half_width)
    )  # fmt: skip
    theirs, ours = curve(ppo), curve(vtrace)
    for part in (0.9, 1.0):
        level = part * theirs[-1][1]
        one, other = frames_to(level, theirs), frames_to(level, ours)
        whole = part == 1.0
        rows.append(
            Row(f"market: frames to {part:.0%} of the Sharpe PPO ends with on validation",
                f"PPO {one:,.0f}, V-trace {_said(other)}",
                f"{1 - FEWER:.0%} fewer (a target)" if whole else "",
                other <= FEWER * one if whole else None)
        )  # fmt: skip
    return rows


def _said(frames: float) -> str:
    return f"{frames:,.0f}" if math.isfinite(frames) else "never"


def main() -> None:
    """Trains, and compares."""
    ppo = train_all(PPO, "onpolicy")
    apart = {
        f"{name}, lag {lag}": [OLD, *loss, f"lag={lag}"]
        for lag in (0, *LAGS)
        for name, loss in LEARNERS.items()
    }
    market = ["env=long_short", "evaluate_every=200_000"]
    known = {"known": [GP], "known, lag 4": [GP, "lag=4"], "market": market}
    learned = train_all({**apart, **known}, "impala")
    sac = train_all({"market": ["env=long_short"]})["market"]
    rows = known_answers(ppo, learned["known"])
    more, table = aged({name: learned[name] for name in apart})
    rows += more
    shares = figures(learned["known, lag 4"], SHARE)
    rows.append(
        Row("V-trace, Garleanu-Pedersen, lag 4: share of the optimum, each seed",
            ", ".join(f"{each:.2f}" for each in shares))
    )  # fmt: skip
    rows += market_rows(ppo["market"], ppo["market, names"], learned["market"], sac)
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds and, on the market, paths;"
        " deterministic policies on the test split. In Garleanu-Pedersen actions are target"
        " positions, where V-trace explores with a deviation of 0.1. Old steps are those of the OU"
        " spread, in stretches of 16, one update each, with a bonus of 0.03 a nat; V-trace and A2C"
        " differ there in nothing but the correction."
    )
    hand_over("On-policy, and V-trace on old steps", note, rows, table)


if __name__ == "__main__":
    main()
