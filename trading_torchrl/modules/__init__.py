"""Networks and distributions of the agents."""

from trading_torchrl.modules.averages import follow_slowly, frozen, moving
from trading_torchrl.modules.carried_out import CarriedOut, carried_out
from trading_torchrl.modules.controller import Controller
from trading_torchrl.modules.curiosity import Curiosity, Surprise
from trading_torchrl.modules.discrete import (
    make_discrete_actor,
    make_discrete_critics,
    make_q_actor,
)
from trading_torchrl.modules.epsilon_greedy import EpsilonGreedy
from trading_torchrl.modules.networks import (
    MLP,
    Ensemble,
    EnsembleMLP,
    Network,
    make_actor,
    make_critic,
    make_critics,
    make_deterministic_actor,
    make_value,
)
from trading_torchrl.modules.noisy_tanh import NoisyTanh
from trading_torchrl.modules.normalised import (
    BatchRenorm,
    NormalisedEnsembleMLP,
    make_normalised_critics,
)
from trading_torchrl.modules.option_policy import OptionPolicy
from trading_torchrl.modules.options import Levels, Option, Scene
from trading_torchrl.modules.per_symbol import PerSymbolMLP, SymbolHeads
from trading_torchrl.modules.potential import Potential, TradingPotential
from trading_torchrl.modules.scales import RewardScale, RunningScale, Scaled, scaled_by
from trading_torchrl.modules.squashed_normal import SquashedNormal
from trading_torchrl.modules.trading_options import trading_options
from trading_torchrl.modules.weights import WeightNetwork, fixed_weights, regime_weights

__all__ = [
    "MLP",
    "BatchRenorm",
    "CarriedOut",
    "Controller",
    "Curiosity",
    "Ensemble",
    "EnsembleMLP",
    "EpsilonGreedy",
    "Levels",
    "Network",
    "NoisyTanh",
    "NormalisedEnsembleMLP",
    "Option",
    "OptionPolicy",
    "PerSymbolMLP",
    "Potential",
    "RewardScale",
    "RunningScale",
    "Scaled",
    "Scene",
    "SquashedNormal",
    "Surprise",
    "SymbolHeads",
    "TradingPotential",
    "WeightNetwork",
    "carried_out",
    "fixed_weights",
    "follow_slowly",
    "frozen",
    "make_actor",
    "make_critic",
    "make_critics",
    "make_deterministic_actor",
    "make_discrete_actor",
    "make_discrete_critics",
    "make_normalised_critics",
    "make_q_actor",
    "make_value",
    "moving",
    "regime_weights",
    "scaled_by",
    "trading_options",
]
