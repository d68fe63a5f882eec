"""The batched trading environment and its parts."""

from trading_torchrl.envs.goals import DesiredGoal, Goal, GoalAfterGoal, ReachReturn
from trading_torchrl.envs.macro_steps import MacroEnv
from trading_torchrl.envs.migration import ContinuousInDiscrete, DiscreteInContinuous
from trading_torchrl.envs.oracles import OraclePolicy, solve_bands
from trading_torchrl.envs.preferences import Preferences, PreferencesAnew, preferring
from trading_torchrl.envs.running_option import RunningOption
from trading_torchrl.envs.settings import LONG_ONLY, LONG_SHORT
from trading_torchrl.envs.showing import Showing
from trading_torchrl.envs.signals import Signals, signals_of
from trading_torchrl.envs.terms import Bar
from trading_torchrl.envs.trading import TradingEnv
from trading_torchrl.envs.transforms import MarketWindow

__all__ = [
    "LONG_ONLY",
    "LONG_SHORT",
    "Bar",
    "ContinuousInDiscrete",
    "DesiredGoal",
    "DiscreteInContinuous",
    "Goal",
    "GoalAfterGoal",
    "MacroEnv",
    "MarketWindow",
    "OraclePolicy",
    "Preferences",
    "PreferencesAnew",
    "ReachReturn",
    "RunningOption",
    "Showing",
    "Signals",
    "TradingEnv",
    "preferring",
    "signals_of",
    "solve_bands",
]
