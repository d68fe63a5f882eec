"""Four rooms: how fast a goal is learned with given options of rooms, and without; then it moves.

    python results/learn_four_rooms.py      # 45 runs, a quarter of an hour

Sutton, Precup & Singh (1999): eight walks to doorways beside the four moves. Goals as Bacon, Harb &
Precup (2017) have them: the east doorway, then a cell of the lower right room, drawn by the seed.
Learners with options and their flat peers, which have the four moves alone, share loss, network and
optimiser; rates of slow copies are the better ones for each of 0.15 and 0.5, on other seeds.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from statistics import mean
from typing import NamedTuple

import torch
from rows import Row, hand_over, said
from runs import SEEDS
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule, TensorDictModuleBase
from torch import nn
from torchrl import torchrl_logger
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.objectives import LossModule
from tqdm import tqdm

from trading_torchrl.descent import Adam, differentiate
from trading_torchrl.envs import RunningOption
from trading_torchrl.envs.reference import (
    FourRooms,
    GridOptionPolicy,
    room_options,
    single_moves,
)
from trading_torchrl.envs.reference.grid import Cell
from trading_torchrl.envs.reference.room_options import rooms
from trading_torchrl.evaluation import paired_difference
from trading_torchrl.modules import Controller, make_q_actor
from trading_torchrl.objectives import DQNLoss, OptionCriticLoss, OptionsLoss
from trading_torchrl.replay import OptionSteps, Segments

DOORWAY, CORNERS = (7, 9), ((10, 10), (1, 11))
GAMMA = 0.99
ACCOUNTS, STEPS, BATCH, UPDATES = 4, 8, 256, 16
EVERY, LONGEST = 128, 12_000
"""frames between judgements, and of a goal that is not learned"""
JUDGED, WITHIN, LEARNED = 100, 100, 0.9
"""a goal is learned when of so many episodes without exploring, of so many steps, this share gets
there"""
TWICE = 2.0
ENTROPY = 0.01
"""in units of values, which are not normalised: they lie in [0, 1]"""


class Learner(NamedTuple):
    """What acts, what learns, and from which rows."""

    policy: TensorDictModuleBase
    loss: LossModule
    rows: Callable[[TensorDictBase], TensorDictBase]
    kept: int = 20_000
    """newest rows that it learns from"""
    lr: float = 0.03
    eps: float = 1e-4
    """of Adam: small gradients stay small"""
    tau: float = 0.15
    """of slow copies"""


def start_at_zero(network: Controller) -> None:
    """Nothing is worth anything, and all are as likely."""
    nn.init.zeros_(network.heads.weight)


def chooser(*, rooms: bool, ends: bool = False) -> tuple[GridOptionPolicy, TensorDictModule]:
    """A policy over the moves, and over walks to doorways; and its controller, linear in cells."""
    world = FourRooms(observation="cells")
    options = [*(room_options(world) if rooms else []), *single_moves(world)]
    keys = [("option", "logits"), ("option", "values")]
    keys += [("option", "end_logits")] if ends else []
    network = Controller(len(world.cells), len(options), hidden=(), ends=ends)
    start_at_zero(network)
    controller = TensorDictModule(network, in_keys=["observation"], out_keys=keys)
    return GridOptionPolicy(world, options, controller), controller


def by_segments(*, rooms: bool) -> Learner:
    """Learns from options as a whole, the newest alone: old ones would bias its gradient."""
    policy, controller = chooser(rooms=rooms)
    loss = OptionsLoss(controller, gamma=GAMMA, entropy=ENTROPY, normalise=False)
    return Learner(policy, loss, Segments(policy.may, gamma=GAMMA), kept=BATCH)


def by_steps(*, rooms: bool, ends: bool = False) -> Learner:
    """Learns from every step; which options end where they should, if ``ends`` are learned."""
    policy, controller = chooser(rooms=rooms, ends=ends)
    loss = OptionCriticLoss(controller, gamma=GAMMA, entropy=ENTROPY, normalise=False)
    rows = OptionSteps(policy.may, policy.bounds, policy.alike)
    return Learner(policy, loss, rows, tau=0.5 if rooms else 0.15)


def by_q() -> Learner:
    """Flat Q-learning."""
    policy = make_q_actor(len(FourRooms().cells), 4, [], epsilon=0.5)
    with torch.no_grad():  # nearly nothing is worth anything; if all were alike, the first would do
        for each in policy.parameters():
            each.mul_(0.01)
    loss = DQNLoss(policy, gamma=GAMMA)
    return Learner(policy, loss, lambda rows: rows.reshape(-1), lr=0.005, eps=1e-8)


FLAT = ("flat, steps", "flat, segments", "flat, DQN")
LEARNERS: dict[str, Callable[[], Learner]] = {
    "flat, steps": partial(by_steps, rooms=False),
    "flat, segments": partial(by_segments, rooms=False),
    "flat, DQN": by_q,
    "options, segments": partial(by_segments, rooms=True),
    "option-critic": partial(by_steps, rooms=True),
    "option-critic, ends learned": partial(by_steps, rooms=True, ends=True),
}


class Found(NamedTuple):
    """Of one goal, in frames."""

    first: int
    """until it was first met"""
    learned: int
    """until it was learned"""


def around(accounts: int, goal: Cell, seed: int) -> TransformedEnv:
    """Four rooms with that goal."""
    world = FourRooms(accounts, goal=goal, observation="cells", seed=seed)
    return TransformedEnv(world, RunningOption())


def share_reached(policy: TensorDictModuleBase, goal: Cell) -> float:
    """Without exploring, of JUDGED episodes, WITHIN so many steps."""
    env = around(JUDGED, goal, seed=1_000)
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        rows = env.rollout(WITHIN, policy, break_when_any_done=False)
    return float((rows["next", "reward"] > 0).any(1).float().mean())


def train(learner: Learner, optimizer: Adam, goal: Cell, seed: int) -> Found:
    """Learns one goal, from new rows alone."""
    names = [name for name in learner.loss.out_keys if name.startswith("loss_")]
    replay = TensorDictReplayBuffer(storage=LazyTensorStorage(learner.kept), batch_size=BATCH)
    collector = Collector(
        around(ACCOUNTS, goal, seed), learner.policy, frames_per_batch=ACCOUNTS * STEPS,
        total_frames=LONGEST, auto_register_policy_transforms=False, track_traj_ids=False,
        trust_policy=True,
    )  # fmt: skip
    frames = first = 0
    for batch in collector:
        frames += batch.numel()
        if not first and bool((batch["next", "reward"] > 0).any()):
            first = frames
        rows = learner.rows(batch)
        if len(rows):
            replay.extend(rows)
        for _ in range(UPDATES if len(replay) else 0):
            losses = learner.loss(replay.sample())
            differentiate(sum(losses[name] for name in names), optimizer.parameters, math.inf)
            optimizer.step()
            learner.loss.update_targets(learner.tau)
        judged = first and not frames % EVERY
        if judged and share_reached(learner.policy, goal) >= LEARNED:
            break
    collector.shutdown()
    return Found(first or LONGEST, min(frames, LONGEST))


class Run(NamedTuple):
    """One goal, and the other after it."""

    found: Found
    moved: Found


def run(make: Callable[[], Learner], goals: tuple[Cell, Cell], seed: int) -> Run:
    """The second goal begins with the weights that the first one left."""
    torch.manual_seed(seed)
    learner = make()
    trained = [each for each in learner.loss.parameters() if each.requires_grad]
    optimizer = Adam(trained, lr=learner.lr, eps=learner.eps)
    return Run(*(train(learner, optimizer, goal, seed) for goal in goals))


def doorway_then_room(seed: int) -> tuple[Cell, Cell]:
    """The east doorway, then a cell of the room below it."""
    world = FourRooms()
    corner = world.cells.index(CORNERS[0])
    (room,) = (each.nonzero()[:, 0] for each in rooms(world) if each[corner])
    drawn = torch.randint(len(room), (), generator=torch.Generator().manual_seed(seed))
    return DOORWAY, world.cells[int(room[drawn])]


PLACES: dict[str, tuple[Callable[[int], tuple[Cell, Cell]], Sequence[str]]] = {
    "doorway, then its room": (doorway_then_room, [*LEARNERS]),
    "one corner, then another": (
        lambda _: CORNERS,
        ["flat, steps", "option-critic", "option-critic, ends learned"],
    ),
}
COLUMNS: dict[str, Callable[[Run], float]] = {
    "learned": lambda one: one.found.learned,
    "after the move": lambda one: one.moved.learned,
    "first met": lambda one: one.found.first,
    "first met after the move": lambda one: one.moved.first,
}


def compared(place: str, runs: dict[str, list[Run]]) -> list[Row]:
    """Learners with options beside the best without."""
    said_of: list[Row] = []
    for what in ("learned", "after the move"):
        took = {name: [COLUMNS[what](one) for one in each] for name, each in runs.items()}
        flat = min((name for name in FLAT if name in took), key=lambda name: mean(took[name]))
        for name in (name for name in took if name not in FLAT):
            ratio = mean(took[flat]) / mean(took[name])
            bar: tuple[str, bool | None] = ("", None)
            if what == "learned":
                bar = (f">= {TWICE:g}", ratio >= TWICE)
            elif name.startswith("option-critic"):
                bar = ("> 1", ratio > 1)
            head = f"{place}: {name}, {what}"
            said_of.append(Row(f"{head}: {flat} takes so many times as long", f"{ratio:.2f}", *bar))
            less = paired_difference(by_seed(took[name]), by_seed(took[flat]))
            clear = " *" if less.clear else ""
            said_of.append(Row(f"{head}: frames less {flat}, paired",
                               f"{less.mean:+.0f} +- {less.half_width:.0f}{clear}"))  # fmt: skip
    return said_of


def main() -> None:
    """Trains, and compares."""
    torchrl_logger.setLevel("WARNING")
    asked = [(place, name, seed) for place, (_, names) in PLACES.items()
             for name, seed in product(names, SEEDS)]  # fmt: skip
    found: dict[str, dict[str, list[Run]]] = {place: {} for place in PLACES}
    for place, name, seed in (bar := tqdm(asked, desc="runs")):
        bar.set_postfix_str(f"{place}: {name}")
        one = run(LEARNERS[name], PLACES[place][0](seed), seed)
        found[place].setdefault(name, []).append(one)
    table = [["frames", *COLUMNS]]
    for place, by_name in found.items():
        for name, runs in by_name.items():
            cells = [said([column(one) for one in runs]) for column in COLUMNS.values()]
            table.append([f"{place}: {name}", *cells])
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t), * where that of"
        " a difference excludes 0. One step in three slips. A goal is learned when a policy that"
        f" does not explore gets there in {LEARNED:.0%} of {JUDGED} episodes within {WITHIN} steps,"
        f" judged every {EVERY} frames; what is not learned counts as {LONGEST:,}. Goals as in"
        " Bacon et al.: the east doorway, then a cell of the room below, drawn by the seed; and"
        " one corner and then another, far from where walks lead. Learned weights stay, stored rows"
        " go. Compared with the best of the flat learners."
    )
    rows_of = [row for place, runs in found.items() for row in compared(place, runs)]
    hand_over("Four rooms", note, rows_of, table)


def by_seed(values: list[float]) -> dict[int, float]:
    """For pairs."""
    return dict(zip(SEEDS, values, strict=True))


if __name__ == "__main__":
    main()
