"""A tour: what policies that learn nothing earn on the synthetic market, and what could be earned.

    python recipes/tour.py                      # a table, two pictures, half a minute
    python recipes/tour.py --help               # what can be changed

Random actions, buy-and-hold, a trend rule and the three oracles trade the same fresh paths, with
costs, filled at the next open. The same policies trade a martingale as a control.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from trading_torchrl.data import WARMUP, Knobs, Market, synthetic_market
from trading_torchrl.envs import OraclePolicy, TradingEnv
from trading_torchrl.evaluation import (
    Account,
    ConstantPolicy,
    RandomPolicy,
    TrendPolicy,
    follow,
    growth,
    max_drawdown,
    plot_episode,
    sharpe,
    simple_returns,
    whole_split,
)
from trading_torchrl.evaluation.episode import EMIT

PICTURED = "oracle, filtered signal"


@dataclass(frozen=True)
class Figures:
    """One policy over all paths; shares are of equity, by the year."""

    sharpe: float
    sharpe_error: float
    growth: float
    costs: float
    max_drawdown: float
    position_std: float


def judge(account: Account, bars_per_year: float) -> Figures:
    """Per path, then averaged over the paths."""
    returns = simple_returns(account.equity)
    ratio = sharpe(returns, bars_per_year)
    return Figures(
        sharpe=float(ratio.mean()),
        sharpe_error=float(ratio.std() / len(ratio) ** 0.5) if len(ratio) > 1 else float("nan"),
        growth=float(growth(returns, bars_per_year).mean()),
        costs=float((account.fees[:, 1:] / account.equity[:, :-1]).mean() * bars_per_year),
        max_drawdown=float(max_drawdown(account.equity).mean()),
        position_std=float(account.share.std()),
    )


def policies(env: TradingEnv, market: Market, knobs: Knobs, settings: dict[str, Any]) -> Any:
    """What trades, by name."""
    band = {
        "cap": settings["max_position"],
        "short": settings["short"],
        "risk_aversion": settings["risk_aversion"],
    }
    return {
        "random": RandomPolicy(env),
        "buy and hold": ConstantPolicy(env, 1.0),
        "trend rule": TrendPolicy(env),
        "oracle, signal alone": OraclePolicy(market, knobs, "signal", **band),
        "oracle, filtered signal": OraclePolicy(market, knobs, "filtered", **band),
        "oracle, knows all": OraclePolicy(market, knobs, "full", **band),
    }


def table(results: dict[str, Figures], control: dict[str, Figures]) -> str:
    """Figures as markdown."""
    lines = [
        "| policy | Sharpe | growth a year | costs a year | max drawdown | position std"
        " | Sharpe, martingale |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, f in results.items():
        c = control[name]
        lines.append(
            f"| {name:23} | {f.sharpe:+.2f} +- {f.sharpe_error:.2f} | {f.growth:+8.1%} |"
            f" {f.costs:6.1%} | {f.max_drawdown:6.1%} | {f.position_std:.2f} |"
            f" {c.sharpe:+.2f} +- {c.sharpe_error:.2f} |"
        )
    return "\n".join(lines)


def picture(accounts: dict[str, Account], bars_per_year: float) -> Figure:
    """Mean log growth of every policy over time."""
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axis = figure.subplots()
    for name, account in accounts.items():
        grown = (account.equity / account.equity[:, :1]).log().mean(0)
        years = torch.arange(len(grown)) / bars_per_year
        axis.plot(years, 100 * grown, lw=1.3, label=name)
    axis.axhline(0, color="grey", lw=0.5)
    axis.set_xlabel("years")
    axis.set_ylabel("mean log growth since the start, %")
    axis.legend(frameon=False)
    paths = len(next(iter(accounts.values())).equity)
    axis.set_title(f"Net of costs, mean of {paths} synthetic paths")
    return figure


@hydra.main(version_base="1.3", config_path="conf", config_name="tour")
def main(config: DictConfig) -> None:
    """Trades, judges, draws."""
    settings = OmegaConf.to_container(config, resolve=True)
    assert isinstance(settings, dict)
    drawn, env_settings = dict(settings["market"]), settings["env"]
    paths, bars, seed = (drawn.pop(name) for name in ("paths", "bars", "seed"))
    knobs = Knobs(**drawn)
    folder = Path(HydraConfig.get().runtime.output_dir)

    accounts: dict[str, Account] = {}
    figures: dict[str, dict[str, Figures]] = {}
    for kind, turned in (("market", knobs), ("martingale", Knobs(predictability=0.0))):
        market = synthetic_market(paths, bars + WARMUP, seed, turned)
        env = whole_split(market, **env_settings)
        traders = tqdm(policies(env, market, knobs, env_settings).items(), desc=kind)
        figures[kind] = {}
        for name, policy in traders:
            traders.set_postfix_str(name)
            account = follow(env, policy)
            figures[kind][name] = judge(account, market.bars_per_year)
            if kind == "market":
                accounts[name] = account

    market = synthetic_market(paths, bars + WARMUP, seed, knobs)
    env = TradingEnv(market, 1, emit=(*EMIT, "index"), seed=seed, **env_settings)
    shown = policies(env, market, knobs, env_settings)[PICTURED]
    plot_episode(env.rollout(500, shown), market).savefig(folder / "episode.png", dpi=130)
    picture(accounts, market.bars_per_year).savefig(folder / "growth.png", dpi=130)
    text = table(figures["market"], figures["martingale"])
    (folder / "table.md").write_text(text + "\n")
    metrics = {
        kind: {name: asdict(f) for name, f in by_name.items()} for kind, by_name in figures.items()
    }
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n")
    sys.stdout.write(
        f"\n{text}\n\n{paths} fresh paths of {bars:,} bars, standard errors over paths;"
        f" {1e4 * env.rules.cost:g} bps a trade, next-open fills.\n"
        f"Pictures: {folder}/growth.png, {folder}/episode.png\n"
    )


if __name__ == "__main__":
    main()
