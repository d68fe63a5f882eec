"""Off-policy training through its real command lines, shrunken."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = Path(__file__).resolve().parents[2]

TINY = ["hidden=[16]", "threads=1", "batch_size=32", "alerts=none"]
REFERENCE = [
    *TINY, "env=garleanu_pedersen", "env.num_envs=8", "updates_per_frame=0.125", "warmup_frames=64",
    "total_frames=1_280", "evaluate_every=640", "checkpoint_every=320", "log_every=160",
]  # fmt: skip
MARKET = [
    *TINY, "env.num_envs=8", "updates_per_frame=0.125", "warmup_frames=64", "total_frames=640",
    "evaluate_every=320", "checkpoint_every=320", "log_every=160", "+env.compiled=false",
    "+env.episode_bars=100",
    "market.train.paths=4", "market.train.bars=300", "market.validation.paths=2",
    "market.validation.bars=60", "market.test.paths=3", "market.test.bars=80",
]  # fmt: skip


LONG = 100_000


def command(name, folder, *overrides):
    given = [] if folder is None else [f"hydra.run.dir={folder}"]
    return [sys.executable, str(ROOT / "recipes" / f"{name}.py"), *given, *overrides]


def run(folder, *overrides, name="offpolicy"):
    return subprocess.run(
        command(name, folder, *overrides), capture_output=True, text=True, cwd=folder or ROOT
    )


def trained(folder, *overrides):
    folder.mkdir(exist_ok=True)
    done = run(folder, *overrides)
    assert done.returncode == 0, done.stderr
    return metrics_of(folder)


def metrics_of(folder):
    return json.loads((folder / "metrics.json").read_text())


def same(first, second):
    """All but what comparisons leave out."""
    return all(first[key] == second[key] for key in first if key not in ("runtime", "stopped"))


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run on a reference problem from beginning to end."""
    folder = tmp_path_factory.mktemp("straight")
    return folder, trained(folder, *REFERENCE)


def test_a_run_leaves_all_it_promises(straight):
    folder, metrics = straight
    assert metrics["frames"] == 1_280
    assert metrics["updates"] == 152  # one for each 8 frames after the warm-up
    assert [each["frames"] for each in metrics["evaluations"]] == [640, 1_280]
    assert {
        "optimum_share", "score", "stochastic_share", "action_entropy", "exact_repeats"
    } <= metrics["figures"].keys()  # fmt: skip
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


def test_one_seed_is_one_result_and_another_seed_another(straight, tmp_path):
    _, first = straight
    assert same(first, trained(tmp_path / "again", *REFERENCE))
    other = trained(tmp_path / "other", *REFERENCE, "seed=1")
    assert other["parameters_sha256"] != first["parameters_sha256"]


def stopped_and_resumed(folder, overrides, stop_at):
    first = trained(folder, *overrides, f"stop_at={stop_at}")
    assert first["frames"] == stop_at
    assert first["figures"] == {}
    done = run(None, f"resume={folder}", "stop_at=null")
    assert done.returncode == 0, done.stderr
    return metrics_of(folder)


def test_stopping_and_going_on_changes_nothing(straight, tmp_path):
    _, whole = straight
    # 560 is no multiple of anything, and in the middle of an episode of 200 steps.
    assert same(whole, stopped_and_resumed(tmp_path / "halves", REFERENCE, 560))


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
    refused = run(folder, *REFERENCE)
    assert refused.returncode != 0
    assert "holds a run already" in refused.stderr
    assert metrics_of(folder) == metrics


def test_only_the_length_may_change_when_going_on(straight):
    folder, _ = straight
    refused = run(None, f"resume={folder}", "lr=1e-2")
    assert refused.returncode != 0
    assert "lr cannot change" in refused.stderr
    assert "no config.yaml" in run(None, f"resume={folder.parent}/nothing").stderr
    assert not (folder.parent / "nothing").exists()


def test_a_longer_run_goes_on_from_a_finished_one(tmp_path):
    trained(tmp_path, *REFERENCE)
    done = run(None, f"resume={tmp_path}", "total_frames=1_600")
    assert done.returncode == 0, done.stderr
    assert metrics_of(tmp_path)["frames"] == 1_600
    assert "total_frames: 1600" in (tmp_path / "config.yaml").read_text()


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
    again = run(None, f"resume={tmp_path}", f"stop_at={stopped['frames'] + 80}")
    assert again.returncode == 0, again.stderr
    straight = trained(tmp_path / "straight", *long, f"stop_at={stopped['frames'] + 80}")
    assert same(straight, metrics_of(tmp_path))


@pytest.mark.parametrize("loss", ["td3", "ddpg", "redq", "tqc", "crossq", "sac_torchrl"])
def test_another_loss_is_one_word(straight, tmp_path, loss):
    _, sac = straight
    overrides = [*REFERENCE, "+env.steps=20", f"loss={loss}"]
    whole = trained(tmp_path / "whole", *overrides)
    assert whole["updates"] == sac["updates"]
    assert whole["parameters_sha256"] != sac["parameters_sha256"]
    stopped = stopped_and_resumed(tmp_path / "halves", overrides, 560)
    assert same(whole, stopped)


@pytest.mark.parametrize("loss", ["sac_discrete", "dqn"])
def test_discrete_agents_on_a_reference_problem(tmp_path, loss):
    grid = [*REFERENCE, "env.actions=discrete", "env.choices=5", f"loss={loss}"]
    grid += ["+env.steps=20", "total_frames=960"]
    whole = trained(tmp_path / "whole", *grid)
    assert whole["updates"] == 112
    figures = whole["figures"]
    assert figures["optimum_share"] < 1
    assert 0 < figures["coverage"] <= 5 / 7  # five actions in seven bins
    assert "evenly spaced actions" in (tmp_path / "whole" / "report.html").read_text()
    assert same(whole, stopped_and_resumed(tmp_path / "halves", grid, 560))


@pytest.mark.parametrize(("loss", "window"), [("sac_discrete", "8"), ("dqn", "null")])
def test_discrete_agents_on_the_market(tmp_path, loss, window):
    names = [*MARKET, "env.actions=discrete", f"loss={loss}", f"window={window}"]
    whole = trained(tmp_path / "whole", *names)
    figures = whole["figures"]
    assert {"sharpe_share", "growth_share", "oracle_full/growth"} <= figures.keys()
    assert "growth_share" in whole["evaluations"][0]
    # The optimum is that of agents that set targets on the same paths.
    if loss == "dqn":
        target = trained(tmp_path / "target", *MARKET)["figures"]
        assert figures["oracle_full/growth"] == target["oracle_full/growth"]
    within_warmup, later = 40, 360
    stop_at = within_warmup if loss == "dqn" else later
    assert same(whole, stopped_and_resumed(tmp_path / "halves", names, stop_at))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["loss=dqn"], "add env.actions=discrete"),
        (["env.actions=discrete"], "take loss=sac_discrete or loss=dqn"),
        (["env=pendulum", "loss=dqn"], "or take loss=sac"),
        (["env=pendulum", "env.actions=discrete"], "numbers for actions and no others"),
        (["env=merton", "env.actions=discrete", "loss=td3"], "take loss=sac_discrete or loss=dqn"),
    ],
)
def test_losses_and_actions_that_do_not_fit_are_refused(tmp_path, overrides, said):
    names = [each.split("=")[0] for each in overrides]
    kept = [each for each in MARKET if each.split("=")[0] not in names]
    if "env" in names:
        kept = [each for each in kept if "env." not in each]
    done = run(tmp_path, *kept, *overrides)
    assert done.returncode != 0
    assert said in done.stderr, done.stderr[-600:]


OWN = [
    # what the docs speak of, page, begins with, Python file, yaml file, overrides
    ("agents.md", "**A loss of your own**", "my_losses", "loss/cautious",
     [*REFERENCE, "stop_at=320", "loss.caution=2.0"], "caution: 2.0"),
    ("agents.md", "**Another loss of TorchRL**", "my_losses", "loss/ddpg_torchrl",
     [*REFERENCE, "stop_at=320"], "TorchRLDDPG"),
    ("agents.md", "**A network of your own**", "my_networks", "network/residual",
     [*MARKET, "window=4", "network.step=0.25"],
     "step: 0.25"),
    ("environment.md", "## A reward of your own", "my_rewards", "reward/steady",
     [*MARKET, "env.reward.fear=0.5"], "fear: 0.5"),
]  # fmt: skip


def as_the_docs_have_it(folder, page, begins, code, settings):
    """Writes the first block of Python and of yaml that follow these words."""
    said = (ROOT / "docs" / page).read_text().split(begins)[1]
    for kind, path in (("python", f"{code}.py"), ("yaml", f"conf/{settings}.yaml")):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        found = re.search(rf"```{kind}\n(.*?)```", said, re.DOTALL)
        (folder / path).write_text(("import torch\n" if kind == "python" else "") + found[1])


def run_own(folder, name, settings, *overrides):
    given = ["--config-dir", str(folder / "conf"), f"hydra.run.dir={folder / name}"]
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [*command("offpolicy", None, *given, *overrides), settings.replace("/", "=")],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, cwd=folder,
    )  # fmt: skip


@pytest.mark.parametrize(("page", "begins", "code", "settings", "overrides", "kept"), OWN)
def test_what_is_your_own_as_the_docs_have_it(
    tmp_path, page, begins, code, settings, overrides, kept
):
    as_the_docs_have_it(tmp_path, page, begins, code, settings)
    done = run_own(tmp_path, "run", settings, *overrides)
    assert done.returncode == 0, done.stderr
    assert kept in (tmp_path / "run" / "config.yaml").read_text()
    metrics = metrics_of(tmp_path / "run")
    assert metrics["updates"] > 0
    assert np.isfinite(metrics["figures"].get("growth", 0.0))


def test_a_broken_reward_of_your_own_is_refused(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "my_rewards.py").write_text("def half(bar):\n    return bar.equity.mean()\n")
    given = ["++env.reward={_target_: my_rewards.half, _partial_: true}"]
    refused = run_own(tmp_path, "run", "env/long_only", *MARKET, *given)
    assert refused.returncode == 1
    assert "must return one number for each" in refused.stderr


def test_what_is_no_loss_is_refused(tmp_path):
    for path, said in (
        ("os.system", "must be a LossModule"),
        ("nothing.Loss", "cannot be imported"),
        ("torchrl.objectives.SACLoss", "SACLoss has no update_targets(rate)"),
        (
            "trading_torchrl.objectives.TD3Loss",
            "TD3Loss takes actor_network, qvalue_network",
        ),
    ):
        refused = run(tmp_path, *REFERENCE, f"loss._target_={path}")
        assert refused.returncode == 1
        assert said in refused.stderr


def test_prices_from_files(tmp_path):
    prices = tmp_path / "prices"
    prices.mkdir()
    generator = np.random.default_rng(0)
    for name in ("AAA", "BBB"):
        close = 100 * np.exp(np.cumsum(0.01 * generator.standard_normal(700)))
        frame = pd.DataFrame(
            {
                "timestamp": pd.date_range("2015-01-01", periods=700, freq="D"),
                "open": close, "high": close * 1.01, "low": close * 0.99, "close": close,
                "volume": 1e6,
            }
        )  # fmt: skip
        frame.to_csv(prices / f"{name}.csv", index=False)
    overrides = [each for each in MARKET if not each.startswith("market.")]
    metrics = trained(
        tmp_path / "run", *overrides, "market=csv", f"market.path={prices}", "market.embargo=5",
        "env=long_only",
    )  # fmt: skip
    assert "buy_and_hold/growth" in metrics["figures"]
    done = run(None, f"run={tmp_path / 'run'}", "split=test", name="evaluate")
    assert done.returncode == 0, done.stderr
    judged = json.loads((tmp_path / "run" / "evaluation_test.json").read_text())
    assert judged["split"] == "test"
    assert np.isfinite(judged["figures"]["growth"])
    assert (tmp_path / "run" / "evaluation_test" / "report.html").exists()
    refused = run(None, f"run={tmp_path / 'run'}", "split=train", name="evaluate")
    assert "split is validation or test, got 'train'" in refused.stderr
    # Other prices on the same days: what was learned means nothing on them.
    frame["close"] = frame["close"] * 1.001
    frame.to_csv(prices / "BBB.csv", index=False)
    for other in (
        run(None, f"resume={tmp_path / 'run'}", "total_frames=700"),
        run(None, f"run={tmp_path / 'run'}", name="evaluate"),
    ):
        assert other.returncode == 1
        assert "the prices are not those that this run was trained on" in other.stderr


def trained_in(folder, *overrides):
    trained(folder, *REFERENCE, *overrides)
    return folder


def test_several_seeds_become_one_report(straight, tmp_path):
    folder, first = straight
    second = trained(tmp_path / "second", *REFERENCE, "seed=1")
    both = f"run=[{folder},{tmp_path / 'second'}]"
    done = run(None, both, f"out={tmp_path / 'out'}", "split=test", name="evaluate")
    assert done.returncode == 0, done.stderr
    judged = json.loads((tmp_path / "out" / "evaluation_test.json").read_text())
    assert [each["seed"] for each in judged["runs"]] == [0, 1]
    shares = judged["figures"]["optimum_share"]
    assert len(shares) == 2
    assert shares[0] != shares[1]
    assert "2 seeds" in (tmp_path / "out" / "evaluation_test" / "report.html").read_text()
    # On the split that the runs reported themselves, it is what they said.
    name = f"checkpoint=frames_{first['frames']:012d}.pt"
    run(None, both, f"out={tmp_path / 'out'}", name, name="evaluate")
    (again,) = (tmp_path / "out").glob("evaluation_validation_frames_*.json")
    said = json.loads(again.read_text())["figures"]["optimum_share"]
    assert said == [each["figures"]["optimum_share"] for each in (first, second)]

    assert "give out=" in run(None, both, name="evaluate").stderr
    for other, said in (
        (trained_in(tmp_path / "other", "lr=1e-3", "seed=1"), "these runs differ in lr"),
        (folder, "these runs have seeds [0, 0]"),
        (trained_in(tmp_path / "half", "seed=1", "stop_at=640"), "finish both"),
    ):
        refused = run(None, f"run=[{folder},{other}]", f"out={tmp_path / 'no'}", name="evaluate")
        assert refused.returncode == 1
        assert said in refused.stderr
    missing = run(None, f"run={folder}", "checkpoint=frames_9.pt", name="evaluate")
    assert "frames_9.pt cannot be read" in missing.stderr


def test_a_martingale_learns_with_the_settings_of_the_market(tmp_path):
    overrides = [each for each in MARKET if each != "market=synthetic"]
    metrics = trained(tmp_path, *overrides, "market=martingale", "reward=log_return")
    assert "martingale/net_profit" not in metrics["figures"]
    config = (tmp_path / "config.yaml").read_text()
    assert "predictability: 0.0" in config
    assert "reward: log_return" in config
    assert "reward_scale: 100.0" in config


@pytest.mark.parametrize("problem", ["merton", "ou_spread", "planted_leak"])
def test_other_problems_with_known_answers(tmp_path, problem):
    overrides = [each for each in REFERENCE if not each.startswith("env=")]
    metrics = trained(tmp_path, *overrides, f"env={problem}", "+env.steps=20")
    assert np.isfinite(metrics["figures"]["optimum_share"])


def test_pendulum_and_going_on_with_it(tmp_path):
    overrides = [
        *TINY, "env=pendulum", "total_frames=600", "warmup_frames=100", "updates_per_frame=0.1",
        "evaluate_every=300", "checkpoint_every=250",
    ]  # fmt: skip
    whole = trained(tmp_path / "whole", *overrides)
    assert -2_000 < whole["figures"]["return"] < 0
    assert same(whole, stopped_and_resumed(tmp_path / "halves", overrides, 310))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("market.report_split=train", "market.report_split is validation or test, got 'train'"),
        ("lr_end=-1", "lr_end must be at least 0, got -1"),
        ("lr=-1", "lr must be above 0, got -1"),
        ("total_frames=0", "total_frames must be a whole number of at least 1, got 0"),
        ("stop_at=9999999", "stop_at must lie between 1 and total_frames"),
        ("loss.gamma=2", r"gamma must lie in \[0, 1\], got 2"),
        ("matmul_precision=low", "matmul_precision is highest, high or medium, got 'low'"),
        ("env=nothing", "Could not find 'env/nothing'"),
        ("learning_rate=1", "learning_rate"),
        ("window=3", "only trading has windows"),
        ("reward=log_return", "only trading has rewards"),
        ("+env.problem=os.system", "env.problem is one of"),
    ],
)
def test_bad_settings_are_refused(tmp_path, override, said):
    changed = [each for each in REFERENCE if each.split("=")[0] != override.split("=")[0]]
    done = run(tmp_path, *changed, override.replace("+env.problem", "env.problem"))
    assert done.returncode != 0
    assert re.search(said, done.stderr), done.stderr[-500:]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("env.actions=hybrid", "env.actions continuous or target or discrete, got 'hybrid'"),
        ("+env.assets=2", "env.assets 1, got 2"),
        ("+env.reward=objectives", "got 'objectives'"),
        ("+env.shorts=true", "shorts"),
        ("+env.reward={_target_: nothing.Reward}", "env.reward: Error locating target"),
    ],
)
def test_unsuitable_markets_are_refused(tmp_path, override, said):
    done = run(tmp_path, *MARKET, override)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_rule_may_roll_back(tmp_path):
    rule = "{metric: train/learning_rate, above: 0, then: roll_back}"
    overrides = [each for each in REFERENCE if each != "alerts=none"]
    done = run(tmp_path, *overrides, f"alerts=[{rule}]", "watch_from=1")
    assert done.returncode == 1, done.stderr
    assert "the last good checkpoint is" in done.stdout + done.stderr
    assert "went back once already" in metrics_of(tmp_path)["stopped"]


def test_what_is_not_finite_goes_back_once_and_then_stops(tmp_path):
    done = run(tmp_path, *REFERENCE, "lr=1e30", "lr_end=1e30", "max_grad_norm=1e30")
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
    done = run(tmp_path, *overrides, *broken, "alerts={rules: none, non_finite: stop}")
    assert done.returncode == 1
    lines = (tmp_path / "alerts.jsonl").read_text().splitlines()
    assert [json.loads(each)["then"] for each in lines] == ["stop"]


def test_what_is_not_finite_cannot_be_gone_on_with(tmp_path):
    refused = run(tmp_path, *REFERENCE, "alerts={non_finite: warn}")
    assert refused.returncode == 1
    assert "alerts.non_finite=warn: nothing can be learned" in refused.stderr


def test_a_collapsed_policy_stops_the_run(tmp_path):
    rule = "{metric: eval/action_entropy, below: 99, severity: critical}"
    done = run(
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
        done = run(None, "--help", name=name)
        assert done.returncode == 0
        assert "python recipes/" in done.stdout
