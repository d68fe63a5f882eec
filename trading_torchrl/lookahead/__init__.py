"""Proof by experiment that nothing sees the future.

Everything after some bar is changed: to a random path above all prices, to one below, or to
nothing at all. What was known at that bar must not move. From the shell::

    python -m trading_torchrl.lookahead --data synthetic --features my_package.my_module:features
"""

from trading_torchrl.lookahead.command import MODES, check, main
from trading_torchrl.lookahead.environment import find_env_lookahead
from trading_torchrl.lookahead.features import find_lookahead
from trading_torchrl.lookahead.future import VARIATIONS, Leak

__all__ = [
    "MODES",
    "VARIATIONS",
    "Leak",
    "check",
    "find_env_lookahead",
    "find_lookahead",
    "main",
]
