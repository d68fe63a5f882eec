"""What a metric may not be, and what follows where it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

Severity = Literal["warning", "critical"]
Then = Literal["warn", "stop", "roll_back"]


def is_number(value: Any) -> bool:
    """True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_limit(metric: str, name: str, limit: Any) -> None:
    if limit is None:
        return
    if not is_number(limit):
        hint = "; YAML reads 1e-3 as text, write 1.0e-3" if isinstance(limit, str) else ""
        raise ValueError(f"rule on {metric}: {name} must be a number or None, got {limit!r}{hint}")
    if not math.isfinite(limit):
        raise ValueError(f"rule on {metric}: {name} must be finite, got {limit}; leave it out")


def check_choice(what: str, given: Any, allowed: Sequence[str]) -> None:
    """Refuses what is not allowed, by name."""
    if given not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(allowed)}, got {given!r}")


@dataclass(frozen=True)
class Rule:
    """What a metric may not be. Both limits in one rule keep it between them.

    Args:
        metric: its name, such as ``eval/max_drawdown``.
        above: values above it break the rule.
        below: values below it break the rule.
        severity: ``warning`` or ``critical``.
        then: what follows: ``warn``, ``stop`` or ``roll_back``; by default a critical rule stops
            and a warning warns.
    """

    metric: str
    above: float | None = None
    below: float | None = None
    severity: Severity = "warning"
    then: Then | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.metric, str) or not self.metric:
            raise ValueError(f"rule: metric must be a name, got {self.metric!r}")
        for name in ("above", "below"):
            _check_limit(self.metric, name, getattr(self, name))
        if self.above is None and self.below is None:
            raise ValueError(f"rule on {self.metric}: give a limit, above or below or both")
        if self.above is not None and self.below is not None and self.below > self.above:
            raise ValueError(
                f"rule on {self.metric}: every value is above {self.above} or below {self.below}; "
                "above is the largest value allowed and below the smallest"
            )
        check_choice(f"rule on {self.metric}: severity", self.severity, get_args(Severity))
        if self.then is not None:
            check_choice(f"rule on {self.metric}: then", self.then, get_args(Then))

    @property
    def consequence(self) -> Then:
        """``then``, or what follows by default."""
        return self.then or ("stop" if self.severity == "critical" else "warn")

    def broken_by(self, value: float) -> str:
        """Which limit a value breaks, in words; nothing where it breaks none, as NaN does."""
        if self.above is not None and value > self.above:
            return f"above {self.above:g}"
        if self.below is not None and value < self.below:
            return f"below {self.below:g}"
        return ""


DEFAULTS: tuple[Rule, ...] = (
    Rule("train/largest_name_share", above=0.6),
    Rule("train/action_entropy_continuous", below=0.3),
    Rule("train/action_entropy_continuous", below=0.1, severity="critical"),
    Rule("train/exact_repeats", above=5),
    Rule("train/trade_execution_rate", below=0.03),
    Rule("train/grad_norm", above=10),
    Rule("eval/largest_name_share", above=0.6),
    Rule("eval/action_entropy", below=0.3),
    Rule("eval/action_entropy", below=0.1, severity="critical"),
    Rule("eval/trade_rate", below=0.03),
    Rule("eval/position_std", below=0.02),
    Rule("eval/max_drawdown", above=0.2),
)
"""Signs of a collapse, in the policy that explores (train) and in the deterministic one (eval)."""


WARNINGS: tuple[Rule, ...] = tuple(replace(rule, then="warn") for rule in DEFAULTS)
"""The same where a flat policy may be the right one: all are told, and none of them stops a run."""

OF_OPTIONS: tuple[Rule, ...] = (
    *(rule for rule in DEFAULTS if rule.metric != "train/exact_repeats"),
    Rule("options/max_usage_pct", above=60),
    Rule("options/shortest_of_least", below=0.5),
)
"""Where options are carried out, which may do nothing for long, but not one of them alone."""

_NAMED = {"default": DEFAULTS, "warn": WARNINGS, "options": OF_OPTIONS, "none": ()}


def rules_from(settings: Any) -> tuple[Rule, ...]:
    """Rules as a YAML file has them: by one name for several, or a list of mappings."""
    if isinstance(settings, str) and settings in _NAMED:
        return _NAMED[settings]
    if not isinstance(settings, Sequence) or isinstance(settings, str):
        raise ValueError(
            "alerts: rules must be 'default', 'warn', 'options', 'none' or a list of mappings,"
            " got"
            f" {settings!r}"
        )
    return tuple(_rule_from(number, entry) for number, entry in enumerate(settings, 1))


def _rule_from(number: int, entry: Any) -> Rule:
    if not isinstance(entry, Mapping):
        raise ValueError(f"alerts: rule {number} must be a mapping, got {entry!r}")
    allowed = [field.name for field in fields(Rule)]
    unknown = [key for key in entry if key not in allowed]
    if unknown:
        raise ValueError(
            f"alerts: rule {number} has unknown {quoted(unknown)}; allowed are {quoted(allowed)}"
        )
    if "metric" not in entry:
        raise ValueError(f"alerts: rule {number} needs a metric, got {quoted(entry)} only")
    return Rule(**entry)


def quoted(names: Any) -> str:
    """Names for a message."""
    return ", ".join(repr(name) for name in names)
