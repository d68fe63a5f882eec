"""What a learner asks of its actors, wherever they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch
from tensordict import TensorDictBase

FAILURES = 3
"""Times in a row that an actor may end before it delivers anything."""

PATIENCE = 300.0
"""Seconds without any delivery after which something must be wrong."""


class ActorError(RuntimeError):
    """Actors that cannot go on."""


class Delivery(NamedTuple):
    """What a learner learns from next."""

    rows: TensorDictBase
    """``[N, T]``, stretches of all that delivered below each other"""
    lags: list[int]
    """how many updates older the weights of each delivery are than the newest"""


class Crew(Protocol):
    """Actors."""

    replaced: int
    """actors that ended and were replaced"""
    dropped: int
    """deliveries that were too old"""

    def publish(self) -> None:
        """Hands on the policy as it is now: one update more."""

    def take(self, count: int) -> Delivery:
        """So many deliveries, oldest first; waits for them."""

    def waiting(self) -> int:
        """Deliveries that nobody took yet."""

    def close(self) -> None:
        """Ends all actors, and leaves nothing of them behind."""

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off."""


def check_apart(state: Mapping[str, Any]) -> None:
    """Refuses what a learner that collected by itself saved."""
    if "begun" not in state:
        raise ValueError(
            "this run collected in the learner's own process, and goes on so alone: actors=0"
        )


def seed_of(seed: int, begun: int) -> int:
    """Of the ``begun``-th actor of a run: one that is begun anew draws anew.

    Far from each other, and from the seeds that policies are judged by.
    """
    return seed + 100_000_000 * (begun + 1)


def below_each_other(stretches: list[TensorDictBase]) -> TensorDictBase:
    """``[N, T]`` each."""
    return torch.cat(stretches) if len(stretches) > 1 else stretches[0]
