"""Checkpoints of a run: the newest ones and the best, in a folder."""

from __future__ import annotations

import itertools
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trading_torchrl.state_file import CheckpointError, load, serialised, write

_FILE = re.compile(r"frames_(\d+)\.pt")
_BEST = "best.pt"


class Checkpoints:
    """Checkpoints of one run in a folder: the newest ones, and the best.

    One process writes to a folder; others may read from it meanwhile. A state that is the best goes
    to ``best.pt`` first: wherever a run is killed, no checkpoint knows of a best one that is not
    there.

    Args:
        folder: made with the first checkpoint.
        keep: how many of the newest stay, at least 1; the best one stays beside them.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     checkpoints = Checkpoints(Path(folder), keep=2)
        ...     for frames in (100, 200, 300):
        ...         path = checkpoints.save(frames, {"frames": frames}, best=frames == 100)
        ...     print([path.name for path in checkpoints.paths()])
        ...     print(checkpoints.newest()[1], checkpoints.best()[1])
        ['frames_000000000300.pt', 'frames_000000000200.pt']
        {'frames': 300} {'frames': 100}
    """

    def __init__(self, folder: Path, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, the newest checkpoint, got {keep}")
        self.folder = Path(folder)
        self.keep = keep

    def save(self, frames: int, state: Mapping[str, Any], best: bool = False) -> Path:
        """Writes the checkpoint of these frames, then removes the oldest beyond ``keep``.

        Args:
            frames: how many the run has seen.
            state: see :func:`trading_torchrl.state_file.save`.
            best: it is the best one so far, and goes to ``best.pt`` before it has a name of its
                own. Where the room is enough for the first only, ``best.pt`` is newer than all
                others, which does no harm.

        Raises:
            CheckpointError: the state cannot be saved, or a file cannot be written.
        """
        path = self._path(frames)
        # What a killed process left takes the room that this checkpoint may need.
        for temporary in self.folder.glob(".*.pt.*.tmp"):
            temporary.unlink(missing_ok=True)
        write(serialised(path, state), *([self.folder / _BEST] if best else []), path)
        others = [other for other in self.paths() if other != path]
        for other in others[self.keep - 1 :]:
            other.unlink(missing_ok=True)
        return path

    def paths(self) -> list[Path]:
        """The checkpoints that are there, newest first, without the best."""
        found = {path: _FILE.fullmatch(path.name) for path in self.folder.glob("frames_*.pt")}
        frames = {path: int(match[1]) for path, match in found.items() if match}
        return sorted(frames, key=frames.__getitem__, reverse=True)

    def frames_of(self, path: Path) -> int:
        """That the name of one of :meth:`paths` speaks of."""
        found = _FILE.fullmatch(path.name)
        if found is None:
            raise ValueError(f"{path.name} is not named frames_<number>.pt")
        return int(found[1])

    def named(self, name: str) -> tuple[Path, dict[str, Any]]:
        """The ``newest``, the ``best``, or the one in the file of this name.

        Raises:
            CheckpointError: it does not load, or is not there.
        """
        if name == "newest":
            return self.newest()
        if name == "best":
            return self.best()
        path = self.folder / name
        if not path.exists():
            there = ", ".join(each.name for each in self.paths()) or "none"
            raise CheckpointError(
                f"{path} is not there; name one that is ({there}), newest or best"
            )
        return path, load(path)

    def set_aside(self, paths: Sequence[Path]) -> Path | None:
        """Moves checkpoints into a folder of their own in this one, where nothing looks for them.

        Returns:
            the folder, ``aside_1`` or the next that is not there; None where there is nothing to
            move.
        """
        if not paths:
            return None
        possible = (self.folder / f"aside_{number}" for number in itertools.count(1))
        folder = next(each for each in possible if not each.exists())
        folder.mkdir()
        for path in paths:
            os.replace(path, folder / path.name)
        return folder

    def newest(self) -> tuple[Path, dict[str, Any]]:
        """The newest checkpoint that loads, with a warning for each newer one that does not.

        Raises:
            CheckpointError: none loads, the best one neither.
        """
        best = self.folder / _BEST
        paths = [*self.paths(), *([best] if best.exists() else [])]
        for path in paths:
            try:
                return path, load(path)
            except CheckpointError as error:
                warnings.warn(str(error), stacklevel=2)
        raise CheckpointError(
            f"{self.folder}: none of {len(paths)} checkpoints loads; name the folder of a run "
            "that has one, or start anew"
        )

    def best(self) -> tuple[Path, dict[str, Any]]:
        """The best checkpoint; the newest one where there is none, or (with a warning) a bad one.

        Raises:
            CheckpointError: no checkpoint loads.
        """
        path = self.folder / _BEST
        if path.exists():
            try:
                return path, load(path)
            except CheckpointError as error:
                warnings.warn(str(error), stacklevel=2)
        return self.newest()

    def _path(self, frames: int) -> Path:
        if frames < 0:
            raise ValueError(f"frames must be 0 or more, got {frames}")
        return self.folder / f"frames_{frames:012d}.pt"
