"""The three oracles of the synthetic market: in plain arithmetic, and in the environment.

    python results/oracles.py               # 256 paths of 8,000 bars, about ten minutes

The plain model is the equation itself, position times return less cost times change. It has to
meet the known table; the environment, with its money, fills and smallest trades, has to meet the
plain model on the same noise.
"""

import argparse

import torch
from rows import Row, hand_over
from torch import Tensor
from tqdm import tqdm

from trading_torchrl.data import WARMUP, Knobs, synthetic_market
from trading_torchrl.envs import OraclePolicy
from trading_torchrl.envs.oracles import KNOWLEDGE, knowledge_of, plain_returns, solve_bands
from trading_torchrl.evaluation import follow, growth, sharpe, simple_returns, whole_split

TABLE_ERROR = 0.03
"""Standard error of the known table's Sharpe ratios, which are themselves a sample of 256 paths."""

SETTINGS = {
    "long_short, lambda 10": (
        {"cap": 1.0, "short": True, "risk_aversion": 10.0},
        ((2.94, 39.6), (2.82, 36.9), (2.16, 34.3)),
    ),
    "long_short, lambda 1": (
        {"cap": 1.0, "short": True, "risk_aversion": 1.0},
        ((2.11, 45.3), (2.00, 42.7), (1.84, 40.1)),
    ),
    "long only, cap .15, lambda 1": (
        {"cap": 0.15, "short": False, "risk_aversion": 1.0},
        ((1.58, 3.9), (1.52, 3.7), (1.35, 3.5)),
    ),
    "long only, cap .15, lambda 67": (
        {"cap": 0.15, "short": False, "risk_aversion": 67.0},
        ((2.31, 3.3), (2.24, 3.1), (1.62, 2.9)),
    ),
}
"""Sharpe and growth in % a year of oracles that know everything, the regime, the signal alone."""


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """Mean over paths and its standard error."""
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


def main() -> None:
    """Runs twelve oracles twice."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paths", type=int, default=256)
    parser.add_argument("--bars", type=int, default=8_000)
    parser.add_argument("--seed", type=int, default=2_000)
    arguments = parser.parse_args()
    knobs = Knobs()
    market = synthetic_market(arguments.paths, arguments.bars + WARMUP, arguments.seed)
    traded = market.bars(WARMUP - 1)
    year = market.bars_per_year
    rows = []
    for name, (setting, table) in tqdm(SETTINGS.items(), desc="settings"):
        for knowledge, (known_sharpe, known_growth) in zip(KNOWLEDGE, table, strict=True):
            bands = solve_bands(knobs, knowledge, **setting)
            known = [part[WARMUP - 1 :] for part in knowledge_of(market, knobs, knowledge)]
            plain = plain_returns(traded, bands, known[0], known[1]).T
            ratio, error = mean_and_error(sharpe(plain, year))
            grown = 100 * float(growth(plain, year).mean())
            combined = (error**2 + TABLE_ERROR**2) ** 0.5
            env = whole_split(
                market,
                actions="target",
                short=setting["short"],
                max_position=setting["cap"],
                risk_aversion=setting["risk_aversion"],
            )
            policy = OraclePolicy(market, knobs, knowledge, **setting)
            account = follow(env, policy, progress=f"{name}, {knowledge}")
            earned = simple_returns(account.equity)
            apart, apart_error = mean_and_error(sharpe(earned, year) - sharpe(plain, year))
            rows += [
                Row(
                    f"{name}, {knowledge}: plain model's Sharpe",
                    f"{ratio:.3f} +- {error:.3f}, growth {grown:.1f} %",
                    f"{known_sharpe:.2f} ({known_growth} %) within 3 errors",
                    abs(ratio - known_sharpe) <= 3 * combined,
                ),
                Row(
                    f"{name}, {knowledge}: environment less plain",
                    f"{apart:+.4f} +- {apart_error:.4f}",
                    "at most 0.03 either way",
                    abs(apart) <= 0.03,
                ),
            ]
    note = (
        f"{arguments.paths} fresh paths of {arguments.bars:,} bars, one account each; default"
        " costs, next-open fills, 10,000 to start with, no trade under 25. Errors of the table"
        f" ({TABLE_ERROR}) and of this sample are combined."
    )
    hand_over("Oracles of the synthetic market", note, rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
