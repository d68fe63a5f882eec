"""Training that logs to MLflow too, through its real command lines, shrunken."""

import json
import os
import subprocess
import sys

import pytest
from running import REFERENCE, ROOT

TINY = [*REFERENCE, "total_frames=640", "evaluate_every=320"]


def run(*overrides, **environment):
    return subprocess.run(
        [sys.executable, str(ROOT / "recipes" / "offpolicy.py"), *overrides],
        capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def test_without_the_package_the_extra_is_named(tmp_path):
    (tmp_path / "mlflow.py").write_text("raise ImportError")
    refused = run(
        f"hydra.run.dir={tmp_path / 'run'}", *TINY, f"mlflow={tmp_path / 'mlruns'}",
        PYTHONPATH=str(tmp_path),
    )  # fmt: skip
    assert refused.returncode == 1
    assert "pip install 'trading-torchrl[mlflow]'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_run_that_is_gone_on_with_is_one_run_of_mlflow(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    plain, folder, address = tmp_path / "plain", tmp_path / "run", tmp_path / "mlruns"
    for overrides in (
        [f"hydra.run.dir={plain}", *TINY, "stop_at=360"],
        [f"hydra.run.dir={folder}", *TINY, "stop_at=360", f"mlflow={address}"],
    ):
        done = run(*overrides)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr
    without, beside = (json.loads((each / "metrics.json").read_text()) for each in (plain, folder))
    assert without["parameters_sha256"] == beside["parameters_sha256"]
    done = run(f"resume={folder}", "stop_at=null")
    assert done.returncode == 0, done.stderr

    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient(address.as_uri())
    experiment = client.get_experiment_by_name("trading-torchrl")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_id == (folder / "mlflow_run").read_text()
    assert (found.info.status, found.info.run_name) == ("FINISHED", "run")
    assert found.data.params["env.num_envs"] == "8"
    assert found.data.params["hidden"] == "[16]"

    def steps(name):
        return [each.step for each in client.get_metric_history(found.info.run_id, name)]

    assert steps("train/reward") == [160, 320, 480, 640]
    assert steps("eval/optimum_share") == [320, 640]
    logged = {each.path for each in client.list_artifacts(found.info.run_id)}
    assert {"best.pt", "report.html", "report.json", "metrics.json"} <= logged
    assert "webhook" not in found.data.params
