"""Runs that stop and go on, and runs that are repeated."""

import importlib
import math
import shutil
import signal
import subprocess
import time

import pytest
from running import (
    MARKET,
    REFERENCE,
    ROOT,
    TINY,
    command,
    metrics_of,
    run,
    same,
    stopped_and_resumed,
    trained,
    with_changes,
)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.envs.progress import check_fit
from trading_torchrl.state_file import CheckpointError


def test_one_seed_is_one_result_and_another_seed_another(straight, tmp_path):
    _, first = straight
    assert same(first, trained(tmp_path / "again", *REFERENCE))
    other = trained(tmp_path / "other", *REFERENCE, "seed=1")
    assert other["parameters_sha256"] != first["parameters_sha256"]


def test_stopping_and_going_on_changes_nothing(straight, tmp_path):
    _, whole = straight
    # 560 is no multiple of anything, and in the middle of an episode of 20 steps.
    assert same(whole, stopped_and_resumed(tmp_path / "halves", REFERENCE, 560))


def test_where_updates_are_rare_figures_and_alerts_go_on_too(tmp_path):
    """One update every 4 batches: the stop at 232 lies between one at 224 and the log at 240."""
    overrides = with_changes(
        REFERENCE, "updates_per_frame=0.03125", "log_every=80", "total_frames=400",
        "alerts={rules: [{metric: train/grad_norm, above: 0}], cooldown_seconds: 0}",
        "warmup_frames=96", "watch_from=0",
    )  # fmt: skip
    whole = trained(tmp_path / "whole", *overrides)
    assert same(whole, stopped_and_resumed(tmp_path / "halves", overrides, 232))
    one, other = (
        EventAccumulator(str(tmp_path / name), {"histograms": 0}).Reload()
        for name in ("whole", "halves")
    )
    logged = [each.step for each in one.Scalars("train/grad_norm")]
    assert logged == [160, 240, 320, 400]
    for name in one.Tags()["scalars"]:
        first, second = (
            [(each.step, each.value) for each in events.Scalars(name)] for events in (one, other)
        )
        assert first == second, name
    largest = [each.histogram_value.max for each in one.Histograms("gradients/norm_distribution")]
    assert [each.value for each in one.Scalars("train/grad_norm")] == pytest.approx(largest)


@pytest.mark.parametrize(
    "changed", [["window=null"], ["window=8"], ["+env.compiled=true", "threads=2"]]
)
def test_a_market_run_goes_on_too(tmp_path, changed):
    names = [each.split("=")[0] for each in changed]
    overrides = [*(each for each in MARKET if each.split("=")[0] not in names), *changed]
    whole = trained(tmp_path / "whole", *overrides)
    assert same(whole, stopped_and_resumed(tmp_path / "halves", overrides, 360))
    assert {"growth_share", "sortino", "stochastic_sharpe"} <= whole["evaluations"][0].keys()
    figures = whole["figures"]
    assert {
        "sharpe_share",
        "growth_share",
        "martingale/net_profit",
        "random/growth",
    } <= figures.keys()
    events = EventAccumulator(str(tmp_path / "whole")).Reload().Tags()["scalars"]
    assert {
        "train/trade_execution_rate", "eval/sharpe_ratio_mean", "eval/sortino",
        "eval/total_return", "eval/growth_share", "eval/max_drawdown", "eval/win_rate",
        "eval/profit_factor", "eval/position_std",
    } <= set(events)  # fmt: skip
    report = (tmp_path / "whole" / "report.html").read_text()
    for said in ("3 bps", "next open", "oracle_full", "buy_and_hold", "Control"):
        assert said in report, said


def test_a_folder_that_holds_a_run_is_refused(straight):
    folder, metrics = straight
    refused = run("offpolicy", folder, *REFERENCE)
    assert refused.returncode != 0
    assert "holds a run already" in refused.stderr
    assert metrics_of(folder) == metrics


def test_only_the_length_may_change_when_going_on(straight):
    folder, _ = straight
    refused = run("offpolicy", None, f"resume={folder}", "lr=1e-2")
    assert refused.returncode != 0
    assert "lr cannot change" in refused.stderr
    assert "no config.yaml" in run("offpolicy", None, f"resume={folder.parent}/nothing").stderr
    assert not (folder.parent / "nothing").exists()


def test_a_longer_run_goes_on_from_a_finished_one(tmp_path):
    trained(tmp_path, *REFERENCE)
    done = run("offpolicy", None, f"resume={tmp_path}", "total_frames=1_600")
    assert done.returncode == 0, done.stderr
    assert metrics_of(tmp_path)["frames"] == 1_600
    assert "total_frames: 1600" in (tmp_path / "config.yaml").read_text()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_going_back_to_an_earlier_checkpoint(straight, tmp_path):
    folder, whole = straight
    back = tmp_path / "back"
    shutil.copytree(folder, back)
    before = names(back / "checkpoints")
    for override, said in (
        ("checkpoint=frames_9.pt", "frames_9.pt is not there; name one that is (frames_00000"),
        ("total_frames=1_000", "total_frames=1000 is less than the 1,280 frames that this run has"),
    ):
        refused = run("offpolicy", None, f"resume={back}", override)
        assert refused.returncode == 1
        assert said in refused.stderr
        assert "Traceback" not in refused.stderr
    assert names(back / "checkpoints") == before
    assert (back / "config.yaml").read_text() == (folder / "config.yaml").read_text()

    ended = run("offpolicy", None, f"resume={back}", "checkpoint=frames_000000000640.pt")
    assert ended.returncode == 0, ended.stderr
    assert same(whole, metrics_of(back))
    aside = names(back / "checkpoints" / "aside_1")
    assert [each for each in aside if each != "best.pt"] == [
        "frames_000000000960.pt", "frames_000000001280.pt"
    ]  # fmt: skip
    assert names(back / "checkpoints") == ["aside_1", *before]


def test_what_came_later_is_moved_aside(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    module = importlib.import_module("going_back")
    checkpoints = Checkpoints(tmp_path)
    for frames in (1, 2, 3):
        state = {"count": {"frames": frames, "best": float(min(frames, 2))}}
        checkpoints.save(frames, state, best=frames == 2)
    first, second, third = (f"frames_{frames:012d}.pt" for frames in (1, 2, 3))

    module.go_back(checkpoints, "best", "frames")
    assert names(tmp_path) == ["aside_1", "best.pt", first, second]
    assert names(tmp_path / "aside_1") == [third]
    assert checkpoints.newest()[1]["count"] == {"frames": 2, "best": 2.0}

    # With the best one gone, the next to come is the best.
    module.go_back(checkpoints, first, "frames")
    assert names(tmp_path) == ["aside_1", "aside_2", first]
    assert names(tmp_path / "aside_2") == ["best.pt", second]
    assert checkpoints.newest()[1]["count"] == {"frames": 1, "best": -math.inf}

    # And there again.
    module.go_back(checkpoints, f"aside_1/{third}", "frames")
    assert checkpoints.newest()[0].name == third
    assert module.reached(checkpoints, "newest", "frames") == 3
    assert module.reached(checkpoints, first, "frames") == 1
    with pytest.raises(CheckpointError, match=r"frames_7\.pt is not there; name one that is"):
        module.go_back(checkpoints, "frames_7.pt", "frames")


def test_accounts_that_were_compiled_say_what_to_do_without_a_compiler():
    with pytest.raises(ValueError, match=r"compiled was True there and is False here.* CXX names"):
        check_fit({"compiled": True}, {"compiled": False})


LONG = 100_000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(tmp_path, number):
    long = [*(each for each in REFERENCE if "frames=1_" not in each), f"total_frames={LONG}"]
    process = subprocess.Popen(
        command("offpolicy", tmp_path, *long),
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not list(tmp_path.glob("checkpoints/frames_*[1-9]0.pt")) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert f"stopped: {number.name}" in out
    stopped = metrics_of(tmp_path)
    assert 0 < stopped["frames"] < LONG
    assert stopped["figures"] == {}
    again = run("offpolicy", None, f"resume={tmp_path}", f"stop_at={stopped['frames'] + 80}")
    assert again.returncode == 0, again.stderr
    straight = trained(tmp_path / "straight", *long, f"stop_at={stopped['frames'] + 80}")
    assert same(straight, metrics_of(tmp_path))


def test_pendulum_and_going_on_with_it(tmp_path):
    overrides = [
        *TINY, "env=pendulum", "env.num_envs=1", "total_frames=600", "warmup_frames=100",
        "updates_per_frame=0.1", "evaluate_every=300", "checkpoint_every=250",
    ]  # fmt: skip
    whole = trained(tmp_path / "whole", *overrides)
    assert -2_000 < whole["figures"]["return"] < 0
    assert same(whole, stopped_and_resumed(tmp_path / "halves", overrides, 310))
