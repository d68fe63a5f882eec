"""A tour: what policies that learn nothing earn on the synthetic market, and what could be earned.

    python recipes/tour.py                      # a table, two pictures, half a minute
    python recipes/tour.py --help               # what can be changed

Random actions, buy-and-hold, a trend rule and the three oracles trade the same fresh paths, with
costs, filled at the next open. The same policies trade a martingale as a control.
"""

import sys
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from trading_torchrl.data import WARMUP, Knobs, Market, synthetic_market
from trading_torchrl.envs import OraclePolicy, TradingEnv
from trading_torchrl.evaluation import (
    Account,
    BuyAndHold,
    RandomPolicy,
    TrendPolicy,
    follow,
    growth_picture,
    judge,
    plot_episode,
    whole_split,
    write_json,
)
from trading_torchrl.evaluation.episode import EMIT

PICTURED = "oracle, filtered signal"


BUYS_ONCE: dict[str, Any] = {"actions": "continuous", "smoothing": 1}
"""What buy and hold needs; the others set targets."""


def policies(
    env: TradingEnv, once: TradingEnv, market: Market, knobs: Knobs, settings: dict[str, Any]
) -> Any:
    """What trades, by name; all in ``env`` but buy and hold."""
    band = {
        "cap": settings["max_position"],
        "short": settings["short"],
        "risk_aversion": settings["risk_aversion"],
    }
    return {
        "random": RandomPolicy(env),
        "buy and hold": BuyAndHold(once),
        "trend rule": TrendPolicy(env),
        "oracle, signal alone": OraclePolicy(market, knobs, "signal", **band),
        "oracle, filtered signal": OraclePolicy(market, knobs, "filtered", **band),
        "oracle, knows all": OraclePolicy(market, knobs, "full", **band),
    }


def table(results: dict[str, dict[str, float]], control: dict[str, dict[str, float]]) -> str:
    """Figures as markdown."""
    lines = [
        "| policy | Sharpe | growth a year | costs a year | max drawdown | position std"
        " | Sharpe, martingale |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, f in results.items():
        c = control[name]
        lines.append(
            f"| {name:23} | {f['sharpe_ratio_mean']:+.2f} +- {f['sharpe_error']:.2f} |"
            f" {f['growth']:+8.1%} | {f['costs']:6.1%} | {f['max_drawdown']:6.1%} |"
            f" {f['position_std']:.2f} | {c['sharpe_ratio_mean']:+.2f} +- {c['sharpe_error']:.2f} |"
        )
    return "\n".join(lines)


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
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for kind, turned in (("market", knobs), ("martingale", Knobs(predictability=0.0))):
        market = synthetic_market(paths, bars + WARMUP, seed, turned)
        env = whole_split(market, **env_settings)
        once = whole_split(market, **env_settings | BUYS_ONCE)
        traders = tqdm(policies(env, once, market, knobs, env_settings).items(), desc=kind)
        figures[kind] = {}
        for name, policy in traders:
            traders.set_postfix_str(name)
            where = once if isinstance(policy, BuyAndHold) else env
            account = follow(where, policy)
            figures[kind][name] = judge(account, market.bars_per_year, where.rules.actions)
            if kind == "market":
                accounts[name] = account

    market = synthetic_market(paths, bars + WARMUP, seed, knobs)
    env = TradingEnv(market, 1, emit=(*EMIT, "index"), seed=seed, **env_settings)
    shown = policies(env, once, market, knobs, env_settings)[PICTURED]
    plot_episode(env.rollout(500, shown), market).savefig(folder / "episode.png", dpi=130)
    growth_picture(accounts, market.bars_per_year).savefig(folder / "growth.png", dpi=130)
    text = table(figures["market"], figures["martingale"])
    (folder / "table.md").write_text(text + "\n")
    write_json(folder / "metrics.json", figures)
    sys.stdout.write(
        f"\n{text}\n\n{paths} fresh paths of {bars:,} bars, standard errors over paths;"
        f" {1e4 * env.rules.cost:g} bps a trade, next-open fills.\n"
        f"Pictures: {folder}/growth.png, {folder}/episode.png\n"
    )


if __name__ == "__main__":
    main()
