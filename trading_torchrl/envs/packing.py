"""Emitted values in few tensors: a compiled call costs by the tensor it hands over.

Values of one type and width travel as one tensor ``[K, N, width]`` and come apart again as K views
``[N, width]`` of it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trading_torchrl.envs import terms
from trading_torchrl.envs.accounts import Rules


class Pack(NamedTuple):
    """What travels together."""

    dtype: torch.dtype
    width: int
    keys: tuple[terms.Key, ...]


def layout(rules: Rules) -> tuple[Pack, ...]:
    """The packs of what these rules emit; the index is not among it, accounts hold it as it is."""
    packs: dict[tuple[torch.dtype, int], list[terms.Key]] = {}
    for name in rules.emit:
        if name != "index":
            width = rules.assets if name in terms.PER_ASSET else 1
            packs.setdefault((terms.dtype_of(name), width), []).extend(terms.EMITTED[name])
    return tuple(Pack(dtype, width, tuple(keys)) for (dtype, width), keys in packs.items())


def pack(emitted: terms.Emitted, packs: tuple[Pack, ...]) -> tuple[Tensor, ...]:
    """One tensor a pack, from values ``[N]`` and ``[N, A]``."""

    def wide(value: Tensor) -> Tensor:
        return value if value.ndim == 2 else value[:, None]

    return tuple(
        torch.stack([wide(emitted[key]).to(pack.dtype) for key in pack.keys]) for pack in packs
    )


def unpack(tensors: tuple[Tensor, ...], packs: tuple[Pack, ...]) -> terms.Emitted:
    """The values by key again."""
    return {
        key: value
        for pack, tensor in zip(packs, tensors, strict=True)
        for key, value in zip(pack.keys, tensor.unbind(0), strict=True)
    }
