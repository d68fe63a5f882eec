"""Networks and distributions of the agents."""

from trading_torchrl.modules.averages import follow_slowly, frozen
from trading_torchrl.modules.networks import (
    MLP,
    Ensemble,
    EnsembleMLP,
    Network,
    make_actor,
    make_critics,
    make_deterministic_actor,
)
from trading_torchrl.modules.noisy_tanh import NoisyTanh
from trading_torchrl.modules.per_symbol import PerSymbolMLP, SymbolHeads
from trading_torchrl.modules.squashed_normal import SquashedNormal

__all__ = [
    "MLP",
    "Ensemble",
    "EnsembleMLP",
    "Network",
    "NoisyTanh",
    "PerSymbolMLP",
    "SquashedNormal",
    "SymbolHeads",
    "follow_slowly",
    "frozen",
    "make_actor",
    "make_critics",
    "make_deterministic_actor",
]
