"""Many values in few tensors: a compiled call costs by the tensor it takes in and hands over.

Values of one type and shape travel as one tensor ``[K, *shape]`` under the tuple of their names,
and come apart again as K views of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

Name = TypeVar("Name")
Packs = dict[tuple[Name, ...], Tensor]


def pack(values: Mapping[Name, Tensor]) -> Packs[Name]:
    """One tensor for each type and shape, in the order in which they first appear."""
    alike: dict[tuple[torch.dtype, torch.Size], list[Name]] = {}
    for name, value in values.items():
        alike.setdefault((value.dtype, value.shape), []).append(name)
    return {tuple(names): torch.stack([values[name] for name in names]) for names in alike.values()}


def unpack(packs: Packs[Name]) -> dict[Name, Tensor]:
    """The values by name again."""
    return {
        name: value
        for names, tensor in packs.items()
        for name, value in zip(names, tensor.unbind(0), strict=True)
    }
