"""Trained runs judged again, from their folders."""

import importlib
import json

import numpy as np
import pandas as pd
import pytest
from running import (
    MARKET,
    REFERENCE,
    ROOT,
    run,
    trained,
)


def trained_in(folder, *overrides):
    trained(folder, *REFERENCE, *overrides)
    return folder


def test_several_seeds_become_one_report(straight, tmp_path):
    folder, first = straight
    second = trained(tmp_path / "second", *REFERENCE, "seed=1")
    both = f"run=[{folder},{tmp_path / 'second'}]"
    done = run("evaluate", None, both, f"out={tmp_path / 'out'}", "split=test")
    assert done.returncode == 0, done.stderr
    judged = json.loads((tmp_path / "out" / "evaluation_test.json").read_text())
    assert [each["seed"] for each in judged["runs"]] == [0, 1]
    actors = [each["actor_sha256"] for each in judged["runs"]]
    assert len({*actors, first["parameters_sha256"], second["parameters_sha256"]}) == 4
    shares = judged["figures"]["optimum_share"]
    assert len(shares) == 2
    assert shares[0] != shares[1]
    assert "2 seeds" in (tmp_path / "out" / "evaluation_test" / "report.html").read_text()
    # On the split that the runs reported themselves, it is what they said.
    name = f"checkpoint=frames_{first['frames']:012d}.pt"
    run("evaluate", None, both, f"out={tmp_path / 'out'}", name)
    (again,) = (tmp_path / "out").glob("evaluation_validation_frames_*.json")
    said = json.loads(again.read_text())["figures"]["optimum_share"]
    assert said == [each["figures"]["optimum_share"] for each in (first, second)]

    assert "give out=" in run("evaluate", None, both).stderr
    for other, said in (
        (trained_in(tmp_path / "other", "lr=1e-3", "seed=1"), "these runs differ in lr"),
        (folder, "these runs have seeds [0, 0]"),
        (trained_in(tmp_path / "half", "seed=1", "stop_at=640"), "finish both"),
    ):
        refused = run("evaluate", None, f"run=[{folder},{other}]", f"out={tmp_path / 'no'}")
        assert refused.returncode == 1
        assert said in refused.stderr
    missing = run("evaluate", None, f"run={folder}", "checkpoint=frames_9.pt")
    assert "frames_9.pt is not there; name one that is (frames_" in missing.stderr
    assert "Traceback" not in missing.stderr
    assert "run=... names what to judge" in run("evaluate", None).stderr


def test_what_the_agent_learned_is_a_list_over_seeds_and_what_others_do_is_not(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    task = importlib.import_module("tasks.task")
    runs = [
        {"growth": mean, "agent, equal weight/growth": 2 * mean, "equal_weight/growth": 0.1}
        for mean in (0.3, 0.4)
    ]
    assert task._listed(runs) == {
        "growth": [0.3, 0.4], "agent, equal weight/growth": [0.6, 0.8], "equal_weight/growth": 0.1
    }  # fmt: skip


def test_prices_from_files(tmp_path):
    prices = tmp_path / "prices"
    prices.mkdir()
    generator = np.random.default_rng(0)
    closes = 100 * np.exp(np.cumsum(0.01 * generator.standard_normal((2, 700)), 1))
    for name, close in zip(("AAA", "BBB"), closes, strict=True):
        frame = pd.DataFrame(
            {
                "timestamp": pd.date_range("2015-01-01", periods=700, freq="D"),
                "open": close, "high": close * 1.01, "low": close * 0.99, "close": close,
                "volume": 1e6,
            }
        )  # fmt: skip
        frame.to_csv(prices / f"{name}.csv", index=False)
    overrides = [each for each in MARKET if not each.startswith(("market.", "++env.episode_bars"))]
    metrics = trained(
        tmp_path / "run", *overrides, "market=csv", f"market.path={prices}", "env=long_only",
        "+env.limits={daily_trades: 40}", "+env.borrow_rate=0.01",
    )  # fmt: skip
    page = (tmp_path / "run" / "report.html").read_text()
    first, last = frame["timestamp"].iloc[[480, 558]].dt.strftime("%Y-%m-%d")
    for said in (f"{first} to {last}", "daily_trades 40", "1.00% a year", "0 bps"):
        assert said in page, said
    # By hand: 15 % of each symbol bought at the next open, costs of 3 bps, never traded again.
    told = json.loads((tmp_path / "run" / "report.json").read_text())
    held = closes[:, 480:559]
    units = 0.15 / held[:, 1:2]
    equity = 1 - 3e-4 * 0.15 + units * (held - held[:, 1:2])
    years = 78 / told["bars_per_year"]
    grown = {
        "equal_weight": np.log(equity[:, -1].mean()) / years,
        "buy_and_hold": np.log(equity[:, -1]).mean() / years,
    }
    for name, growth in grown.items():
        assert metrics["figures"][f"{name}/growth"] == pytest.approx(growth, rel=1e-9), name
        assert told["policies"][name]["growth"] == metrics["figures"][f"{name}/growth"]
    assert told["policies"]["buy_and_hold"]["trades"] == 1
    done = run("evaluate", None, f"run={tmp_path / 'run'}", "split=test")
    assert done.returncode == 0, done.stderr
    judged = json.loads((tmp_path / "run" / "evaluation_test.json").read_text())
    assert judged["split"] == "test"
    assert np.isfinite(judged["figures"]["growth"])
    assert (tmp_path / "run" / "evaluation_test" / "report.html").exists()
    refused = run("evaluate", None, f"run={tmp_path / 'run'}", "split=train")
    assert "split is validation or test, got 'train'" in refused.stderr
    # Other prices on the same days: what was learned means nothing on them.
    frame["close"] = frame["close"] * 1.001
    frame.to_csv(prices / "BBB.csv", index=False)
    for other in (
        run("offpolicy", None, f"resume={tmp_path / 'run'}", "total_frames=700"),
        run("evaluate", None, f"run={tmp_path / 'run'}"),
    ):
        assert other.returncode == 1
        assert "the prices are not those that this run was trained on" in other.stderr
