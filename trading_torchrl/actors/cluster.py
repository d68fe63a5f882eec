"""A Ray cluster: one that runs already, or one that is begun here and ended again."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import threading
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from trading_torchrl.actors.crew import ActorError

STORE_BYTES = 512 * 1024**2
"""Memory of the object store of a cluster that is begun here, beside what actors are made of."""


def _ray(address: str | None) -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address is None and "RAY_AUTH_MODE" not in os.environ:
        # What is begun here listens on all addresses, behind a token, as Ray has it by default.
        # One of its own, in the environment, is not left in anybody's home.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ActorError(
            "actors on a cluster need Ray, which is not installed: pip install"
            " 'trading-torchrl[ray]', or take processes of this machine"
        ) from error
    return ray


def _answers(address: str | None) -> None:
    """Refuses an address where nobody listens; Ray would go on trying for minutes."""
    if address and "://" in address:
        raise ValueError("take host:6379, or auto for a cluster that runs on this machine")
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


class Cluster:
    """Joined when it is needed first; one that was begun here ends with :meth:`close`.

    Args:
        address: ``host:6379`` or ``auto``; None begins one on this machine that listens behind a
            token of its own.
        processors: that are needed, one an actor.
        size: bytes of what goes through its object store beside rows and weights.
    """

    def __init__(self, address: str | None, processors: int, size: int = 0) -> None:
        self.ray = _ray(address)
        self.address, self.needed, self.size = address, processors, size
        self.joined = False
        self.folder: TemporaryDirectory[str] | None = None

    def join(self) -> None:
        """Begins it, or joins it; refuses one that is too small."""
        if self.joined:
            return
        own: dict[str, Any] = {}
        if self.address is None:
            self.folder = TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)
            own = {
                "num_cpus": self.needed, "include_dashboard": False,
                "object_store_memory": STORE_BYTES + 2 * self.size, "_temp_dir": self.folder.name,
            }  # fmt: skip
        # What the learner can import its actors can, on this machine and where it is as there.
        there = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
        logging.getLogger("ray").setLevel(logging.ERROR)
        before = signal.getsignal(signal.SIGTERM)
        try:
            _answers(self.address)
            self.ray.init(
                self.address or "local", log_to_driver=False, logging_level="error",
                runtime_env={"env_vars": there}, **own,
            )  # fmt: skip
        except (OSError, RuntimeError, ValueError, self.ray.exceptions.RayError) as error:
            raise ActorError(f"Ray at address={self.address}: {error}") from error
        finally:  # it takes the signal for itself, which is the learner's
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)
        self.joined = True
        if self.processors < self.needed:
            raise ActorError(
                f"the cluster has {self.processors} processors for {self.needed} actors of one"
                " each: take fewer, or add nodes"
            )

    @property
    def processors(self) -> int:
        """That it has now."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def another(self) -> str:
        """What follows where an actor has ended."""
        if self.processors < self.needed:
            return f"Another waits for one: {self.processors} processors are left for {self.needed}"
        return "Another takes its place"

    def where(self, coming: Any) -> str:
        """An actor is, or was, by what it was asked."""
        try:
            return str(self.ray.get(coming, timeout=1.0))
        except Exception:
            return "nobody knows where"

    def close(self) -> None:
        """Leaves it, and ends it if it was begun here."""
        if self.joined:
            self.joined = False
            self.ray.shutdown()
        if self.folder is not None:
            self.folder.cleanup()


def place_of_this() -> str:
    """Process and node, of an actor."""
    import ray

    return f"process {os.getpid()} on node {ray.util.get_node_ip_address()}"
