"""Transforms of replay buffers, and their rows as files."""

from trading_torchrl.replay.curious import CuriosityReward
from trading_torchrl.replay.hindsight import Hindsight
from trading_torchrl.replay.objectives import Novelty, VectorReward, WeighedObjectives
from trading_torchrl.replay.option_ahead import OptionAhead
from trading_torchrl.replay.option_steps import OptionSteps
from trading_torchrl.replay.saved import fill, load_replay, save_replay, spec_of
from trading_torchrl.replay.segments import Segments
from trading_torchrl.replay.shaping import PotentialShaping
from trading_torchrl.replay.stored_by_index import StoredByIndex

__all__ = [
    "CuriosityReward",
    "Hindsight",
    "Novelty",
    "OptionAhead",
    "OptionSteps",
    "PotentialShaping",
    "Segments",
    "StoredByIndex",
    "VectorReward",
    "WeighedObjectives",
    "fill",
    "load_replay",
    "save_replay",
    "spec_of",
]
