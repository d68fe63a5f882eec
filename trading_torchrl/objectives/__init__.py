"""Losses, as TorchRL's ``LossModule``."""

from trading_torchrl.objectives.actor_critic import ActorCriticLoss
from trading_torchrl.objectives.sac import SACLoss
from trading_torchrl.objectives.td3 import TD3Loss

__all__ = ["ActorCriticLoss", "SACLoss", "TD3Loss"]
