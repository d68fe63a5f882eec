"""How policies are judged: rollouts over whole splits, figures of merit, pictures."""

from trading_torchrl.evaluation.baselines import ConstantPolicy, RandomPolicy, TrendPolicy
from trading_torchrl.evaluation.episode import plot_episode
from trading_torchrl.evaluation.metrics import growth, max_drawdown, sharpe, simple_returns
from trading_torchrl.evaluation.rollout import Account, follow, whole_split

__all__ = [
    "Account",
    "ConstantPolicy",
    "RandomPolicy",
    "TrendPolicy",
    "follow",
    "growth",
    "max_drawdown",
    "plot_episode",
    "sharpe",
    "simple_returns",
    "whole_split",
]
