"""The numbers of a run that evolves, and what it evolves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agents import make_agent
from checks import plainly
from crews import for_elsewhere
from launch import set_machine
from learning import Learning
from tasks import Task, make_task
from tasks.markets import Parts
from tensordict.nn import TensorDictModule
from torch import Tensor

from trading_torchrl.evolution import EvolutionStrategy, Here, Population, Tries, flat

EPISODES = 10**10
"""Seeds of episodes begin here, apart from those that policies are judged by."""

APART = 10**6
"""Generations of a run at most, so that no two of different seeds share episodes."""


@dataclass(frozen=True, kw_only=True)
class EvolvingRun(Learning):
    """A run that evolves; its clock is updates, one a generation."""

    clock = "updates"
    lengths = ("iterations",)
    elsewhere = ("actors", "address")

    iterations: int
    population: int
    episodes: int
    sigma: float
    weight_decay: float
    shaped: str
    elite: float
    explores: bool
    actors: int
    address: str | None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_counts("population", "episodes")
        if self.actors < 0:
            raise SystemExit(f"actors must not be negative, got {self.actors}")
        if self.address is not None and not self.actors:
            raise SystemExit(f"address={self.address} is of a Ray cluster: actors=1 or more")
        if self.iterations > APART:
            raise SystemExit(f"iterations must be at most {APART:,}, got {self.iterations:,}")

    @property
    def length(self) -> int:
        """Generations."""
        return self.iterations

    def episodes_of(self, generation: int) -> int:
        """Seed of a generation's episodes."""
        return EPISODES + APART * self.seed + generation


def strategy_of(run: EvolvingRun, population: Population) -> EvolutionStrategy:
    """Around the parameters of an actor as it is."""
    return EvolutionStrategy(
        flat(population.parameters), population=run.population, sigma=run.sigma, lr=run.lr,
        weight_decay=run.weight_decay, shaped=run.shaped, elite=run.elite, seed=run.seed,
    )  # fmt: skip


@dataclass(frozen=True)
class Makes:
    """Builds on another node a strategy, and what has some of its pairs try."""

    settings: Mapping[str, Any]
    task: Mapping[str, Any]
    """state of the learner's: members see the same"""
    parts: Parts | None
    """of the market"""

    def __call__(self, first: int, last: int) -> tuple[EvolutionStrategy, Here]:
        """Of these pairs."""
        settings, run = self.settings, EvolvingRun.of(self.settings)
        set_machine(1, run.matmul_precision, run.seed)
        task = make_task(settings, {"task": self.task}, self.parts)
        actor, _ = make_agent(settings["loss"], settings["network"], task, run.hidden)
        population = Population(actor)
        env = task.population(2 * (last - first), run.episodes)
        here = Here(population, env, first, last, explores=run.explores)
        return strategy_of(run, population), here


@plainly(ValueError)
def make_strategy(
    run: EvolvingRun,
    settings: Mapping[str, Any],
    task: Task,
    actor: TensorDictModule,
    tell: Callable[[str], None],
) -> tuple[EvolutionStrategy, Population, Tries]:
    """The strategy around an actor's parameters, its population, and what has members try."""
    population = Population(actor)
    strategy = strategy_of(run, population)
    if not run.actors:
        env = task.population(run.population, run.episodes)
        return strategy, population, Here(population, env, explores=run.explores)
    from trading_torchrl.evolution.on_ray import OnRay

    handed_on, parts = for_elsewhere(settings, task)
    size = parts.train.nbytes if parts else 0
    makes = Makes(handed_on, task.state_dict(), parts)
    about: dict[str, Any] = {"address": run.address, "size": size, "tell": tell}
    return strategy, population, OnRay(makes, run.actors, strategy.pairs, **about)


def figures_of(returns: Tensor, moved: float, strategy: EvolutionStrategy) -> dict[str, float]:
    """Of a generation.

    Args:
        returns: of each member, ``[P]``.
        moved: by how much the centre did.
        strategy: that it is of.
    """
    known = returns[returns.isfinite()]
    return {
        "evolution/return_mean": float(known.mean()),
        "evolution/return_best": float(known.max()),
        "evolution/return_std": float(known.std()),
        "evolution/lost": float(len(returns) - len(known)),
        "evolution/moved": moved,
        "evolution/centre_norm": float(strategy.centre.norm()),
        "train/learning_rate": strategy.lr,
    }
