"""The command: tries the standard features, functions of the user's, and the environment."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torchrl.envs import EnvBase, TransformedEnv

from trading_torchrl.data.features import (
    WARMUP,
    FeatureFunction,
    standard_features,
    with_features,
)
from trading_torchrl.data.market import Market, MarketError
from trading_torchrl.data.scaler import Scaler
from trading_torchrl.data.sources import load_csv, load_parquet
from trading_torchrl.data.synthetic import synthetic_market
from trading_torchrl.envs import LONG_ONLY, LONG_SHORT, MarketWindow, TradingEnv
from trading_torchrl.lookahead.environment import find_env_lookahead
from trading_torchrl.lookahead.features import find_lookahead
from trading_torchrl.lookahead.future import Leak, visible
from trading_torchrl.risk import Limits

Result = Leak | Exception | None

# Exposure well above 1, or no long position would ever be liquidated.
LIMITS = Limits(exposure=2.5, drawdown=0.2, daily_loss=0.03, daily_trades=4, repeats=2)
FIXED = {"random_start": False}
TO_THE_END = {**FIXED, "episode_bars": None}

MODES: dict[str, dict[str, Any]] = {
    "continuous, long": {**LONG_ONLY, "reward": "growth"},
    "continuous, long-short, at the close, two assets": {
        **TO_THE_END,
        "actions": "continuous",
        "short": True,
        "fill": "close",
        "reward": "differential_sharpe",
        "assets": 2,
        "max_position": 0.5,
        "borrow_rate": 0.05,
    },
    "target, long, at the close, window": {
        **FIXED,
        "actions": "target",
        "fill": "close",
        "reward": "log_return",
        "max_position": 0.5,
        "window": 16,
    },
    "target, long-short, two assets, leverage, limits": {
        **LONG_SHORT,
        "reward": "objectives",
        "assets": 2,
        "max_position": 2.0,
        "leverage": 3.0,
        "borrow_rate": 0.05,
        "limits": LIMITS,
    },
    "discrete, long, at the close": {
        **TO_THE_END,
        "actions": "discrete",
        "fill": "close",
        "reward": "professional",
        "max_position": 0.5,
    },
    "discrete, long-short, two assets, window, limits": {
        **TO_THE_END,
        "actions": "discrete",
        "short": True,
        "reward": "growth",
        "assets": 2,
        "max_position": 0.5,
        "window": 16,
        "limits": LIMITS,
    },
    "hybrid, long, at the close": {
        **FIXED,
        "actions": "hybrid",
        "fill": "close",
        "reward": "log_return",
        "max_position": 0.5,
    },
    "hybrid, long-short, two assets": {
        "actions": "hybrid",
        "short": True,
        "reward": "growth",
        "assets": 2,
        "max_position": 0.5,
    },
}
"""Environments that the command checks; together they have every mode, reward and rule there is,
and each emits all it can."""

ENV_BARS, ENV_SYMBOLS, ENV_ACCOUNTS, ENV_EPISODE, ENV_STEPS = 400, 8, 8, 40, 60


def check(
    market: Market,
    features: Mapping[str, FeatureFunction] | None = None,
    cuts: int = 8,
    seed: int = 0,
) -> dict[str, Result]:
    """Checks the standard features bit for bit, functions of the user's, and the environment.

    The environments trade at most the first 400 bars of 8 symbols, under a scaler that stays
    frozen; each function of the user's is tried by itself and in an environment without a scaler.

    Args:
        market: bars to check on, at least 70.
        features: further functions, by the name to report them under.
        cuts: number of bars after which the market is changed; environments get half of them.
        seed: of all that is random.

    Returns:
        What was checked, and what was found there: a leak, nothing (None), or the error that kept
        it from being checked.
    """
    tries: dict[str, Callable[[], Leak | None]] = {
        "23 standard features": partial(find_lookahead, standard_features, market, cuts, seed, 0.0)
    }
    small = visible(market).bars(0, min(ENV_BARS, len(market)))
    small = small.select(small.symbols[:ENV_SYMBOLS])
    if len(small) < WARMUP + 6:
        raise MarketError(
            f"{len(small)} bars are too few to try the environment; at least {WARMUP + 6}"
        )
    half = max(1, cuts // 2)
    for name, function in (features or {}).items():
        tries[name] = partial(find_lookahead, function, market, cuts, seed)
        tries[f"{name} in an environment"] = partial(
            _try_environment, small, half, seed, LONG_SHORT, [function], tolerance=1e-9
        )
    small = _with_halts(small)
    scaler = Scaler.fit(with_features(small))
    for name, options in MODES.items():
        assets = min(options.get("assets", 1), len(small.symbols))
        options = {**options, "assets": assets, "scaler": scaler}
        tries[f"environment: {name}"] = partial(_try_environment, small, half, seed, options)
    return {name: _outcome(attempt) for name, attempt in tries.items()}


def _with_halts(market: Market) -> Market:
    """The market with bars without volume, in which nothing can be traded."""
    bars = torch.arange(len(market))[:, None] + torch.arange(len(market.symbols))
    return replace(market, volume=market.volume.where(bars % 11 > 0, 0.0))


def _outcome(attempt: Callable[[], Leak | None]) -> Result:
    try:
        return attempt()
    except Exception as error:  # whatever a user's function raises, the rest is still checked
        return error


def _try_environment(
    market: Market,
    cuts: int,
    seed: int,
    options: Mapping[str, Any],
    extra: Sequence[FeatureFunction] = (),
    tolerance: float = 0.0,
) -> Leak | None:
    episode = min(ENV_EPISODE, len(market) - WARMUP - 2)
    options = {"episode_bars": episode, "emit": "all", "compiled": False, **options}

    def make_env(bars: Market) -> EnvBase:
        env = TradingEnv(with_features(bars, *extra), ENV_ACCOUNTS, **options)
        return TransformedEnv(env, MarketWindow.of(env)) if env.window else env

    shortest = None
    if not options.get("random_start", True):
        shortest = max(WARMUP, options.get("window") or 0) + (options["episode_bars"] or 1)
    fill = options.get("fill", "next_open")
    return find_env_lookahead(
        make_env,
        market,
        cuts,
        ENV_STEPS,
        seed,
        fill=fill,
        shortest=shortest,
        tolerance=tolerance,
    )


def _load(path: str, seed: int) -> Market:
    if path == "synthetic":
        return synthetic_market(symbols=4, bars=2_000, seed=seed)
    source = Path(path)
    if (source / "market.json").exists():
        return Market.load(source)
    parquet = source.suffix == ".parquet" or any(source.glob("*.parquet"))
    return load_parquet(source) if parquet else load_csv(source)


def _function(path: str) -> FeatureFunction:
    module, _, name = path.partition(":")
    if not (module and name):
        raise ValueError(f"--features {path!r} must read package.module:function")
    function = getattr(importlib.import_module(module), name, None)
    if not callable(function):
        raise ValueError(f"--features {path!r}: {module} has no function {name!r}")
    return function


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trading_torchrl.lookahead",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Proves by experiment that nothing sees the future.

Everything after some bars of a market is changed (moved up, moved down, cut off), and what was
computed before must not move: the 23 standard features, your feature functions (alone and in an
environment), and all that the trading environment emits in each of its modes, fills included.
A trade or a mark at prices that its decision had already seen is found as well.""",
        epilog="""\
examples:
  python -m trading_torchrl.lookahead
  python -m trading_torchrl.lookahead --data prices/ --features my_package.features:trend

exit code:
  0  nothing sees the future
  1  something does; the first value that moved is printed
  2  something could not be checked; the reason is printed

All is compared bit for bit, but for your own features: those may move by 1e-9 of their column's
largest value (1e-5 in float32 and in the environment). What the columns of your data hold is
taken on trust. The environment is checked uncompiled, on at most 400 bars of 8 symbols (with two
assets where there are two).""",
    )
    parser.add_argument(
        "--data",
        default="synthetic",
        metavar="PATH",
        help="CSV or Parquet file or folder, a folder written by Market.save, or 'synthetic' "
        "(default)",
    )
    parser.add_argument(
        "--features",
        action="append",
        default=[],
        metavar="package.module:function",
        help="function from a Market to named [bars, symbols] tensors; may be repeated",
    )
    parser.add_argument(
        "--cuts",
        type=int,
        default=8,
        help="bars after which the market is changed (default 8; environments get half of them); "
        "more find rarer leaks",
    )
    parser.add_argument("--seed", type=int, default=0, help="of cuts and new bars (default 0)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 0 when nothing sees the future, 1 when something does, 2 if unknown."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.cuts < 1:
        parser.error(f"--cuts must be at least 1, got {options.cuts}")
    try:
        functions = {path: _function(path) for path in options.features}
        market = _load(options.data, options.seed)
        found = check(market, functions, options.cuts, options.seed)
    except Exception as error:  # a traceback would exit with 1, which means a leak
        parser.error(_reason(error))
    width = max(map(len, found))
    for name, result in found.items():
        word = "ok" if result is None else "LOOKS AHEAD" if isinstance(result, Leak) else "unknown"
        sys.stdout.write(f"{name:<{width}}  {word}\n")
    for name, result in found.items():
        if result is not None:
            text = str(result) if isinstance(result, Leak) else f"unknown: {_reason(result)}"
            sys.stdout.write(f"\n{name}: {text}\n")
    if any(isinstance(result, Leak) for result in found.values()):
        return 1
    return 2 if any(found.values()) else 0


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
