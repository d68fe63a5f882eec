"""Off-policy training through its real command lines, shrunken."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from running import (
    MARKET,
    REFERENCE,
    ROOT,
    command,
    metrics_of,
    run,
    trained,
    with_changes,
)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def test_a_run_leaves_all_it_promises(straight):
    folder, metrics = straight
    assert metrics["frames"] == 1_280
    assert metrics["updates"] == 152  # one for each 8 frames after the warm-up
    assert [each["frames"] for each in metrics["evaluations"]] == [640, 1_280]
    assert {
        "optimum_share", "score", "stochastic_share", "action_entropy", "exact_repeats"
    } <= metrics["figures"].keys()  # fmt: skip
    assert metrics["figures"]["paths"] == 256
    assert "paths" not in metrics["evaluations"][0]
    assert len(metrics["parameters_sha256"]) == 64
    assert {"seconds", "frames_per_second", "updates_per_second", "versions"} <= metrics[
        "runtime"
    ].keys()
    assert "share of the optimum" in (folder / "report.html").read_text()
    names = [path.name for path in sorted((folder / "checkpoints").iterdir())]
    assert names == ["best.pt", *(f"frames_{n:012d}.pt" for n in (640, 960, 1_280))]
    events = EventAccumulator(str(folder)).Reload().Tags()
    assert {
        "train/actor_loss", "train/critic_loss", "train/ent_coef", "train/grad_norm",
        "train/action_entropy_continuous", "train/action_coverage_histogram", "eval/optimum_share",
    } <= set(events["scalars"])  # fmt: skip
    assert {
        "actions/continuous_distribution", "rewards/component_histogram",
        "gradients/norm_distribution",
    } <= set(events["histograms"])  # fmt: skip


def test_make_train_runs_the_recipe_as_it_is():
    said = subprocess.run(["make", "-n", "train"], capture_output=True, text=True, cwd=ROOT)
    assert said.returncode == 0, said.stderr
    # under "make test" the inner make also says which folder it enters and leaves
    commands = [line for line in said.stdout.splitlines() if "recipes/" in line]
    assert len(commands) == 1
    assert commands[0].endswith("/python recipes/offpolicy.py")


def test_tensorboard_finds_the_events(straight):
    folder, _ = straight
    found = subprocess.run(
        [sys.executable, "-m", "tensorboard.main", "--inspect", "--logdir", str(folder.parent)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "eval/optimum_share" in found.stdout


def test_a_martingale_learns_with_the_settings_of_the_market(tmp_path):
    changed = ["market=martingale", "reward=log_return", "warmup_frames=100", "total_frames=320"]
    overrides = [each for each in with_changes(MARKET, *changed) if each != "alerts=none"]
    quiet = os.environ | {"TQDM_DISABLE": "1"}
    script = command("offpolicy", tmp_path, *overrides)  # the libraries read this as they load
    done = subprocess.run(script, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no bars, and nothing about a warm-up that ends within a batch
    metrics = metrics_of(tmp_path)
    assert "martingale/net_profit" not in metrics["figures"]
    config = (tmp_path / "config.yaml").read_text()
    assert "predictability: 0.0" in config
    assert "alerts: warn" in config  # a flat policy is the right one
    assert "reward: log_return" in config
    assert "reward_scale: 100.0" in config


@pytest.mark.parametrize("problem", ["merton", "ou_spread", "planted_leak"])
def test_other_problems_with_known_answers(tmp_path, problem):
    overrides = [each for each in REFERENCE if not each.startswith("env=")]
    metrics = trained(tmp_path, *overrides, f"env={problem}")
    assert np.isfinite(metrics["figures"]["optimum_share"])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("market.report_split=train", "market.report_split is validation or test, got 'train'"),
        ("lr_end=-1", "lr_end must be at least 0, got -1"),
        ("lr=-1", "lr must be above 0, got -1"),
        ("total_frames=0", "total_frames must be a whole number of at least 1, got 0"),
        ("stop_at=9999999", "stop_at must lie between 1 and total_frames"),
        ("loss.gamma=2", r"gamma must lie in \[0, 1\], got 2"),
        ("matmul_precision=low", "matmul_precision is auto, highest, high, medium, got 'low'"),
        ("env=nothing", "Could not find 'env/nothing'"),
        ("learning_rate=1", "learning_rate"),
        ("window=3", "only trading has windows"),
        ("reward=log_return", "only trading has rewards"),
        ("+env.problem=os.system", "env.problem is one of"),
        ("total_frames=abc", "total_frames must be a whole number, got 'abc'"),
        ("lr=fast", "lr must be a number, got 'fast'"),
        ("hidden=64", r"hidden must be a list of whole numbers, \[64,64\] say, got 64"),
        ("env.num_envs=0", "env.num_envs must be a whole number of at least 1, got 0"),
        ("+env.stepz=3", "env.stepz is no setting of GarleanuPedersen, which has risk, cost"),
        ("warmup_frames=1_280", "total_frames=1280 leaves no updates at updates_per_frame=0.125"),
        ("webhook=abc", "webhook: the address must begin with http"),
        ("market=csv", "market.path=... is needed"),
        ("checkpoint=best", "checkpoint=best is where a run is gone on with: give resume="),
    ],
)
def test_bad_settings_are_refused(tmp_path, override, said):
    changed = [each for each in REFERENCE if each.split("=")[0] != override.split("=")[0]]
    done = run("offpolicy", tmp_path, *changed, override.replace("+env.problem", "env.problem"))
    assert done.returncode != 0
    assert re.search(said, done.stderr), done.stderr[-500:]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("env.actions=hybrid", "env.actions continuous or target or discrete, got 'hybrid'"),
        ("+env.assets=2", "env.assets 1, got 2"),
        ("+env.reward=objectives", "got 'objectives'"),
        ("+env.shorts=true", "shorts"),
        ("+env.reward={_target_: nothing.Reward}", "env.reward: Error locating target"),
        ("+env.limits={drawdwn: 0.1}", "env.limits.drawdwn is no setting of Limits, which has"),
        ("+env.limits={drawdown: 2}", "drawdown is a share of equity below 1"),
        ("+env.commission=abc", "env.commission must lie in [0, "),
        ("++env.episode_bars=999", "env.episode_bars=999 after 63 bars of warm-up need"),
        ("market.train.paths=0", "market.train.paths must be a whole number, at least 1, got 0"),
        ("market.knobs.noise=abc", "noise must be a finite number, got 'abc'"),
    ],
)
def test_unsuitable_markets_are_refused(tmp_path, override, said):
    done = run("offpolicy", tmp_path, *MARKET, override)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_rule_may_roll_back(tmp_path):
    rule = "{metric: train/learning_rate, above: 0, then: roll_back}"
    overrides = [each for each in REFERENCE if each != "alerts=none"]
    done = run("offpolicy", tmp_path, *overrides, f"alerts=[{rule}]", "watch_from=1")
    assert done.returncode == 1, done.stderr
    assert "the last good checkpoint is" in done.stdout + done.stderr
    assert "went back once already" in metrics_of(tmp_path)["stopped"]


def test_what_is_not_finite_goes_back_once_and_then_stops(tmp_path):
    done = run("offpolicy", tmp_path, *REFERENCE, "lr=1e30", "lr_end=1e30", "max_grad_norm=1e30")
    assert done.returncode == 1
    assert re.search(r"not finite at update \d+", done.stdout + done.stderr)
    assert "the last good checkpoint is" in done.stdout + done.stderr
    assert "went back once already" in done.stdout
    assert metrics_of(tmp_path)["stopped"]
    lines = (tmp_path / "alerts.jsonl").read_text().splitlines()
    assert [json.loads(each)["then"] for each in lines] == ["roll_back", "stop"]


def test_what_is_not_finite_may_stop_at_once(tmp_path):
    overrides = [each for each in REFERENCE if each != "alerts=none"]
    broken = ["lr=1e30", "lr_end=1e30", "max_grad_norm=1e30"]
    done = run("offpolicy", tmp_path, *overrides, *broken, "alerts={rules: none, non_finite: stop}")
    assert done.returncode == 1
    lines = (tmp_path / "alerts.jsonl").read_text().splitlines()
    assert [json.loads(each)["then"] for each in lines] == ["stop"]


def test_what_is_not_finite_cannot_be_gone_on_with(tmp_path):
    refused = run("offpolicy", tmp_path, *REFERENCE, "alerts={non_finite: warn}")
    assert refused.returncode == 1
    assert "alerts.non_finite=warn: nothing can be learned" in refused.stderr


def test_a_collapsed_policy_stops_the_run(tmp_path):
    rule = "{metric: eval/action_entropy, below: 99, severity: critical}"
    done = run(
        "offpolicy",
        tmp_path,
        *[each for each in MARKET if each != "alerts=none"],
        f"alerts=[{rule}]",
        "watch_from=1",
    )
    assert done.returncode == 1, done.stderr
    assert "eval/action_entropy" in metrics_of(tmp_path)["stopped"]
    assert metrics_of(tmp_path)["frames"] == 320


def test_help_says_what_can_be_changed():
    for name in ("offpolicy", "evaluate"):
        done = run(name, None, "--help")
        assert done.returncode == 0
        assert "python recipes/" in done.stdout
