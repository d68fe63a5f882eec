"""A bar of options: which end, which may be chosen, what the chosen ones do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from trading_torchrl.modules.discrete import NEVER
from trading_torchrl.modules.options import Option, Scene, acted, allowed, ends, explores, over

GOES_ON, BY_TIME, BY_PURPOSE = 0, 1, 2
"""What became of the option that ran before."""

Look = Callable[[Mapping[Any, Any], Tensor, Tensor], Scene]
"""Makes a scene of what an environment shows, of the running option's bars, of having entered."""


class Turn(NamedTuple):
    """What there is to choose, ``[*]`` each but ``may`` ``[*, K]``."""

    ended: Tensor
    """int64: what became of the option before"""
    chooses: Tensor
    """bool: whether another is chosen"""
    may: Tensor
    """bool: which may be"""
    steps: Tensor
    """bars that what runs then has acted on"""
    entered: Tensor
    """whether there has been a position since"""
    lasted: Tensor
    """how likely it was to last until now"""
    stuck: Tensor
    """bool ``[]``: whether none may be chosen somewhere"""


def turn(
    options: Sequence[Option],
    look: Look,
    shown: Mapping[Any, Any],
    state: Sequence[Tensor],
    learned: Tensor | None,
    drawn: Tensor | None,
) -> Turn:
    """Ends options where it is time to.

    Args:
        options: K of them.
        look: makes the scene.
        shown: what it is made of.
        state: of those that run, ``[*]`` each: which, below 0 is none yet; bars that it has acted
            on; whether there has been a position since; how likely it was to last until here.
        learned: how likely each ends, where that is learned.
        drawn: see :func:`~trading_torchrl.modules.options.over`.
    """
    index, steps, entered, lasted = state
    scene = look(shown, steps, entered)
    found = ends(options, scene, index.clamp(min=0))
    likely = found.timed if learned is None else learned.clamp(found.least, found.most)
    ended, lasted = over(likely, lasted, drawn)
    # An end has a purpose where that made it likelier than time did.
    how = torch.where((found.met > 0) & (found.met >= likely), BY_PURPOSE, BY_TIME)
    what = torch.where(ended & (index >= 0), how, GOES_ON)
    chooses = (index < 0) | (what != GOES_ON)
    steps = torch.where(chooses, 0, scene.steps)
    entered = scene.entered & ~(chooses & (scene.held == 0))
    may = allowed(options, scene._replace(steps=steps, entered=entered))
    stuck = (chooses & ~may.any(-1)).any()
    return Turn(what, chooses, may, steps, entered, torch.where(chooses, 1.0, lasted), stuck)


def code(index: Tensor, steps: Tensor, longest: Tensor) -> Tensor:
    """What an agent sees of the option ``index`` ``[*]``: ``[*, K + 1]``."""
    which = one_hot(index, len(longest))
    return torch.cat([which, (steps / longest[index]).unsqueeze(-1)], -1)


def chosen(logits: Tensor, may: Tensor) -> tuple[Tensor, Tensor]:
    """The option that is chosen, ``[*]``, and the log probability of that.

    Args:
        logits: ``[*, K]``.
        may: which may be, bool ``[*, K]``.
    """
    log_probs = logits.masked_fill(~may, NEVER).log_softmax(-1)
    if explores():  # the first to come, where each comes as often as it is likely
        waits = torch.empty_like(log_probs).exponential_().log_()
        index = (log_probs - waits).argmax(-1, keepdim=True)
    else:
        index = log_probs.argmax(-1, keepdim=True)
    return index[..., 0], log_probs.gather(-1, index)[..., 0]


class Does(NamedTuple):
    """What options do, ``[*, 1]``; ``code`` ``[*, K + 1]``."""

    offset: Tensor
    factor: Tensor
    code: Tensor


def does(
    options: Sequence[Option],
    look: Look,
    shown: Mapping[Any, Any],
    state: Sequence[Tensor],
    part: float,
    factors: Tensor,
    longest: Tensor,
) -> Does:
    """Of the options ``index`` ``[*]``.

    Args:
        options: K of them.
        look: makes the scene.
        shown: what it is made of.
        state: of those that run, ``[*]`` each: which; bars that it has acted on; whether there has
            been a position since.
        part: the agent's, of what is done.
        factors: by option, how much of what an agent wants is done, ``[K]``.
        longest: by option, how many bars it takes at most, ``[K]``.
    """
    index, steps, entered = state
    scene = look(shown, steps, entered)
    offset = (1 - part) * acted(options, scene, index).float()
    factor = factors[index]
    return Does(offset.unsqueeze(-1), factor.unsqueeze(-1), code(index, steps, longest))


@cache
def compiled_for(shape: torch.Size) -> tuple[Callable[..., Turn], Callable[..., Does]]:
    """:func:`turn` and :func:`does` for so many accounts: those for any number take longer."""
    settings: dict[str, Any] = {"dynamic": False, "isolate_recompiles": True}
    return torch.compile(turn, **settings), torch.compile(does, **settings)
