"""Rows of steps for the option-critic, which learns from each bar of an option."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import Transform

from trading_torchrl.envs.running_option import ALLOWED, INDEX, STEPS

ENDS = ("option", "ends")


class OptionSteps(Transform):
    """Says of each step how its option may end there, and what could be chosen instead.

    Takes batches ``[*, T]``, as a collector hands them over, and returns their rows ``[M]``, with
    in ``next``:

    - ``("option", "allowed")``, bool ``[M, K]``: which options may start there;
    - ``("option", "ends")`` ``[M, 2]``: between what likelihoods the one that runs ends.

    With ``alike`` a step is a row of every option that would have done the same, so that each
    learns from what others do (intra-option learning; Sutton, Precup & Singh, 1999, section 5). It
    is exact for options that go by what is seen alone; others learn as if they had just begun.

    Args:
        may: ``OptionPolicy.may``.
        bounds: ``OptionPolicy.bounds``.
        alike: ``OptionPolicy.alike``; None for the option that ran alone.
    """

    def __init__(
        self,
        may: Callable[[TensorDictBase], Tensor],
        bounds: Callable[[TensorDictBase], Tensor],
        alike: Callable[[TensorDictBase], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.may, self.bounds, self.alike = may, bounds, alike

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The rows of a batch."""
        rows = tensordict.reshape(-1)
        if self.alike is not None:
            rows = self._of_each(rows, self.alike(rows))
        after = rows.get("next").copy()
        after.set(ALLOWED, self.may(after)).set(ENDS, self.bounds(after))
        return rows.copy().set("next", after)

    def _of_each(self, rows: TensorDictBase, alike: Tensor) -> TensorDictBase:
        """A row for each option that did the same, ``[M]``."""
        row, option = (each[:, None] for each in alike.nonzero().unbind(-1))
        rows = rows[row[:, 0]]
        steps = rows.get(("next", *STEPS))
        steps = torch.where(rows.get(INDEX) == option, steps, 1)
        after = rows.get("next").copy().set(INDEX, option).set(STEPS, steps)
        return rows.copy().set(INDEX, option).set("next", after)
