"""The last values of every account.

A ring of rows for each remembered value, all of them in one tensor ``[R, N]``, so that a compiled
call takes in one and hands over one. All accounts write the same rows at a step, so that neither
writing nor reading looks anything up. A ring keeps what a window needs besides the value that comes
next, and zeros where an account remembers less. Sums over a window are taken anew at every step:
running ones would be state to carry, cost as much and drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Window(NamedTuple):
    """How far back a value is remembered."""

    length: int
    """the value that comes next included; at least 2"""
    width: int
    """numbers an account"""


Windows = Mapping[str, Window]

UNROLLED = 32
"""Rows that are compiled as so many additions: faster than a sum, but many take long to compile."""


class Memory:
    """What was seen, in ``rows`` float32 ``[R, N]``; :func:`rings` and :func:`spread` read it.

    Args:
        windows: of the values by name.
        num_envs: number of accounts N.
        device: where they live.
    """

    def __init__(self, windows: Windows, num_envs: int, device: torch.device) -> None:
        self.windows = dict(windows)
        turns = torch.arange(lcm(*(window.length - 1 for window in windows.values())))[:, None]
        places, first = [], 0
        for window in windows.values():
            kept = window.length - 1
            places.append(first + turns % kept * window.width + torch.arange(window.width))
            first += kept * window.width
        self.places = torch.cat(places, -1).to(device)
        """rows ``[turns, K]`` that a step writes, again and again"""
        self.rows = torch.zeros(first, num_envs, device=device)
        self.step = 0

    def remember(self, latest: Tensor, stepping: Tensor | None = None) -> None:
        """Writes a step's values ``[K, N]``; accounts that are not ``stepping`` [N] remember none.

        Values are in the order of their windows.
        """
        place = self.places[self.step % len(self.places)]
        if stepping is None:
            self.rows.index_copy_(0, place, latest)
        else:
            # Who sits the step out has its oldest value where all will have theirs by then.
            rest = ~stepping
            found = rings(self.rows[:, rest], self.windows).values()
            kept = torch.cat([ring.roll(1, 0).flatten(0, 1) for ring in found])
            self.rows.index_copy_(0, place, latest)
            self.rows[:, rest] = kept
        self.step += 1

    def forget(self, mask: Tensor) -> None:
        """Accounts in ``mask`` [N] remember nothing."""
        self.rows.index_fill_(1, mask.nonzero()[:, 0], 0.0)

    def state(self) -> dict[str, Any]:
        """All there is to it, for :meth:`of`."""
        windows = {name: tuple(window) for name, window in self.windows.items()}
        return {"windows": windows, "rows": self.rows.clone(), "step": self.step}

    @classmethod
    def of(cls, state: Mapping[str, Any], device: torch.device) -> Memory:
        """The memory a :meth:`state` was taken of."""
        rows: Tensor = state["rows"]
        windows = {name: Window(*window) for name, window in state["windows"].items()}
        memory = cls(windows, rows.shape[1], device)
        memory.rows = rows.to(device, copy=True)
        memory.step = state["step"]
        return memory


def rings(rows: Tensor, windows: Windows) -> dict[str, Tensor]:
    """Of ``rows`` ``[R, N]`` each value's ``[length - 1, width, N]``, as views."""
    sizes = [(window.length - 1) * window.width for window in windows.values()]
    parts = zip(windows.items(), rows.split(sizes), strict=True)
    return {name: part.unflatten(0, (-1, window.width)) for (name, window), part in parts}


def spread(latest: Tensor, ring: Tensor, n: Tensor) -> Tensor:
    """n^2 times the variance ``[*, N]`` of an account's last n values, the latest included.

    It takes neither division nor root. The order of the sum depends on where the ring stands, so
    it is exact to float64 rounding.

    Args:
        latest: float32 ``[*, N]``, as the ring keeps it.
        ring: float32 ``[L, *, N]``.
        n: ``[N]``, at most L + 1.
    """
    past, exact = ring.double(), latest.double()
    total, square = exact, exact.square()
    if torch.compiler.is_compiling() and len(past) <= UNROLLED:
        for row in past.unbind(0):
            total, square = total + row, square + row.square()
    else:
        total, square = total + past.sum(0), square + past.square().sum(0)
    return (n * square - total * total).clamp(min=0)
