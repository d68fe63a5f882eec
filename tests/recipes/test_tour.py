"""The tour through its real command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(folder, *overrides):
    command = [sys.executable, str(ROOT / "recipes" / "tour.py"), f"hydra.run.dir={folder}"]
    return subprocess.run([*command, *overrides], capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize("env", ["long_short", "long_only"])
def test_tour_leaves_a_table_and_pictures(tmp_path, env):
    done = run(tmp_path, "market.paths=6", "market.bars=600", f"env={env}")
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "table.md").read_text()
    assert table.strip() in done.stdout
    assert "3 bps" in done.stdout
    for picture in ("growth.png", "episode.png"):
        assert (tmp_path / picture).stat().st_size > 10_000
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    earned = {name: figures["sharpe_ratio_mean"] for name, figures in metrics["market"].items()}
    assert earned["oracle, knows all"] > earned["buy and hold"] > earned["random"]
    assert metrics["market"]["buy and hold"]["trades"] == 1
    control = {name: figures["growth"] for name, figures in metrics["martingale"].items()}
    assert control["oracle, knows all"] < 0.1
    for name, figures in metrics["market"].items():
        assert f"{figures['sharpe_ratio_mean']:+.2f}" in table, name


def test_a_misspelt_setting_is_refused(tmp_path):
    done = run(tmp_path, "market.path=6")
    assert done.returncode != 0
    assert "path" in done.stderr


def test_help_shows_what_can_be_changed(tmp_path):
    done = run(tmp_path, "--help")
    assert done.returncode == 0
    assert "predictability" in done.stdout
