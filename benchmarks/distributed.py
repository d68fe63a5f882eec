"""Actors and a learner: frames a second, what a delivery costs, how old it is; and many actors.

    python benchmarks/distributed.py               # five minutes
    python benchmarks/distributed.py --quick       # a look

Each row learns on the synthetic market with what `recipes/impala.py` has for it: 1,024 accounts an
actor and stretches of 4 steps, V-trace, one update a delivery; in the learner's process, with 1, 2
and 4 actors in processes, and with as many on a Ray cluster that is begun here. All have one
thread. A machine of few cores has no place for many actors; what many would do is simulated from
what was measured of one: how long a stretch takes, how long the learner takes with it and how large
it is. In the simulation every actor has a core of its own, stretches and weights of all share one
line to the learner, and an actor that has two stretches waiting waits as well. Nothing else should
run.
"""

import argparse
import heapq
import json
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import torch
from environment import busy, markdown
from tensordict.nn import TensorDictModule
from torchrl import torchrl_logger
from tqdm import tqdm

from trading_torchrl.actors import Alone, Crew, Processes, Stretches, packed
from trading_torchrl.actors.on_ray import OnRay
from trading_torchrl.data import synthetic_market
from trading_torchrl.descent import Adam, differentiate
from trading_torchrl.envs import LONG_SHORT, TradingEnv
from trading_torchrl.machine import processor
from trading_torchrl.modules import make_actor, make_value
from trading_torchrl.objectives import VTraceLoss

ACCOUNTS, STEPS, AHEAD = 1_024, 4, 2
COUNTS, MANY = (1, 2, 4), (1, 2, 4, 8, 16, 32, 64, 128, 512)
NETWORKS = {"1 Gbit/s": 1e9 / 8, "10 Gbit/s": 1e10 / 8, "100 Gbit/s": 1e11 / 8}
FULL = 0.98
"""Share of the time from which on a learner is never idle."""


def environment(seed: int) -> TradingEnv:
    """Long and short."""
    market = synthetic_market(symbols=8, bars=8_000, seed=0)
    return TradingEnv(market, ACCOUNTS, seed=seed, **LONG_SHORT)


def networks() -> tuple[TensorDictModule, VTraceLoss]:
    """Actor and loss, of the recipe's widths."""
    width = len(environment(0).observation_names)
    actor = make_actor(width, 1, [64, 64], std=0.5)
    return actor, VTraceLoss(actor, make_value(width, 1, [64, 64]), gamma=0.95)


def make(seed: int) -> Stretches:
    """What an actor collects with."""
    torchrl_logger.setLevel("WARNING")
    torch.manual_seed(seed)
    actor, loss = networks()
    return Stretches(environment(seed), actor, STEPS, keys=loss.collected)


class Measured(NamedTuple):
    """Of one way to collect."""

    frames_per_second: float
    take: float
    """milliseconds until a delivery that waits is there: the fastest tenth"""
    learn: float
    """milliseconds of an update, and of handing the policy on"""
    lag: float
    """updates, the mean"""


def learn(crew: Crew, actor: TensorDictModule, loss: VTraceLoss, seconds: float) -> Measured:
    """Takes deliveries and learns from them, as the recipe does."""
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = Adam(trained, lr=1e-4)
    for _ in range(20):  # actors begin, and compile
        crew.take(1)
    takes, learns, lags = [], [], []
    began = now = time.perf_counter()
    while now - began < seconds:
        rows, behind = crew.take(1)
        taken = time.perf_counter()
        losses = loss(rows.select(*loss.in_keys))
        total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
        differentiate(total, trained, 0.5)
        optimizer.step()
        crew.publish()
        takes.append(taken - now)
        now = time.perf_counter()
        learns.append(now - taken)
        lags += behind
    crew.close()
    takes.sort()
    return Measured(
        len(learns) * ACCOUNTS * STEPS / (now - began), 1e3 * takes[len(takes) // 10],
        1e3 * median(learns), fmean(lags),
    )  # fmt: skip


def measured(seconds: float) -> dict[str, Measured]:
    """All ways."""
    found: dict[str, Measured] = {}
    actor, loss = networks()
    found["in the learner's process"] = learn(
        Alone(environment(0), actor, STEPS), actor, loss, seconds
    )
    ways = [(kind, count) for kind in ("processes", "Ray") for count in COUNTS]
    for kind, count in tqdm(ways, desc="actors"):
        actor, loss = networks()
        crew: Crew = (
            Processes(make, count, actor, make(0).collect(), ahead=AHEAD)
            if kind == "processes"
            else OnRay(make, count, actor, ahead=AHEAD)
        )
        found[f"{count} in {kind}" if kind == "processes" else f"{count} on {kind}"] = learn(
            crew, actor, loss, seconds
        )
    return found


class Simulated(NamedTuple):
    """Of many actors."""

    frames_per_second: float
    learner: float
    """share of the time that it learns"""
    line: float
    """share of the time that something is on its way"""
    lag: float
    """updates"""


def simulate(
    actors: int, collect: float, take: float, on_line: float, updates: int = 4_000
) -> Simulated:
    """One delivery an update, actors with cores of their own, one line to the learner.

    Args:
        actors: how many.
        collect: seconds of a stretch.
        take: seconds that the learner has with one.
        on_line: seconds that a stretch, and the weights for the next, take on the line.
        updates: that are simulated.
    """
    events: list[tuple[float, int, str, int, int]] = []
    ready: deque[tuple[int, int]] = deque()
    kept, idle, lags = [0] * actors, set[int](), list[int]()
    version, number, line, now, learning = 0, 0, 0.0, 0.0, False

    def then(at: float, what: str, actor: int, acted: int) -> None:
        nonlocal number
        number += 1  # of two at once the earlier said
        heapq.heappush(events, (at, number, what, actor, acted))

    for actor in range(actors):
        then(collect * (1 + actor / actors), "collected", actor, 0)
    while version < updates:
        now, _, what, actor, acted = heapq.heappop(events)
        if what == "collected":
            line = max(line, now) + on_line
            then(line, "arrived", actor, acted)
            kept[actor] += 1
            if kept[actor] < AHEAD:
                then(now + collect, "collected", actor, version)
            else:
                idle.add(actor)
        elif what == "arrived":
            ready.append((actor, acted))
        else:
            version, learning = version + 1, False
            kept[actor] -= 1
            if actor in idle:
                idle.remove(actor)
                then(now + collect, "collected", actor, version)
        if ready and not learning:
            first, acted = ready.popleft()
            lags.append(version - acted)
            learning = True
            then(now + take, "learned", first, acted)
    return Simulated(
        updates * ACCOUNTS * STEPS / now, updates * take / now, updates * on_line / now, fmean(lags)
    )


def simulated(alone: float, apart: Measured, stretch: int, weights: int) -> list[list[str]]:
    """Table of many actors, by network; where the learner, or the line, is never idle.

    Args:
        alone: seconds of a stretch of one actor with a core of its own.
        apart: of one actor in a process.
        stretch: bytes.
        weights: bytes.
    """
    take = (apart.take + apart.learn) / 1e3
    rows = [["network", "actors", "frames/s", "learner busy", "line busy", "lag", "limited by"]]
    for name, rate in NETWORKS.items():
        for actors in MANY:
            found = simulate(actors, alone, take, (stretch + weights) / rate)
            by = "the learner" if found.learner > FULL else "actors"
            by = "the network" if found.line > FULL else by
            rows.append(
                [name, f"{actors}", f"{found.frames_per_second:,.0f}", f"{found.learner:.0%}",
                 f"{found.line:.0%}", f"{found.lag:.1f}", by]
            )  # fmt: skip
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables, writes them as markdown and JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--quick", action="store_true", help="2 seconds")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args(argv)
    seconds = 2.0 if arguments.quick else arguments.seconds
    torchrl_logger.setLevel("WARNING")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    before = busy()
    one = make(0)
    sample, weights = one.collect(), packed(one.actor)
    alone = median([_timed(one) for _ in range(300)][20:])
    found = measured(seconds)
    stretch = sum(each.numel() * each.element_size() for each in sample.values(True, True))
    rows = [["actors", "frames/s", "ms to take one that waits", "ms to learn from it", "mean lag"]]
    for name, each in found.items():
        rows.append([name, f"{each.frames_per_second:,.0f}", f"{each.take:.2f}",
                     f"{each.learn:.2f}", f"{each.lag:.1f}"])  # fmt: skip
    many = simulated(alone, found["1 in processes"], stretch, len(weights))
    note = (
        f"A stretch of {ACCOUNTS} x {STEPS} frames takes an actor alone {1e3 * alone:.2f} ms and is"
        f" {stretch / 1e3:,.0f} kB, weights {len(weights) / 1e3:,.0f} kB. {seconds:g} s each, one"
        f" thread, {processor()}, {os.cpu_count()} cores, torch {torch.__version__}; {before}"
        " processes wanted a core in the minute before."
    )
    text = "\n\n".join(
        [markdown(rows), note, "Simulated, each actor with a core of its own:", markdown(many)]
    )
    print(f"\n{text}")
    arguments.output.with_suffix(".md").write_text(text + "\n")
    told = {"measured": {name: each._asdict() for name, each in found.items()},
            "simulated": many, "note": note}  # fmt: skip
    arguments.output.write_text(json.dumps(told, indent=1) + "\n")
    return 0


def _timed(one: Stretches) -> float:
    began = time.perf_counter()
    one.collect()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
