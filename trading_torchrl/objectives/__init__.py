"""Losses, as TorchRL's ``LossModule``."""

from trading_torchrl.objectives.sac import SACLoss

__all__ = ["SACLoss"]
