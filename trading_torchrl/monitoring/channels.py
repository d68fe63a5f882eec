"""Channels that alerts are told on: the log, TensorBoard, a file, a web address."""

from __future__ import annotations

import atexit
import json
import logging
import math
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from trading_torchrl.monitoring.alerts import Alert, Channel

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

logger = logging.getLogger("trading_torchrl")


def log_channel() -> Channel:
    """Writes alerts to the logger ``trading_torchrl``, as warnings and as critical."""

    def tell(alert: Alert) -> None:
        level = logging.CRITICAL if alert.severity == "critical" else logging.WARNING
        logger.log(level, alert.message)

    return tell


def tensorboard_channel(writer: SummaryWriter) -> Channel:
    """Writes alerts to TensorBoard: the text under ``alerts``, the value as ``alerts/<metric>``.

    Args:
        writer: of TorchRL's ``TensorboardLogger`` it is ``logger.experiment``.
    """

    def tell(alert: Alert) -> None:
        writer.add_text("alerts", alert.message, alert.frames)
        writer.add_scalar(f"alerts/{alert.metric}", alert.value, alert.frames)

    return tell


def file_channel(path: str | Path) -> Channel:
    """Appends alerts to a file, one line of JSON each; a value that is not finite is null."""
    path = Path(path)

    def tell(alert: Alert) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Opened for each alert: they are rare, and a file that is closed is written.
        with open(path, "a", encoding="utf-8") as file:
            file.write(_json(alert) + "\n")

    return tell


def webhook_channel(url: str, timeout: float = 2.0) -> Channel:
    """Posts alerts to a web address as JSON, from a thread, so that training never waits.

    The first failure is logged, without the path of the address, which may hold a token. When the
    program ends, what is under way gets ``timeout`` seconds.

    Args:
        url: http or https.
        timeout: seconds the other side may take to answer.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"webhook: the address must begin with http:// or https:// and name a host, got scheme "
            f"{parts.scheme!r} and host {parts.hostname!r}"
        )
    if not timeout > 0:
        raise ValueError(f"webhook: timeout must be positive, got {timeout}")
    return _Webhook(url, timeout)


class _Webhook:
    def __init__(self, url: str, timeout: float) -> None:
        self.url = url
        self.timeout = timeout
        self._failed = False
        self._threads: list[threading.Thread] = []
        # A daemon thread dies with the program, and the alert that stops a run is its last.
        atexit.register(self._finish)

    def __call__(self, alert: Alert) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=self._post, args=(_json(alert),), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _post(self, body: str) -> None:
        headers = {"Content-Type": "application/json"}
        request = Request(self.url, body.encode(), headers, method="POST")
        try:
            with urlopen(request, timeout=self.timeout):
                pass
        except Exception as error:  # in a thread nobody else would see it
            if not self._failed:
                self._failed = True
                host = urlsplit(self.url).hostname
                logger.error(
                    "alerts do not reach the webhook at %s: %s; later failures are not logged",
                    host,
                    error,
                )

    def _finish(self) -> None:
        end = time.monotonic() + self.timeout
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))


def _json(alert: Alert) -> str:
    value = alert.value if math.isfinite(alert.value) else None
    return json.dumps(alert._asdict() | {"value": value}, allow_nan=False)
