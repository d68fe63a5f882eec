"""Actors on a Ray cluster: one that runs already, or one that is begun here and ended again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import ProbabilisticTensorDictSequential
from torch import Tensor

from trading_torchrl.actors.cluster import Cluster, place_of_this
from trading_torchrl.actors.crew import (
    FAILURES,
    PATIENCE,
    ActorError,
    Delivery,
    below_each_other,
    check_apart,
    seed_of,
)
from trading_torchrl.actors.processes import Make
from trading_torchrl.actors.weights import packed


class Collects:
    """An actor's life on a node: collects when it is asked.

    Args:
        make: builds what it collects with.
        seed: of its draws.
    """

    def __init__(self, make: Make, seed: int) -> None:
        torch.set_num_threads(1)
        try:
            self.stretches = make(seed)
        except SystemExit as refused:  # by which Ray would only know that it ended
            raise RuntimeError(str(refused)) from refused

    def where(self) -> str:
        """Process and node."""
        return place_of_this()

    def collect(self, version: int, weights: np.ndarray) -> tuple[int, Any, dict[Any, np.ndarray]]:
        """The version that acted, the shape, and what was collected by key."""
        rows = self.stretches.collect(torch.tensor(weights))
        named = {key: value.numpy() for key, value in rows.items(True, True)}
        return version, tuple(rows.batch_size), named


class Place:
    """Of an actor, as the learner sees it.

    Args:
        number: which.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.handle: Any = None
        self.where: Any = None
        """to come: where it is"""
        self.failures = 0
        """ends in a row without a delivery"""
        self.turn = 0
        """the how manieth actor here"""
        self.lost: float | None = None
        """when the one before ended, until this one delivers"""


class OnRay:
    """Actors on a Ray cluster, each replaced where it ends.

    Weights and rows go through Ray's object store. A call takes the weights that are newest when it
    is asked for, so that with ``ahead`` calls asked for at once an actor is as many stretches
    behind. What is older than ``max_lag`` updates by the time it is taken is dropped.

    Args:
        make: builds an actor's environment and networks; its modules must be importable on every
            node, at the same place.
        count: actors, of one processor each.
        actor: is learned.
        address: of a cluster, ``host:6379`` or ``auto``; None begins one on this machine that
            listens behind a token of its own, and ends with :meth:`close`.
        size: bytes that ``make`` is large, which go through the object store once.
        seed: of all draws.
        ahead: stretches that each may have asked for or waiting.
        max_lag: in updates; None for no limit.
        tell: told in words when an actor was replaced.
    """

    def __init__(
        self,
        make: Make,
        count: int,
        actor: ProbabilisticTensorDictSequential,
        *,
        address: str | None = None,
        size: int = 0,
        seed: int = 0,
        ahead: int = 2,
        max_lag: int | None = None,
        tell: Callable[[str], None] = print,
    ) -> None:
        for name, value in (("count", count), ("ahead", ahead)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if max_lag is not None and max_lag < 0:
            raise ValueError(f"max_lag must not be negative, got {max_lag}")
        self.cluster = Cluster(address, count, size)
        self.ray = self.cluster.ray
        self.make, self.actor, self.seed = make, actor, seed
        self.ahead, self.max_lag, self.tell = ahead, max_lag, tell
        self.places = [Place(number) for number in range(count)]
        self.asked: dict[Any, tuple[Place, int]] = {}
        """what is to come, oldest first: from where, and from which actor there"""
        self.version = self.begun = self.replaced = self.dropped = 0
        self.running = False
        self.remote: Any = None

    def publish(self) -> None:
        """One update more."""
        self.version += 1
        if self.running:  # else they are handed on when actors begin
            self.weights = self.ray.put(packed(self.actor).numpy())

    def take(self, count: int) -> Delivery:
        """So many deliveries, oldest first."""
        if not self.running:
            self._connect()
            self.running = True
            self.weights = self.ray.put(packed(self.actor).numpy())
            for place in self.places:
                self._begin(place)
        taken: list[tuple[TensorDictBase, int]] = []
        last = time.monotonic()
        while len(taken) < count:
            done, _ = self.ray.wait(list(self.asked), timeout=1.0)
            if not done and time.monotonic() - last > PATIENCE:
                raise ActorError(f"no actor has delivered anything for {PATIENCE:.0f} seconds")
            for coming in done:
                place, turn = self.asked.pop(coming)
                try:
                    version, shape, named = self.ray.get(coming)
                except self.ray.exceptions.RayTaskError as error:
                    raise ActorError(f"actor {place.number} failed:\n{error}") from error
                except self.ray.exceptions.RayError as error:
                    if turn == place.turn:  # else it is known
                        self._replace(place, error)
                    continue
                last = time.monotonic()
                if turn == place.turn:
                    place.failures = 0
                    self._told(place)
                    self._ask(place)
                if self.max_lag is not None and self.version - version > self.max_lag:
                    self.dropped += 1
                else:
                    taken.append((_rows(named, shape), version))
        lags = [self.version - version for _, version in taken]
        return Delivery(below_each_other([rows for rows, _ in taken]), lags)

    def _connect(self) -> None:
        self.cluster.join()
        if self.remote is None:
            self.made = self.ray.put(self.make)  # once, not for each actor
            self.remote = self.ray.remote(num_cpus=1, max_restarts=0)(Collects)

    def _begin(self, place: Place) -> None:
        place.handle = self.remote.remote(self.made, seed_of(self.seed, self.begun))
        place.where = place.handle.where.remote()
        self.begun += 1
        place.turn += 1
        for _ in range(self.ahead):
            self._ask(place)

    def _ask(self, place: Place) -> None:
        coming = place.handle.collect.remote(self.version, self.weights)
        self.asked[coming] = place, place.turn

    def _told(self, place: Place) -> None:
        """Of a successor's first delivery."""
        if place.lost is not None:
            waited, place.lost = time.monotonic() - place.lost, None
            self.tell(f"actor {place.number} delivers again, {waited:.1f} seconds later")

    def _replace(self, place: Place, error: Exception) -> None:
        place.lost = time.monotonic()
        where = self.cluster.where(place.where)
        place.failures += 1
        reason = str(error).strip().splitlines()[0]
        said = f"actor {place.number} ({where}) ended: {reason}"
        if getattr(error, "actor_init_failed", False):
            raise ActorError(f"actor {place.number} failed:\n{error}") from error
        if place.failures >= FAILURES:
            raise ActorError(
                f"{said}, for the {place.failures}. time without delivering anything:\n{error}"
            )
        self.replaced += 1
        self.tell(f"{said} {self.cluster.another()}")
        self._begin(place)

    def waiting(self) -> int:
        """Deliveries that nobody took yet."""
        if not self.asked:
            return 0
        return len(self.ray.wait(list(self.asked), num_returns=len(self.asked), timeout=0)[0])

    def close(self) -> None:
        """Ends all actors, and the cluster if it was begun here."""
        self._end()
        self.cluster.close()
        self.remote = None

    def _end(self) -> None:
        """All actors."""
        for place in self.places:
            if place.handle is not None:
                self.ray.kill(place.handle)
                place.handle = None
        self.asked.clear()
        self.running = False

    def state_dict(self) -> dict[str, Any]:
        """How many were begun: those of a run that is gone on with draw anew."""
        return {"begun": self.begun, "replaced": self.replaced, "dropped": self.dropped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off, by the policy as it is then.

        Actors that run are ended: what they have and act by is not of that time.
        """
        check_apart(state)
        self._end()
        self.begun = max(self.begun, state["begun"])  # nobody draws what another has drawn
        self.replaced = max(self.replaced, state["replaced"])
        self.dropped = max(self.dropped, state["dropped"])


def _rows(named: Mapping[Any, np.ndarray], shape: tuple[int, ...]) -> TensorDictBase:
    """As they were collected; what the store holds is only read."""
    found: dict[Any, Tensor] = {key: torch.from_numpy(value.copy()) for key, value in named.items()}
    return TensorDict(found, batch_size=shape)
