"""The loss of a learned potential: each head foresees its own signal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from tensordict import TensorDict, TensorDictBase, unravel_key
from tensordict.nn import dispatch
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule

from trading_torchrl.checks import check_reduction, check_share
from trading_torchrl.modules.averages import follow_slowly
from trading_torchrl.modules.potential import Potential
from trading_torchrl.objectives.actor_critic import without_masked


@dataclass(frozen=True)
class Column:
    """One number of several that stand under a key."""

    key: NestedKey
    at: int


class PotentialLoss(LossModule):
    """Trains a :class:`~trading_torchrl.modules.Potential` towards returns.

    Each head learns ``signal + gamma x (1 - terminated) x its own slow value`` of the next state:
    the discounted sum of its signal under whoever collected the rows. It reads no action.

    Args:
        potential: its heads.

    Keyword Args:
        gamma: discount, in [0, 1].
        signals: where each head's signal is in ``next``, by the head's name: a key, ``[*, 1]``, or
            a :class:`Column` of one; None for one head that learns the reward.
        in_keys: what the potential sees, in the root and in ``next``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over the batch.

    Example:
        >>> loss = PotentialLoss(Potential(4, {"return": 1.0}), gamma=0.95)
        >>> batch = TensorDict({"observation": torch.zeros(8, 4), "next": {
        ...     "observation": torch.ones(8, 4), "reward": torch.ones(8, 1),
        ...     "terminated": torch.zeros(8, 1, dtype=torch.bool)}}, [8])
        >>> loss(batch)["loss_potential"].backward()
        >>> loss.update_targets(0.005)
    """

    @dataclass
    class _AcceptedKeys:
        """Keys that :meth:`set_keys` can change."""

        terminated: NestedKey = "terminated"

    default_keys = _AcceptedKeys
    tensor_keys: _AcceptedKeys
    out_keys = ["loss_potential", "potential"]  # noqa: RUF012

    potential: Potential
    target_potential: Potential

    def __init__(
        self,
        potential: Potential,
        *,
        gamma: float,
        signals: Mapping[str, NestedKey | Column] | None = None,
        in_keys: Sequence[NestedKey] = ("observation",),
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_share("gamma", gamma)
        check_reduction(reduction)
        if signals is None and len(potential.names) == 1:
            signals = {potential.names[0]: "reward"}
        if signals is None or set(signals) != set(potential.names):
            raise ValueError(
                f"signals must name where each of the heads {', '.join(potential.names)} finds its"
                f" signal in next, got {None if signals is None else dict(signals)}"
            )
        self.potential = potential
        self.target_potential = deepcopy(potential).requires_grad_(False)
        self.gamma, self.reduction, self.seen = gamma, reduction, tuple(in_keys)
        self.signals = tuple(signals[name] for name in potential.names)
        asked = (each.key if isinstance(each, Column) else each for each in self.signals)
        self._signal_keys = tuple(dict.fromkeys(asked))

    def _forward_value_estimator_keys(self, **kwargs: NestedKey) -> None:
        """There is no value estimator: the target is one step."""

    @property
    def in_keys(self) -> list[NestedKey]:
        """What :meth:`forward` reads."""
        after = (*self._signal_keys, self.tensor_keys.terminated, *self.seen)
        return [*self.seen, *(unravel_key(("next", key)) for key in after)]

    @in_keys.setter
    def in_keys(self, keys: list[NestedKey]) -> None:
        raise AttributeError("in_keys follow from what the potential sees; use set_keys")

    def update_targets(self, rate: float) -> None:
        """Moves the slow copy by ``rate`` of the way to the potential."""
        follow_slowly(self.target_potential, self.potential, rate)

    # Without a batch size: guessed from tensors of width 1 it would be one dimension too long.
    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Half the squared error, a head on average; and detached, what each head foresees."""
        tensordict, masked = without_masked(self, tensordict, self.in_keys)
        after = tensordict.get("next")
        foreseen = self.potential.parts(*(tensordict.get(key) for key in self.seen))
        with torch.no_grad():
            ahead = self.target_potential.parts(*(after.get(key) for key in self.seen))
            ahead = ahead.masked_fill(after.get(self.tensor_keys.terminated), 0.0)
            now = torch.cat([_signal(after, each) for each in self.signals], -1)
            if now.shape != ahead.shape:
                raise ValueError(
                    f"signals must be one number a row each, together {list(ahead.shape)}; got"
                    f" {list(now.shape)}"
                )
            wanted = now + self.gamma * ahead
        wrong = 0.5 * (foreseen - wanted).square().mean(-1)
        return TensorDict._new_unsafe(
            {
                "loss_potential": self._reduce_loss(wrong, masked),
                "potential": foreseen.detach().flatten(0, -2).mean(0),
            },
            batch_size=torch.Size([]),
        )


def _signal(rows: TensorDictBase, place: NestedKey | Column) -> Tensor:
    """``[*, 1]``."""
    if isinstance(place, Column):
        return rows.get(place.key)[..., place.at, None]
    return rows.get(place)
