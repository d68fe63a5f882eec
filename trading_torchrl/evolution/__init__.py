"""Learning without gradients: a strategy, a population as one batch, and what it earns."""

from trading_torchrl.evolution.population import Population, flat, unflatten
from trading_torchrl.evolution.returns import Earned, earned
from trading_torchrl.evolution.strategy import EvolutionStrategy, ranked, standardised
from trading_torchrl.evolution.tries import Here, Tries

__all__ = [
    "Earned",
    "EvolutionStrategy",
    "Here",
    "Population",
    "Tries",
    "earned",
    "flat",
    "ranked",
    "standardised",
    "unflatten",
]
