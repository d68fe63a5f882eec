"""The last values of every account.

A ring ``[L, N, K]`` for each remembered value; all accounts write the same row at a step, so that
neither writing nor reading looks anything up. It keeps what a window needs besides the value that
comes next, and zeros where an account remembers less. Sums over a window are taken anew at every
step: running ones would be state to carry, cost as much and drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Fields = dict[str, Tensor]


class Memory:
    """Rings of what was seen; :func:`spread` works on them.

    Args:
        windows: how far each ring looks back, the value that comes next included; at least 2.
        like: one step's values ``[N, K]`` for each, whose shape and device the ring takes.
    """

    def __init__(self, windows: Mapping[str, int], like: Mapping[str, Tensor]) -> None:
        self.rings = {
            name: torch.zeros(window - 1, *like[name].shape, device=like[name].device)
            for name, window in windows.items()
        }
        self.step = 0

    def remember(self, latest: Fields, stepping: Tensor | None = None) -> None:
        """Writes this step's values; accounts that are not ``stepping`` [N] remember none."""
        for name, ring in self.rings.items():
            row = ring[self.step % len(ring)]
            if stepping is None:
                row.copy_(latest[name])
            else:
                # Who sits the step out has its oldest value where all will have theirs by then.
                rest = ~stepping
                kept = ring[:, rest].roll(1, 0)
                row.copy_(latest[name])
                ring[:, rest] = kept
        self.step += 1

    def forget(self, mask: Tensor) -> None:
        """Accounts in ``mask`` [N] remember nothing."""
        which = mask.nonzero()[:, 0]
        for ring in self.rings.values():
            ring.index_fill_(1, which, 0.0)

    def state(self) -> dict[str, Any]:
        """All there is to it, for :meth:`of`."""
        rings = {name: ring.clone() for name, ring in self.rings.items()}
        return {"rings": rings, "step": self.step}

    @classmethod
    def of(cls, state: Mapping[str, Any], device: torch.device) -> Memory:
        """The memory a :meth:`state` was taken of."""
        memory = cls({}, {})
        memory.rings = {n: ring.to(device, copy=True) for n, ring in state["rings"].items()}
        memory.step = state["step"]
        return memory


def spread(latest: Tensor, ring: Tensor, n: Tensor) -> Tensor:
    """n^2 times the variance ``[N, K]`` of an account's last n values, the latest included.

    It takes neither division nor root. The order of the sum depends on where the ring stands, so
    it is exact to float64 rounding.

    Args:
        latest: float32 ``[N, K]``, as the ring keeps it.
        ring: float32 ``[L, N, K]``.
        n: ``[N, 1]``, at most L + 1.
    """
    past, exact = ring.double(), latest.double()
    total = exact + past.sum(0)
    square = exact.square() + past.square().sum(0)
    return (n * square - total * total).clamp(min=0)
