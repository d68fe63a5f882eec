"""Actors from settings: in the learner's process, in others, or on a Ray cluster."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from agents import make_agent, scale_of
from checks import plainly
from launch import set_machine
from learning import ActorsRun
from tasks import Task, make_task
from tasks.markets import Parts
from tasks.trading import Trading
from tensordict import TensorDictBase, unravel_key
from tensordict.nn import TensorDictModule

from trading_torchrl.actors import Alone, Crew, Processes, Stretches
from trading_torchrl.objectives import OnPolicyLoss
from trading_torchrl.objectives.on_policy import say_how_likely

WATCHED = ("action", ("next", "trade", "value"))
"""What is watched of steps, where it is there."""

PLACED = (("next", "market", "symbol"), ("next", "market", "bar"), ("next", "account", "share"))
"""What places are told by, where these are counted."""


SHARED = "/dev/shm"


@dataclass(frozen=True)
class Makes:
    """Builds in another process what an actor collects with."""

    settings: Mapping[str, Any]
    task: Mapping[str, Any]
    """state of the learner's: it sees the same"""
    keys: tuple[Any, ...]
    """that are handed on"""
    parts: Parts | None
    """of the market; without them each draws or loads its own"""

    def __call__(self, seed: int) -> Stretches:
        """With draws of its own."""
        settings = {**self.settings, "seed": seed}
        set_machine(1, settings["matmul_precision"], seed)
        task = make_task(settings, {"task": self.task}, self.parts)
        scale = scale_of(settings, task)
        hidden = settings["hidden"]
        actor, _ = make_agent(settings["loss"], settings["network"], task, hidden, scale=scale)
        return Stretches(task.env, actor, settings["steps_per_batch"], keys=self.keys)


def for_elsewhere(
    settings: Mapping[str, Any], task: Task
) -> tuple[Mapping[str, Any], Parts | None]:
    """Settings that mean the same where actors stand, and the market that they need not make."""
    market = dict(settings["market"])
    if "path" in market:
        market["path"] = os.path.abspath(market["path"])
    parts = task.parts.for_actors() if isinstance(task, Trading) else None
    return {**settings, "market": market}, parts


def shared(parts: Parts | None) -> Parts | None:
    """In memory that processes share, where it has room: Docker gives 64 MB."""
    room = shutil.disk_usage(SHARED).free if os.path.isdir(SHARED) else 0
    if parts is None or 2 * parts.train.nbytes > room:
        return None
    parts.train.share()
    return parts


def sample_of(task: Task, actor: TensorDictModule, steps: int) -> TensorDictBase:
    """What the stretches of an actor look like, ``[N, T]``."""
    with torch.no_grad():
        rows = task.env.rollout(steps, actor, break_when_any_done=False)
    return say_how_likely(actor, rows if rows.ndim == 2 else rows[None])


@plainly(ValueError)
def make_crew(
    run: ActorsRun,
    settings: Mapping[str, Any],
    task: Task,
    actor: TensorDictModule,
    loss: OnPolicyLoss,
    tell: Callable[[str], None],
) -> Crew:
    """As many actors as asked for; the learner's own process where none are."""
    if not run.actors:
        return Alone(task.env, actor, run.steps_per_batch, lag=run.lag)
    sample = sample_of(task, actor, run.steps_per_batch)
    there = set(sample.keys(True, True))
    wanted = (*loss.collected, *WATCHED, *(PLACED if run.count_places else ()))
    keys = tuple(dict.fromkeys(key for key in map(unravel_key, wanted) if key in there))
    sample = sample.select(*keys)
    handed_on, parts = for_elsewhere(settings, task)
    processes = run.distributed == "processes"
    makes = Makes(handed_on, task.state_dict(), keys, shared(parts) if processes else parts)
    about: dict[str, Any] = {
        "seed": run.seed, "ahead": run.ahead, "max_lag": run.max_lag, "tell": tell,
    }  # fmt: skip
    if processes:
        return Processes(makes, run.actors, actor, sample, **about)
    from trading_torchrl.actors.on_ray import OnRay

    size = parts.train.nbytes if parts else 0
    return OnRay(makes, run.actors, actor, address=run.address, size=size, **about)
