"""Hindsight replay, as the recipes switch it on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checks import plainly
from tasks import Task
from tensordict import TensorDictBase
from torchrl.data import ReplayBuffer
from torchrl.data.replay_buffers import Storage

from trading_torchrl.envs.goals import ACHIEVED, DESIRED
from trading_torchrl.replay import Hindsight
from trading_torchrl.replay.hindsight import RELABELED


@plainly(ValueError, before="her: ")
def make_hindsight(
    settings: Mapping[str, Any] | None, task: Task, storage: Storage
) -> Hindsight | None:
    """What ``conf/her`` describes; nothing where it is off."""
    if not settings:
        return None
    if task.goals is None:
        raise SystemExit(
            f"her=on: {task.name} has no goals; a market has (env=long_short), and env=bit_flip"
        )
    given = {name: value for name, value in settings.items() if name != "goal"}
    goals = task.goals
    return Hindsight(
        storage, goals.goal, seen_key=goals.seen_key, terminates=goals.terminates, **given
    )


def hindsight_figures(
    hindsight: Hindsight | None,
    batch: TensorDictBase,
    sample: TensorDictBase,
    replay: ReplayBuffer,
) -> dict[str, float]:
    """Episodes of the last batch that ended at their goal, rows with another goal, rows there."""
    if hindsight is None:
        return {}
    after = batch["next"]
    ended = after["done"]
    figures = {
        "her/relabeled_ratio": float(sample[RELABELED].float().mean()),
        "her/buffer_size": float(len(replay)),
    }
    if bool(ended.any()):
        reached = hindsight.goal.reached(after[ACHIEVED], after[DESIRED])
        figures["her/goal_achievement_rate"] = float(reached[ended].float().mean())
    return figures
