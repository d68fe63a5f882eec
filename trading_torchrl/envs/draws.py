"""Random numbers that are keyed, not drawn in turn.

A draw depends on (seed, account, episode, stream) alone, so an account starts its episodes at the
same places whether it steps alone, among others, or in another process. SplitMix64 in int64.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = (1 << 64) - 1


def _signed(number: int) -> int:
    number &= _MASK
    return number - (1 << 64) if number >> 63 else number


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def _shift(bits: Tensor, by: int) -> Tensor:
    """Logical shift to the right."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _mix(bits: Tensor) -> Tensor:
    bits = bits + _GOLDEN
    bits = (bits ^ _shift(bits, 30)) * _FIRST
    bits = (bits ^ _shift(bits, 27)) * _SECOND
    return bits ^ _shift(bits, 31)


def _bits(seed: int, account: Tensor, episode: Tensor, stream: Tensor | int) -> Tensor:
    """63 random bits for each account, int64."""
    key = _mix(torch.full_like(account, _signed(seed)))
    for part in (account, episode, torch.zeros_like(account) + stream):
        key = _mix(key ^ part)
    return _shift(key, 1)


def draw(
    below: Tensor | int, seed: int, account: Tensor, episode: Tensor, stream: Tensor | int
) -> Tensor:
    """Integers in ``[0, below)`` for each account, int64 like ``account``."""
    return _bits(seed, account, episode, stream) % below


def uniform(seed: int, account: Tensor, episode: Tensor, stream: Tensor | int) -> Tensor:
    """Numbers inside (0, 1), float64."""
    return ((_bits(seed, account, episode, stream) >> 11).double() + 0.5) * 2.0**-52


def normal(seed: int, account: Tensor, episode: Tensor, stream: Tensor | int) -> Tensor:
    """Standard normal numbers, float64."""
    return torch.special.ndtri(uniform(seed, account, episode, stream))


def draw_subset(
    count: int, of: int, seed: int, account: Tensor, episode: Tensor, stream: int
) -> Tensor:
    """``count`` different integers in ``[0, of)``, ``[N, count]``, every subset alike (Floyd)."""
    chosen: list[Tensor] = []
    for number, last in enumerate(range(of - count, of)):
        candidate = draw(last + 1, seed, account, episode, stream + number)
        for earlier in chosen:
            candidate = torch.where(candidate == earlier, last, candidate)
        # A clash takes the newest value, which no earlier pick can be.
        chosen.append(candidate)
    return torch.stack(chosen, -1)


def alike(account: Tensor, copies: int) -> Tensor:
    """Account numbers ``[N]`` that draw alike: those of the first N / ``copies``, over and over.

    Example:
        >>> alike(torch.arange(6), copies=3)
        tensor([0, 1, 0, 1, 0, 1])
    """
    if copies < 1 or len(account) % copies:
        raise ValueError(f"{len(account)} accounts are not so many copies alike: {copies}")
    return account[: len(account) // copies].repeat(copies)
