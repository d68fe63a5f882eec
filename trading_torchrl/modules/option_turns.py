"""A bar of options: which end, which may be chosen, what the chosen ones do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from trading_torchrl.modules.options import Option, Scene, acted, allowed, ends, over

GOES_ON, BY_TIME, BY_PURPOSE = 0, 1, 2
"""What became of the option that ran before."""


class Turn(NamedTuple):
    """What there is to choose, ``[*]`` each but ``may`` ``[*, K]``."""

    ended: Tensor
    """int64: what became of the option before"""
    chooses: Tensor
    """bool: whether another is chosen"""
    may: Tensor
    """bool: which may be"""
    scene: Scene
    """as the next one finds it"""
    lasted: Tensor
    """how likely it was to last until now"""


def turn(
    options: Sequence[Option],
    scene: Scene,
    index: Tensor,
    lasted: Tensor,
    learned: Tensor | None,
    drawn: Tensor | None,
) -> Turn:
    """Ends options where it is time to.

    Args:
        options: K of them.
        scene: as the options find it that run.
        index: which run, ``[*]``; below 0 is none yet.
        lasted: how likely each was to last until here.
        learned: how likely each ends, where that is learned.
        drawn: see :func:`~trading_torchrl.modules.options.over`.
    """
    found = ends(options, scene, index.clamp(min=0))
    likely = found.timed if learned is None else learned.clamp(found.least, found.most)
    ended, lasted = over(likely, lasted, drawn)
    # An end has a purpose where that made it likelier than time did.
    how = torch.where((found.met > 0) & (found.met >= likely), BY_PURPOSE, BY_TIME)
    what = torch.where(ended & (index >= 0), how, GOES_ON)
    chooses = (index < 0) | (what != GOES_ON)
    steps = torch.where(chooses, 0, scene.steps)
    entered = scene.entered & ~(chooses & (scene.held == 0))
    scene = scene._replace(steps=steps, entered=entered)
    lasted = torch.where(chooses, 1.0, lasted)
    return Turn(what, chooses, allowed(options, scene), scene, lasted)


def code(index: Tensor, steps: Tensor, longest: Tensor) -> Tensor:
    """What an agent sees of the option ``index`` ``[*]``: ``[*, K + 1]``."""
    which = one_hot(index, len(longest))
    return torch.cat([which, (steps / longest[index]).unsqueeze(-1)], -1)


class Does(NamedTuple):
    """What options do, ``[*, 1]``; ``code`` ``[*, K + 1]``."""

    offset: Tensor
    factor: Tensor
    code: Tensor


def does(
    options: Sequence[Option],
    scene: Scene,
    index: Tensor,
    part: float,
    factors: Tensor,
    longest: Tensor,
) -> Does:
    """Of the options ``index`` ``[*]``.

    Args:
        options: K of them.
        scene: as they find it.
        index: which run.
        part: the agent's, of what is done.
        factors: by option, how much of what an agent wants is done, ``[K]``.
        longest: by option, how many bars it takes at most, ``[K]``.
    """
    offset = (1 - part) * acted(options, scene, index).float()
    factor = factors[index]
    return Does(offset.unsqueeze(-1), factor.unsqueeze(-1), code(index, scene.steps, longest))


compiled_turn = torch.compile(turn, dynamic=True)
compiled_does = torch.compile(does, dynamic=True)
