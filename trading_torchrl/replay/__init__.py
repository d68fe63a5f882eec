"""Transforms of replay buffers."""

from trading_torchrl.replay.stored_by_index import StoredByIndex

__all__ = ["StoredByIndex"]
