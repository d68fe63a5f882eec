"""trading-torchrl: a TorchRL-native, modular training stack for trading agents."""

from trading_torchrl.registration import register

__version__ = "0.1.0"

register()
