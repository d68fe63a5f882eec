"""What the recipes ask of a task: an environment to train in, and a judge of policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase, Transform

Policy = Callable[[TensorDictBase], TensorDictBase]
Figures = dict[str, float]

ROW = ("observation", "action", ("next", "observation"), ("next", "reward"), ("next", "terminated"))
"""What a replay buffer keeps of any environment."""


class Task(Protocol):
    """What the recipes ask of a task."""

    name: str
    env: EnvBase
    """trained in, ``[N]``"""
    kind: str
    """how actions are named, see ``monitoring.names_of``"""
    in_keys: tuple[str, ...]
    inputs: int
    """width of what the networks see"""
    actions: int
    score: str
    """name of the figure that decides which policy is best; more is better"""

    stored: tuple[Any, ...]
    """keys that go into the replay buffer"""

    def watched(self, batch: TensorDictBase) -> tuple[Tensor, Tensor | None, Tensor]:
        """Actions ``[N, T, A]``, values traded if there are, and ends, of a collector's batch."""

    def replay_transform(self) -> Transform | None:
        """What rows go through on their way into the replay buffer and out of it."""

    def evaluate(self, policy: Policy) -> Figures:
        """Figures of a policy while it is trained."""

    def report(
        self, policy: Policy, split: str, folder: Path, facts: Mapping[str, str], log: list[Figures]
    ) -> Figures:
        """Final figures of a policy, and a page to look at in the folder."""
