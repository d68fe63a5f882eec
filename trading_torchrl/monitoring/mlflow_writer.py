"""TensorBoard and MLflow at once."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

logger = logging.getLogger("trading_torchrl")

EXPERIMENT = "trading-torchrl"
RUN_FILE = "mlflow_run"
EVERY_SECONDS, EVERY_METRICS, RETRY_SECONDS = 10.0, 500, 60.0
# Only the address given is spoken to, and one that is silent holds training up for seconds.
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}


class MLflowWriter(SummaryWriter):
    """Logs each scalar to MLflow too, in batches; needs ``trading-torchrl[mlflow]``.

    A folder with a file ``mlflow_run`` goes on with the run of that id. Once begun, no failure of
    MLflow is raised: the first is logged as a warning, and what was not sent is tried again.

    Args:
        folder: of the run.
        address: a folder, ``sqlite:///...`` or ``http://...``.
        settings: nested; logged as params ``a.b`` when the run begins.
        purge_step: of TensorBoard.
    """

    def __init__(
        self, folder: Path, address: str, settings: Mapping[str, Any], purge_step: int | None = None
    ) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            from mlflow import MlflowClient
            from mlflow.entities import Metric, Param
        except ImportError as error:
            raise ImportError(
                "mlflow is not installed: pip install 'trading-torchrl[mlflow]'"
            ) from error
        self._metric = Metric
        self._client = MlflowClient(
            address if "://" in address else Path(address).absolute().as_uri()
        )
        known = folder / RUN_FILE
        if known.exists():
            self.run_id = known.read_text().strip()
            self._client.update_run(self.run_id, status="RUNNING")
        else:
            found = self._client.get_experiment_by_name(EXPERIMENT)
            experiment = (
                found.experiment_id if found else self._client.create_experiment(EXPERIMENT)
            )
            self.run_id = self._client.create_run(experiment, run_name=folder.name).info.run_id
            params = [Param(name, str(value)) for name, value in _flat(settings)]
            for start in range(0, len(params), 100):  # no more at once
                self._client.log_batch(self.run_id, params=params[start : start + 100])
            known.write_text(self.run_id)
        self._waiting: list[Any] = []
        self._next = time.monotonic() + EVERY_SECONDS
        self._retry = 0.0
        self._warned = False
        super().__init__(str(folder), purge_step=purge_step)

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int = 0, *given: Any, **named: Any
    ) -> None:
        """To both."""
        super().add_scalar(tag, scalar_value, global_step, *given, **named)
        now = int(1000 * time.time())
        self._waiting.append(self._metric(tag, float(scalar_value), now, global_step))
        if len(self._waiting) >= EVERY_METRICS or time.monotonic() >= self._next:
            self._send()

    def flush(self) -> None:
        """Writes and sends what waits."""
        super().flush()
        self._send(at_once=True)

    def close(self) -> None:
        """Sends what waits; until ``finish`` the run counts as failed."""
        super().close()
        self._send(at_once=True)
        self._safely(self._client.set_terminated, self.run_id, "FAILED")

    def finish(self, files: Iterable[Path], status: str = "FINISHED") -> None:
        """Logs those of the files that exist as artefacts, and ends the run."""
        for path in files:
            if path.exists():
                self._safely(self._client.log_artifact, self.run_id, str(path))
        self._safely(self._client.set_terminated, self.run_id, status)

    def _send(self, at_once: bool = False) -> None:
        if not at_once and time.monotonic() < self._retry:
            return
        while self._waiting:
            some = self._waiting[:EVERY_METRICS]
            if not self._safely(self._client.log_batch, self.run_id, some):
                self._retry = time.monotonic() + RETRY_SECONDS
                break
            del self._waiting[: len(some)]
        self._next = time.monotonic() + EVERY_SECONDS

    def _safely(self, call: Callable[..., Any], *given: Any) -> bool:
        try:
            call(*given)
        except Exception as error:  # whatever it is, training is worth more
            if not self._warned:
                logger.warning("MLflow failed, training goes on: %s", error)
            self._warned = True
            return False
        return True


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
