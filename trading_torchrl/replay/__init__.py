"""Transforms of replay buffers, and their rows as files."""

from trading_torchrl.replay.saved import fill, load_replay, save_replay, spec_of
from trading_torchrl.replay.stored_by_index import StoredByIndex

__all__ = ["StoredByIndex", "fill", "load_replay", "save_replay", "spec_of"]
