"""Four rooms: how fast a goal is found with given options of rooms, and without; then it moves.

    python results/learn_four_rooms.py      # 30 runs, half an hour

Sutton, Precup & Singh (1999): eight walks to doorways beside the four moves. Learners with options
and their flat peers, which have the four moves alone, share loss, network, optimiser and rates.
"""

import math
from collections.abc import Callable
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
from trading_torchrl.evaluation import paired_difference
from trading_torchrl.modules import Controller, make_q_actor
from trading_torchrl.objectives import DQNLoss, OptionCriticLoss, OptionsLoss
from trading_torchrl.replay import OptionSteps, Segments

GOAL, MOVED = (10, 10), (1, 11)
GAMMA = 0.99
ACCOUNTS, STEPS, BATCH, UPDATES, TAU = 4, 8, 256, 16, 0.15
EPISODES = 50
"""of each goal; one ends at the goal, or after 500 steps"""
JUDGED, WITHIN = 100, 100
"""episodes, and steps, in which a policy that does not explore is to get there, at the end"""
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


def start_at_zero(network: nn.Module) -> None:
    """Nothing is worth anything, and all are as likely."""
    for each in network.parameters():
        nn.init.zeros_(each)


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
    return Learner(policy, loss, OptionSteps(policy.may, policy.bounds, policy.alike))


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
    """Of one goal."""

    first: int
    """frames until it was first met"""
    steps: float
    """of an episode, on average"""


def around(accounts: int, goal: tuple[int, int], seed: int) -> TransformedEnv:
    """Four rooms with that goal."""
    world = FourRooms(accounts, goal=goal, observation="cells", seed=seed)
    return TransformedEnv(world, RunningOption())


def share_reached(policy: TensorDictModuleBase, goal: tuple[int, int]) -> float:
    """Without exploring, of JUDGED episodes, WITHIN so many steps."""
    env = around(JUDGED, goal, seed=1_000)
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        rows = env.rollout(WITHIN, policy, break_when_any_done=False)
    return float((rows["next", "reward"] > 0).any(1).float().mean())


def train(learner: Learner, optimizer: Adam, goal: tuple[int, int], seed: int) -> Found:
    """Learns one goal, from new rows alone, over so many episodes."""
    names = [name for name in learner.loss.out_keys if name.startswith("loss_")]
    replay = TensorDictReplayBuffer(storage=LazyTensorStorage(learner.kept), batch_size=BATCH)
    collector = Collector(
        around(ACCOUNTS, goal, seed), learner.policy, frames_per_batch=ACCOUNTS * STEPS,
        total_frames=-1, auto_register_policy_transforms=False, track_traj_ids=False,
        trust_policy=True,
    )  # fmt: skip
    frames = first = episodes = 0
    for batch in collector:
        frames += batch.numel()
        episodes += int(batch["next", "done"].sum())
        if not first and bool((batch["next", "reward"] > 0).any()):
            first = frames
        if episodes >= EPISODES:
            break
        rows = learner.rows(batch)
        if len(rows):
            replay.extend(rows)
        for _ in range(UPDATES if len(replay) else 0):
            losses = learner.loss(replay.sample())
            differentiate(sum(losses[name] for name in names), optimizer.parameters, math.inf)
            optimizer.step()
            learner.loss.update_targets(TAU)
    collector.shutdown()
    return Found(first or frames, frames / episodes)


def value_at_start(learner: Learner) -> float:
    """Of the best that is known there."""
    rows = learner.policy(around(1, GOAL, seed=0).reset())
    if isinstance(learner.policy, GridOptionPolicy):
        found = learner.policy.controller(rows)["option", "values"]
        return float(found.masked_fill(~learner.policy.may(rows), 0.0).max())
    return float(rows["action_value"].max())


class Run(NamedTuple):
    """One goal, what was learned of it, and the other goal after it."""

    found: Found
    value: float
    """of the start"""
    reached: float
    """without exploring, at the end of the first goal"""
    moved: Found


def run(make: Callable[[], Learner], seed: int) -> Run:
    """The second goal begins with the weights that the first one left."""
    torch.manual_seed(seed)
    learner = make()
    trained = [each for each in learner.loss.parameters() if each.requires_grad]
    optimizer = Adam(trained, lr=learner.lr, eps=learner.eps)
    found = train(learner, optimizer, GOAL, seed)
    with torch.no_grad():
        value = value_at_start(learner)
    reached = share_reached(learner.policy, GOAL)
    return Run(found, value, reached, train(learner, optimizer, MOVED, seed))


def main() -> None:
    """Trains, and compares."""
    torchrl_logger.setLevel("WARNING")
    runs: dict[str, list[Run]] = {name: [] for name in LEARNERS}
    for seed, name in (bar := tqdm([*product(SEEDS, LEARNERS)], desc="runs")):
        bar.set_postfix_str(name)
        runs[name].append(run(LEARNERS[name], seed))
    best = FourRooms().value
    columns: dict[str, Callable[[Run], float]] = {
        "steps of an episode": lambda one: one.found.steps,
        "after the move": lambda one: one.moved.steps,
        "frames until first met": lambda one: one.found.first,
        "after the move, first": lambda one: one.moved.first,
        "value of the start / best": lambda one: one.value / best,
        "gets there, greedy": lambda one: one.reached,
    }
    table = [["", *columns]]
    for name, each in runs.items():
        table.append([name, *(said([column(one) for one in each]) for column in columns.values())])
    rows = []
    for what, column in list(columns.items())[:2]:
        took = {name: [column(one) for one in each] for name, each in runs.items()}
        flat = min(FLAT, key=lambda name: mean(took[name]))
        for name in (name for name in LEARNERS if name not in FLAT):
            ratio = mean(took[flat]) / mean(took[name])
            first = column is columns["steps of an episode"]
            bar_of: tuple[str, bool | None] = (f">= {TWICE:g}", ratio >= TWICE)
            if not first:
                critic = name.startswith("option-critic")
                bar_of = ("> 1", ratio > 1) if critic else ("", None)
            said_of = f"{name}: {what}, {flat} takes so many times as many"
            rows.append(Row(said_of, f"{ratio:.2f}", *bar_of))
            less = paired_difference(by_seed(took[name]), by_seed(took[flat]))
            rows.append(Row(f"{name} less {flat}: {what}, paired",
                            f"{less.mean:+.0f} +- {less.half_width:.0f}"))  # fmt: skip
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t). One step in"
        f" three slips. Steps are those of the first {EPISODES} episodes, of the policy that"
        f" explores and learns; one ends at the goal or after 500 steps. Then the goal moves from"
        f" {GOAL} to {MOVED}; learned weights stay, stored rows go. Greedy is the share of"
        f" {JUDGED} episodes that a policy without exploring ends within {WITHIN} steps, before"
        " the move. Compared with the best of the three flat learners."
    )
    hand_over("Four rooms", note, rows, table)


def by_seed(values: list[float]) -> dict[int, float]:
    """For pairs."""
    return dict(zip(SEEDS, values, strict=True))


if __name__ == "__main__":
    main()
