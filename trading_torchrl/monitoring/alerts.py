"""Metrics checked against rules: what follows where one is broken, and who is told."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from trading_torchrl.monitoring.rules import (
    DEFAULTS,
    WARNINGS,
    Rule,
    Severity,
    Then,
    check_choice,
    is_number,
    quoted,
    rules_from,
)

logger = logging.getLogger("trading_torchrl")

MUST_BE_FINITE = "train/"
"""Metrics whose names begin so may not be NaN or infinite; others may be undefined."""


class Alert(NamedTuple):
    """A broken rule."""

    metric: str
    value: float
    rule: str
    """the limit that was broken, in words"""
    severity: Severity
    then: Then
    """what follows: ``stop`` instead of a roll-back where the run stops"""
    frames: int
    message: str


class Verdict(NamedTuple):
    """What a check comes to."""

    then: Literal["go_on", "stop", "roll_back"]
    alerts: tuple[Alert, ...]
    """every broken rule, those too whose message is in its cool-down"""


Channel = Callable[[Alert], None]

_SETTINGS = ("rules", "cooldown_seconds", "non_finite")


class Alerts:
    """Checks metrics against rules, tells the channels, and says what follows.

    A metric that is missing raises no alert. One that begins with ``train/`` and is NaN or infinite
    raises one without any rule, and no other. Where a metric of a rule never comes while others of
    its prefix do, it is logged once; not for ``DEFAULTS`` or ``WARNINGS``, for a task may lack
    them.

    Args:
        rules: for example ``DEFAULTS``, or ``(*DEFAULTS, Rule("eval/turnover", above=5.0))``.
        cooldown_seconds: for so long after a message the same rule says nothing. What follows
            from it follows all the same, and a rule that now stops the run says so.
        channels: who is told; a channel that fails is logged and never stops training.
        non_finite: what follows where a training metric is not finite.
        clock: seconds, from any start.

    Example:
        >>> alerts = Alerts(DEFAULTS)
        >>> alerts.check({"train/grad_norm": 3.0, "train/actor_loss": 0.2}, frames=1_000).then
        'go_on'
        >>> alerts.check({"train/actor_loss": float("nan")}, frames=2_000).then
        'roll_back'
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        cooldown_seconds: float = 300.0,
        channels: Sequence[Channel] = (),
        non_finite: Then = "roll_back",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not is_number(cooldown_seconds) or not cooldown_seconds >= 0:
            raise ValueError(
                f"cooldown_seconds must be a number of at least 0, got {cooldown_seconds!r}"
            )
        check_choice("non_finite", non_finite, get_args(Then))
        self.rules = tuple(rules)
        self.cooldown_seconds = cooldown_seconds
        self.channels = tuple(channels)
        self.non_finite: Then = non_finite
        self._clock = clock
        self._told: dict[tuple[Rule | str, Then], float] = {}
        self._roll_backs = 0
        self._came: set[str] = set()
        self._absences = dict.fromkeys(
            (rule.metric for rule in self.rules if rule not in (*DEFAULTS, *WARNINGS)), 0
        )

    def check(self, metrics: Mapping[str, float], frames: int) -> Verdict:
        """Alerts for these metrics, and the strongest of what follows: stop, roll back, go on.

        Whoever gets ``roll_back`` must load the last good checkpoint: it is given once a run. An
        alert that would roll back after that stops.
        """
        infinite = {
            metric: float(value)
            for metric, value in metrics.items()
            if metric.startswith(MUST_BE_FINITE) and not math.isfinite(value)
        }
        self._came.update(metrics)
        if not infinite:  # what is not finite may come alone
            self._log_absent(metrics)
        broken = self._broken(metrics, infinite)
        wanted = {each.then for each in broken}
        then: Literal["go_on", "stop", "roll_back"] = "go_on"
        if "stop" in wanted or ("roll_back" in wanted and self._roll_backs):
            then = "stop"
        elif "roll_back" in wanted:
            then = "roll_back"
        alerts = []
        for each in broken:
            alert = self._alert(each, then, frames)
            alerts.append(alert)
            self._tell(each.rule, alert)
        self._roll_backs += then == "roll_back"
        return Verdict(then, tuple(alerts))

    def _log_absent(self, metrics: Mapping[str, float]) -> None:
        """Says which metrics of rules never came, at the second check with others like them."""
        prefixes = {_prefix(metric) for metric in metrics}
        for metric in self._absences:
            if metric in self._came or _prefix(metric) not in prefixes:
                continue
            self._absences[metric] += 1
            if self._absences[metric] == 2:
                others = sorted(each for each in self._came if _prefix(each) == _prefix(metric))
                logger.warning(
                    "alerts: a rule is on %s, which never came; what came is %s",
                    metric,
                    ", ".join(others),
                )

    def _broken(self, metrics: Mapping[str, float], infinite: Mapping[str, float]) -> list[_Broken]:
        broken = [
            _Broken(metric, metric, value, "not finite", "critical", self.non_finite)
            for metric, value in infinite.items()
        ]
        for rule in self.rules:
            if rule.metric in metrics and rule.metric not in infinite:
                value = float(metrics[rule.metric])
                limit = rule.broken_by(value)
                if limit:
                    broken.append(
                        _Broken(rule, rule.metric, value, limit, rule.severity, rule.consequence)
                    )
        return broken

    def _alert(
        self, broken: _Broken, verdict: Literal["go_on", "stop", "roll_back"], frames: int
    ) -> Alert:
        _, metric, value, limit, severity, then = broken
        follows = {
            "warn": "nothing follows",
            "stop": "training stops",
            "roll_back": "training goes back to the last good checkpoint",
        }
        what = follows[then]
        if then == "roll_back" and verdict == "stop":
            then, what = "stop", follows["stop"]
            if self._roll_backs:
                what += ", for it went back once already"
        message = f"{severity}: {metric} is {value:.4g}, {limit}, at {frames:,} frames; {what}"
        return Alert(metric, value, limit, severity, then, frames, message)

    def _tell(self, rule: Rule | str, alert: Alert) -> None:
        """Tells the channels; muted for a while after the same rule with the same consequence."""
        now, key = self._clock(), (rule, alert.then)
        if key in self._told and now - self._told[key] < self.cooldown_seconds:
            return
        self._told[key] = now
        for channel in self.channels:
            try:
                channel(alert)
            except Exception:  # whatever a channel runs into, training matters more
                logger.exception("an alert channel failed; its message was: %s", alert.message)

    def state_dict(self) -> dict[str, Any]:
        """How often the run has rolled back: goes into its checkpoints."""
        return {"roll_backs": self._roll_backs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over how often the run has rolled back, if that is more than is known here.

        A roll-back loads a checkpoint from before it. That must not reset the count, or a run would
        roll back for ever; so the larger count stays. Save a checkpoint (or this state alone) right
        after a roll-back, so that a restart knows of it too.
        """
        self._roll_backs = max(self._roll_backs, state["roll_backs"])


def alerts_from(
    settings: str | Sequence[Mapping[str, Any]] | Mapping[str, Any],
    channels: Sequence[Channel] = (),
) -> Alerts:
    """Alerts as a YAML file has them.

    Args:
        settings: ``default``, which is ``DEFAULTS``; ``warn``, which is ``WARNINGS``;
            ``options``, which is ``OF_OPTIONS``; ``none``; a list of rules, mappings with the
            fields of :class:`Rule`; or a mapping with any of ``rules`` (one of these, by default
            ``default``), ``cooldown_seconds`` and ``non_finite``.
        channels: who is told.

    Example:
        >>> alerts_from([{"metric": "eval/turnover", "above": 5.0}]).rules[0].consequence
        'warn'
        >>> alerts = alerts_from({"rules": "default", "cooldown_seconds": 60})
        >>> alerts.rules == DEFAULTS, alerts.cooldown_seconds
        (True, 60)
    """
    given = settings if isinstance(settings, Mapping) else {"rules": settings}
    unknown = [key for key in given if key not in _SETTINGS]
    if unknown:
        raise ValueError(f"alerts: unknown {quoted(unknown)}; allowed are {quoted(_SETTINGS)}")
    options: dict[str, Any] = {key: value for key, value in given.items() if key != "rules"}
    return Alerts(rules_from(given.get("rules", "default")), channels=channels, **options)


class _Broken(NamedTuple):
    """A broken rule, before it is known what the check as a whole comes to."""

    rule: Rule | str
    """the name of the metric where it is not finite, which takes no rule"""
    metric: str
    value: float
    limit: str
    severity: Severity
    then: Then


def _prefix(metric: str) -> str:
    """What comes before the first slash, with it; nothing where there is none."""
    return metric[: metric.find("/") + 1]
