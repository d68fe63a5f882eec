"""What breaks a rule, what follows, who is told and how often."""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from trading_torchrl import state_file
from trading_torchrl.monitoring import (
    DEFAULTS,
    WARNINGS,
    Alert,
    Alerts,
    Rule,
    alerts_from,
    file_channel,
    log_channel,
    tensorboard_channel,
    webhook_channel,
)

HEALTHY = {
    "train/largest_name_share": 0.6, "train/action_entropy_continuous": 0.3,
    "train/exact_repeats": 5.0, "train/trade_execution_rate": 0.03, "train/grad_norm": 10.0,
    "train/actor_loss": -3.0, "train/critic_loss": 1e6, "eval/largest_name_share": 0.6,
    "eval/action_entropy": 0.3, "eval/trade_rate": 0.03, "eval/position_std": 0.02,
    "eval/max_drawdown": 0.2,
}  # fmt: skip
ALERT = Alert("train/grad_norm", 12.5, "above 10", "warning", "warn", 30_000, "grad norm 12.5")


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_rule_is_broken_beyond_its_limits_not_at_them() -> None:
    rule = Rule("m", above=2.0, below=-1.0)
    given = [(-1.1, "below -1"), (-1.0, ""), (0, ""), (2.0, ""), (2.1, "above 2"), (math.nan, "")]
    assert [rule.broken_by(value) for value, _ in given] == [words for _, words in given]
    assert rule.broken_by(math.inf) == "above 2"
    assert Rule("m", above=0.0).broken_by(0.1) == "above 0"


def test_what_follows_by_default() -> None:
    assert Rule("m", above=1).consequence == "warn"
    assert Rule("m", above=1, severity="critical").consequence == "stop"
    assert Rule("m", above=1, severity="critical", then="warn").consequence == "warn"
    assert Rule("m", above=1, then="roll_back").consequence == "roll_back"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metric": ""}, "metric must be a name, got ''"),
        ({"metric": 3, "above": 1}, "metric must be a name, got 3"),
        ({}, "on m: give a limit"),
        ({"above": "1e-3"}, "above must be a number or None, got '1e-3'; YAML"),
        ({"below": True}, "below must be a number or None, got True"),
        ({"above": math.nan}, "above must be finite, got nan"),
        ({"below": -math.inf}, "below must be finite, got -inf"),
        ({"above": 1, "below": 2}, "every value is above 1 or below 2"),
        ({"above": 1, "severity": "error"}, "warning, critical, got 'error'"),
        ({"above": 1, "then": "halt"}, "warn, stop, roll_back, got 'halt'"),
        ({"above": 1, "then": ["stop"]}, r"got \['stop'\]"),
    ],
)
def test_rules_that_make_no_sense_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rule(**{"metric": "m", **fields})


def test_warnings_are_the_same_rules_and_stop_for_none_but_what_is_not_finite() -> None:
    assert [replace(rule, then=None) for rule in WARNINGS] == list(DEFAULTS)
    flat = {"eval/action_entropy": 0.0, "train/action_entropy_continuous": 0.0}
    gentle, strict = Alerts(WARNINGS).check(flat, 1), Alerts(DEFAULTS).check(flat, 1)
    assert (gentle.then, strict.then) == ("go_on", "stop")
    assert [each[:4] for each in gentle.alerts] == [each[:4] for each in strict.alerts]
    assert Alerts(WARNINGS).check({"train/actor_loss": math.nan}, 1).then == "roll_back"


def test_alerts_from_settings() -> None:
    listed = [
        {"metric": "eval/turnover", "above": 5},
        {"metric": "eval/x", "below": 0.0, "severity": "critical", "then": "warn"},
    ]
    rules = (
        Rule("eval/turnover", above=5),
        Rule("eval/x", below=0.0, severity="critical", then="warn"),
    )
    assert alerts_from(listed).rules == alerts_from({"rules": listed}).rules == rules
    for default in ("default", {"rules": "default"}, {}, {"cooldown_seconds": 1}):
        assert alerts_from(default).rules == DEFAULTS
    for gentle in ("warn", {"rules": "warn"}):
        assert alerts_from(gentle).rules == WARNINGS
    for nothing in ("none", [], {"rules": "none"}, {"rules": []}):
        assert alerts_from(nothing).rules == ()
    for settings in (listed, {"rules": listed}, "default"):
        plain = alerts_from(settings)
        assert (plain.cooldown_seconds, plain.non_finite, plain.channels) == (300, "roll_back", ())


def test_cool_down_and_what_follows_from_settings() -> None:
    told: list[Alert] = []
    settings = {"rules": "default", "cooldown_seconds": 0, "non_finite": "stop"}
    alerts = alerts_from(settings, channels=[told.append])
    for _ in range(2):
        assert alerts.check({"train/actor_loss": math.nan}, frames=0).then == "stop"
    assert len(told) == 2
    assert settings == {"rules": "default", "cooldown_seconds": 0, "non_finite": "stop"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"metric": "m", "max": 1}], "rule 1 has unknown 'max'; allowed are 'metric', 'above'"),
        ([{"metric": "m", "above": 1}, {"above": 1}], "rule 2 needs a metric, got 'above' only"),
        (["m > 1"], "rule 1 must be a mapping, got 'm > 1'"),
        (
            "m > 1",
            "must be 'default', 'warn', 'options', 'none' or a list of mappings, got 'm > 1'",
        ),
        (None, "must be 'default', 'warn', 'options', 'none' or a list of mappings, got None"),
        (
            {"rule": [], "cooldown": 3},
            "unknown 'rule', 'cooldown'; allowed are 'rules', 'cooldown_seconds', 'non_finite'",
        ),
        ({"channels": []}, "unknown 'channels'; allowed are"),
        ({"rules": 3}, "must be 'default', 'warn', 'options', 'none' or a list of mappings, got 3"),
        (
            {"rules": None},
            "must be 'default', 'warn', 'options', 'none' or a list of mappings, got None",
        ),
        ({"rules": {"metric": "m", "above": 1}}, "'none' or a list of mappings, got {"),
        ([{"metric": "m", "above": "x"}], "rule on m: above must be a number"),
        ({"cooldown_seconds": "5 minutes"}, "must be a number of at least 0, got '5 minutes'"),
        ({"cooldown_seconds": True}, "must be a number of at least 0, got True"),
        ({"cooldown_seconds": None}, "must be a number of at least 0, got None"),
        ({"non_finite": "halt"}, "non_finite must be one of warn, stop, roll_back, got 'halt'"),
    ],
)
def test_settings_that_are_no_alerts_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        alerts_from(given)


@pytest.mark.parametrize(
    ("metric", "value", "severity", "then"),
    [
        ("train/largest_name_share", 0.61, "warning", "go_on"),
        ("train/action_entropy_continuous", 0.29, "warning", "go_on"),
        ("train/action_entropy_continuous", 0.09, "critical", "stop"),
        ("train/exact_repeats", 6.0, "warning", "go_on"),
        ("train/trade_execution_rate", 0.029, "warning", "go_on"),
        ("train/grad_norm", 10.1, "warning", "go_on"),
        ("train/grad_norm", math.inf, "critical", "roll_back"),
        ("train/actor_loss", math.nan, "critical", "roll_back"),
        ("train/critic_loss", -math.inf, "critical", "roll_back"),
        ("train/any_other", math.nan, "critical", "roll_back"),
        ("eval/largest_name_share", 0.61, "warning", "go_on"),
        ("eval/action_entropy", 0.29, "warning", "go_on"),
        ("eval/action_entropy", 0.09, "critical", "stop"),
        ("eval/position_std", 0.019, "warning", "go_on"),
        ("eval/trade_rate", 0.029, "warning", "go_on"),
        ("eval/max_drawdown", 0.21, "warning", "go_on"),
        ("eval/max_drawdown", math.inf, "warning", "go_on"),
    ],
)
def test_the_defaults(metric: str, value: float, severity: str, then: str) -> None:
    verdict = Alerts(DEFAULTS).check({**HEALTHY, metric: value}, frames=1_000)
    assert verdict.then == then
    assert {alert.metric for alert in verdict.alerts} == {metric}
    assert severity in {alert.severity for alert in verdict.alerts}
    assert len(verdict.alerts) == (2 if value == 0.09 else 1)


def test_no_alert_without_need() -> None:
    alerts = Alerts(DEFAULTS)
    assert alerts.check(HEALTHY, frames=0) == ("go_on", ())
    assert alerts.check({}, frames=0) == ("go_on", ())
    undefined = {"eval/sharpe_ratio_mean": math.nan, "eval/position_std": math.nan}
    assert alerts.check({**HEALTHY, **undefined}, frames=0) == ("go_on", ())


EVALUATED = {"eval/sharpe_ratio_mean": 1.0, "eval/growth": 0.1, "train/loss": 1.0}


def test_a_rule_whose_metric_never_comes_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    rules = [
        *DEFAULTS,
        Rule("eval/sharp_ratio", below=0.0),
        Rule("eval/sharp_ratio", below=-1.0, severity="critical"),
        Rule("eval/growth", below=-1.0),
        Rule("own/metric", above=1.0),
        Rule("metric", above=1.0),
    ]
    alerts = Alerts(rules)
    alerts.check(EVALUATED, frames=0)
    alerts.check({"train/loss": 1.0}, frames=1)
    assert caplog.record_tuples == []
    for frames in (2, 3, 4):
        assert alerts.check({**EVALUATED, "eval/more": 1.0}, frames) == ("go_on", ())
    assert caplog.record_tuples == [
        (
            "trading_torchrl",
            logging.WARNING,
            "alerts: a rule is on eval/sharp_ratio, which never came; what came is eval/growth,"
            " eval/more, eval/sharpe_ratio_mean",
        )
    ]


def test_each_metric_that_never_comes_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    alerts = Alerts([Rule(name, above=1.0) for name in ("eval/a", "eval/b", "train/c", "d")])
    for frames in range(5):
        alerts.check({"eval/x": 0.0, "train/x/y": 0.0, "x": 0.0}, frames)
    assert [record.args for record in caplog.records] == [
        ("eval/a", "eval/x"), ("eval/b", "eval/x"), ("train/c", "train/x/y"), ("d", "x"),
    ]  # fmt: skip


def test_a_metric_that_came_once_is_not_missed(caplog: pytest.LogCaptureFixture) -> None:
    alerts = Alerts([Rule("eval/late", above=1.0)])
    for extra in ({}, {"eval/late": 0.0}, {}, {}):
        alerts.check({**EVALUATED, **extra}, frames=0)
    assert caplog.records == []


def test_nothing_is_missed_where_something_is_not_finite(caplog: pytest.LogCaptureFixture) -> None:
    """A check with a broken loss holds little else; an undefined ratio is nothing unusual."""
    alerts = Alerts([Rule("train/wrong", above=1.0), Rule("eval/wrong", above=1.0)])
    for _ in range(3):
        alerts.check({"train/loss": math.inf, "train/reward": 0.0, "eval/growth": 0.1}, frames=0)
    assert caplog.records == []
    for _ in range(2):
        alerts.check({"eval/win_rate": math.nan}, frames=0)
    (record,) = caplog.records
    assert record.args == ("eval/wrong", "eval/growth, eval/win_rate")


def test_values_may_be_tensors() -> None:
    alerts = Alerts(DEFAULTS)
    metrics: Any = {"train/grad_norm": torch.tensor(12.5), "train/loss": torch.tensor(torch.nan)}
    found = alerts.check(metrics, frames=0).alerts
    assert [type(alert.value) for alert in found] == [float, float]
    assert found[1].value == 12.5


def test_messages_say_what_why_when_and_what_follows() -> None:
    rules = (*DEFAULTS, Rule("eval/turnover", above=5.0, then="stop"))
    metrics = {"train/actor_loss": math.nan, "train/grad_norm": 12.5}
    assert [alert.message for alert in Alerts(rules).check(metrics, frames=30_000).alerts] == [
        "critical: train/actor_loss is nan, not finite, at 30,000 frames; "
        "training goes back to the last good checkpoint",
        "warning: train/grad_norm is 12.5, above 10, at 30,000 frames; nothing follows",
    ]
    (alert,) = Alerts(rules).check({"eval/turnover": 7.0}, frames=10).alerts
    assert alert == (
        "eval/turnover", 7.0, "above 5", "warning", "stop", 10,
        "warning: eval/turnover is 7, above 5, at 10 frames; training stops",
    )  # fmt: skip


def test_rolls_back_once_then_stops() -> None:
    alerts = Alerts(DEFAULTS)
    broken = {"train/actor_loss": math.nan, "train/critic_loss": math.inf}
    first = alerts.check(broken, frames=10)
    assert first.then == "roll_back"
    assert [alert.then for alert in first.alerts] == ["roll_back", "roll_back"]
    assert alerts.check(HEALTHY, frames=20).then == "go_on"
    second = alerts.check(broken, frames=30)
    assert second.then == "stop"
    assert [alert.then for alert in second.alerts] == ["stop", "stop"]
    assert second.alerts[0].message.endswith("training stops, for it went back once already")


def test_a_stop_is_stronger_than_a_roll_back_and_spends_none() -> None:
    alerts = Alerts(DEFAULTS)
    both = {"train/actor_loss": math.nan, "eval/action_entropy": 0.05}
    verdict = alerts.check(both, frames=10)
    assert verdict.then == "stop"
    assert verdict.alerts[0].then == "stop"
    assert verdict.alerts[0].message.endswith("; training stops")
    assert alerts.state_dict() == {"roll_backs": 0}


@pytest.mark.parametrize(("follows", "then"), [("warn", "go_on"), ("stop", "stop")])
def test_what_follows_a_value_that_is_not_finite_can_be_chosen(follows: Any, then: str) -> None:
    alerts = Alerts((), non_finite=follows)
    assert alerts.check({"train/actor_loss": math.nan}, frames=0).then == then


def test_a_roll_back_does_not_reset_its_count(tmp_path: Path) -> None:
    alerts = Alerts(DEFAULTS)
    before = alerts.state_dict()
    broken = {"train/actor_loss": math.nan}
    assert alerts.check(broken, frames=10).then == "roll_back"
    after = alerts.state_dict()
    alerts.load_state_dict(before)
    assert alerts.check(broken, frames=20).then == "stop"
    restarted = Alerts(DEFAULTS)
    state_file.save(tmp_path / "state.pt", after)
    restarted.load_state_dict(state_file.load(tmp_path / "state.pt"))
    assert restarted.check(broken, frames=20).then == "stop"
    anew = Alerts(DEFAULTS)
    anew.load_state_dict(before)
    assert anew.check(broken, frames=20).then == "roll_back"


@pytest.mark.parametrize("options", [{"cooldown_seconds": -1}, {"cooldown_seconds": math.nan},
                                     {"non_finite": "ignore"}])  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"got (-1|nan|'ignore')"):
        Alerts(DEFAULTS, **options)


def test_a_rule_is_told_once_in_its_cool_down_and_followed_always() -> None:
    told: list[Alert] = []
    clock = Clock()
    rule = Rule("eval/x", above=1.0, then="stop")
    alerts = Alerts([rule], cooldown_seconds=300, channels=[told.append], clock=clock)
    for seconds, messages in ((100.0, 1), (101.0, 1), (399.9, 1), (400.0, 2), (699.0, 2)):
        clock.seconds = seconds
        verdict = alerts.check({"eval/x": 2.0}, frames=int(seconds))
        assert verdict.then == "stop"
        assert len(verdict.alerts) == 1
        assert len(told) == messages
    assert [alert.frames for alert in told] == [100, 400]


def test_cool_downs_are_per_rule() -> None:
    told: list[Alert] = []
    alerts = Alerts(DEFAULTS, channels=[told.append], clock=Clock())
    key = "train/action_entropy_continuous"
    for value in (0.2, 0.25, 0.05, 0.05):
        alerts.check({key: value, "train/a": math.nan}, frames=0)
    alerts.check({"train/b": math.nan}, frames=0)
    # The stop comes with the critical entropy: what would have rolled back then says so.
    assert [(alert.metric, alert.rule, alert.then) for alert in told] == [
        ("train/a", "not finite", "roll_back"),
        (key, "below 0.3", "warn"),
        ("train/a", "not finite", "stop"),
        (key, "below 0.1", "stop"),
        ("train/b", "not finite", "stop"),
    ]


def test_two_rules_on_one_metric_are_two_rules() -> None:
    told: list[Alert] = []
    rules = [Rule("eval/x", above=1.0), Rule("eval/x", above=2.0)]
    alerts = Alerts(rules, channels=[told.append], clock=Clock())
    for value in (1.5, 2.5, 2.5):
        alerts.check({"eval/x": value}, frames=0)
    assert [alert.rule for alert in told] == ["above 1", "above 2"]


def test_without_cool_down_everything_is_told() -> None:
    told: list[Alert] = []
    alerts = Alerts(DEFAULTS, cooldown_seconds=0, channels=[told.append], clock=Clock())
    for _ in range(3):
        alerts.check({"train/grad_norm": 11.0}, frames=0)
    assert len(told) == 3


def test_log_channel(caplog: pytest.LogCaptureFixture) -> None:
    tell = log_channel()
    tell(ALERT)
    tell(ALERT._replace(severity="critical", message="100 % worse"))
    assert caplog.record_tuples == [
        ("trading_torchrl", logging.WARNING, "grad norm 12.5"),
        ("trading_torchrl", logging.CRITICAL, "100 % worse"),
    ]


def test_tensorboard_channel(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with SummaryWriter(str(tmp_path)) as writer:
        tensorboard_channel(writer)(ALERT)
    events = EventAccumulator(str(tmp_path)).Reload()
    (scalar,) = events.Scalars("alerts/train/grad_norm")
    assert (scalar.step, scalar.value) == (30_000, 12.5)
    (text,) = events.Tensors("alerts/text_summary")
    assert text.tensor_proto.string_val == [b"grad norm 12.5"]
    assert text.step == 30_000


def test_file_channel(tmp_path: Path) -> None:
    path = tmp_path / "new" / "alerts.jsonl"
    tell = file_channel(path)
    assert not path.exists()
    tell(ALERT)
    assert json.loads(path.read_text()) == ALERT._asdict()
    file_channel(str(path))(ALERT._replace(value=math.nan))
    first, second = path.read_text().splitlines()
    assert json.loads(first)["value"] == 12.5
    assert json.loads(second) == ALERT._asdict() | {"value": None}


@pytest.mark.parametrize("where", ["folder", "below a file", "full disk"])
def test_a_file_that_cannot_be_written_stops_nothing(
    where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    path = {"folder": tmp_path, "below a file": tmp_path / "file" / "alerts.jsonl",
            "full disk": Path("/dev/full")}[where]  # fmt: skip
    if where == "full disk" and not path.exists():
        pytest.skip("no /dev/full here")
    told: list[Alert] = []
    alerts = Alerts(DEFAULTS, channels=[file_channel(path), told.append])
    assert alerts.check({"eval/action_entropy": 0.2}, frames=0).then == "go_on"
    assert len(told) == 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.name == "trading_torchrl"
    assert told[0].message in record.getMessage()


class Received(HTTPServer):
    """A web server that keeps what is posted to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.posts: list[tuple[str, str | None, Any]] = []
        self.status = 200
        self.wait = 0.0
        self.arrived = threading.Semaphore(0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?token=secret"


class Handler(BaseHTTPRequestHandler):
    server: Received

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.headers["Content-Type"]
        self.server.posts.append((self.path, kind, json.loads(body)))
        time.sleep(self.server.wait)
        self.send_response(self.server.status)
        self.end_headers()
        self.server.arrived.release()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Received]:
    with Received() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def wait_for(records: list[logging.LogRecord], count: int) -> None:
    end = time.monotonic() + 20
    while len(records) < count and time.monotonic() < end:
        time.sleep(0.01)


def test_webhook_posts_json(server: Received) -> None:
    alerts = Alerts(DEFAULTS, channels=[webhook_channel(server.url, timeout=20)])
    (alert,) = alerts.check({"train/grad_norm": 12.5}, frames=7).alerts
    assert server.arrived.acquire(timeout=20)
    assert server.posts == [("/hook?token=secret", "application/json", alert._asdict())]
    (broken,) = alerts.check({"train/grad_norm": math.nan}, frames=8).alerts
    assert server.arrived.acquire(timeout=20)
    assert server.posts[1][2] == broken._asdict() | {"value": None}


def test_training_does_not_wait_for_a_slow_webhook(server: Received) -> None:
    server.wait = 0.5
    tell = webhook_channel(server.url, timeout=20)
    start = time.perf_counter()
    for _ in range(3):
        tell(ALERT)
    assert time.perf_counter() - start < 1.0
    # All of them, so that none fails when the server goes, into the log of the next test.
    for _ in range(3):
        assert server.arrived.acquire(timeout=20)


def test_a_webhook_that_fails_is_logged_once(
    server: Received, caplog: pytest.LogCaptureFixture
) -> None:
    server.status = 500
    tell = webhook_channel(server.url, timeout=20)
    for _ in range(2):
        tell(ALERT)
        assert server.arrived.acquire(timeout=20)
    wait_for(caplog.records, 1)
    tell(ALERT)
    assert server.arrived.acquire(timeout=20)
    for thread in tell._threads:
        thread.join(20)
    (record,) = caplog.records
    assert "127.0.0.1: HTTP Error 500" in record.getMessage()
    assert "secret" not in record.getMessage()


def test_a_webhook_to_nowhere_neither_blocks_nor_raises(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:  # bound but not listening: nobody else gets the port
        taken.bind(("127.0.0.1", 0))
        tell = webhook_channel(f"http://127.0.0.1:{taken.getsockname()[1]}/", timeout=0.5)
        alerts = Alerts(DEFAULTS, channels=[tell])
        start = time.perf_counter()
        assert alerts.check({"train/grad_norm": 12.5}, frames=0).then == "go_on"
        assert time.perf_counter() - start < 1.0
        wait_for(caplog.records, 1)
    (record,) = caplog.records
    assert "127.0.0.1" in record.getMessage()
    assert "refused" in record.getMessage()


def test_the_last_alert_of_a_program_is_sent(server: Received) -> None:
    """The one that stops a run, after which the program ends."""
    program = (
        "import atexit\n"
        "from trading_torchrl.monitoring import Alert, webhook_channel\n"
        "sending = lambda: print(any(thread.is_alive() for thread in tell._threads))\n"
        "atexit.register(sending)  # runs last\n"
        "tell = webhook_channel(%r, timeout=20)\n"
        "tell(Alert('m', 1.0, 'above 0', 'critical', 'stop', 5, 'it stops'))\n"
    )
    server.wait = 0.5
    result = subprocess.run(
        [sys.executable, "-c", program % server.url],
        check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert result.stdout == "False\n"
    assert [post[2]["message"] for post in server.posts] == ["it stops"]


@pytest.mark.parametrize("url", ["ftp://host/x", "file:///etc/passwd", "host/x", "http://", ""])
def test_only_web_addresses(url: str) -> None:
    with pytest.raises(ValueError, match="http:// or https://"):
        webhook_channel(url)


def test_a_timeout_is_positive() -> None:
    with pytest.raises(ValueError, match="positive, got 0"):
        webhook_channel("http://host/", timeout=0)
