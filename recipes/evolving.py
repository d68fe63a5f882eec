"""The numbers of a run that evolves, and what it evolves."""

from __future__ import annotations

from dataclasses import dataclass

from checks import plainly
from learning import Learning
from tasks import Task
from tensordict.nn import TensorDictModule
from torch import Tensor
from torchrl.envs import EnvBase

from trading_torchrl.evolution import EvolutionStrategy, Population, flat

EPISODES = 10**10
"""Seeds of episodes begin here, apart from those that policies are judged by."""

APART = 10**6
"""Generations of a run at most, so that no two of different seeds share episodes."""


@dataclass(frozen=True, kw_only=True)
class EvolvingRun(Learning):
    """A run that evolves; its clock is updates, one a generation."""

    clock = "updates"
    lengths = ("iterations",)

    iterations: int
    population: int
    episodes: int
    sigma: float
    weight_decay: float
    shaped: str
    elite: float
    explores: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_counts("population", "episodes")
        if self.iterations > APART:
            raise SystemExit(f"iterations must be at most {APART:,}, got {self.iterations:,}")

    @property
    def length(self) -> int:
        """Generations."""
        return self.iterations

    def episodes_of(self, generation: int) -> int:
        """Seed of a generation's episodes."""
        return EPISODES + APART * self.seed + generation


@plainly(ValueError)
def make_strategy(
    run: EvolvingRun, task: Task, actor: TensorDictModule
) -> tuple[EvolutionStrategy, Population, EnvBase]:
    """The strategy around an actor's parameters, its population, and where that acts."""
    population = Population(actor)
    strategy = EvolutionStrategy(
        flat(population.parameters), population=run.population, sigma=run.sigma, lr=run.lr,
        weight_decay=run.weight_decay, shaped=run.shaped, elite=run.elite, seed=run.seed,
    )  # fmt: skip
    return strategy, population, task.population(run.population, run.episodes)


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
