"""The last values of every account, and their running sums.

A ring ``[L, N, K]`` for each remembered value; all accounts write the same row at a step, so that
neither writing nor reading looks anything up. How many of an account's rows are its own is its
``count``: a new episode starts at 0 and leaves the rings as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Fields = dict[str, Tensor]


class Memory:
    """Rings of what was seen; :func:`spread` works on their rows.

    Args:
        windows: how far each ring looks back.
        like: one step's values ``[N, K]`` for each, whose shape and device the ring takes.
    """

    def __init__(self, windows: Mapping[str, int], like: Mapping[str, Tensor]) -> None:
        self.windows = dict(windows)
        # One row more than the window: the row that is written is never one that is still needed.
        self.rings = {
            name: torch.zeros(window + 1, *like[name].shape, device=like[name].device)
            for name, window in windows.items()
        }
        self.step = 0

    def leaving(self) -> Fields:
        """The values ``[N, K]`` that leave the windows at this step."""
        return {
            name: ring[(self.step - self.windows[name]) % len(ring)]
            for name, ring in self.rings.items()
        }

    def remember(self, latest: Fields, stepping: Tensor | None = None) -> None:
        """Writes this step's values; accounts that are not ``stepping`` [N] remember none."""
        for name, ring in self.rings.items():
            ring[self.step % len(ring)] = latest[name]
            if stepping is not None:
                ring[:, ~stepping] = ring[:, ~stepping].roll(1, 0)
        self.step += 1

    def state(self) -> dict[str, Any]:
        """All there is to it, for :meth:`of`."""
        rings = {name: ring.clone() for name, ring in self.rings.items()}
        return {"windows": self.windows, "rings": rings, "step": self.step}

    @classmethod
    def of(cls, state: Mapping[str, Any], device: torch.device) -> Memory:
        """The memory a :meth:`state` was taken of."""
        memory = cls(state["windows"], {name: ring[0] for name, ring in state["rings"].items()})
        memory.rings = {n: ring.to(device, copy=True) for n, ring in state["rings"].items()}
        memory.step = state["step"]
        return memory


def no_sums(name: str, like: Tensor) -> Fields:
    """Running sums over nothing, ``[N, K]``."""
    return {
        f"{name}_{part}": torch.zeros_like(like, dtype=torch.float64) for part in ("sum", "square")
    }


def spread(
    name: str, window: int, latest: Tensor, leaving: Tensor, state: Fields
) -> tuple[Tensor, Tensor, Fields]:
    """How far an account's last n values spread, this one included.

    Args:
        name: of the value.
        window: how many there are at most.
        latest: float32 ``[N, K]``, as the ring keeps it.
        leaving: float32 ``[N, K]``, the one that leaves the window.
        state: with ``count`` ``[N]``, how many the account remembers, and the sums.

    Returns:
        n ``[N, 1]``; n^2 times their variance ``[N, K]``, which takes neither division nor root;
        and the sums to go on with.
    """
    full = (state["count"] >= window)[:, None]
    oldest = torch.where(full, leaving, 0.0).double()
    exact = latest.double()
    total = state[f"{name}_sum"] + exact - oldest
    square = state[f"{name}_square"] + exact * exact - oldest * oldest
    n = (state["count"] + 1).clamp(max=window)[:, None]
    spread = (n * square - total * total).clamp(min=0)
    return n, spread, {f"{name}_sum": total, f"{name}_square": square}
