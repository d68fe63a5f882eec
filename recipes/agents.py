"""Agents from settings: an actor, critics and the loss that ``conf/loss`` names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import hydra.utils
from tasks import Task
from tensordict.nn import TensorDictModule
from torchrl.objectives import LossModule


def make_agent(
    settings: Mapping[str, Any], task: Task, hidden: Sequence[int]
) -> tuple[TensorDictModule, LossModule]:
    """The actor, and the loss that trains it.

    Args:
        settings: of the loss, with its class as ``_target_``; ``actor`` and ``critics`` name what
            builds these, with arguments of their own.
        task: what they see and do.
        hidden: widths of the networks' hidden layers.
    """
    given = dict(settings)
    kind = _named(given.pop("_target_"))
    if not (isinstance(kind, type) and issubclass(kind, LossModule)):
        raise SystemExit(f"loss._target_ must be a LossModule of TorchRL or its like, got {kind}")
    actor, critics = (_built(given.pop(part), task, hidden) for part in ("actor", "critics"))
    return actor, kind(actor, critics, **given)


def _built(part: Mapping[str, Any], task: Task, hidden: Sequence[int]) -> TensorDictModule:
    given = dict(part)
    build = _named(given.pop("_target_"))
    return build(task.inputs, task.actions, hidden, task.in_keys, **given)


def _named(path: str) -> Any:
    try:
        return hydra.utils.get_object(path)
    except Exception as error:
        raise SystemExit(f"{path} cannot be imported: {error}") from error
