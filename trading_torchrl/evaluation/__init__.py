"""How policies are judged: rollouts over whole splits, figures of merit, pictures, a report."""

from trading_torchrl.evaluation.baselines import (
    BuyAndHold,
    ConstantPolicy,
    RandomPolicy,
    TrendPolicy,
)
from trading_torchrl.evaluation.comparing import (
    Curve,
    Difference,
    clock_of,
    frames_to,
    learning_curve,
    paired_difference,
)
from trading_torchrl.evaluation.episode import plot_episode
from trading_torchrl.evaluation.front import best_of, even_preferences, hypervolume
from trading_torchrl.evaluation.judging import judge, judge_each, judge_pooled
from trading_torchrl.evaluation.metrics import (
    calmar,
    exposure,
    fills,
    growth,
    max_drawdown,
    sharpe,
    simple_returns,
    sortino,
    total_return,
    turnover,
)
from trading_torchrl.evaluation.pictures import (
    action_picture,
    curves_picture,
    differences_picture,
    drawdown_picture,
    growth_picture,
    position_picture,
    training_picture,
)
from trading_torchrl.evaluation.report import write_json, write_report
from trading_torchrl.evaluation.rollout import Account, follow, tempered, whole_split
from trading_torchrl.evaluation.statistics import Interval, interval, paired_interval, t_quantile
from trading_torchrl.evaluation.trades import (
    RoundTrips,
    profit_factor,
    round_trips,
    trade_length,
    win_rate,
)

__all__ = [
    "Account",
    "BuyAndHold",
    "ConstantPolicy",
    "Curve",
    "Difference",
    "Interval",
    "RandomPolicy",
    "RoundTrips",
    "TrendPolicy",
    "action_picture",
    "best_of",
    "calmar",
    "clock_of",
    "curves_picture",
    "differences_picture",
    "drawdown_picture",
    "even_preferences",
    "exposure",
    "fills",
    "follow",
    "frames_to",
    "growth",
    "growth_picture",
    "hypervolume",
    "interval",
    "judge",
    "judge_each",
    "judge_pooled",
    "learning_curve",
    "max_drawdown",
    "paired_difference",
    "paired_interval",
    "plot_episode",
    "position_picture",
    "profit_factor",
    "round_trips",
    "sharpe",
    "simple_returns",
    "sortino",
    "t_quantile",
    "tempered",
    "total_return",
    "trade_length",
    "training_picture",
    "turnover",
    "whole_split",
    "win_rate",
    "write_json",
    "write_report",
]
