"""Networks and distributions of the agents."""

from trading_torchrl.modules.averages import follow_slowly, frozen
from trading_torchrl.modules.networks import MLP, EnsembleMLP, make_actor, make_critics
from trading_torchrl.modules.squashed_normal import SquashedNormal

__all__ = [
    "MLP",
    "EnsembleMLP",
    "SquashedNormal",
    "follow_slowly",
    "frozen",
    "make_actor",
    "make_critics",
]
