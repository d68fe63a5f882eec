"""A policy that carries options out in a world of cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from tensordict.nn import TensorDictModule
from tensordict.utils import NestedKey
from torch import Tensor

from trading_torchrl.envs.reference.grid import GridWorld
from trading_torchrl.modules.option_policy import OptionPolicy
from trading_torchrl.modules.options import Option, Scene


class GridOptionPolicy(OptionPolicy):
    """Options see the ``cell`` an account stands on; what they do is the number of a way.

    ``action`` is int64 ``[*]``.

    Args:
        world: whose observations are read; with the transform ``RunningOption`` around it.
        options: K of them; in every cell at least one may start.
        controller: see :class:`~trading_torchrl.modules.OptionPolicy`.
        temperature: of the choice.
    """

    shown: ClassVar[tuple[NestedKey, ...]] = ("observation",)
    needed: ClassVar[str] = "the transform RunningOption"

    def __init__(
        self,
        world: GridWorld,
        options: Sequence[Option],
        controller: TensorDictModule,
        *,
        temperature: float = 1.0,
    ) -> None:
        super().__init__(options, controller, cap=1.0, temperature=temperature)
        self._cell_of = world.cell_of

    def seen(self, shown: Mapping[Any, Any], steps: Tensor, entered: Tensor) -> Scene:
        """Where accounts stand; they hold nothing."""
        nothing = torch.zeros(steps.shape, device=steps.device)
        cell = self._cell_of(shown["observation"])
        return Scene({"cell": cell}, nothing, nothing, steps, entered)

    def taken(self, action: Tensor) -> Tensor:
        """The number of a way."""
        return action[..., 0].long()
