"""Reinforcement learning between generations: its turns, and whose policy goes on after them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from acting import Acting
from agents import keys_to_store, needs_rewards
from checks import check_whole, plainly, there
from evolving import EvolvingRun
from learning import Run
from loop import Lately
from rewarding import make_paying
from tasks import Task
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import Compose, EnvBase
from torchrl.objectives import LossModule

from trading_torchrl.descent import Adam
from trading_torchrl.evolution import EvolutionStrategy, Population, earned, flat, unflatten
from trading_torchrl.monitoring import ActionWatch, broken

AGAINST = 9 * 10**9
"""Seeds of the episodes on which two policies are compared, apart from all others."""


@dataclass
class Turns:
    """Learns by gradients for some frames, lets evolution go on from there, takes what is better.

    What evolution made of a policy is taken back where it earns more than the policy as it was
    handed over in more than ``threshold`` of the episodes that both are tried on; else
    reinforcement learning goes on from its own, and evolution from there the next time.
    """

    task: Task
    acting: Acting
    collector: Collector
    population: Population
    tried: EnvBase
    """of both, ``[2 x E]``"""
    frames: int
    """of a turn"""
    iterations: int
    """generations between two turns"""
    threshold: float

    def __post_init__(self) -> None:
        self.batches = iter(self.collector)
        self.watch = ActionWatch(self.task.kind)
        self.count: dict[str, Any] = {"frames": 0, "updates": 0, "owed": 0.0, "taken": 0}
        self.handed = flat(self.population.parameters)
        """what evolution began with"""

    def goes_on(self, generation: int) -> bool:
        """Whether there is a turn before this generation, and it has not come to its end."""
        return self.count["frames"] < (generation // self.iterations + 1) * self.frames

    def learn(self, lately: Lately) -> tuple[int, list[str]]:
        """A batch and the updates it is owed; how many frames, and what is not finite."""
        batch = self.batch = next(self.batches)
        self.count["frames"] += batch.numel()
        self.watch.see(*self.task.watched(batch))
        wrong = broken({"reward": batch["next", "reward"]})
        return batch.numel(), wrong or self.acting.learn(batch, self.count, lately)

    def hand_over(self, strategy: EvolutionStrategy) -> None:
        """Evolution goes on from what was learned."""
        self.handed = flat(self.population.parameters)
        strategy.centre.copy_(self.handed)

    def figures(self, lately: Lately) -> dict[str, float]:
        """Of a turn at its end."""
        rate = self.acting.optimizer.lr
        return lately.figures(rate, self.batch, self.watch)[0] | {
            "hybrid/frames": float(self.count["frames"]),
            "hybrid/taken": float(self.count["taken"]),
        }

    def ends(self, generation: int) -> bool:
        """Whether evolution's turn ends after this generation."""
        return (generation + 1) % self.iterations == 0

    def take_back(self, strategy: EvolutionStrategy, generation: int) -> float:
        """Leaves the better policy in both; in which share of episodes the evolved one was."""
        self.population.weights = torch.stack([self.handed, strategy.centre])
        before, after = earned(self.population, self.tried, 2, seed=AGAINST + generation).returns
        better = float((after > before).double().mean() + (after == before).double().mean() / 2)
        if better > self.threshold:
            self.count["taken"] += 1
        else:
            strategy.centre.copy_(self.handed)
            unflatten(self.handed, self.population.parameters)
        return better

    def state_dict(self) -> dict[str, Any]:
        """But for collector and replay."""
        return {
            "count": dict(self.count),
            "handed": self.handed,
            "watch": self.watch.state_dict(),
            **{name: each.state_dict() for name, each in self.acting.parts().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        self.count = dict(state["count"])
        self.handed = state["handed"].clone()
        self.watch.load_state_dict(state["watch"])
        for name, each in self.acting.parts().items():
            each.load_state_dict(state[name])


@plainly(ValueError)
def make_turns(
    settings: Mapping[str, Any],
    run: EvolvingRun,
    task: Task,
    actor: TensorDictModule,
    loss: LossModule,
    population: Population,
) -> Turns | None:
    """What ``conf/hybrid`` describes; nothing where evolution is alone."""
    hybrid = settings["hybrid"]
    if not hybrid:
        return None
    needs_rewards(loss, "recipes/evolve.py")
    check_whole("hybrid", hybrid, "frames", "iterations")
    if not 0 <= there("hybrid", hybrid, "threshold") < 1:
        raise SystemExit(
            f"hybrid.threshold must be at least 0 and below 1, got {hybrid['threshold']}"
        )
    turns = -(run.iterations // -hybrid["iterations"])
    length = {"total_frames": turns * hybrid["frames"], "count_places": False}
    names = {field.name for field in fields(Run)}
    learning = Run.of({**settings, **_named(settings["rl"], names), **length})
    replay = ReplayBuffer(
        storage=LazyTensorStorage(learning.buffer_size), batch_size=learning.batch_size,
        transform=Compose(*(each for each in [task.replay_transform()] if each is not None)),
    )  # fmt: skip
    optimizer = Adam([each for each in loss.parameters() if each.requires_grad], lr=learning.lr)
    acting = Acting(
        loss, optimizer, replay, keys_to_store(task, loss), None,
        make_paying(settings, task, loss, learning), learning,
    )  # fmt: skip
    batch = learning.batch_frames
    collector = Collector(
        task.env, actor, frames_per_batch=batch, total_frames=-1,
        init_random_frames=-(learning.warmup_frames // -batch) * batch, trust_policy=True,
        track_traj_ids=False, auto_register_policy_transforms=False,
    )  # fmt: skip
    tried = task.population(2, run.population * run.episodes // 2)
    return Turns(
        task, acting, collector, population, tried,
        hybrid["frames"], hybrid["iterations"], hybrid["threshold"],
    )  # fmt: skip


def _named(settings: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in names}
