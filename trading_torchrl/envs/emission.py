"""Emitted values in a tensordict: each under its own key, or packed in one tensor a type.

A collector or a replay buffer copies key by key, and its cost is by the key. Packed, the values
are ``("emitted", label)`` ``[*batch, K, W]``: K values of one type and width W, in the order that
:func:`layout` gives, the label telling both ("float32x1"). What policies and transforms read,
the market's index and the mode, keeps its own keys.
"""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from torch import Tensor

from trading_torchrl.envs import terms
from trading_torchrl.envs.packing import Packs

Layout = dict[str, tuple[terms.Key, ...]]

ALWAYS_NAMED: frozenset[terms.Key] = frozenset(
    {("market", "symbol"), ("market", "bar"), ("account", "mode")}
)


def layout(emit: tuple[str, ...], assets: int) -> Layout:
    """Label of each pack -> the keys of its values, in order."""
    packs: dict[str, list[terms.Key]] = {}
    for key, name in terms.NAME_OF.items():
        if name in emit and key not in ALWAYS_NAMED:
            pack = label(terms.dtype_of(key[1]), terms.width_of(key, assets))
            packs.setdefault(pack, []).append(key)
    return {name: tuple(keys) for name, keys in packs.items()}


def label(dtype: torch.dtype, width: int) -> str:
    """``float32x1``: type and width of a pack."""
    return f"{str(dtype).removeprefix('torch.')}x{width}"


def packed(emitted: Packs[terms.Key]) -> tuple[dict[str, Tensor], dict[terms.Key, Tensor]]:
    """The core's packs ``[K, N, W]`` as ``[N, K, W]`` by label, and what keeps its own key."""
    packs: dict[str, Tensor] = {}
    own: dict[terms.Key, Tensor] = {}
    for keys, tensor in emitted.items():
        # Those that keep their keys come last.
        count = sum(key not in ALWAYS_NAMED for key in keys)
        own |= dict(zip(keys[count:], tensor[count:].unbind(0), strict=True))
        if count:
            packs[label(tensor.dtype, tensor.shape[-1])] = tensor[:count].transpose(0, 1)
    return packs, own


def give_names(tensordict: TensorDictBase, packs: Layout) -> None:
    """Sets the packed values under their own keys, as views, in the root and in ``next``."""
    for place in (tensordict, tensordict.get("next", None)):
        if place is None:
            continue
        # A collector with compact_obs leaves them out of next.
        emitted = place.pop("emitted", {})
        for pack, keys in packs.items():
            if pack in emitted:
                for key, value in zip(keys, emitted[pack].unbind(-2), strict=True):
                    place.set(key, value)
