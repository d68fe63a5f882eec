"""Offline training through its real command lines, shrunken."""

import importlib
import json
import re
import shutil
import signal
import subprocess
import time

import pytest
import running
import torch
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from running import ROOT, command, done, metrics_of, run, same
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trading_torchrl.state_file import load, save

SHORT = ["total_frames=320", "evaluate_every=320"]
REFERENCE = [*running.REFERENCE, *SHORT]
MARKET = [*running.MARKET, *SHORT]
OFFLINE = ["threads=1", "updates=60", "evaluate_every=30", "checkpoint_every=20", "log_every=20"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A run on a reference problem that leaves its replay."""
    folder = tmp_path_factory.mktemp("data")
    done("offpolicy", folder, *REFERENCE, "replay.save=true")
    return folder


@pytest.fixture(scope="module")
def learned(data, tmp_path_factory):
    """What IQL makes of it, and goes on with online."""
    folder = tmp_path_factory.mktemp("learned")
    settings = [f"data={data}", *OFFLINE, "fine_tune_frames=160"]
    return folder, settings, done("offline", folder, *settings)


def test_a_run_leaves_all_that_others_do(data, learned):
    folder, _, metrics = learned
    assert metrics["updates"] == 60 + 160 / 8
    assert metrics["frames"] == 160
    assert metrics["data"]["filled"] == 320
    rewards = load(data / "replay.pt")["rows"]["next"]["reward"]
    assert metrics["data"]["mean_reward"] == pytest.approx(float(rewards.mean()))
    assert [each["updates"] for each in metrics["evaluations"]] == [30, 60]
    assert "optimum_share" in metrics["figures"]
    assert "320 rows" in (folder / "report.html").read_text()
    events = EventAccumulator(str(folder)).Reload().Tags()
    assert {
        "train/actor_loss", "train/critic_loss", "train/grad_norm", "train/reward",
        "train/action_entropy_continuous", "eval/optimum_share",
    } <= set(events["scalars"])  # fmt: skip
    assert "actions/continuous_distribution" in events["histograms"]
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    theirs = yaml.safe_load((data / "config.yaml").read_text())
    for name in ("env", "market", "network", "hidden", "gamma", "reward_scale", "batch_size"):
        assert settings[name] == theirs[name], name


def test_its_folder_is_evaluated_as_any_other(learned):
    folder, _, metrics = learned
    ended = run("evaluate", None, f"run={folder}", "split=validation")
    assert ended.returncode == 0, ended.stderr
    judged = json.loads((folder / "evaluation_validation.json").read_text())
    assert judged["figures"]["optimum_share"] == metrics["figures"]["optimum_share"]
    assert judged["runs"][0]["updates"] == 80


def resumed(name, folder, *overrides):
    ended = run(name, None, f"resume={folder}", *overrides)
    assert ended.returncode == 0, ended.stderr
    return metrics_of(folder)


def test_a_kill_and_a_stop_change_nothing(data, learned, tmp_path):
    """Killed while it learns from stored rows, stopped while it collects, then made longer."""
    _, settings, whole = learned
    theirs, folder = tmp_path / "data", tmp_path / "run"
    shutil.copytree(data, theirs)
    process = subprocess.Popen(
        command("offline", folder, f"data={theirs}", *settings[1:]),
        stderr=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not list(folder.glob("checkpoints/frames_*[1-9]0.pt")) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    stopped = resumed("offline", folder, "stop_at=70")
    assert stopped["updates"] == 70
    assert stopped["figures"] == {}
    ended = resumed("offline", folder)
    for each in (ended, whole):
        assert each["data"].pop("checksum")
    assert same(whole, ended)
    longer = resumed("offline", folder, "fine_tune_frames=240")
    assert (longer["updates"], longer["frames"]) == (90, 240)
    later = resumed("offline", folder, "updates=70")  # nothing is collected once more
    assert (later["updates"], later["frames"]) == (100, 240)

    saved = load(theirs / "replay.pt")
    saved["rows"]["next"]["reward"][0] += 1
    save(theirs / "replay.pt", saved)
    refused = run("offline", None, f"resume={folder}")
    assert refused.returncode == 1
    assert "holds other data than this run began with" in refused.stderr


def test_a_market_with_windows_and_a_run_that_begins_with_what_was_learned(tmp_path):
    data, offline, online = (tmp_path / name for name in ("data", "cql", "sac"))
    settings = [*MARKET, "window=8"]
    done("offpolicy", data, *settings, "replay.save=true")
    given = [f"data={data}", *OFFLINE[:2], "loss=cql", "market.report_split=test"]
    metrics = done("offline", offline, *given, "evaluate_every=60")
    assert metrics["split"] == "test"
    assert {"growth_share", "sharpe_ratio_mean"} <= metrics["figures"].keys()

    known = load(offline / "checkpoints" / "frames_000000000060.pt")
    done("offpolicy", online, *settings, f"init={offline}", "loss=sac")
    first = load(online / "checkpoints" / "frames_000000000000.pt")
    assert first["averaged"].keys() == known["averaged"].keys()
    for name, value in known["averaged"].items():
        assert first["averaged"][name].equal(value), name
    for name in ("qvalue_network", "target_qvalue_network"):
        mine = {key: value for key, value in first["loss"].items() if key.startswith(name)}
        assert mine
        assert all(value.equal(known["loss"][key]) for key, value in mine.items()), name


def test_iql_learns_online_too(tmp_path):
    assert done("offpolicy", tmp_path, *REFERENCE, "loss=iql")["updates"] == 32


def test_fine_tuning_collects_what_it_was_told_to_and_leaves_it(data, tmp_path):
    """Few updates a frame: the last one owes far more frames than are to be collected."""
    first, second = tmp_path / "first", tmp_path / "second"
    given = [*OFFLINE[:2], "evaluate_every=60", "replay.save=true"]
    tuned = ["updates_per_frame=0.0005", "fine_tune_frames=100"]
    metrics = done("offline", first, f"data={data}", *given, *tuned)
    assert (metrics["updates"], metrics["frames"]) == (61, 104)  # by batches of 8
    saved, known = load(first / "replay.pt"), load(data / "replay.pt")
    assert (saved["filled"], saved["frames"], saved["wrapped"]) == (424, 424, False)
    assert saved["rows"]["action"][:320].equal(known["rows"]["action"])
    again = done("offline", second, f"data={first}", *given[:-1], "loss=bc")
    assert again["data"]["filled"] == 424
    assert not (second / "replay.pt").exists()

    settings = (first / "config.yaml").read_text()
    refused = run("offline", None, f"resume={first}", "fine_tune_frames=96")
    assert refused.returncode == 1
    assert "fine_tune_frames=96: this run has collected 104 already" in refused.stderr
    assert (first / "config.yaml").read_text() == settings


def test_cloning_is_refused_where_it_would_learn_from_itself(data, tmp_path):
    refused = run("offpolicy", tmp_path, *REFERENCE, "loss=bc")
    assert refused.returncode == 1
    assert "python recipes/offline.py" in refused.stderr


def test_a_replay_that_cannot_be_written_leaves_the_checkpoints_and_can_be_had_later(tmp_path):
    (tmp_path / "replay.pt").mkdir(parents=True)
    given = [*REFERENCE, "replay.save=true", "stop_at=160", "buffer_size=100"]
    refused = run("offpolicy", tmp_path, *given)
    assert refused.returncode == 1
    assert re.search(r"replay.pt cannot be written .*resume=", refused.stderr)
    assert load(tmp_path / "checkpoints" / "frames_000000000160.pt")["count"]["frames"] == 160
    (tmp_path / "replay.pt").rmdir()
    resumed("offpolicy", tmp_path, "stop_at=160")
    saved = load(tmp_path / "replay.pt")
    assert (saved["filled"], saved["frames"], saved["wrapped"]) == (100, 160, True)


def test_what_is_not_finite_goes_back_once_and_then_stops(data, tmp_path):
    given = [f"data={data}", *OFFLINE, "lr=1e30", "lr_end=1e30", "max_grad_norm=1e30"]
    ended = run("offline", tmp_path, *given)
    assert ended.returncode == 1
    assert re.search(r"not finite at update \d+", ended.stdout + ended.stderr)
    lines = (tmp_path / "alerts.jsonl").read_text().splitlines()
    assert [json.loads(each)["then"] for each in lines] == ["roll_back", "stop"]


@pytest.fixture
def stored(monkeypatch):
    """The part of the recipe that reads settings and rows."""
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    return importlib.import_module("stored")


def settings_of(stored, *overrides):
    with initialize_config_dir(str(ROOT / "recipes" / "conf"), version_base="1.3"):
        config = stored.with_data(compose("offline", list(overrides)), overrides)
    settings = OmegaConf.to_container(config, resolve=False)
    return settings | {"num_envs": settings["env"].pop("num_envs")}


def test_networks_that_saw_another_scale_are_refused(stored):
    def task(mean):
        scaler = {"mean": torch.tensor([mean]), "std": torch.ones(1), "_extra_state": {"names": []}}
        return {"folder": "there", "task": {"scaler": scaler}}

    stored.check_sight(None, task(0.0))
    stored.check_sight(task(0.0), task(0.0))
    stored.check_sight({"folder": "there", "task": {}}, {"task": {}})
    with pytest.raises(SystemExit, match="init=there: that run saw the market through another"):
        stored.check_sight(task(0.5), task(0.0))


def data_of(folder, market, env, **others):
    """What a run on a market says of itself."""
    with initialize_config_dir(str(ROOT / "recipes" / "conf"), version_base="1.3"):
        config = compose("offpolicy", [f"market={market}", f"env={env}"])
    choices = {"market": market, "env": env, "loss": "sac", "network": "mlp", **others}
    OmegaConf.set_struct(config, False)
    config.choices = choices
    folder.mkdir(parents=True)
    OmegaConf.save(config, folder / "config.yaml", resolve=True)
    return f"data={folder}"


@pytest.mark.parametrize("env", ["long_short", "long_only"])
def test_what_learns_best_with_a_loss_follows_the_data(stored, tmp_path, env):
    data = data_of(tmp_path / "data", "synthetic", env)
    iql = settings_of(stored, data)
    assert iql["loss"]["temperature"] == 0.02
    assert iql["choices"] == {"market": "synthetic", "env": env, "loss": "iql", "network": "mlp"}
    cql = settings_of(stored, data, "loss=cql", "loss.drawn=7")
    assert (cql["loss"]["weight"], cql["loss"]["drawn"]) == (0.01, 7)
    assert settings_of(stored, data, "loss.temperature=0.5")["loss"]["temperature"] == 0.5


def test_what_learns_best_elsewhere_does_not_apply(stored, tmp_path):
    data = data_of(tmp_path / "data", "synthetic", "garleanu_pedersen")
    assert settings_of(stored, data)["loss"]["temperature"] == 1.0
    assert settings_of(stored, data, "loss=td3")["lr"] == 1e-3


def test_a_list_of_runs_knows_their_settings_whole(stored, tmp_path):
    data = data_of(tmp_path / "data", "synthetic", "long_short")
    found = importlib.import_module("many_runs").composed("offline", [data, "loss=cql"])
    ours = settings_of(stored, data, "loss=cql")
    assert (
        found["temperature"]
        == ours["temperature"]
        == {"start": 0.01, "least": 0.0, "entropy": -1.0}
    )
    assert (found["loss"]["alpha_init"], found["loss"]["gamma"]) == (0.01, 0.95)


def test_a_network_of_symbols_learns_from_the_market_of_the_data(stored, tmp_path):
    data = data_of(tmp_path / "data", "martingale", "long_short")
    settings = settings_of(stored, data, "+network=per_symbol")
    assert settings["market"]["knobs"] == {
        "volatility": 1.0, "trend": 1.0, "noise": 0.5, "stability": 150, "predictability": 0.0
    }  # fmt: skip
    assert settings["network"]["_target_"].endswith("PerSymbolMLP")
    assert settings["choices"]["market"] == "martingale"
    assert settings["choices"]["network"] == "per_symbol"
    with initialize_config_dir(str(ROOT / "recipes" / "conf"), version_base="1.3"):
        config, _ = stored.composed("offline", [data, "+network=per_symbol"])
    assert {*config.market} == {"report_split"}  # the same for all that are compared on these data


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([], "data=... names what to learn from"),
        (["data=nowhere"], "nowhere is not a run's folder"),
        (["data=DATA", "+env.cost=2"], "env is as the data have it"),
        (["data=DATA", "+market.noise=2"], "market.noise is as the data have it"),
        (["data=DATA", "market=csv"], "market is as the data have it"),
        (["data=DATA", "+network=per_symbol", "market=ten_symbols"], "market is as the data have"),
        (["data=DATA", "+window=8"], "window is as the data have it"),
        (["data=DATA", "fine_tune_frames=-1"], "fine_tune_frames must be a whole number"),
        (["data=DATA", "fine_tune_frames=9", "updates_per_frame=0"], "updates_per_frame above 0"),
        (["data=DATA", "updates=0"], "updates must be a whole number of at least 1, got 0"),
        (["data=DATA", "stop_at=20_001"], "stop_at must lie between 1 and updates=20000"),
    ],
)
def test_what_makes_no_sense_is_refused(stored, data, overrides, said):
    with pytest.raises(SystemExit, match=re.escape(said)):
        stored.OfflineRun.of(
            settings_of(stored, *(each.replace("DATA", str(data)) for each in overrides))
        )


def test_rows_of_other_settings_are_refused(stored, data, tmp_path):
    settings = settings_of(stored, f"data={data}")
    task = importlib.import_module("tasks").make_task(settings)
    assert stored.read_replay(data, settings)["filled"] == 320
    other = settings | {"env": settings["env"] | {"cost": 2.0}}
    with pytest.raises(SystemExit, match="was collected with env"):
        stored.read_replay(data, other)
    rows = stored.read_replay(data, settings)
    fewer = stored.rows_for(task, ["observation", ("next", "reward")], rows, data)["rows"]
    assert fewer.keys() == {"observation", "next"}
    assert fewer["next"].keys() == {"reward"}
    assert fewer["observation"].equal(rows["rows"]["observation"])
    with pytest.raises(SystemExit, match=r"lacks next\.done, which .* collect with them"):
        stored.rows_for(task, [*task.stored, ("next", "done")], rows, data)
    other = {**rows, "spec": rows["spec"] | {"action": ["int64"]}}
    with pytest.raises(SystemExit, match=r"action as .*int64.* collect anew"):
        stored.rows_for(task, task.stored, other, data)
    with pytest.raises(SystemExit, match=r"collect with replay\.save=true"):
        stored.read_replay(tmp_path, settings)
