"""What options cost: steps of many accounts with a policy, and with the same policy within options.

    python benchmarks/option_steps.py            # three minutes
    python benchmarks/option_steps.py --quick    # a look

Each step is the policy's decision and the environment's step, one thread, compiled where a compiler
is found. Plain: an actor of two layers of 64. Options: the same actor within six options and a
controller of 512, and the options' own rules. Nothing else should run.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from environment import busy, markdown, quartiles_of
from exploring import milliseconds
from tensordict.nn import TensorDictModule, TensorDictModuleBase
from torchrl import torchrl_logger
from torchrl.envs import EnvBase
from tqdm import tqdm

from trading_torchrl.data import Market, synthetic_market
from trading_torchrl.envs import RunningOption, Showing, Signals, TradingEnv, signals_of
from trading_torchrl.machine import processor
from trading_torchrl.modules import (
    Controller,
    Levels,
    OptionPolicy,
    carried_out,
    make_actor,
    trading_options,
)
from trading_torchrl.modules.option_policy import CODE
from trading_torchrl.objectives import OptionsLoss

SIZES, BAR_AT, HALF = (64, 1_024, 16_384), 1_024, 0.5
PLAIN, WITHIN, RULES = "an agent", "the agent within options", "options by their rules"


def environment(market: Market, accounts: int, *, options: bool) -> EnvBase:
    """As recipes trade, with signals and the running option or without."""
    env = TradingEnv(
        market, accounts, short=True, max_position=1.0, smoothing=1, episode_bars=400,
        emit=("index", "share", "equity", "unrealised"),
    )  # fmt: skip
    return Showing(env, Signals.of(env), RunningOption()) if options else env


def stepper(env: EnvBase, policy: TensorDictModuleBase) -> Callable[[], None]:
    """Decides and steps, once a call."""
    at = [env.reset()]

    def step() -> None:
        with torch.no_grad():
            at[0] = env.step_and_maybe_reset(policy(at[0]))[1]

    return step


def steppers(market: Market, accounts: int) -> dict[str, Callable[[], None]]:
    """By what acts."""
    plain = environment(market, accounts, options=False)
    width = plain.observation_spec["observation"].shape[-1]
    signals = signals_of(market)
    options = trading_options(Levels.fit(signals["trend"], signals["volatility"]))
    keys = [("option", "logits"), ("option", "values")]

    def policy(**acts: Any) -> OptionPolicy:
        network = Controller(width, len(options))
        controller = TensorDictModule(network, in_keys=["observation"], out_keys=keys)
        OptionsLoss(controller, gamma=0.99)  # by which it would learn, as recipes have it
        return OptionPolicy(options, controller, cap=1.0, compiled=True, **acts)

    actor = make_actor(width + len(options) + 1, 1, [64, 64], ["observation", CODE])
    within = policy(action="scaled", actor=carried_out(actor))
    shown = [environment(market, accounts, options=True) for _ in range(2)]
    return {
        PLAIN: stepper(plain, make_actor(width, 1, [64, 64])),
        WITHIN: stepper(shown[0], within),
        RULES: stepper(shown[1], policy()),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables, writes them as markdown and JSON; 1 where the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args(argv)
    rounds, seconds = (1, 0.2) if arguments.quick else (arguments.rounds, 1.0)
    torchrl_logger.setLevel("WARNING")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    before = busy()
    market = synthetic_market(symbols=8, bars=4_000, seed=0)
    steps = {
        (accounts, name): step
        for accounts in SIZES
        for name, step in steppers(market, accounts).items()
    }
    for step in tqdm(steps.values(), desc="compiling"):  # is not counted
        milliseconds(step, seconds)
    found: dict[tuple[int, str], list[float]] = {each: [] for each in steps}
    for _ in tqdm(range(rounds), desc="stepping"):
        for each, step in steps.items():
            found[each].append(milliseconds(step, seconds))
    rows = [["accounts", "acts", "ms a step", "quartiles", "frames/s", "of the agent's speed"]]
    for (accounts, name), times in found.items():
        low, high = quartiles_of(times)
        speed = median(found[accounts, PLAIN]) / median(times)
        rows.append([f"{accounts:,}", name, f"{median(times):.3f}", f"{low:.3f} to {high:.3f}",
                     f"{1e3 * accounts / median(times):,.0f}", f"{speed:.2f}"])  # fmt: skip
    measured = median(found[BAR_AT, PLAIN]) / median(found[BAR_AT, WITHIN])
    bars = [
        ["bar", "at least", "measured", ""],
        [f"speed within options, of the agent's, {BAR_AT:,} accounts", f"{HALF}",
         f"{measured:.2f}", "reached" if measured >= HALF else "missed"],
    ]  # fmt: skip
    note = (
        f"{rounds} rounds, one thread, {processor()}, {os.cpu_count()} cores, torch"
        f" {torch.__version__}; {before} processes wanted a core in the minute before."
    )
    text = "\n\n".join([markdown(rows), markdown(bars), note])
    print(f"\n{text}")
    arguments.output.with_suffix(".md").write_text(text + "\n")
    named = {f"{accounts}, {name}": times for (accounts, name), times in found.items()}
    figures = {"stepping": named, "bars": bars, "note": note}
    arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
    return int(measured < HALF)


if __name__ == "__main__":
    sys.exit(main())
