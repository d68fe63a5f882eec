"""Going on from another checkpoint than the newest: what came after it is moved aside."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.state_file import CheckpointError, load


def reached(checkpoints: Checkpoints, name: str, clock: str) -> int:
    """By the run's clock, ``frames`` or ``updates``, where the checkpoint of this name stands."""
    if name == "newest" and checkpoints.paths():
        return checkpoints.frames_of(checkpoints.paths()[0])
    return int(checkpoints.named(name)[1]["count"][clock])


def go_back(checkpoints: Checkpoints, name: str, clock: str) -> None:
    """Makes a checkpoint the newest; nothing is deleted, and a kill in between does no harm.

    Where the best one came later it goes aside too, and the next evaluation is the best so far.
    """
    _, saved = checkpoints.named(name)
    count, best = saved["count"], checkpoints.folder / "best.pt"
    later = [each for each in checkpoints.paths() if checkpoints.frames_of(each) > count[clock]]
    if best.exists() and _clock_of(best, clock) > count[clock]:
        later.append(best)
    checkpoints.set_aside(later)
    if not best.exists():
        count["best"] = -math.inf
    checkpoints.save(count[clock], saved)


def _clock_of(path: Path, clock: str) -> float:
    """Where a checkpoint stands; after all others if it does not load."""
    try:
        found: Any = load(path)["count"][clock]
    except CheckpointError:
        return math.inf
    return float(found)
