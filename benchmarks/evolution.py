"""Evaluating a population: in one batch, one by one, and in a pool of processes.

    python benchmarks/evolution.py                 # five minutes
    python benchmarks/evolution.py --quick         # few members, once, for a look

Every way gets the same parameters and the same episodes, and says what each member earned. One by
one each member steps its own few accounts as a batch, as an evolution strategy over any vector of
environments does; a pool of two processes does so with half of the members each. One by one has
one thread, with which it is faster than with two. What begins once, processes and compilation, is
not counted. Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
from environment import busy, markdown, quartiles_of
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl import torchrl_logger
from torchrl.envs import EnvBase
from tqdm import tqdm

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import TradingEnv
from trading_torchrl.envs.reference import GarleanuPedersen
from trading_torchrl.evolution import EvolutionStrategy, Population, earned, flat, unflatten
from trading_torchrl.machine import processor
from trading_torchrl.modules import MLP, make_deterministic_actor

EPISODES, SEED, PROCESSES = 5, 7, 2
FASTER, SAME = 6.0, 1e-6
PROBLEMS = ("Garleanu-Pedersen, float64", "synthetic market, float32")
BATCH, ALONE, POOL = "one batch", "one by one", f"one by one in {PROCESSES} processes"


class Precise(nn.Module):
    """Observations, which are float32, in the network's precision."""

    def __init__(self) -> None:
        super().__init__()
        self.network = MLP(2, [16], 1).double()

    def forward(self, observation: Tensor) -> Tensor:
        """An action."""
        return self.network(observation.double()).tanh()


@cache
def made(problem: str, accounts: int) -> EnvBase:
    """An environment, the same each time it is asked for."""
    if problem == PROBLEMS[0]:
        return GarleanuPedersen(accounts)
    market = synthetic_market(symbols=8, bars=2_000, seed=0)
    return TradingEnv(market, accounts, actions="target", short=True, max_position=1.0,
                      risk_aversion=10.0, episode_bars=100)  # fmt: skip


@cache
def policy(problem: str) -> Any:
    """And what acts in it."""
    torch.manual_seed(0)
    if problem == PROBLEMS[0]:
        return TensorDictModule(Precise(), ["observation"], ["action"])
    width = made(problem, EPISODES).observation_spec["observation"].shape[-1]
    return make_deterministic_actor(width, 1, [16])


def one_by_one(problem: str, rows: Tensor) -> Tensor:
    """Returns ``[P, E]``."""
    torch.set_num_threads(1)
    actor = policy(problem)
    parameters = Population(actor).parameters
    found = []
    for row in rows:
        unflatten(row, parameters)
        found.append(earned(actor, made(problem, EPISODES), 1, seed=SEED).returns)
    return torch.cat(found)


def in_one_batch(problem: str, population: Population, rows: Tensor) -> Tensor:
    """Returns ``[P, E]``."""
    torch.set_num_threads(2)
    population.weights = rows
    return earned(population, made(problem, len(rows) * EPISODES), len(rows), seed=SEED).returns


def in_pool(problem: str, pool: ProcessPoolExecutor, rows: Tensor) -> Tensor:
    """Returns ``[P, E]``."""
    parts = [each.numpy() for each in rows.chunk(PROCESSES)]
    return torch.cat(
        [torch.from_numpy(each) for each in pool.map(of_part, [problem] * PROCESSES, parts)]
    )


def of_part(problem: str, rows: Any) -> Any:
    """In a process of its own."""
    torchrl_logger.setLevel("WARNING")
    return one_by_one(problem, torch.from_numpy(rows)).numpy()


def timed(do: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """Seconds, and what came out."""
    began = time.perf_counter()
    found = do()
    return time.perf_counter() - began, found


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables, writes them as markdown and JSON; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="16 members, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--members", type=int, default=256)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args(argv)
    rounds, members = (1, 16) if arguments.quick else (arguments.rounds, arguments.members)
    torchrl_logger.setLevel("WARNING")
    before = busy()
    head = ["problem", "members", "evaluated", "s a generation", "quartiles", "x one by one"]
    table, named = [head], {}
    bars = [["bar", "wanted", "measured", ""]]
    missed = 0
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        for problem in PROBLEMS:
            population = Population(policy(problem))
            rows = EvolutionStrategy(flat(population.parameters), population=members).ask()
            made(problem, members * EPISODES).draw_alike(members)
            ways: dict[str, Callable[[], Tensor]] = {
                BATCH: lambda: in_one_batch(problem, population, rows),  # noqa: B023
                ALONE: lambda: one_by_one(problem, rows),  # noqa: B023
                POOL: lambda: in_pool(problem, pool, rows),  # noqa: B023
            }
            kept = flat(population.parameters)
            returns = {name: do() for name, do in ways.items()}  # not counted
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in tqdm(range(rounds), desc=problem):
                for name, do in ways.items():
                    times[name].append(timed(do)[0])
            unflatten(kept, population.parameters)
            for name, seconds in times.items():
                low, high = quartiles_of(seconds)
                table.append([problem, f"{members}", name, f"{median(seconds):.3f}",
                              f"{low:.3f} to {high:.3f}",
                              f"{median(times[ALONE]) / median(seconds):.1f}"])  # fmt: skip
                named[f"{problem}, {name}"] = seconds
            apart = max(float((returns[BATCH] - each).abs().max()) for each in returns.values())
            faster = median(times[ALONE]) / median(times[BATCH])
            over_pool = median(times[POOL]) / median(times[BATCH])
            exact = problem == PROBLEMS[0]
            asked = [
                (f"{problem}: one batch as fast as one by one, x", f">= {FASTER:g}",
                 f"{faster:.1f}", faster >= FASTER),
                (f"{problem}: one batch as fast as the pool, x", "> 1", f"{over_pool:.1f}",
                 over_pool > 1),
                (f"{problem}: largest difference of a return", f"<= {SAME:g}" if exact else "",
                 f"{apart:.1e}", apart <= SAME or not exact),
            ]  # fmt: skip
            bars += [[*each, "reached" if met else "missed"] for *each, met in asked]
            missed += sum(not met for *_, met in asked)
    note = (
        f"{rounds} rounds, {EPISODES} episodes a member, {processor()}, {os.cpu_count()} cores,"
        f" torch {torch.__version__}; {before} processes wanted a core in the minute before."
    )
    text = "\n\n".join([markdown(table), markdown(bars), note])
    print(f"\n{text}")
    arguments.output.with_suffix(".md").write_text(text + "\n")
    figures = {"seconds": named, "bars": bars, "note": note}
    arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
