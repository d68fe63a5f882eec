"""What learns from its newest steps, and what has no place there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensordict import TensorDictBase

ELSEWHERE = {"her": "hindsight looks back on stored episodes, and on-policy nothing is stored"}
APART = {
    "icm": "curiosity learns beside the agent",
    "shaping": "a potential is asked beside the agent",
    "objectives": "objectives are weighed beside the agent",
}
"""What has no place where actors hand on rows for a loss alone."""

ONE_REWARD = ("learned", "pareto")
"""Objectives that keep rewards apart."""


def makes_sense(settings: Mapping[str, Any]) -> None:
    """Refuses parts that need rows of any age, or several rewards."""
    _refuse(settings, ELSEWHERE, "python recipes/offpolicy.py")
    kind = (settings.get("objectives") or {}).get("kind")
    if kind in ONE_REWARD:
        raise SystemExit(
            f"objectives={kind} keeps rewards apart, and critics here are of one: take"
            " objectives=fixed or regime, or python recipes/offpolicy.py"
        )


def makes_sense_apart(settings: Mapping[str, Any]) -> None:
    """The same where actors are apart."""
    makes_sense(settings)
    _refuse(settings, APART, "python recipes/onpolicy.py")


def _refuse(settings: Mapping[str, Any], parts: Mapping[str, str], where: str) -> None:
    for name, why in parts.items():
        if settings.get(name):
            raise SystemExit(f"{name}: {why}: take {where}, or {name}=off")


def steps_of(batch: TensorDictBase) -> TensorDictBase:
    """Steps ``[N, T]`` of a collector's batch, in a container of their own."""
    rows = batch if batch.ndim == 2 else batch[None]
    return rows.copy()
