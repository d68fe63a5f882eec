"""SAC updates a second at equal networks, precision and threads: ours against its peers.

    python benchmarks/learner.py                        # seven minutes
    python benchmarks/learner.py --quick --threads 1    # short rounds, for a look
    python benchmarks/learner.py --hidden 64 64 --precision highest

An update samples a batch from a full replay buffer, takes one step of critics, actor and
temperature, and moves the target critics. Ours is measured as `recipes/offpolicy.py` does it, with
its checks for broken numbers, clipped gradients, an averaged actor and objects that the garbage
collector leaves alone, and bare of these, which is what the others do. A round measures each of
them once, in shuffled order, so that what else the machine does falls on all of them, and every
time in a new process: two of the same code differ by some percent for as long as they live. The
table shows medians over the rounds.

The machine's product rate is that of a batch times a square layer, once and for two critics in one
call: no update can be faster than its floating-point operations at the higher of both.
"""

import argparse
import gc
import json
import math
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from environment import UNSTEADY, busy, markdown, quartiles_of
from gymnasium import Env, spaces
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl import torchrl_logger
from torchrl.data import LazyTensorStorage, ReplayBuffer
from tqdm import tqdm

from trading_torchrl.descent import Adam, differentiate, norm_of
from trading_torchrl.machine import PRECISIONS, processor, set_precision
from trading_torchrl.modules import follow_slowly, make_actor, make_critics
from trading_torchrl.objectives import SACLoss

ROWS = 100_000
GAMMA, TAU, RATE = 0.99, 0.005, 3e-4
AVERAGE, LONGEST, REWARD_SCALE = 0.005, 10.0, 1.0
"""Of the recipe: rate of the averaged actor, largest norm of a gradient, scale of rewards."""

WARM_UP_SECONDS, CHUNK_SECONDS = 3.0, 0.05

Run = Callable[[int], object]
"""Makes this many updates."""


@dataclass(frozen=True)
class Shape:
    """Of the networks and the batch."""

    hidden: list[int]
    batch: int = 256
    observation: int = 32
    action: int = 1


def flop_per_update(shape: Shape) -> int:
    """Floating-point operations of the matrix products that an update cannot do without.

    A layer costs one product forward, one for the gradient of its weights and one for that of its
    inputs; first layers need no gradient of what is seen. The actor runs at the next observation
    and both target critics there, all forward only; the critics at the action taken, and the actor,
    forward and backward; and the critics at the actor's action, forward and backward to their
    inputs, as their weights learn nothing from it. Elementwise work is not counted.
    """

    def products(widths: Sequence[int]) -> int:
        return sum(fan_in * fan_out for fan_in, fan_out in pairwise(widths))

    seen = shape.observation + shape.action
    actor = products([shape.observation, *shape.hidden, 2 * shape.action])
    critics = 2 * products([seen, *shape.hidden, 1])
    first_layers = shape.hidden[0] * (shape.observation + 2 * seen)
    return 2 * shape.batch * ((1 + 3) * actor + (1 + 3 + 2) * critics - first_layers)


def rows(shape: Shape) -> dict[str, Tensor]:
    """What fills every contestant's replay buffer."""
    draw = torch.Generator().manual_seed(0)
    return {
        "observation": torch.randn(ROWS, shape.observation, generator=draw),
        "action": 2 * torch.rand(ROWS, shape.action, generator=draw) - 1,
        "next": torch.randn(ROWS, shape.observation, generator=draw),
        "reward": torch.randn(ROWS, 1, generator=draw),
    }


def replay_of(shape: Shape, *flags: str) -> ReplayBuffer:
    """The rows in a buffer of TorchRL, with flags that are never set."""
    filled = rows(shape)
    following = {"observation": filled["next"], "reward": filled["reward"]}
    following |= {flag: torch.zeros(ROWS, 1, dtype=torch.bool) for flag in flags}
    kept = {"observation": filled["observation"], "action": filled["action"], "next": following}
    replay = ReplayBuffer(storage=LazyTensorStorage(ROWS), batch_size=shape.batch)
    replay.extend(TensorDict(kept, batch_size=[ROWS]))
    return replay


def numbers_in(parameters: Sequence[Tensor]) -> int:
    """How many numbers are learned."""
    return sum(each.numel() for each in parameters)


def ours(shape: Shape, bare: bool) -> tuple[Run, int]:
    """The update of `recipes/offpolicy.py`; bare, without what its peers do not have."""
    actor = make_actor(shape.observation, shape.action, shape.hidden)
    critics = make_critics(shape.observation, shape.action, shape.hidden)
    loss = SACLoss(actor, critics, gamma=GAMMA)
    averaged = deepcopy(actor).requires_grad_(False)
    both = list(averaged.parameters()), list(actor.parameters())
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = Adam(trained, lr=RATE)
    replay = replay_of(shape, "terminated")

    def alone(updates: int) -> None:
        for _ in range(updates):
            losses = loss(replay.sample())
            for each in trained:
                each.grad = None
            (losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]).backward()
            optimizer.step()
            loss.update_targets(TAU)

    def as_in_the_recipe(updates: int) -> None:
        for _ in range(updates):
            sample = replay.sample()
            sample["next", "reward"].mul_(REWARD_SCALE)
            losses = loss(sample)
            total = losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]
            if math.isnan(differentiate(total, trained, LONGEST)):
                raise ArithmeticError("a loss or its gradient is not finite")
            optimizer.step()
            loss.update_targets(TAU)
            follow_slowly(*both, AVERAGE)
            if not math.isfinite(norm_of(trained)):
                raise ArithmeticError("a parameter is not finite")

    if not bare:
        gc.freeze()
    return alone if bare else as_in_the_recipe, numbers_in(trained)


def sb3(shape: Shape) -> tuple[Run, int]:
    """Stable-Baselines3's `train`, with its own buffer and its default optimisers."""
    from stable_baselines3 import SAC
    from stable_baselines3.common.logger import Logger

    class Nothing(Env[np.ndarray, np.ndarray]):
        """Is never stepped; only its spaces are asked for."""

        observation_space = spaces.Box(-np.inf, np.inf, (shape.observation,), np.float32)
        action_space = spaces.Box(-1.0, 1.0, (shape.action,), np.float32)

    model = SAC(
        "MlpPolicy",
        Nothing(),
        learning_rate=RATE,
        buffer_size=ROWS,
        batch_size=shape.batch,
        gamma=GAMMA,
        tau=TAU,
        policy_kwargs={"net_arch": shape.hidden},
        device="cpu",
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    buffer: Any = model.replay_buffer
    filled = {name: value.numpy() for name, value in rows(shape).items()}
    buffer.observations[:, 0] = filled["observation"]
    buffer.next_observations[:, 0] = filled["next"]
    buffer.actions[:, 0], buffer.rewards[:] = filled["action"], filled["reward"]
    buffer.full = True

    def run(updates: int) -> None:
        model.train(gradient_steps=updates, batch_size=shape.batch)

    assert model.log_ent_coef is not None
    trained = [*model.actor.parameters(), *model.critic.parameters(), model.log_ent_coef]
    return run, numbers_in(trained)


def torchrl_sac(shape: Shape, loop: bool) -> tuple[Run, int]:
    """TorchRL's own loss with one fused Adam; its critics under vmap, or one after the other."""
    from torchrl import modules, objectives

    layers: dict[str, Any] = {"num_cells": shape.hidden, "activation_class": nn.ReLU}
    network = modules.MLP(shape.observation, 2 * shape.action, **layers)
    actor = modules.ProbabilisticActor(
        TensorDictModule(
            nn.Sequential(network, modules.NormalParamExtractor()),
            in_keys=["observation"],
            out_keys=["loc", "scale"],
        ),
        in_keys=["loc", "scale"],
        distribution_class=modules.TanhNormal,
    )
    critic = modules.ValueOperator(
        modules.MLP(shape.observation + shape.action, 1, **layers),
        in_keys=["observation", "action"],
    )
    loss = objectives.SACLoss(
        actor,
        critic,
        loss_function="l2",
        target_entropy=-float(shape.action),
        deactivate_vmap=loop,
    )
    loss.make_value_estimator(gamma=GAMMA)
    target = objectives.SoftUpdate(loss, tau=TAU)
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=RATE, fused=True)
    replay = replay_of(shape, "terminated", "done")

    def run(updates: int) -> None:
        for _ in range(updates):
            losses = loss(replay.sample())
            optimizer.zero_grad()
            (losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]).backward()
            optimizer.step()
            target.step()

    return run, numbers_in(trained)


def product(shape: Shape, members: int) -> tuple[Run, int]:
    """A batch times a square layer, for one network or for several in one call; learns nothing."""
    width = max(shape.hidden)
    left, right = torch.randn(members, shape.batch, width), torch.randn(members, width, width)
    out = torch.empty_like(left)

    def run(products: int) -> None:
        if members == 1:
            for _ in range(products):
                torch.mm(left[0], right[0], out=out[0])
        else:
            for _ in range(products):
                torch.bmm(left, right, out=out)

    return run, 0


RECIPE, BARE = "ours, as the recipe does it", "ours, bare"
SB3 = "Stable-Baselines3 SAC"
VMAP, LOOP = "TorchRL SACLoss", "TorchRL SACLoss, no vmap"
LEARNERS: dict[str, Callable[[Shape], tuple[Run, int]]] = {
    RECIPE: lambda shape: ours(shape, bare=False),
    BARE: lambda shape: ours(shape, bare=True),
    SB3: sb3,
    VMAP: lambda shape: torchrl_sac(shape, loop=False),
    LOOP: lambda shape: torchrl_sac(shape, loop=True),
}
PRODUCTS: dict[str, int] = {"one product": 1, "two in one call": 2}
PACKAGES = ("torch", "torchrl", "stable-baselines3")


@dataclass(frozen=True)
class Bar:
    """A ratio to the faster of some contestants that we want to reach."""

    name: str
    numerator: str
    denominators: tuple[str, ...]
    required: float = 1.4


BARS = [
    Bar("as the recipe does it, vs Stable-Baselines3 SAC", RECIPE, (SB3,)),
    Bar("as the recipe does it, vs TorchRL SACLoss, the faster way", RECIPE, (VMAP, LOOP)),
    Bar("bare, vs Stable-Baselines3 SAC", BARE, (SB3,)),
    Bar("bare, vs TorchRL SACLoss, the faster way", BARE, (VMAP, LOOP)),
]


@dataclass(frozen=True)
class Measured:
    """By a process."""

    rate: float
    """updates, or products, a second"""
    parameters: int
    precision: str
    rounding: float


def measure(name: str, shape: Shape, threads: int, precision: str, seconds: float) -> Measured:
    """Sets a contestant up, warms it up, and measures it once."""
    torchrl_logger.setLevel("WARNING")
    torch.set_num_threads(threads)
    precision, rounding = set_precision(precision)
    torch.manual_seed(0)
    run, learned = product(shape, PRODUCTS[name]) if name in PRODUCTS else LEARNERS[name](shape)
    chunk, began = 1, time.perf_counter()
    while True:
        before = time.perf_counter()
        run(chunk)
        now = time.perf_counter()
        if now - before < CHUNK_SECONDS:
            chunk *= 2
        elif now - began > WARM_UP_SECONDS:
            break
    updates, elapsed = 0, 0.0
    began = time.perf_counter()
    while elapsed < seconds:
        run(chunk)
        updates += chunk
        elapsed = time.perf_counter() - began
    return Measured(updates / elapsed, learned, precision, rounding)


@dataclass(frozen=True)
class Contestant:
    """A learner, or a product, and what its processes measured."""

    name: str
    measured: list[Measured] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        """Of each round."""
        return [each.rate for each in self.measured]

    @property
    def facts(self) -> dict[str, Any]:
        """Of its networks and products."""
        return {key: value for key, value in asdict(self.measured[0]).items() if key != "rate"}

    @property
    def median(self) -> float:
        """Over the rounds."""
        return median(self.rates)

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third over the rounds."""
        return quartiles_of(self.rates)


def race(
    names: Sequence[str], shape: Shape, arguments: argparse.Namespace
) -> dict[str, Contestant]:
    """Measures all contestants in interleaved rounds, every time in a new process."""
    contestants = {name: Contestant(name) for name in names}
    # Read when a process starts, so before there is one.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(arguments.threads)
    shuffle = random.Random(0).shuffle
    given = shape, arguments.threads, arguments.precision, arguments.seconds
    with tqdm(total=arguments.rounds * len(names), desc="measurements") as progress:
        for _ in range(arguments.rounds):
            order = list(contestants.values())
            shuffle(order)
            for contestant in order:
                progress.set_postfix_str(contestant.name)
                with ProcessPoolExecutor(1, get_context("spawn")) as process:
                    found = process.submit(measure, contestant.name, *given).result()
                contestant.measured.append(found)
                progress.update()
            learned = {c.name: c.facts["parameters"] for c in order if c.name in LEARNERS}
            if len(set(learned.values())) != 1:
                raise SystemExit(f"the networks are not equal, they learn {learned} numbers")
    return contestants


def operations(name: str, shape: Shape) -> int:
    """Floating-point operations of an update, or of a product."""
    if name in PRODUCTS:
        return 2 * PRODUCTS[name] * shape.batch * max(shape.hidden) ** 2
    return flop_per_update(shape)


def results_table(contestants: Mapping[str, Contestant], shape: Shape) -> list[list[str]]:
    """Rows of the main table, header first."""
    limit = product_rate(contestants, shape)
    rows = [["learner", "updates/s", "quartiles", f"x {SB3}", "GFLOP/s", "of the product rate"]]
    for name, contestant in contestants.items():
        low, high = contestant.quartiles
        speed = contestant.median * operations(name, shape)
        unsteady = " (unsteady)" if high - low > UNSTEADY * contestant.median else ""
        learner = name in LEARNERS
        rows.append(
            [
                name,
                f"{contestant.median:.0f}" if learner else "",
                (f"{low:.0f} to {high:.0f}" if learner else "") + unsteady,
                f"{contestant.median / contestants[SB3].median:.2f}" if learner else "",
                f"{speed / 1e9:.0f}",
                f"{speed / limit:.0%}",
            ]
        )
    at_most = limit / flop_per_update(shape)
    ahead = at_most / contestants[SB3].median
    rows.append(["limit", f"{at_most:.0f}", "", f"{ahead:.2f}", f"{limit / 1e9:.0f}", "100%"])
    return rows


def product_rate(contestants: Mapping[str, Contestant], shape: Shape) -> float:
    """The higher of both products' rates, floating-point operations a second."""
    return max(contestants[name].median * operations(name, shape) for name in PRODUCTS)


def ratio(bar: Bar, contestants: Mapping[str, Contestant]) -> float:
    """Of the medians."""
    fastest = max(contestants[name].median for name in bar.denominators)
    return contestants[bar.numerator].median / fastest


def bars_table(contestants: Mapping[str, Contestant]) -> list[list[str]]:
    """Rows of the table of bars, header first."""
    rows = [["bar", "required", "measured", ""]]
    for bar in BARS:
        measured = ratio(bar, contestants)
        verdict = "reached" if measured >= bar.required else "MISSED"
        rows.append([bar.name, f"{bar.required:g}", f"{measured:.2f}", verdict])
    return rows


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256], metavar="WIDTH")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2, help="of each contestant")
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="auto",
        help="of products, of each contestant; auto is medium where that is exact, else highest",
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--quick", action="store_true", help="1 round of 0.3 seconds")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).resolve().parent / "learner.json"
    )
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.rounds, arguments.seconds = 1, 0.3
    return arguments


def parts_of(page: str) -> dict[str, str]:
    """By processor."""
    parts = (part.split("\n", 1) for part in page.removeprefix("## ").split("\n## ") if part)
    return {name: text.strip() for name, text in parts}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints both tables, writes them as markdown and JSON; 1 where a bar is missed.

    The page keeps what was measured on other processors.
    """
    arguments = arguments_of(argv)
    shape = Shape(arguments.hidden, arguments.batch)
    load = [busy()]
    contestants = race([*LEARNERS, *PRODUCTS], shape, arguments)
    load.append(busy())
    measured = {bar.name: ratio(bar, contestants) for bar in BARS}
    facts = contestants[RECIPE].facts
    versions = {package: version(package) for package in PACKAGES}
    text = "\n\n".join(
        [
            markdown(results_table(contestants, shape)),
            markdown(bars_table(contestants)),
            f"Batch {shape.batch}, observation {shape.observation}, action {shape.action}, hidden "
            f"{shape.hidden}, two critics, {facts['parameters']:,} numbers learned by each; "
            f"{flop_per_update(shape) / 1e6:.0f} MFLOP an update. Matmul precision "
            f'"{facts["precision"]}", which here rounds to {facts["rounding"]:.0e}. '
            f"{arguments.rounds} rounds of {arguments.seconds:g} s, {arguments.threads} thread(s) "
            f"each, {processor()}, {os.cpu_count()} cores, "
            f"{', '.join(f'{name} {number}' for name, number in versions.items())}.",
        ]
    )
    print(f"\n{text}")
    report = {
        "settings": {
            **asdict(shape),
            **{name: getattr(arguments, name) for name in ("threads", "precision", "rounds")},
            "seconds": arguments.seconds,
            # Neighbours on the machine cost every contestant, those with more threads most of all.
            "load": load,
            "flop_per_update": flop_per_update(shape),
        },
        "machine": {
            "platform": platform.platform(),
            "processor": processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            **versions,
        },
        "contestants": [
            {
                "name": name,
                **contestant.facts,
                "rates": contestant.rates,
                "median": contestant.median,
                "quartiles": contestant.quartiles,
                "gflop_per_second": contestant.median * operations(name, shape) / 1e9,
            }
            for name, contestant in contestants.items()
        ],
        "bars": [{**asdict(bar), "measured": measured[bar.name]} for bar in BARS],
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    page = arguments.output.with_suffix(".md")
    parts = parts_of(page.read_text() if page.exists() else "") | {processor(): text}
    page.write_text("\n\n".join(f"## {name}\n\n{part}" for name, part in parts.items()) + "\n")
    return int(any(measured[bar.name] < bar.required for bar in BARS))


if __name__ == "__main__":
    sys.exit(main())
