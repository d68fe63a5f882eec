"""Which of a finite number of places an agent has been to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class Visits:
    """Counts how often each place was visited.

    Args:
        places: how many there are.

    Example:
        >>> visits = Visits(places=4)
        >>> visits.see(torch.tensor([0, 2, 2]))
        >>> visits.coverage, visits.counts.tolist()
        (0.5, [1, 0, 2, 0])
    """

    def __init__(self, places: int) -> None:
        if places < 1:
            raise ValueError(f"there must be at least 1 place, got {places}")
        self.counts = torch.zeros(places, dtype=torch.int64)

    def see(self, place: Tensor) -> None:
        """Counts places by their number, int64 in any shape; below 0 is none and not counted."""
        known = place[place >= 0].flatten()
        self.counts += known.bincount(minlength=len(self.counts))

    @property
    def coverage(self) -> float:
        """Share of the places that were visited at all."""
        return int(self.counts.count_nonzero()) / len(self.counts)

    def state_dict(self) -> dict[str, Any]:
        """The counts."""
        return {"counts": self.counts.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on counting."""
        self.counts = state["counts"].clone()
