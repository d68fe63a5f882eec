"""What one actor collects: stretches of steps of its own accounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensordict import TensorDictBase
from tensordict.nn import ProbabilisticTensorDictSequential
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.collectors import Collector
from torchrl.envs import EnvBase

from trading_torchrl.actors.weights import unpack
from trading_torchrl.objectives.on_policy import say_how_likely
from trading_torchrl.resume import collector_state, restore_collector


class Stretches:
    """Steps ``[N, T]`` of a policy with how likely they were, each where the last ones ended.

    Args:
        env: steps, ``[N]``.
        actor: decides.
        steps: T.
        keys: what is handed on; all where nothing is said.

    Example:
        >>> from trading_torchrl.envs.reference import GarleanuPedersen
        >>> from trading_torchrl.modules import make_actor
        >>> stretches = Stretches(GarleanuPedersen(8), make_actor(2, 1, [16]), steps=4)
        >>> stretches.collect().shape
        torch.Size([8, 4])
    """

    def __init__(
        self,
        env: EnvBase,
        actor: ProbabilisticTensorDictSequential,
        steps: int,
        keys: Sequence[NestedKey] = (),
    ) -> None:
        self.actor, self.keys = actor, keys
        self.collector = Collector(
            env, actor, frames_per_batch=env.batch_size.numel() * steps, total_frames=-1,
            trust_policy=True, track_traj_ids=False, auto_register_policy_transforms=False,
        )  # fmt: skip
        self._batches = iter(self.collector)

    def collect(self, weights: Tensor | None = None) -> TensorDictBase:
        """The next stretch, by other weights if there are any (:func:`packed`)."""
        if weights is not None:
            unpack(weights, self.actor)
        rows = next(self._batches)
        rows = say_how_likely(self.actor, (rows if rows.ndim == 2 else rows[None]).copy())
        return rows.select(*self.keys) if self.keys else rows

    def close(self) -> None:
        """Ends the environment."""
        self.collector.shutdown()

    def state_dict(self) -> dict[str, Any]:
        """Where accounts stand."""
        return collector_state(self.collector)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        restore_collector(self.collector, state)
