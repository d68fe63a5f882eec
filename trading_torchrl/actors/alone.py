"""The learner's own process as the only actor; if asked, some updates behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from tensordict.nn import ProbabilisticTensorDictSequential
from torchrl.envs import EnvBase

from trading_torchrl.actors.crew import Delivery, below_each_other
from trading_torchrl.actors.stretches import Stretches
from trading_torchrl.actors.weights import packed


class Alone:
    """Collects between updates, bit for bit the same each time.

    Args:
        env: steps, ``[N]``.
        actor: is learned.
        steps: T.
        lag: by how many updates what collects is behind, once there were as many; what other actors
            would be, but always the same.
    """

    def __init__(
        self,
        env: EnvBase,
        actor: ProbabilisticTensorDictSequential,
        steps: int,
        *,
        lag: int = 0,
    ) -> None:
        if lag < 0:
            raise ValueError(f"lag must not be negative, got {lag}")
        self.actor, self.lag = actor, lag
        acting = deepcopy(actor).requires_grad_(False) if lag else actor
        self.stretches = Stretches(env, acting, steps)
        self.past = deque([packed(actor)] if lag else [], maxlen=lag + 1)
        self.replaced = self.dropped = 0

    def publish(self) -> None:
        """One update more."""
        if self.lag:
            self.past.append(packed(self.actor))

    def take(self, count: int) -> Delivery:
        """So many stretches of the same accounts."""
        weights = self.past[0] if self.lag else None
        found = [self.stretches.collect(weights) for _ in range(count)]
        return Delivery(below_each_other(found), [max(len(self.past) - 1, 0)] * count)

    def waiting(self) -> int:
        """Nothing: it collects when it is asked."""
        return 0

    def close(self) -> None:
        """Ends the environment."""
        self.stretches.close()

    def state_dict(self) -> dict[str, Any]:
        """Where accounts stand, and the weights of the updates that it is behind."""
        return {"stretches": self.stretches.state_dict(), "past": list(self.past)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        if "stretches" not in state:
            raise ValueError("this run had actors apart, and goes on with some: actors=1 or more")
        self.stretches.load_state_dict(state["stretches"])
        self.past = deque((each.clone() for each in state["past"]), maxlen=self.lag + 1)
