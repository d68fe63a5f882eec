"""Where a generation tries: in this process."""

from __future__ import annotations

from typing import Protocol

from torchrl.envs import EnvBase

from trading_torchrl.evolution.population import Population
from trading_torchrl.evolution.returns import Earned, earned
from trading_torchrl.evolution.strategy import EvolutionStrategy


class Tries(Protocol):
    """Has members of a population try, wherever that is."""

    replaced: int
    """of those that have them try, how many ended and were replaced"""

    def earned(self, strategy: EvolutionStrategy, seed: int) -> Earned:
        """What the members that the strategy asks for earn, in the episodes of this seed."""

    def close(self) -> None:
        """Leaves nothing behind."""


class Here:
    """Pairs of a population, as one batch.

    Args:
        population: acts.
        env: of ``[members x E]`` accounts.
        first: number of the first pair.
        last: after the last; all there are where nothing is said.
        explores: whether actions are drawn.
    """

    def __init__(
        self,
        population: Population,
        env: EnvBase,
        first: int = 0,
        last: int | None = None,
        *,
        explores: bool = False,
    ) -> None:
        self.population, self.env, self.explores = population, env, explores
        self.first, self.last = first, last
        self.replaced = 0

    def earned(self, strategy: EvolutionStrategy, seed: int) -> Earned:
        """Of these pairs."""
        weights = self.population.weights = strategy.ask(self.first, self.last)
        return earned(self.population, self.env, len(weights), seed=seed, explores=self.explores)

    def close(self) -> None:
        """Nothing to leave."""
