"""Beginning with the networks of an earlier run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from composing import leaves, load_config, value_of
from omegaconf import OmegaConf
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.objectives import LossModule

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.modules import SymbolHeads
from trading_torchrl.state_file import CheckpointError

SHAPING = (
    "network", "hidden", "window", "loss.actor_network", "env.actions", "env.choices",
    "env.problem", "env.gym", "her", "objectives", "options.hidden", "options.ends",
    "options.action",
)  # fmt: skip
"""Settings that an actor's parameters depend on."""

TRAINING_ONLY = "network.freeze_trunk"


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
    earlier: Mapping[str, Any] | None,
    actor: TensorDictModule,
    loss: LossModule,
    settings: Mapping[str, Any],
) -> None:
    """Gives an agent what fits of the one that an earlier run ended with.

    Its actor has to fit whole, but for heads of symbols; of the rest of the loss goes over what has
    the same name and shape.
    """
    freezes = any(getattr(each, "freeze_trunk", False) for each in loss.modules())
    if earlier is None:
        if freezes:
            raise SystemExit(
                "network.freeze_trunk=true keeps a trunk as it was trained: name the run that"
                " trained it, init=outputs/offpolicy/..."
            )
        return
    lacking = _take(loss, earlier["loss"])
    missing = _take(actor, earlier["averaged"])
    modules = actor.named_modules()
    heads = tuple(f"{name}." for name, each in modules if isinstance(each, SymbolHeads))
    own = actor.state_dict()
    for name in own:
        if name in missing and not name.startswith(heads):
            raise SystemExit(_misfit(name, own, earlier, settings))
    held = {
        name
        for name, each in loss.named_parameters()
        if not each.requires_grad and not name.startswith("target_")
    }
    if lacking & held:
        raise SystemExit(
            f"init={earlier['folder']}: {min(lacking & held)} is frozen and not all of it is in"
            " that run: choose the same network, hidden, window, actions and critics"
        )
    parameters = dict(loss.named_parameters())
    for name, copied in parameters.items():
        fast = parameters.get(name.removeprefix("target_"))
        if fast is not None and fast is not copied and not fast.requires_grad:
            copied.data.copy_(fast.data)  # it will not move: its copy must not either


def _misfit(
    name: str,
    own: Mapping[str, Any],
    earlier: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> str:
    """Which part of an actor an earlier run has otherwise, and the settings that it had there."""
    there = earlier["averaged"].get(name)
    has = "nothing" if there is None else list(there.shape)
    theirs = OmegaConf.to_container(load_config(Path(earlier["folder"])), resolve=True)
    others: list[str] = []
    for setting in SHAPING:
        both = [dict(leaves(value_of(each, setting), setting)) for each in (theirs, settings)]
        one, other = ({k: v for k, v in each.items() if k != TRAINING_ONLY} for each in both)
        group = setting.partition(".")[0]
        choice, mine = (value_of(each, f"choices.{group}") for each in (theirs, settings))
        if one != other and choice and mine and choice != mine:
            others.append(f"{group}={choice}")
        else:
            others += [f"{key}={value}" for key, value in one.items() if other.get(key) != value]
    fits = ", ".join(dict.fromkeys(others)) or "other inputs or actions"
    return (
        f"init={earlier['folder']}: {name} is {list(own[name].shape)} here, and that run has {has};"
        f" it had {fits}: give the same, or another init="
    )


def _take(module: nn.Module, saved: Mapping[str, Any]) -> set[str]:
    """Loads what is there by the same name and shape; names of what is not."""
    own = module.state_dict()
    fits = {
        name: value
        for name, value in saved.items()
        if name not in own or getattr(value, "shape", None) == getattr(own[name], "shape", None)
    }
    return {*module.load_state_dict(fits, strict=False).missing_keys}
