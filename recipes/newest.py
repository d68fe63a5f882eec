"""What learns from its newest steps, and what has no place there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensordict import TensorDictBase

ELSEWHERE = {
    "icm": "curiosity pays for what models of stored steps do not expect",
    "her": "hindsight looks back on stored episodes",
    "objectives": "objectives are weighed in sampled batches",
    "shaping": "shaping pays in sampled batches",
}


def makes_sense(settings: Mapping[str, Any]) -> None:
    """Refuses parts that need rows of any age."""
    for name, why in ELSEWHERE.items():
        if settings.get(name):
            raise SystemExit(
                f"{name}: {why}, and on-policy nothing is stored: take python recipes/offpolicy.py,"
                f" or {name}=off"
            )


def steps_of(batch: TensorDictBase) -> TensorDictBase:
    """Steps ``[N, T]`` of a collector's batch, in a container of their own."""
    rows = batch if batch.ndim == 2 else batch[None]
    return rows.copy()
