"""What the machine is, and how its processor multiplies matrices."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

PRECISIONS = ("auto", "highest", "high", "medium")
EXACT = 1e-5
"""Largest relative error of products that count as exact; rounding to bfloat16 has 2e-3."""


def processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor()


def set_precision(precision: str) -> tuple[str, float]:
    """Sets what PyTorch may do with products; returns what was set, and how far products are off.

    ``medium`` lets PyTorch take another library for them, which is faster on some processors and
    rounds to bfloat16 on others: measured here on one product, as a share of its largest number.

    Args:
        precision: ``highest``, ``high`` or ``medium``, as
            :func:`torch.set_float32_matmul_precision` has them; ``auto`` is ``medium`` where that
            is exact, else ``highest``.

    Example:
        >>> set_precision("auto")[1] < EXACT
        True
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {', '.join(PRECISIONS)}, got {precision!r}")
    chosen = "medium" if precision == "auto" else precision
    torch.set_float32_matmul_precision(chosen)
    error = _rounding()
    if precision == "auto" and error > EXACT:
        return set_precision("highest")
    return chosen, error


def _rounding() -> float:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(256, 256, generator=generator) for _ in range(2))
    exact = a.double() @ b.double()
    return float((a @ b - exact).abs().max() / exact.abs().max())
