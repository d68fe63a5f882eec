"""Agents from settings: networks, and the loss that ``conf/loss`` names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hydra.utils
from checks import plainly
from tasks import Task
from tensordict import unravel_key
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.objectives import LossModule

from trading_torchrl.checkpoint import CheckpointError, Checkpoints
from trading_torchrl.objectives import FromTorchRL
from trading_torchrl.replay import Hindsight

FITS = {
    (True, False): (
        "{loss} is for actors that choose, and the actions of this environment are numbers: add"
        " env.actions=discrete (Gymnasium's have no such setting), or take loss=sac"
    ),
    (False, True): (
        "{loss} is for actions that are numbers, and this environment has env.actions=discrete:"
        " take loss=sac_discrete or loss=dqn (which learn offline too), or collect with"
        " env.actions=target (env.actions=continuous in a reference problem)"
    ),
}
"""What to do by whether the loss is for choices, and whether the actions are."""

SYMBOL = ("market", "symbol")
"""A network that reads it takes the names of the symbols as ``symbols``."""


@plainly(ValueError)
def make_agent(
    loss: Mapping[str, Any], network: Mapping[str, Any], task: Task, hidden: Sequence[int]
) -> tuple[TensorDictModule, LossModule]:
    """The actor, and the loss that trains it.

    Args:
        loss: its class as ``_target_``, what builds each of its networks, by the names that the
            class has for them, and what else the class takes.
        network: class of what all these are made of as ``_target_``, and what else it takes. Keys
            that the class names in ``reads`` come before the task's.
        task: what they see and do.
        hidden: widths of the networks' hidden layers.
    """
    kind, given = _said("loss", loss)
    if not (isinstance(kind, type) and issubclass(kind, LossModule)):
        raise SystemExit(f"loss._target_ must be a LossModule of TorchRL or its like, got {kind}")
    chooses = not task.env.action_spec.dtype.is_floating_point
    does_not_fit = FITS.get((getattr(kind, "discrete", False), chooses))
    if does_not_fit:
        raise SystemExit(does_not_fit.format(loss=kind.__name__))
    parts = {name for name, value in given.items() if isinstance(value, Mapping)}
    if "actor_network" not in parts:
        raise SystemExit("loss.actor_network must say what builds the policy: {_target_: ...}")
    body, made_of = _said("network", network)
    reads = tuple(getattr(body, "reads", ()))
    if SYMBOL in reads:
        made_of["symbols"] = _symbols(task)
        if issubclass(kind, FromTorchRL):
            raise SystemExit(
                f"{kind.__name__} copies its networks without the names of the symbols: take"
                " loss=sac, or network=mlp"
            )
    body = partial(body, **made_of) if made_of else body
    in_keys = (*reads, *task.in_keys)
    for name in sorted(parts):
        build, about = _said(f"loss.{name}", given[name])
        given[name] = build(task.inputs, task.actions, hidden, in_keys, network=body, **about)
    if not hasattr(kind, "update_targets"):
        raise SystemExit(
            f"{kind.__name__} has no update_targets(rate), which moves its slow networks: a loss of"
            f" TorchRL gets one by class Mine(FromTorchRL, {kind.__name__}): pass (docs/agents.md)"
        )
    try:
        return given["actor_network"], kind(**given)
    except TypeError as error:
        raise SystemExit(
            f"conf/loss gives {', '.join(given)}; {kind.__name__} takes"
            f" {', '.join(_arguments(kind))}: {error}"
        ) from error


def keys_to_store(
    task: Task, loss: LossModule, hindsight: Hindsight | None = None
) -> tuple[Any, ...]:
    """What a replay buffer keeps of rows: what the task says, and what a loss reads besides.

    What hindsight makes anew it need not keep, but what it makes it of.
    """
    flags = [("next", name) for name in ("done", "truncated")]
    keys = (*task.stored, *(flag for flag in flags if flag in loss.in_keys))
    return keys if hindsight is None else tuple(dict.fromkeys((*keys, *hindsight.reads)))


def _arguments(kind: type) -> list[str]:
    """Of a class and of those it hands what it does not know on to."""
    named: dict[str, None] = {}
    for each in kind.__mro__[: kind.__mro__.index(LossModule)]:
        given = inspect.signature(each).parameters.values()
        named |= {p.name: None for p in given if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        if all(p.kind != p.VAR_KEYWORD for p in given):
            break
    return list(named)


def needs_rewards(loss: LossModule, where: str) -> None:
    """Refuses a loss that learns from stored actions alone: collecting teaches it nothing."""
    if not any(key[0] == "next" for key in map(unravel_key, loss.in_keys)):
        raise SystemExit(
            f"{where}: {type(loss).__name__} learns from stored actions alone, not from rewards; it"
            " is for python recipes/offline.py data=... loss=bc, without fine_tune_frames"
        )


def earlier_run(folder: Path | str | None) -> dict[str, Any] | None:
    """What an agent and its task take of a run, if one is named."""
    if folder is None:
        return None
    try:
        _, saved = Checkpoints(Path(folder) / "checkpoints").newest()
    except CheckpointError as error:
        raise SystemExit(f"{folder}: {error}") from None
    return {"folder": str(folder), **{name: saved[name] for name in ("task", "loss", "averaged")}}


def begin_from(
    earlier: Mapping[str, Any] | None, actor: TensorDictModule, loss: LossModule
) -> None:
    """Gives an agent what fits of the one that an earlier run ended with."""
    freezes = any(getattr(each, "freeze_trunk", False) for each in loss.modules())
    if earlier is None:
        if freezes:
            raise SystemExit(
                "network.freeze_trunk=true keeps a trunk as it was trained: name the run that"
                " trained it, init=outputs/offpolicy/..."
            )
        return
    lacking = _take(loss, earlier["loss"])
    none = _take(actor, earlier["averaged"]) == actor.state_dict().keys()
    held = {
        name
        for name, each in loss.named_parameters()
        if not each.requires_grad and not name.startswith("target_")
    }
    if none or lacking & held:
        raise SystemExit(
            f"init={earlier['folder']}: nothing of that run's actor fits this one's, or not all"
            " that is frozen; choose the same network, hidden, window, actions and critics"
        )
    own = dict(loss.named_parameters())
    for name, copied in own.items():
        fast = own.get(name.removeprefix("target_"))
        if fast is not None and fast is not copied and not fast.requires_grad:
            copied.data.copy_(fast.data)  # it will not move: its copy must not either


def _take(module: nn.Module, saved: Mapping[str, Any]) -> set[str]:
    """Loads what is there by the same name and shape; names of what is not."""
    own = module.state_dict()
    fits = {
        name: value
        for name, value in saved.items()
        if name not in own or getattr(value, "shape", None) == getattr(own[name], "shape", None)
    }
    return {*module.load_state_dict(fits, strict=False).missing_keys}


def _symbols(task: Task) -> tuple[str, ...]:
    if not task.symbols:
        raise SystemExit(
            f"network=per_symbol has a head for each symbol, and {task.name} has no symbols that"
            " are the same in training and validation (paths of the synthetic market are not):"
            " choose market=ten_symbols, your own prices (market=csv), or network=mlp"
        )
    return task.symbols


def _said(part: str, settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What the settings of a part name, and what it is given."""
    given = dict(settings)
    if "_target_" not in given:
        raise SystemExit(f"{part} must name what builds it: {part}._target_=module.name")
    return _named(given.pop("_target_")), given


def _named(path: str) -> Any:
    try:
        return hydra.utils.get_object(path)
    except Exception as error:
        raise SystemExit(f"{path} cannot be imported: {error}") from error
