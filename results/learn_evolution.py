"""Evolution: known answers, the synthetic market beside SAC, and both in turns.

    python results/learn_evolution.py        # 35 runs, half an hour

Evolution by `python recipes/evolve.py`, SAC by `python recipes/offpolicy.py`. In turns SAC has
half of the frames that it has alone; how long both ways take stands beside them.
"""

from statistics import fmean
from typing import Any

import torch
from learn_market import over_seeds
from rows import Row, hand_over, said
from runs import SEEDS, figures, paired, train_all

from trading_torchrl.evolution import EvolutionStrategy

GP, MARKET, NOISE = "env=garleanu_pedersen", "env=long_short", "+env.reward_noise=3.0"
LINEAR = ("hidden=[]", "population=64")
KNOWN = {
    "linear": [GP, *LINEAR],
    "small perceptron": [GP],
    "linear, reward (p + 3 noise) x": [GP, *LINEAR, NOISE, "episodes=40"],
    "small perceptron, reward (p + 3 noise) x": [GP, NOISE, "episodes=40"],
}
ON_MARKET = {
    "evolution": [MARKET],
    "in turns with SAC": [MARKET, "hybrid=sac", "hybrid.frames=115_200"],
}
SHARE, SHARPE, GROWTH = "optimum_share", "sharpe_ratio_mean", "growth_share"
BEST, OF_SAC, STABLE = 0.99, 0.8, 0.9

Runs = list[dict[str, Any]]


def exact_rows() -> list[Row]:
    """What is known without any environment."""
    rows = []
    for shaped in ("rank", "z"):
        for elite in (1.0, 0.2):
            how: dict[str, Any] = {"shaped": shaped, "elite": elite}
            cosines, heights = [], []
            for seed in SEEDS:
                slope = torch.randn(10, generator=torch.Generator().manual_seed(seed))
                one = EvolutionStrategy(torch.zeros(10), population=2_000, seed=seed, **how)
                found = one.estimate(one.ask() @ slope)
                cosines.append(float(torch.cosine_similarity(found, slope, dim=0)))
                other = EvolutionStrategy(torch.ones(10), seed=seed, **how)
                for _ in range(200):
                    other.tell(-other.ask().square().sum(-1))
                heights.append(float(other.centre.square().sum()))
            said_of = f"{shaped}, elite {elite:g}"
            rows += [
                Row(f"linear objective, ten parameters, 1,000 pairs, {said_of}: cosine with the"
                    " gradient, worst seed", f"{min(cosines):.4f}", ">= 0.98",
                    min(cosines) >= 0.98),
                Row(f"sphere of ten from 1 each, 200 generations, {said_of}: height, worst seed",
                    f"{max(heights):.1e}", "<= 1e-2", max(heights) <= 1e-2),
            ]  # fmt: skip
    return rows


def known_rows(found: dict[str, Runs]) -> list[Row]:
    """Garleanu-Pedersen."""
    rows = []
    for name in KNOWN:
        shares = figures(found[name], SHARE)
        rows.append(
            Row(f"Garleanu-Pedersen, {name}: share of the optimum",
                f"{said(shares)}, lowest {min(shares):.3f}", f">= {BEST}", fmean(shares) >= BEST)
        )  # fmt: skip
    return rows


def seconds(runs: Runs) -> float:
    """Of training, on average."""
    return fmean(run["runtime"]["training_seconds"] for run in runs)


def kept(run: dict[str, Any]) -> float:
    """Sharpe at the last evaluation, of that at the best one."""
    heights = [each[SHARPE] for each in run["evaluations"]]
    return heights[-1] / max(heights)


def market_rows(found: dict[str, Runs]) -> list[Row]:
    """Evolution, SAC, and both, on the test split."""
    rows = []
    for name, runs in found.items():
        rows += [
            Row(f"market, {name}: Sharpe", over_seeds(runs, SHARPE)[1]),
            Row(f"market, {name}: growth, share of the full oracle's",
                over_seeds(runs, GROWTH)[1]),
            Row(f"market, {name}: seconds of training, one thread", f"{seconds(runs):.0f}"),
        ]  # fmt: skip
    evolved, sac = found["evolution"], found["SAC"]
    for figure, of in ((SHARPE, "Sharpe"), (GROWTH, "growth")):
        part = fmean(figures(evolved, figure)) / fmean(figures(sac, figure))
        rows.append(
            Row(f"market: {of} of evolution, of SAC's", f"{part:.2f}", f">= {OF_SAC}",
                part >= OF_SAC)
        )  # fmt: skip
    last = [kept(run) for run in evolved]
    rows.append(
        Row("market, evolution: Sharpe on validation after 100 generations, of its best, worst"
            " seed", f"{min(last):.2f}", f">= {STABLE}", min(last) >= STABLE)
    )  # fmt: skip
    turns = found["in turns with SAC"]
    apart = paired(SHARPE, turns, sac)
    rows += [
        Row("market: Sharpe, in turns less SAC alone, seed by seed",
            f"{apart.mean:+.3f} +- {apart.half_width:.3f}"),
        Row("market: seconds in turns, of SAC's alone", f"{seconds(turns) / seconds(sac):.2f}"),
        Row("market: turns after which the evolved policy was kept, of ten",
            f"{fmean(run['hybrid']['taken'] for run in turns):.1f}"),
    ]  # fmt: skip
    return rows


def main() -> None:
    """Trains, and compares."""
    evolved = train_all({**KNOWN, **ON_MARKET}, "evolve")
    sac = train_all({"SAC": [MARKET]})
    rows = exact_rows() + known_rows(evolved)
    rows += market_rows({name: evolved[name] for name in ON_MARKET} | sac)
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds and, on the market, paths;"
        " deterministic policies on the test split. A population of 256, of linear policies 64, all"
        " on the same episodes; where rewards have noise, 40 episodes each instead of 10."
    )
    hand_over("Evolution", note, rows)


if __name__ == "__main__":
    main()
