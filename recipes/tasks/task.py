"""What the recipes ask of a task: an environment to train in, and a judge of policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast

from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import EnvBase, Transform
from torchrl.envs.utils import ExplorationType, set_exploration_type

from trading_torchrl.envs import Goal
from trading_torchrl.envs.goals import SEEN
from trading_torchrl.evaluation import write_report
from trading_torchrl.evaluation.tables import BySymbol, Rows, Value
from trading_torchrl.monitoring import (
    allowed,
    coverage,
    entropy,
    largest_share,
    longest_repeat,
    names_of,
    position_spread,
)
from trading_torchrl.objectives import Column

Policy = Callable[[TensorDictBase], TensorDictBase]
Figures = dict[str, float]

RETURN: Mapping[str, tuple[NestedKey | Column, float]] = {"return": ("reward", 1.0)}
"""What a potential foresees where there is nothing more to tell."""

ROW = ("observation", "action", ("next", "observation"), ("next", "reward"), ("next", "terminated"))
"""What a replay buffer keeps of any environment."""


def acted(actions: Tensor, kind: str | int) -> Figures:
    """Figures of actions ``[N, T, A]`` that show when a policy has become one action."""
    names = names_of(actions, kind)
    return {
        "action_std": position_spread(actions),
        "action_entropy": entropy(names, allowed(kind)),
        "coverage": coverage(names, allowed(kind)),
        "largest_name_share": largest_share(names, allowed(kind)),
        "exact_repeats": float(longest_repeat(actions)),
    }


def explores(policy: Policy) -> Policy:
    """The policy as it explores, whoever asks."""

    def drawn(tensordict: TensorDictBase) -> TensorDictBase:
        with set_exploration_type(ExplorationType.RANDOM):
            return policy(tensordict)

    return drawn


def seen_by(task: Task) -> list[NestedKey]:
    """Keys of what a model beside the agent sees: what the agent sees, but not what is allowed."""
    return [key for key in task.in_keys if key != "action_mask"]


@dataclass(frozen=True)
class Judged:
    """A policy, judged on one split; or several, where its figures are lists."""

    title: str
    facts: Mapping[str, str]
    """what it was judged on"""
    figures: Mapping[str, Value]
    """of the agent, and of others by ``name/figure``"""
    rows: Rows
    """figures of every policy"""
    control: Rows | None = None
    """the same where nothing can be earned"""
    symbols: BySymbol = field(default_factory=dict)
    """figures for each symbol, where symbols have names"""
    pictured: Mapping[str, Any] = field(default_factory=dict)
    """what pictures over time need: accounts, kind, bars_per_year"""
    training: Sequence[Mapping[str, float]] | None = None
    """its evaluations while it was trained"""
    options: Rows | None = None
    """figures of each option, where there are any"""
    front: tuple[Sequence[str], Mapping[str, Tensor]] | None = None
    """two objectives, and what was reached in both, ``[P, 2]`` by who reached it"""

    def write(self, folder: Path, facts: Mapping[str, str]) -> Mapping[str, Value]:
        """Leaves ``report.html`` in the folder; returns the figures."""
        write_report(
            folder / "report.html", self.title, facts={**facts, **self.facts}, rows=self.rows,
            control=self.control, symbols=self.symbols, training=self.training, front=self.front,
            options=self.options,
            **self.pictured,
        )  # fmt: skip
        return self.figures


def together(runs: Sequence[Judged]) -> Judged:
    """Runs of one task that differ in what was learned: a value a run where these differ.

    Pictures and policies that learn nothing are those of the first.
    """
    first = runs[0]
    return replace(
        first,
        figures=_listed([run.figures for run in runs]),
        rows=_listed_rows([run.rows for run in runs]),
        control=first.control and _listed_rows([run.control or {} for run in runs]),
        options=first.options
        and {
            name: {
                each: [cast(float, (run.options or {})[name][each]) for run in runs] for each in row
            }
            for name, row in first.options.items()
        },
        symbols={name: _listed_rows([run.symbols[name] for run in runs]) for name in first.symbols},
    )


def _listed_rows(runs: Sequence[Rows]) -> dict[str, Mapping[str, Value]]:
    learned = [name for name in runs[0] if name.startswith("agent")]
    return {**runs[0], **{name: _listed([run[name] for run in runs]) for name in learned}}


def _listed(runs: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    """A list for each figure of the agent; those of other policies have a slash in their names."""
    of_agent = [n for n in runs[0] if "/" not in n or n.startswith(("martingale/", "agent"))]
    return {**runs[0], **{name: [cast(float, run[name]) for run in runs] for name in of_agent}}


@dataclass(frozen=True)
class Goals:
    """What an agent is to reach, for hindsight."""

    goal: Goal
    seen_key: NestedKey = SEEN
    """where an agent sees goals"""
    terminates: bool = False
    """whether reaching one ends the episode"""


class Task(Protocol):
    """What the recipes ask of a task."""

    name: str
    env: EnvBase
    """trained in, ``[N]``"""
    kind: str | int
    """how actions are named, see ``monitoring.names_of``"""
    in_keys: tuple[NestedKey, ...]
    inputs: int
    """width of what the networks see"""
    actions: int
    symbols: tuple[str, ...]
    """names behind ``("market", "symbol")``, the same in all splits; none where there are none"""
    score: str
    """name of the figure that decides which policy is best; more is better"""

    rewards: int
    """how many numbers a reward is, each with critics of its own"""

    stored: tuple[Any, ...]
    """keys that go into the replay buffer"""
    goals: Goals | None
    """what an agent is to reach, where there is such a thing"""
    places: int
    """how many places there are to explore; 0 where nobody counts them"""

    def place_of(self, batch: TensorDictBase) -> Tensor:
        """Number of the place where each step of a collector's batch arrived, -1 for none."""

    def watched(self, batch: TensorDictBase) -> tuple[Tensor, Tensor | None, Tensor]:
        """Actions ``[N, T, A]``, values traded if there are, and ends, of a collector's batch."""

    signals: Mapping[str, tuple[NestedKey | Column, float]]
    """what a learned potential foresees: by name, where it is in ``next``, its weight"""

    def potential(self) -> Callable[[Tensor], Tensor] | None:
        """One that somebody wrote for this task, of observations ``[*, D]``, if there is one."""

    def population(self, members: int, episodes: int) -> EnvBase:
        """Another one to train in, ``[P x E]``: all members have the same episodes."""

    def replay_transform(self) -> Transform | None:
        """What rows go through on their way into the replay buffer and out of it."""

    def evaluate(self, policy: Policy) -> Figures:
        """Figures of a policy while it is trained."""

    def judge(self, policy: Policy, split: str) -> Judged:
        """Final figures of a policy, beside others where there are."""

    def state_dict(self) -> dict[str, Any]:
        """What a trained agent needs of it: a scaler, say, and a fingerprint of the data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes it over; refuses where the data are others."""
