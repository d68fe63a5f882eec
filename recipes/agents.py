"""Agents from settings: networks, and the loss that ``conf/loss`` names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import hydra.utils
from composing import own_settings
from tasks import Task
from tensordict import unravel_key
from tensordict.nn import TensorDictModule
from tensordict.utils import NestedKey
from torchrl.objectives import LossModule

from trading_torchrl.modules import RunningScale, scaled_by
from trading_torchrl.modules.discrete import MASK
from trading_torchrl.objectives import FromTorchRL, OnPolicyLoss, REDQLoss, SACLoss, TD3Loss

FITS = {
    (True, False): (
        "{loss} is for actors that choose, and the actions of this environment are numbers: add"
        " env.actions=discrete (where Gymnasium's are choices they have it), or take loss=sac"
    ),
    (False, True): (
        "{loss} is for actions that are numbers, and this environment has env.actions=discrete:"
        " take loss=sac_discrete or loss=dqn, or env.actions=target (env.actions=continuous in a"
        " reference problem)"
    ),
}
"""What to do by whether the loss is for choices, and whether the actions are."""

FITS_STORED = {
    (True, False): (
        "{loss} is for actors that choose, and the actions of these data are numbers: take"
        " loss=iql, loss=cql or loss=bc, or data of a run with env.actions=discrete"
    ),
    (False, True): (
        "{loss} is for actions that are numbers, and those of these data are choices: take"
        " loss=sac_discrete or loss=dqn, or data of a run with env.actions=target"
        " (env.actions=continuous in a reference problem)"
    ),
}
"""The same where rows are stored already."""

NEEDED = {
    "in_keys": "which lists all that forward reads, in the root and under next",
    "out_keys": "which lists what forward returns; what begins with loss_ is summed",
}
"""What a loss must have beside ``update_targets``."""

SEVERAL = (SACLoss, TD3Loss, REDQLoss)
"""Losses whose critics can be of several objectives."""

CHOOSES = "trading_torchrl.modules.make_discrete_actor"
"""What builds a policy of a few choices."""

SYMBOL = ("market", "symbol")
"""A network that reads it takes the names of the symbols as ``symbols``."""


def make_agent(
    loss: Mapping[str, Any],
    network: Mapping[str, Any],
    task: Task,
    hidden: Sequence[int],
    *,
    stored: bool = False,
    beside: Mapping[NestedKey, int] | None = None,
    through: Callable[[Any], TensorDictModule] | None = None,
    scale: RunningScale | None = None,
) -> tuple[TensorDictModule, LossModule]:
    """The actor, and the loss that trains it.

    Args:
        loss: its class as ``_target_``, what builds each of its networks, by the names that the
            class has for them and with a ``_target_`` of its own, and what else the class takes.
        network: class of what all these are made of as ``_target_``, and what else it takes. Keys
            that the class names in ``reads`` come before the task's.
        task: what they see and do.
        hidden: widths of the networks' hidden layers.
        stored: whether it learns from rows that another run collected.
        beside: keys that the networks read besides, and their widths.
        through: what makes of the actor one whose actions are carried out by something else.
        scale: in which all networks see what they see.
    """
    kind, given = _said("loss", loss)
    if not (isinstance(kind, type) and issubclass(kind, LossModule)):
        raise SystemExit(f"loss._target_ must be a LossModule of TorchRL or its like, got {kind}")
    chooses = not task.env.action_spec.dtype.is_floating_point
    fits = FITS_STORED if stored else FITS
    newest = issubclass(kind, OnPolicyLoss)
    if newest and chooses:  # they are for both: only the policy is another
        given["actor_network"] = {"_target_": CHOOSES}
    elif not newest and (getattr(kind, "discrete", False), chooses) in fits:
        said = fits[getattr(kind, "discrete", False), chooses]
        raise SystemExit(said.format(loss=kind.__name__))
    parts = {
        name
        for name, value in given.items()
        if isinstance(value, Mapping) and ("_target_" in value or name.endswith("_network"))
    }
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
    if not newest and not hasattr(kind, "update_targets"):
        raise SystemExit(
            f"{kind.__name__} has no update_targets(rate), which moves its slow networks: a loss of"
            f" TorchRL gets one by class Mine(FromTorchRL, {kind.__name__}): pass (docs/agents.md)"
        )
    if task.rewards > 1:
        if kind not in SEVERAL:
            raise SystemExit(
                f"{kind.__name__} learns one objective, and {task.name} has {task.rewards}: take"
                f" loss=sac, td3 or redq, or objectives=off"
            )
        given["qvalue_network"] = {**given["qvalue_network"], "objectives": task.rewards}
    body = partial(body, **made_of) if made_of else body
    if scale is not None:
        if reads:
            raise SystemExit(
                "normalise.observations=true is for networks that see numbers alone, and"
                f" {network['_target_']} reads {reads[0]!r}: normalise.observations=false"
            )
        body = scaled_by(scale, body)
    in_keys = (*reads, *task.in_keys, *(beside or {}))
    inputs = task.inputs + sum((beside or {}).values())
    builders = {name: _said(f"loss.{name}", given[name]) for name in sorted(parts)}
    try:
        for name, (build, about) in builders.items():
            sees = in_keys
            if newest and name != "actor_network":  # what is allowed is no part of a state's value
                sees = tuple(key for key in in_keys if key != MASK)
            given[name] = build(inputs, task.actions, hidden, sees, network=body, **about)
        if through is not None:
            given["actor_network"] = through(given["actor_network"])
        made = _made(kind, given)
    except ValueError as error:
        has = own_settings(loss) or "nothing that can be set"
        raise SystemExit(f"{error} ({kind.__name__} with {has})") from error
    for name, said in NEEDED.items():
        if not hasattr(made, name):
            raise SystemExit(f"{kind.__name__} has no {name}, {said} (docs/agents.md)")
    if not any(str(key).startswith("loss_") for key in made.out_keys):
        raise SystemExit(
            f"no name in {kind.__name__}.out_keys begins with loss_, and these are summed and"
            f" learned from; there are {', '.join(map(str, made.out_keys))}"
        )
    return given["actor_network"], made


def _made(kind: type[LossModule], given: Mapping[str, Any]) -> LossModule:
    try:
        return kind(**given)
    except TypeError as error:
        raise SystemExit(
            f"conf/loss gives {', '.join(given)}; {kind.__name__} takes"
            f" {', '.join(_arguments(kind))}: {error}"
        ) from error


class Reads(Protocol):
    """Something that has to find certain keys in rows."""

    @property
    def reads(self) -> Sequence[Any]:
        """These."""


def keys_to_store(
    task: Task, loss: LossModule, *others: Reads | None, made: Collection[Any] = ()
) -> tuple[Any, ...]:
    """What a replay buffer keeps of rows: what the task says, and what a loss and others read.

    What is made anew when a batch is sampled, by the task or as ``made`` says, it need not keep,
    but what it is made of.
    """
    asked = [unravel_key(key) for each in others if each is not None for key in each.reads]
    sampled = {*task.in_keys, *(unravel_key(("next", key)) for key in task.in_keys)}
    sampled |= {unravel_key(key) for key in made}
    kept = dict.fromkeys((*task.stored, *(key for key in asked if key not in sampled)))
    more = [
        key
        for key in map(unravel_key, loss.in_keys)
        if key not in sampled and not any(start in kept for start in _starts(key))
    ]
    shown = list(task.env.fake_tensordict().keys(True, True))
    unknown = [key for key in more if key not in shown]
    if isinstance(loss, FromTorchRL):  # these list what they can do without as well
        more = [key for key in more if key in shown]
    elif unknown:
        raise SystemExit(
            f"{type(loss).__name__}, or a network of it, reads {unknown[0]!r}, which {task.name}"
            f" does not show; it shows {', '.join(map(repr, shown))}"
        )
    return (*kept, *more)


def discount(settings: Mapping[str, Any]) -> float:
    """Of the loss, or of the recipe where the loss names none."""
    return float(settings["loss"].get("gamma", settings["gamma"]))


def _starts(key: Any) -> list[Any]:
    """A key, and those it lies within."""
    parts = key if isinstance(key, tuple) else (key,)
    return [unravel_key(parts[: n + 1]) for n in range(len(parts))]


def _arguments(kind: type) -> list[str]:
    """Of a class and of those it hands what it does not know on to."""
    named: dict[str, None] = {}
    for each in kind.__mro__[: kind.__mro__.index(LossModule)]:
        given = inspect.signature(each).parameters.values()
        named |= {p.name: None for p in given if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        if all(p.kind != p.VAR_KEYWORD for p in given):
            break
    return list(named)


def scale_of(settings: Mapping[str, Any], task: Task) -> RunningScale | None:
    """In which networks see what they see, where a recipe's settings ask for one."""
    wanted = (settings.get("normalise") or {}).get("observations", False)
    return RunningScale(task.inputs) if wanted else None


def needs_newest(loss: LossModule, where: str) -> None:
    """Refuses a loss that learns from rows of any age."""
    if not isinstance(loss, OnPolicyLoss):
        raise SystemExit(
            f"{where}: {type(loss).__name__} learns from what is stored, and here nothing is: take"
            " loss=ppo, ppo_kl, a2c, reinforce or vtrace, or python recipes/offpolicy.py"
        )


def needs_rewards(loss: LossModule, where: str) -> None:
    """Refuses a loss that cannot learn from what a replay buffer stores of collected steps."""
    if isinstance(loss, OnPolicyLoss):
        raise SystemExit(
            f"{where}: {type(loss).__name__} learns from the newest steps alone: take loss=sac or"
            " another, or python recipes/onpolicy.py"
        )
    if not any(key[0] == "next" for key in map(unravel_key, loss.in_keys)):
        raise SystemExit(
            f"{where}: {type(loss).__name__} learns from stored actions alone, not from rewards; it"
            " is for python recipes/offline.py data=... loss=bc, without fine_tune_frames"
        )


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
