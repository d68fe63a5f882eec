"""Rows of steps for the option-critic, which learns from each bar of an option."""

from __future__ import annotations

from collections.abc import Callable

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import Transform

from trading_torchrl.envs.running_option import ALLOWED

ENDS = ("option", "ends")


class OptionSteps(Transform):
    """Says of each step how its option may end there, and what could be chosen instead.

    Takes batches ``[*, T]``, as a collector hands them over, and returns their rows ``[M]``, with
    in ``next``:

    - ``("option", "allowed")``, bool ``[M, K]``: which options may start there;
    - ``("option", "ends")`` ``[M, 2]``: between what likelihoods the one that runs ends.

    Args:
        may: ``OptionPolicy.may``.
        bounds: ``OptionPolicy.bounds``.
    """

    def __init__(
        self,
        may: Callable[[TensorDictBase], Tensor],
        bounds: Callable[[TensorDictBase], Tensor],
    ) -> None:
        super().__init__()
        self.may, self.bounds = may, bounds

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The rows of a batch."""
        rows = tensordict.reshape(-1)
        after = rows.get("next").copy()
        after.set(ALLOWED, self.may(after)).set(ENDS, self.bounds(after))
        return rows.copy().set("next", after)
