"""trading-torchrl: a TorchRL-native, modular training stack for trading agents."""

__version__ = "0.1.0"
