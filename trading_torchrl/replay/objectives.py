"""Several objectives as one reward, weighed when a batch is sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import Transform

from trading_torchrl.checks import check_share
from trading_torchrl.envs.terms import TERMS

Weights = Tensor | Callable[[TensorDictBase], Tensor]
"""``[K]``, or a function of a batch that gives ``[*, K]``."""

EXPLORATION = ("objectives", "exploration")


class WeighedObjectives(Transform):
    """The reward of a sampled batch becomes the weighted sum of its objectives.

    Reads ``keys`` in ``next``: ``("objectives", "terms")``, ``[*, 5]``, is what an environment
    built with ``emit=("objectives",)`` shows, ``("objectives", "exploration")`` what
    :class:`Novelty` adds. Writes in ``next`` ``reward`` ``[*, 1]``, and in the root
    ``("objectives", "weights")`` and ``("objectives", "parts")``, what each of them added,
    ``[*, K]``.

    Args:
        weights: of all columns; see :mod:`~trading_torchrl.modules.weights`.
        keys: in ``next``, each with one objective or several, ``[*, k]``; side by side they are K.
        adds: key in ``next``, ``[*, 1]``, that is added with weight 1: a goal's reward, or what
            shaping added.
        reward_key: where the reward is, in ``next``.

    Example:
        >>> from tensordict import TensorDict
        >>> batch = TensorDict({"next": {
        ...     "reward": torch.zeros(2, 1),
        ...     "objectives": {"terms": torch.tensor([[1.0, -1.0], [1.0, 0.0]])}}}, [2])
        >>> weighed = WeighedObjectives(torch.tensor([0.75, 0.25]))
        >>> weighed(batch)["next", "reward"][:, 0]
        tensor([0.5000, 0.7500])
    """

    def __init__(
        self,
        weights: Weights,
        keys: Sequence[NestedKey] = (TERMS,),
        *,
        adds: NestedKey | None = None,
        reward_key: NestedKey = "reward",
    ) -> None:
        super().__init__()
        self.weights, self.keys = weights, tuple(keys)
        self.adds, self.reward_key = adds, reward_key

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """A batch with its reward weighed."""
        following = tensordict.get("next")
        terms = torch.cat([following.get(key) for key in self.keys], -1)
        weights = self.weights if isinstance(self.weights, Tensor) else self.weights(tensordict)
        if weights.shape[-1] != terms.shape[-1]:
            raise ValueError(
                f"{terms.shape[-1]} objectives need as many weights, got {weights.shape[-1]}"
            )
        parts = weights * terms
        reward = parts.sum(-1, keepdim=True)
        tensordict = tensordict.copy()  # and all that is nested in it
        following = tensordict.get("next")
        if self.adds is not None:
            reward = following.get(self.adds) + reward
        following.set(self.reward_key, reward)
        tensordict.set(("objectives", "weights"), weights.expand_as(terms))
        return tensordict.set(("objectives", "parts"), parts)


class VectorReward(Transform):
    """The reward of a sampled batch becomes its objectives side by side, ``[*, K]``.

    For losses whose critics have as many objectives; their weights are in ``("objectives",
    "weights")``, see :class:`~trading_torchrl.envs.Preferences`.

    Args:
        keys: in ``next``, each with one objective or several, ``[*, k]``.
        adds: key in ``next``, ``[*, 1]``, that comes last, as one objective more.
        reward_key: where the reward is, in ``next``.
    """

    def __init__(
        self,
        keys: Sequence[NestedKey] = (TERMS,),
        *,
        adds: NestedKey | None = None,
        reward_key: NestedKey = "reward",
    ) -> None:
        super().__init__()
        self.keys = tuple(keys) if adds is None else (*keys, adds)
        self.reward_key = reward_key

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """A batch with a reward for each objective."""
        tensordict = tensordict.copy()  # and all that is nested in it
        following = tensordict.get("next")
        terms = torch.cat([following.get(key) for key in self.keys], -1)
        following.set(self.reward_key, terms)
        return tensordict


class Novelty(Transform):
    """The objective *exploration* of a sampled batch: surprises, and places that were rarely seen.

    ``intrinsic``, where :class:`~trading_torchrl.replay.CuriosityReward` wrote it, plus
    ``size x decay^batches / (1 + visits)`` where there were less than ``visits``. Reads
    ``("next", "place")``, int64 ``[*]``, -1 for none; writes ``("objectives", "exploration")``
    ``[*, 1]`` in ``next``.

    Args:
        places: how many there are.
        size: of a place never been to.
        visits: from so many on a place is not new.
        decay: by what all of it shrinks a batch.

    Example:
        >>> from tensordict import TensorDict
        >>> novelty = Novelty(3)
        >>> novelty.see(torch.tensor([1, 1, 2, -1]))
        >>> batch = TensorDict({"next": {"place": torch.tensor([0, 1, 2])}}, [3])
        >>> novelty(batch)["next", "objectives", "exploration"][:, 0]
        tensor([0.1000, 0.0333, 0.0500])
    """

    visited: Tensor
    left: Tensor

    def __init__(
        self, places: int, *, size: float = 0.1, visits: int = 10, decay: float = 0.999
    ) -> None:
        super().__init__()
        if not 0 <= size < float("inf"):
            raise ValueError(f"size must not be negative, got {size}")
        if visits < 0:
            raise ValueError(f"visits must not be negative, got {visits}")
        check_share("decay", decay)
        self.visits, self.decay = visits, decay
        self.register_buffer("visited", torch.zeros(places, dtype=torch.int64))
        self.register_buffer("left", torch.tensor(float(size), dtype=torch.float64))

    def see(self, places: Tensor) -> None:
        """Places ``[*]`` where training has been; -1 is none."""
        known = places[places >= 0]
        self.visited += torch.bincount(known, minlength=len(self.visited))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """A batch with what was new in it."""
        tensordict = tensordict.copy()  # and all that is nested in it
        following = tensordict.get("next")
        place = following.get("place")
        visits = self.visited[place.clamp(min=0)]
        new = (visits < self.visits) & (place >= 0)
        worth = torch.where(new, float(self.left) / (1 + visits), 0.0).float().unsqueeze(-1)
        self.left *= self.decay
        surprise = following.get("intrinsic", None)
        worth = worth if surprise is None else worth + surprise
        following.set(EXPLORATION, worth)
        return tensordict
