"""Seeing a policy collapse early: figures of what it does, and alerts on them."""

from trading_torchrl.monitoring.alerts import Alert, Alerts, Channel, Verdict, alerts_from
from trading_torchrl.monitoring.channels import (
    file_channel,
    log_channel,
    tensorboard_channel,
    webhook_channel,
)
from trading_torchrl.monitoring.collapse import (
    ALLOWED,
    ActionWatch,
    allowed,
    broken,
    coverage,
    entropy,
    largest_share,
    longest_repeat,
    names_of,
    position_spread,
    trade_rate,
)
from trading_torchrl.monitoring.option_use import OptionUse
from trading_torchrl.monitoring.rules import DEFAULTS, OF_OPTIONS, WARNINGS, Rule
from trading_torchrl.monitoring.visits import Visits

__all__ = [
    "ALLOWED",
    "DEFAULTS",
    "OF_OPTIONS",
    "WARNINGS",
    "ActionWatch",
    "Alert",
    "Alerts",
    "Channel",
    "OptionUse",
    "Rule",
    "Verdict",
    "Visits",
    "alerts_from",
    "allowed",
    "broken",
    "coverage",
    "entropy",
    "file_channel",
    "largest_share",
    "log_channel",
    "longest_repeat",
    "names_of",
    "position_spread",
    "tensorboard_channel",
    "trade_rate",
    "webhook_channel",
]
