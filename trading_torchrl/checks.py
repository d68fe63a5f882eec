"""Settings that many parts refuse alike."""

from __future__ import annotations


def check_share(name: str, value: float) -> None:
    """Refuses what does not lie between 0 and 1: a discount, a share, a probability."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {value}")


def check_reduction(reduction: str) -> None:
    """Refuses what TorchRL's losses cannot reduce by."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
