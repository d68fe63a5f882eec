"""Losses, as TorchRL's ``LossModule``."""

from trading_torchrl.objectives.a2c import A2CLoss, ReinforceLoss
from trading_torchrl.objectives.actor_critic import ActorCriticLoss
from trading_torchrl.objectives.behaviour_cloning import BCLoss
from trading_torchrl.objectives.cql import CQLLoss
from trading_torchrl.objectives.crossq import CrossQLoss
from trading_torchrl.objectives.curiosity import ICMLoss
from trading_torchrl.objectives.discrete_sac import DiscreteSACLoss
from trading_torchrl.objectives.dqn import DQNLoss
from trading_torchrl.objectives.from_torchrl import FromTorchRL
from trading_torchrl.objectives.iql import IQLLoss, expectile_loss
from trading_torchrl.objectives.on_policy import OnPolicyLoss
from trading_torchrl.objectives.option_critic import OptionCriticLoss
from trading_torchrl.objectives.options import OptionsLoss
from trading_torchrl.objectives.potential import Column, PotentialLoss
from trading_torchrl.objectives.ppo import PPOKLLoss, PPOLoss
from trading_torchrl.objectives.redq import REDQLoss
from trading_torchrl.objectives.returns import gae
from trading_torchrl.objectives.sac import SACLoss
from trading_torchrl.objectives.sac_torchrl import TorchRLSACLoss
from trading_torchrl.objectives.td3 import TD3Loss
from trading_torchrl.objectives.tqc import TQCLoss, quantile_loss
from trading_torchrl.objectives.vtrace import VTraceLoss
from trading_torchrl.objectives.weights import WeightLoss

__all__ = [
    "A2CLoss",
    "ActorCriticLoss",
    "BCLoss",
    "CQLLoss",
    "Column",
    "CrossQLoss",
    "DQNLoss",
    "DiscreteSACLoss",
    "FromTorchRL",
    "ICMLoss",
    "IQLLoss",
    "OnPolicyLoss",
    "OptionCriticLoss",
    "OptionsLoss",
    "PPOKLLoss",
    "PPOLoss",
    "PotentialLoss",
    "REDQLoss",
    "ReinforceLoss",
    "SACLoss",
    "TD3Loss",
    "TQCLoss",
    "TorchRLSACLoss",
    "VTraceLoss",
    "WeightLoss",
    "expectile_loss",
    "gae",
    "quantile_loss",
]
