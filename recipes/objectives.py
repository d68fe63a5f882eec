"""Several objectives in place of one reward: what all ways to weigh them have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from tasks.trading import Trading
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule

from trading_torchrl.replay import Novelty


class Objectives(ABC):
    """Objectives of sampled batches, weighed; what is new is one of them."""

    reads: tuple[NestedKey, ...] = (("next", "objectives"), ("next", "place"))
    """keys that rows must have"""
    loss: LossModule | None = None
    """what the weights learn by, if they learn"""

    def __init__(self, task: Trading, novelty: Novelty) -> None:
        self.task, self.novelty = task, novelty
        self.known: dict[str, float] = {}
        self.sample: TensorDictBase | None = None

    def parts(self) -> dict[str, Any]:
        """What has a state."""
        return {"novelty": self.novelty, "objectives_seen": self}

    def state_dict(self) -> dict[str, float]:
        """The figures: where updates are rare, a run that goes on tells those from before."""
        return self.figures()

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        self.sample, self.known = None, dict(state)

    def see(self, batch: TensorDictBase) -> None:
        """What was collected: each row gets the place where it arrived."""
        place = self.task.place_of(batch)
        self.novelty.see(place)
        batch.set(("next", "place"), place)

    def learn(self, update: int, pace: float) -> list[str]:
        """A step of what is learned, if it is its turn; what is not finite.

        ``pace`` is the agent's learning rate, as a share of its first.
        """
        return []

    @abstractmethod
    def weigh(self, sample: TensorDictBase) -> TensorDictBase:
        """A batch with its objectives as the reward."""

    @abstractmethod
    def figures(self) -> dict[str, float]:
        """Of the last update."""

    def parts_and_weights(self) -> dict[str, float]:
        """What each objective added and its weights, for the report."""
        shown = ("_component", "_share", "_weight", "_largest", "_entropy")
        return {name: value for name, value in self.figures().items() if name.endswith(shown)}


def told(names: Iterable[str], parts: Tensor, weights: Tensor) -> dict[str, float]:
    """Of each objective what it adds, its part of all by size, and its weight; of ``[*, K]``."""
    sizes = parts.abs().mean(0)
    share = sizes / sizes.sum().clamp(min=1e-12)
    figures: dict[str, float] = {}
    for name, part, of_all, weight in zip(
        names, parts.mean(0), share, weights.mean(0), strict=True
    ):
        figures[f"reward/{name}_component"] = float(part)
        figures[f"reward/{name}_share"] = float(of_all)
        figures[f"reward/{name}_weight"] = float(weight)
    return figures


def entropy(weights: Tensor) -> float:
    """In nats, the mean over rows ``[*, K]``."""
    return float(-(weights * weights.clamp(min=1e-12).log()).sum(-1).mean())
