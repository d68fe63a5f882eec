"""Scalars to TensorBoard and, in batches, to an MLflow that may fail."""

import logging
import sys
from types import ModuleType, SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trading_torchrl.monitoring import mlflow_writer
from trading_torchrl.monitoring.mlflow_writer import MLflowWriter


class Client:
    """Stands for MLflow's; remembers what it is told, unless it is down."""

    def __init__(self, address):
        self.address = address
        self.down = False
        self.params, self.metrics, self.artefacts, self.states = {}, [], [], []

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return "7"

    def create_run(self, experiment, run_name):
        return SimpleNamespace(info=SimpleNamespace(run_id=f"{experiment}-{run_name}"))

    def update_run(self, run, status):
        self.states.append((run, status))

    def log_batch(self, run, metrics=(), params=()):
        if self.down:
            raise OSError("no answer")
        assert len(metrics) <= 1_000
        assert len(params) <= 100
        self.metrics.append([(name, value, step) for name, value, _, step in metrics])
        self.params |= dict(params)

    def log_artifact(self, run, path):
        if self.down:
            raise OSError("no answer")
        self.artefacts.append(path)

    def set_terminated(self, run, status):
        self.states.append((run, status))


@pytest.fixture
def writer(tmp_path, monkeypatch):
    package, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    package.MlflowClient = Client
    entities.Metric = entities.Param = lambda *values: values
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    for name, value in mlflow_writer.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    settings = {"env": {"num_envs": 8}, "many": {str(n): n for n in range(150)}}
    return MLflowWriter(tmp_path, str(tmp_path / "mlruns"), settings)


def test_scalars_come_to_both_in_batches(writer, tmp_path):
    client = writer._client
    assert client.address == (tmp_path / "mlruns").as_uri()
    assert client.params["env.num_envs"] == "8"
    assert client.params["many.149"] == "149"
    client.metrics.clear()
    for step in range(499):
        writer.add_scalar("train/reward", step / 2, step)
    assert client.metrics == []
    writer.add_scalar("train/reward", 1.0, 499)
    assert [len(each) for each in client.metrics] == [500]
    writer.add_scalar("eval/score", float("inf"), 500)
    writer.close()
    assert client.metrics[1] == [("eval/score", float("inf"), 500)]
    assert len(EventAccumulator(str(tmp_path)).Reload().Scalars("eval/score")) == 1


def test_what_waits_is_sent_after_seconds_and_on_flush(writer, monkeypatch):
    client = writer._client
    client.metrics.clear()
    writer.add_scalar("a", 1.0, 1)
    writer.flush()
    assert client.metrics == [[("a", 1.0, 1)]]
    later = mlflow_writer.time.monotonic() + mlflow_writer.EVERY_SECONDS
    monkeypatch.setattr(mlflow_writer.time, "monotonic", lambda: later)
    writer.add_scalar("a", 2.0, 2)
    assert client.metrics[1:] == [[("a", 2.0, 2)]]


def test_a_failure_is_told_once_and_nothing_is_lost(writer, tmp_path, caplog):
    client = writer._client
    client.metrics.clear()
    client.down = True
    with caplog.at_level(logging.WARNING, logger="trading_torchrl"):
        for step in range(1_200):
            writer.add_scalar("a", 0.0, step)
        writer.flush()
        writer.close()
        writer.finish([tmp_path])
    assert [each.getMessage() for each in caplog.records] == [
        "MLflow failed, training goes on: no answer"
    ]
    client.down = False
    writer.flush()
    assert [step for each in client.metrics for _, _, step in each] == list(range(1_200))


def test_a_run_is_gone_on_with_and_ended(writer, tmp_path):
    writer.close()
    again = MLflowWriter(tmp_path, "http://localhost:1", {"other": 1})
    assert again.run_id == writer.run_id == (tmp_path / "mlflow_run").read_text()
    assert again._client.params == {}
    again.close()
    again.finish([tmp_path / "mlflow_run", tmp_path / "missing"])
    assert again._client.artefacts == [str(tmp_path / "mlflow_run")]
    assert [state for _, state in again._client.states] == ["RUNNING", "FAILED", "FINISHED"]
