"""What a run needs beside its modules to go on bit for bit, and what tells two runs apart."""

from __future__ import annotations

import hashlib
import signal
from types import FrameType
from typing import Any

import torch
from tensordict import TensorDict
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import ReplayBuffer
from torchrl.envs import EnvBase, TransformedEnv


def collector_state(collector: Collector) -> dict[str, Any]:
    """Where a collector stands between two batches, its environment with it."""
    state = {
        "frames": collector._frames,
        "carrier": collector._carrier.clone().to_dict(),
        "envs": [env.state_dict() for env in _layers(collector.env)],
    }
    if collector.track_traj_ids:
        state["trajectories"] = collector._traj_pool.state_dict()
    return state


def restore_collector(collector: Collector, state: dict[str, Any]) -> None:
    """Goes on where :func:`collector_state` left off.

    An environment that cannot say where it stands, as Gymnasium's cannot, begins a new episode.
    """
    layers = _layers(collector.env)
    for env, saved in zip(layers, state["envs"], strict=True):
        env.load_state_dict(saved)
    collector._frames = state["frames"]
    if collector.track_traj_ids:
        collector._traj_pool.load_state_dict(state["trajectories"])
    size, device = collector.env.batch_size, collector.env.device
    if "_extra_state" in state["envs"][-1]:
        carrier = TensorDict(state["carrier"], batch_size=size, device=device)
        collector._carrier = carrier.clone()  # what was saved may be restored once more
    else:
        collector.reset()


def _layers(env: EnvBase) -> list[EnvBase]:
    """An environment and what it wraps: one with transforms has their state alone."""
    layers = [env]
    while isinstance(layers[-1], TransformedEnv):
        layers.append(layers[-1].base_env)
    return layers


def replay_state(replay: ReplayBuffer) -> dict[str, Any]:
    """The rows that are filled, where the next one goes, and what the transforms remember.

    The rows are the buffer's own memory, not a copy: write them away before more rows come in.
    """
    filled = len(replay)
    rows, shape = {}, [0]
    if filled:
        stored = replay._storage._storage
        shape = [filled // stored.shape[1:].numel(), *stored.shape[1:]]
        rows = stored[: shape[0]].to_dict()
    return {
        "rows": rows,
        "filled": filled,
        "shape": shape,
        "cursor": replay._writer._cursor,
        "transforms": replay._transform.state_dict(),
    }


def restore_replay(replay: ReplayBuffer, state: dict[str, Any]) -> None:
    """Goes on where :func:`replay_state` left off; rows do not pass the transforms again."""
    room = replay._storage.max_size
    if state["filled"] > room:
        raise ValueError(
            f"{state['filled']:,} rows were saved and the buffer holds {room:,}; build it as large"
            " as it was"
        )
    replay.empty()
    if state["filled"]:
        rows = TensorDict(state["rows"], batch_size=state["shape"])
        replay._storage.set(range(state["shape"][0]), rows)
    replay._writer._cursor = state["cursor"]
    replay._transform.load_state_dict(state["transforms"])


def parameters_sha256(*modules: nn.Module) -> str:
    """Of every parameter and buffer, names and bits."""
    digest = hashlib.sha256()
    for module in modules:
        for name, tensor in sorted(module.state_dict().items()):
            if isinstance(tensor, torch.Tensor):
                digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
                flat = tensor.detach().cpu().contiguous().view(-1)
                digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class StopRequest:
    """Ctrl-C and SIGTERM ask to stop; a second one does not wait.

    Example:
        >>> with StopRequest() as stop:
        ...     for step in range(3):
        ...         if stop.asked:
        ...             break
    """

    signals = (signal.SIGINT, signal.SIGTERM)
    asked = ""

    def __enter__(self) -> StopRequest:
        self.asked = ""
        self._before = [signal.signal(each, self._ask) for each in self.signals]
        return self

    def __exit__(self, *exception: object) -> None:
        for each, before in zip(self.signals, self._before, strict=True):
            signal.signal(each, before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = signal.Signals(number).name
