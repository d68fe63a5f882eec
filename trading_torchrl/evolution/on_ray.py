"""A generation that tries on a Ray cluster: seeds and returns are all that is sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from trading_torchrl.actors.cluster import Cluster, place_of_this
from trading_torchrl.actors.crew import FAILURES, ActorError
from trading_torchrl.evolution.returns import Earned
from trading_torchrl.evolution.strategy import EvolutionStrategy
from trading_torchrl.evolution.tries import Here

Make = Callable[[int, int], tuple[EvolutionStrategy, Here]]
"""Builds a strategy, and what has its pairs from one up to another try; can be pickled."""

Told = tuple[int, float, np.ndarray]
"""Before which generation, at which learning rate, by which returns a strategy moved last."""

Message = tuple[str, Told | None, int]
"""What the centre is known by, what it was told last, seed of the episodes."""


class Replica:
    """A strategy on a node that moves as the learner's does, and has some of its pairs try.

    Args:
        make: builds both.
        first: number of the first pair.
        last: after the last.
    """

    def __init__(self, make: Make, first: int, last: int) -> None:
        torch.set_num_threads(1)
        try:
            self.strategy, self.tries = make(first, last)
        except SystemExit as refused:  # by which Ray would only know that it ended
            raise RuntimeError(str(refused)) from refused

    def where(self) -> str:
        """Process and node."""
        return place_of_this()

    def earned(self, message: Message, state: Any = None) -> tuple[np.ndarray, int] | None:
        """Returns and frames; None where it is not where the learner is, and needs its state."""
        known, told, seed = message
        own = self.strategy
        if state is not None:
            own.load_state_dict(state)
        elif told is not None and told[0] == own.generation:
            own.lr = told[1]
            own.tell(torch.tensor(told[2]))
        if own.known_by() != known:
            return None
        found = self.tries.earned(own, seed)
        return found.returns.numpy(), found.frames


class Part:
    """Pairs of a population, as the learner sees who has them try.

    Args:
        number: which part.
        first: number of the first pair.
        last: after the last.
    """

    def __init__(self, number: int, first: int, last: int) -> None:
        self.number, self.first, self.last = number, first, last
        self.failures = 0
        """ends in a row without an answer"""
        self.handle: Any = None
        self.where: Any = None
        """to come: where it is"""
        self.lost: float | None = None
        """when the one before ended, until this one answers"""


class OnRay:
    """A population shared out among actors on a Ray cluster, each replaced where it ends.

    Each actor has a strategy of its own, which is told what the learner's is told and so stays the
    same bit for bit; who is not where the learner is, one that was just begun say, is sent the
    whole state once. One that ends has its pairs try again on its successor. Returns are those of
    one process to rounding: what is one batch there is several here.

    Args:
        make: builds an actor's strategy and what tries; importable on every node.
        count: actors, of one processor each.
        pairs: of the population.
        address: of a cluster, ``host:6379`` or ``auto``; None begins one on this machine.
        size: bytes that ``make`` is large, which go through the object store once.
        tell: told in words when an actor was replaced.
    """

    def __init__(
        self,
        make: Make,
        count: int,
        pairs: int,
        *,
        address: str | None = None,
        size: int = 0,
        tell: Callable[[str], None] = print,
    ) -> None:
        if not 1 <= count <= pairs:
            raise ValueError(f"actors must be at least 1 and at most {pairs} pairs, got {count}")
        self.cluster = Cluster(address, count, size)
        self.ray = self.cluster.ray
        self.make, self.tell = make, tell
        ends = [pairs * number // count for number in range(count + 1)]
        self.parts = [Part(n, ends[n], ends[n + 1]) for n in range(count)]
        self.remote: Any = None
        self.replaced = 0
        self.sent = 0
        """times that an actor needed the whole state"""

    def earned(self, strategy: EvolutionStrategy, seed: int) -> Earned:
        """Of all members, from wherever they tried."""
        if self.remote is None:
            self.cluster.join()
            self.made = self.ray.put(self.make)
            self.remote = self.ray.remote(num_cpus=1, max_restarts=0)(Replica)
            for part in self.parts:
                self._begin(part)
        told = strategy.told
        last = None if told is None else (told[0], told[1], told[2].numpy())
        message: Message = (strategy.known_by(), last, seed)
        asked = {part.handle.earned.remote(message): part for part in self.parts}
        found: dict[int, tuple[np.ndarray, int]] = {}
        while asked:
            (coming,), _ = self.ray.wait(list(asked), num_returns=1)
            part = asked.pop(coming)
            try:
                answer = self.ray.get(coming)
            except self.ray.exceptions.RayTaskError as error:
                raise ActorError(f"actor {part.number} failed:\n{error}") from error
            except self.ray.exceptions.RayError as error:
                self._replace(part, error)
                answer = None
            if answer is None:
                self.sent += 1
                asked[part.handle.earned.remote(message, strategy.state_dict())] = part
                continue
            part.failures = 0
            if part.lost is not None:
                waited, part.lost = time.monotonic() - part.lost, None
                self.tell(f"actor {part.number} answers again, {waited:.1f} seconds later")
            found[part.number] = answer
        answers = [found[part.number] for part in self.parts]
        returns = torch.cat([torch.tensor(each) for each, _ in answers])
        return Earned(returns, sum(frames for _, frames in answers))

    def _begin(self, part: Part) -> None:
        part.handle = self.remote.remote(self.made, part.first, part.last)
        part.where = part.handle.where.remote()

    def _replace(self, part: Part, error: Exception) -> None:
        part.lost = time.monotonic()
        part.failures += 1
        where, reason = self.cluster.where(part.where), str(error).strip().splitlines()[0]
        said = f"actor {part.number} ({where}) ended: {reason}"
        if getattr(error, "actor_init_failed", False):
            raise ActorError(f"actor {part.number} failed:\n{error}") from error
        if part.failures >= FAILURES:
            raise ActorError(f"{said}, for the {part.failures}. time without an answer:\n{error}")
        self.replaced += 1
        self.tell(f"{said} {self.cluster.another()}")
        self._begin(part)

    def close(self) -> None:
        """Ends all actors, and the cluster if it was begun here."""
        for part in self.parts:
            if part.handle is not None:
                self.ray.kill(part.handle)
                part.handle = None
        self.cluster.close()
        self.remote = None
