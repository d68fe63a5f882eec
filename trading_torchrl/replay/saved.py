"""A replay buffer's rows as a file, for others to learn from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensordict import TensorDict, TensorDictBase
from torchrl.data import ReplayBuffer

from trading_torchrl.resume import replay_state, restore_replay
from trading_torchrl.state_file import CheckpointError, load, save

Spec = dict[str, list[Any]]


def spec_of(rows: TensorDictBase) -> Spec:
    """Type and shape of what one row holds, by its key with dots: ``next.reward``.

    The buffer's own ``index`` of a row is left out.
    """
    named = rows.exclude("index").flatten_keys(".")
    return {
        str(key): [str(value.dtype).removeprefix("torch."), *value.shape[rows.ndim :]]
        for key, value in sorted(named.items())
    }


def save_replay(path: Path, replay: ReplayBuffer, frames: int, about: Mapping[str, Any]) -> None:
    """Writes the rows of a buffer as they are stored, only those that are filled.

    The file is written and checked as a checkpoint is: whole or not there.

    Args:
        path: the file.
        replay: a buffer with a storage of tensors.
        frames: how many rows ever went in; those that found no more room any longer are lost.
        about: what a reader needs beside the rows, as plain values and tensors.

    Raises:
        CheckpointError: the file cannot be written.
    """
    state = replay_state(replay)
    if not state["filled"]:
        raise ValueError("this replay holds no rows yet: nothing could be learned from it")
    rows = TensorDict(state["rows"], batch_size=state["shape"]).reshape(-1)
    kept = {"rows": rows.to_dict(), "filled": state["filled"], "cursor": state["cursor"]}
    wrapped = frames > state["filled"]
    save(path, kept | {"frames": frames, "wrapped": wrapped, "spec": spec_of(rows)} | dict(about))


def load_replay(path: Path) -> dict[str, Any]:
    """What :func:`save_replay` wrote; no code that the file names is run.

    Raises:
        CheckpointError: the file is missing, damaged, or something else.
    """
    saved = load(path)
    if not {"rows", "filled", "spec", "frames"} <= saved.keys():
        raise CheckpointError(f"{path} holds no replay; name one that save_replay wrote")
    return saved


def fill(replay: ReplayBuffer, saved: Mapping[str, Any]) -> None:
    """Puts saved rows into a buffer with room for them; more rows go behind them."""
    filled = saved["filled"]
    unchanged = {"transforms": replay._transform.state_dict(), "shape": [filled]}
    cursor = filled % replay._storage.max_size
    restore_replay(replay, {**saved, **unchanged, "cursor": cursor})
