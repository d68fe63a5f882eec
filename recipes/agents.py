"""Agents from settings: networks, and the loss that ``conf/loss`` names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hydra.utils
from tasks import Task
from tensordict import unravel_key
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.objectives import LossModule

from trading_torchrl.checkpoint import CheckpointError, Checkpoints


def make_agent(
    loss: Mapping[str, Any], network: Mapping[str, Any], task: Task, hidden: Sequence[int]
) -> tuple[TensorDictModule, LossModule]:
    """The actor, and the loss that trains it.

    Args:
        loss: its class as ``_target_``, what builds each of its networks, by the names that the
            class has for them, and what else the class takes.
        network: class of what all these are made of as ``_target_``, and what else it takes.
        task: what they see and do.
        hidden: widths of the networks' hidden layers.
    """
    given = dict(loss)
    kind = _named(given.pop("_target_"))
    if not (isinstance(kind, type) and issubclass(kind, LossModule)):
        raise SystemExit(f"loss._target_ must be a LossModule of TorchRL or its like, got {kind}")
    parts = {name for name, value in given.items() if isinstance(value, Mapping)}
    if "actor_network" not in parts:
        raise SystemExit("loss.actor_network must say what builds the policy: {_target_: ...}")
    made_of = dict(network)
    body = _named(made_of.pop("_target_"))
    body = partial(body, **made_of) if made_of else body
    for name in sorted(parts):
        about = dict(given[name])
        build = _named(about.pop("_target_"))
        given[name] = build(task.inputs, task.actions, hidden, task.in_keys, network=body, **about)
    return given["actor_network"], kind(**given)


def needs_rewards(loss: LossModule, where: str) -> None:
    """Refuses a loss that learns from stored actions alone: collecting teaches it nothing."""
    if not any(key[0] == "next" for key in map(unravel_key, loss.in_keys)):
        raise SystemExit(
            f"{where}: {type(loss).__name__} learns from stored actions alone, not from rewards; it"
            " is for python recipes/offline.py data=... loss=bc, without fine_tune_frames"
        )


def begin_from(folder: str | None, actor: TensorDictModule, loss: LossModule) -> None:
    """Gives an agent what fits of the one that another run ended with, if one is named."""
    if folder is None:
        return
    try:
        _, saved = Checkpoints(Path(folder) / "checkpoints").newest()
    except CheckpointError as error:
        raise SystemExit(f"init={folder}: {error}") from None
    _take(loss, saved["loss"])
    if not _take(actor, saved["averaged"]):
        raise SystemExit(
            f"init={folder}: nothing of that run's actor fits this one's; choose the same network,"
            " hidden and actions"
        )


def _take(module: nn.Module, saved: Mapping[str, Any]) -> int:
    """Loads what is there by the same name and shape; how many tensors."""
    own = module.state_dict()
    fits = {
        name: value
        for name, value in saved.items()
        if name in own and getattr(value, "shape", None) == getattr(own[name], "shape", None)
    }
    module.load_state_dict(own | fits)
    return len(fits)


def _named(path: str) -> Any:
    try:
        return hydra.utils.get_object(path)
    except Exception as error:
        raise SystemExit(f"{path} cannot be imported: {error}") from error
