"""Four rooms: how fast a goal is found with given options of rooms, and without; then it moves.

    python results/learn_four_rooms.py      # 30 runs, six minutes

Sutton, Precup & Singh (1999): eight walks to doorways beside the four moves. Learners with options
and their flat peers, which have the four moves alone, share loss, network, optimiser and rates.
"""

import math
from collections.abc import Callable, Iterable
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
from trading_torchrl.evaluation import interval, paired_difference
from trading_torchrl.modules import Controller, make_q_actor
from trading_torchrl.objectives import DQNLoss, OptionCriticLoss, OptionsLoss
from trading_torchrl.replay import OptionSteps, Segments

GOAL, MOVED = (10, 10), (1, 11)
GAMMA = 0.99
ACCOUNTS, STEPS, BATCH, KEPT, UPDATES, TAU = 4, 8, 256, 20_000, 16, 0.15
FRAMES, AFTER = 4_096, 4_096
"""of training before the goal moves, and at most after it"""
EVERY, JUDGED, WITHIN, MOST = 256, 100, 100, 0.9
"""a goal counts as reached once the policy, without exploring, gets there in MOST of the JUDGED
episodes, WITHIN so many steps; looked at EVERY so many frames"""
TWICE = 2.0
ENTROPY = 0.01
"""in units of values, which are not normalised: they lie in [0, 1]"""


class Learner(NamedTuple):
    """What acts, what learns, and from which rows."""

    policy: TensorDictModuleBase
    loss: LossModule
    rows: Callable[[TensorDictBase], TensorDictBase]
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
    """Learns from options as a whole."""
    policy, controller = chooser(rooms=rooms)
    loss = OptionsLoss(controller, gamma=GAMMA, entropy=ENTROPY, normalise=False)
    return Learner(policy, loss, Segments(policy.may, gamma=GAMMA))


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
    """Of one goal: frames until it was first met, and until it counts as reached."""

    first: float
    reached: float


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


def train(
    learner: Learner, optimizer: Adam, goal: tuple[int, int], seed: int, frames: int, *, on: bool
) -> Found:
    """Learns one goal from new rows alone; to the end if it goes ``on``, else until reached."""
    names = [name for name in learner.loss.out_keys if name.startswith("loss_")]
    replay = TensorDictReplayBuffer(storage=LazyTensorStorage(KEPT), batch_size=BATCH)
    collector = Collector(
        around(ACCOUNTS, goal, seed), learner.policy, frames_per_batch=ACCOUNTS * STEPS,
        total_frames=frames, auto_register_policy_transforms=False, track_traj_ids=False,
        trust_policy=True,
    )  # fmt: skip
    first = reached = float(frames)
    done = 0
    for batch in collector:
        done += batch.numel()
        if bool((batch["next", "reward"] > 0).any()):
            first = min(first, done)
        rows = learner.rows(batch)
        if len(rows):
            replay.extend(rows)
        for _ in range(UPDATES if len(replay) else 0):
            losses = learner.loss(replay.sample())
            differentiate(sum(losses[name] for name in names), optimizer.parameters, math.inf)
            optimizer.step()
            learner.loss.update_targets(TAU)
        if reached == frames and done % EVERY == 0 and share_reached(learner.policy, goal) >= MOST:
            reached = float(done)
            if not on:
                break
    collector.shutdown()
    return Found(first, reached)


def value_at_start(learner: Learner) -> float:
    """Of the best that is known there."""
    rows = learner.policy(around(1, GOAL, seed=0).reset())
    if isinstance(learner.policy, GridOptionPolicy):
        found = learner.policy.controller(rows)["option", "values"]
        return float(found.masked_fill(~learner.policy.may(rows), 0.0).max())
    return float(rows["action_value"].max())


def run(make: Callable[[], Learner], seed: int) -> tuple[Found, float, Found]:
    """One goal, its value at the start, and the other goal with what was learned."""
    torch.manual_seed(seed)
    learner = make()
    trained = [each for each in learner.loss.parameters() if each.requires_grad]
    optimizer = Adam(trained, lr=learner.lr, eps=learner.eps)
    found = train(learner, optimizer, GOAL, seed, FRAMES, on=True)
    with torch.no_grad():
        value = value_at_start(learner)
    return found, value, train(learner, optimizer, MOVED, seed, AFTER, on=False)


def main() -> None:
    """Trains, and compares."""
    torchrl_logger.setLevel("WARNING")
    runs: dict[str, list[tuple[Found, float, Found]]] = {name: [] for name in LEARNERS}
    for seed, name in (bar := tqdm([*product(SEEDS, LEARNERS)], desc="runs")):
        bar.set_postfix_str(name)
        runs[name].append(run(LEARNERS[name], seed))
    reached = {name: [each[0].reached for each in found] for name, found in runs.items()}
    again = {name: [each[2].reached for each in found] for name, found in runs.items()}
    best = FourRooms().value
    rows = []
    for name, found in runs.items():
        rows.append(
            Row(f"{name}: frames until the goal is reached", counted(reached[name], FRAMES))
        )
        rows.append(
            Row(
                f"{name}: until it is first met", counted([each[0].first for each in found], FRAMES)
            )
        )
        share = [each[1] / best for each in found]
        rows.append(Row(f"{name}: value of the start, share of the best one", said(share)))
    flat = min((name for name in FLAT), key=lambda name: mean(reached[name]))
    for name in set_apart(reached):
        ratio = mean(reached[flat]) / mean(reached[name])
        rows.append(Row(f"{name}: as fast as {flat}, ratio of means", f"{ratio:.2f}",
                        f">= {TWICE:g}", ratio >= TWICE))  # fmt: skip
        apart = paired_difference(by_seed(reached[name]), by_seed(reached[flat]))
        rows.append(Row(f"{name}: frames less those of {flat}, paired",
                        f"{apart.mean:+.0f} +- {apart.half_width:.0f}"))  # fmt: skip
    for name in again:
        rows.append(Row(f"{name}: frames to the goal that moved", counted(again[name], AFTER)))
    flat = min((name for name in FLAT), key=lambda name: mean(again[name]))
    for name in set_apart(again):
        apart = paired_difference(by_seed(again[name]), by_seed(again[flat]))
        asked: tuple[str, bool | None] = ("", None)
        if name.startswith("option-critic"):
            asked = ("fewer", apart.mean < 0)
        rows.append(Row(f"{name}: moved, frames less those of {flat}",
                        f"{apart.mean:+.0f} +- {apart.half_width:.0f}", *asked))  # fmt: skip
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t). One step in"
        f" three slips. A goal counts as reached once the policy, without exploring, gets there in"
        f" {MOST:.0%} of {JUDGED} episodes within {WITHIN} steps, looked at every {EVERY} frames."
        f" After {FRAMES:,} frames it moves from {GOAL} to {MOVED}; learned weights stay, stored"
        f" rows go. Runs that never get there count {FRAMES:,} and {AFTER:,} frames."
    )
    hand_over("Four rooms", note, rows)


def counted(frames: list[float], most: int) -> str:
    """Mean and interval, and how many never got there."""
    never = sum(each >= most for each in frames)
    return f"{interval(frames).mean:.0f} +- {interval(frames).half_width:.0f}" + (
        f", {never} of {len(frames)} never" if never else ""
    )


def set_apart(names: Iterable[str]) -> list[str]:
    """Those that have options."""
    return [name for name in names if name not in FLAT]


def by_seed(values: list[float]) -> dict[int, float]:
    """For pairs."""
    return dict(zip(SEEDS, values, strict=True))


if __name__ == "__main__":
    main()
