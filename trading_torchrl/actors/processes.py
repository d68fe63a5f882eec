"""Actors in processes of this machine: rows and weights go through shared memory."""

from __future__ import annotations

import atexit
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import ProbabilisticTensorDictSequential
from torch import Tensor, multiprocessing

from trading_torchrl.actors.crew import (
    FAILURES,
    PATIENCE,
    ActorError,
    Delivery,
    below_each_other,
    check_apart,
    seed_of,
)
from trading_torchrl.actors.stretches import Stretches
from trading_torchrl.actors.weights import packed

Make = Callable[[int], Stretches]
"""Builds what an actor collects with, from the seed of its draws; can be pickled."""

CLOSING = 5.0
"""Seconds in which an actor has to end by itself."""


class Board:
    """Weights that one writes and many read, whole or not at all.

    The newest stand in one of two rows while the next are written into the other; who copied a row
    knows by the version before and after whether it stayed the same.

    Args:
        weights: the first, uint8 ``[B]``.
    """

    def __init__(self, weights: Tensor) -> None:
        self.rows = torch.stack([weights, weights]).share_memory_()
        self.version = torch.zeros((), dtype=torch.int64).share_memory_()

    def write(self, weights: Tensor) -> None:
        """One version more."""
        then = int(self.version) + 1
        self.rows[then % 2] = weights
        self.version.fill_(then)

    def read(self) -> tuple[int, Tensor]:
        """The newest version, and its weights."""
        while True:
            version = int(self.version)
            weights = self.rows[version % 2].clone()
            if int(self.version) == version:
                return version, weights


@contextmanager
def deaf() -> Iterator[None]:
    """Signals to end are for the learner, which ends its actors; what is begun within ignores them.

    From its first moment: a group of processes gets Ctrl-C while some are still being begun.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    both = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, signal.SIG_IGN) for each in both]
    try:
        yield
    finally:
        for each, handler in zip(both, before, strict=True):
            signal.signal(each, handler)


def act(make: Make, seed: int, slots: list[TensorDictBase], board: Board, pipe: Connection) -> None:
    """An actor's life: fills the slots that it is given, until nobody listens any more."""
    torch.set_num_threads(1)
    try:
        stretches = make(seed)
        while True:
            slot = pipe.recv()
            version, weights = board.read()
            slots[slot].update_(stretches.collect(weights))
            pipe.send((slot, version))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except BaseException:
        pipe.send(traceback.format_exc())
        raise


class Actor:
    """One of them, as the learner sees it.

    Args:
        number: which.
        sample: what stretches look like, ``[N, T]``.
        ahead: stretches it may have waiting.
    """

    def __init__(self, number: int, sample: TensorDictBase, ahead: int) -> None:
        self.number = number
        self.slots = [sample.clone().zero_().share_memory_() for _ in range(ahead)]
        self.filled: set[int] = set()
        self.failures = 0
        """ends in a row without a delivery"""
        self.process: Any = None
        """while it runs"""
        self.lost: float | None = None
        """when the one before ended, until this one delivers"""

    def begin(self, make: Make, seed: int, board: Board) -> None:
        """In a new process."""
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        arguments = (make, seed, self.slots, board, theirs)
        self.process = context.Process(target=act, args=arguments, daemon=True)
        with deaf():
            self.process.start()
        theirs.close()  # or the end of the process would not be seen
        for slot in set(range(len(self.slots))) - self.filled:
            self.fill(slot)

    def fill(self, slot: int) -> None:
        """Asks for a stretch; of one that ended nothing is asked, which is seen elsewhere."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(slot)

    def end(self, within: float = CLOSING) -> int | None:
        """Of the process; its exit code."""
        process, self.process = self.process, None
        self.pipe.close()
        process.join(within)
        if process.is_alive():
            process.kill()
            process.join()
        code: int | None = process.exitcode
        process.close()
        return code


class Processes:
    """Actors that collect while the learner learns, each replaced where it ends.

    Each takes the newest weights for every stretch. Nobody collects further than ``ahead``
    stretches ahead of the learner, and what is older than ``max_lag`` updates by then is dropped.

    Args:
        make: builds an actor's environment and networks; see :data:`Make`.
        count: actors.
        actor: is learned.
        sample: what their stretches look like, ``[N, T]``.
        seed: of all draws.
        ahead: stretches that each may have waiting.
        max_lag: in updates; None for no limit.
        tell: told in words when an actor was replaced.
    """

    def __init__(
        self,
        make: Make,
        count: int,
        actor: ProbabilisticTensorDictSequential,
        sample: TensorDictBase,
        *,
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
        self.make, self.actor, self.seed = make, actor, seed
        self.max_lag, self.tell = max_lag, tell
        self.board = Board(packed(actor))
        self.actors = [Actor(number, sample, ahead) for number in range(count)]
        self.ready: deque[tuple[Actor, int, int]] = deque()
        """who delivered, into which slot, by which version; oldest first"""
        self.begun = self.replaced = self.dropped = 0
        self.running = False

    def publish(self) -> None:
        """One update more."""
        self.board.write(packed(self.actor))

    def take(self, count: int) -> Delivery:
        """So many deliveries, oldest first."""
        if not self.running:
            self.running = True
            atexit.register(self.close)  # before Python waits for what is still running
            for each in self.actors:
                self._begin(each)
        taken: list[TensorDictBase] = []
        lags: list[int] = []
        last = time.monotonic()
        while len(taken) < count:
            if self._listen(0.0 if self.ready else 1.0):
                last = time.monotonic()
            if time.monotonic() - last > PATIENCE:
                raise ActorError(f"no actor has delivered anything for {PATIENCE:.0f} seconds")
            if self.ready:
                actor, slot, version = self.ready.popleft()
                lag = int(self.board.version) - version
                if self.max_lag is not None and lag > self.max_lag:
                    self.dropped += 1
                else:
                    taken.append(actor.slots[slot].clone())
                    lags.append(lag)
                actor.filled.discard(slot)
                actor.fill(slot)
        return Delivery(below_each_other(taken), lags)

    def _listen(self, seconds: float) -> bool:
        """Notes what came in, replaces who ended; whether anything was delivered."""
        by_pipe = {each.pipe: each for each in self.actors}
        delivered = False
        for pipe in wait(list(by_pipe), seconds):
            actor = by_pipe[pipe]  # type: ignore[index]
            try:
                said = actor.pipe.recv()
            except (EOFError, ConnectionResetError):
                self._replace(actor)
                continue
            if isinstance(said, str):
                raise ActorError(f"actor {actor.number} failed:\n{said}")
            slot, version = said
            actor.filled.add(slot)
            actor.failures = 0
            if actor.lost is not None:
                waited, actor.lost = time.monotonic() - actor.lost, None
                self.tell(f"actor {actor.number} delivers again, {waited:.1f} seconds later")
            self.ready.append((actor, slot, version))
            delivered = True
        return delivered

    def _replace(self, actor: Actor) -> None:
        number, process = actor.number, actor.process.pid
        actor.lost = time.monotonic()
        code = actor.end()
        actor.failures += 1
        said = f"actor {number} (process {process}) ended with exit code {code}"
        if actor.failures >= FAILURES:
            raise ActorError(
                f"{said}, for the {actor.failures}. time without delivering anything. Exit code -9"
                " is a kill, by the system where memory runs out: take fewer actors or accounts"
            )
        self.replaced += 1
        self.tell(f"{said}; another takes its place")
        self._begin(actor)

    def _begin(self, actor: Actor) -> None:
        actor.begin(self.make, seed_of(self.seed, self.begun), self.board)
        self.begun += 1

    def waiting(self) -> int:
        """Deliveries that nobody took yet."""
        if self.running:
            self._listen(0.0)
        return len(self.ready)

    @property
    def processes(self) -> list[int]:
        """Of the actors, by number."""
        return [each.process.pid for each in self.actors if each.process]

    def close(self) -> None:
        """Ends all actors."""
        running = [each for each in self.actors if each.process]
        for each in running:
            each.pipe.close()  # all at once, so that they end beside each other
        for each in running:
            each.end()
            each.filled.clear()
        self.ready.clear()
        self.running = False
        atexit.unregister(self.close)

    def state_dict(self) -> dict[str, Any]:
        """How many were begun: those of a run that is gone on with draw anew."""
        return {"begun": self.begun, "replaced": self.replaced, "dropped": self.dropped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off, by the policy as it is then.

        Actors that run are ended: what they have and act by is not of that time.
        """
        check_apart(state)
        self.close()
        self.board.write(packed(self.actor))
        self.begun = max(self.begun, state["begun"])  # nobody draws what another has drawn
        self.replaced = max(self.replaced, state["replaced"])
        self.dropped = max(self.dropped, state["dropped"])
