"""Many settings over seeds: what is refused, what is run once, and the real command line."""

import json
import math
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes"))
from compare import for_hydra, main, settings_of, split_at, written
from comparison import Comparison, chosen, in_one_go
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from many_runs import Done, Job
from omegaconf import OmegaConf

ROOT = Path(__file__).resolve().parents[2]

COMMON = (
    "env=garleanu_pedersen hidden=[16] batch_size=32 alerts=none env.num_envs=8 warmup_frames=64"
    " updates_per_frame=0.125 +env.steps=20 total_frames=1_600 evaluate_every=800"
    " checkpoint_every=160 log_every=160"
)


def compare(*arguments):
    return [sys.executable, str(ROOT / "recipes" / "compare.py"), *arguments, f"common={COMMON}"]


def said(*arguments):
    return subprocess.run(compare(*arguments), capture_output=True, text=True)


def patient(condition, seconds=300):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    assert condition()


def finished(runs):
    return {
        path.parent.name: path.stat().st_mtime_ns
        for path in runs.glob("*/metrics.json")
        if json.loads(path.read_text())["figures"]
    }


@contextmanager
def stopping(process):
    """Leaves no process behind, also where a test fails."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """Two settings and one that fails: stopped by Ctrl-C, gone on with, killed, gone on with."""
    place = tmp_path_factory.mktemp("compare")
    runs, out = place / "runs", place / "out"
    given = compare(
        "settings={SAC: loss=sac, TD3: loss=td3 lr=1e-3, broken: lr=-1}",
        "seeds=2", "jobs=1", f"runs={runs}", f"out={out}", "reach=optimum_share:-1000",
    )  # fmt: skip
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    with stopping(subprocess.Popen(given, **quiet)) as first:
        patient(lambda: list(runs.glob("*/checkpoints/frames_*[1-9]*.pt")))
        first.send_signal(signal.SIGINT)
        first.wait(120)
    stopped = [path.parent.name for path in runs.glob("*/metrics.json")]

    with stopping(subprocess.Popen(given, **quiet)) as second:
        patient(lambda: finished(runs))
        second.kill()
        second.wait(120)
    kept = finished(runs)

    done = subprocess.run(given, capture_output=True, text=True)
    return {
        "runs": runs, "out": out, "stopped": stopped,
        "codes": [first.returncode, second.returncode, done.returncode],
        "kept": kept, "done": done, "told": json.loads((out / "comparison.json").read_text()),
    }  # fmt: skip


def test_neither_ctrl_c_nor_a_kill_loses_what_is_finished(interrupted):
    assert interrupted["codes"] == [130, -signal.SIGKILL, 1]
    assert len(interrupted["stopped"]) == 1
    after = finished(interrupted["runs"])
    assert len(after) == 4
    assert interrupted["kept"].items() <= after.items()  # the very files
    # What Ctrl-C stopped was gone on with: its last process did not see all of its updates.
    (name,) = interrupted["stopped"]
    metrics = json.loads((interrupted["runs"] / name / "metrics.json").read_text())
    assert metrics["frames"] == 1_600
    assert not in_one_go(metrics)


def test_the_table_is_what_the_runs_said(interrupted):
    told = interrupted["told"]["settings"]
    values = {}
    for name in ("SAC", "TD3"):
        folders = told[name]["runs"]
        assert list(folders) == ["0", "1"]
        metrics = [
            json.loads((Path(each) / "metrics.json").read_text()) for each in folders.values()
        ]
        values[name] = [each["figures"]["optimum_share"] for each in metrics]
        found = told[name]["figures"]["optimum_share"]
        assert list(found["seeds"].values()) == values[name]
        assert found["mean"] == pytest.approx(sum(values[name]) / 2)
        assert told[name]["curves"]["optimum_share"]["frames"] == [800, 1_600]
        assert told[name]["reach"]["frames"] == {"0": 800, "1": 800}
    apart = [td3 - sac for td3, sac in zip(values["TD3"], values["SAC"], strict=True)]
    difference = told["TD3"]["differences"]["optimum_share"]
    assert difference["mean"] == pytest.approx(sum(apart) / 2)
    assert difference["half_width"] == pytest.approx(
        12.7062 * abs(apart[1] - apart[0]) / 2, rel=1e-4
    )
    assert "differences" not in told["SAC"]


def test_a_run_that_fails_is_named_and_the_others_stay(interrupted):
    failed = interrupted["told"]["failed"]
    assert [(each["setting"], each["seed"]) for each in failed] == [("broken", 0), ("broken", 1)]
    assert "lr must be above 0, got -1" in failed[0]["said"]
    out = interrupted["done"].stdout
    assert "failed: broken, seed 1" in out
    assert re.search(r"^broken +0 +n/a", out, re.MULTILINE)
    assert re.search(r"^SAC +2 +-?\d", out, re.MULTILINE)


def test_the_page_stands_alone(interrupted):
    page = (interrupted["out"] / "comparison.html").read_text()
    for text in ("Differences to SAC", "lr must be above 0", "data:image/png", "depends on the"):
        assert text in page, text
    assert "<script" not in page
    assert not re.search(r"(src|href)=.https?:", page)


def test_what_is_there_is_not_repeated(interrupted):
    before = finished(interrupted["runs"])
    done = said(
        "settings=[loss=sac, lr=1e-3 loss=td3]", "seeds=2", "figures=[score]",
        f"runs={interrupted['runs']}", f"out={interrupted['out'] / 'again'}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert finished(interrupted["runs"]) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either settings="),
        (["settings=[lr=1]", "sweep=losses"], "give either settings="),
        (["settings=[]"], "no settings to compare"),
        (["settings=loss=sac"], "settings are written"),
        (["settings=[loss=sac, loss=sac]"], "'loss=sac' is there twice"),
        (["settings=[tau=0.1 lr=1, lr=1 tau=0.1]"], "are the same setting"),
        (["settings=[lr=1 lr=2]"], "sets lr twice"),
        (["settings=[hidden=[8]]"], "sets hidden twice"),
        (["settings=[seed=1]"], "give seeds="),
        (["settings=[hydra.run.dir=x]"], "sets hydra.run.dir"),
        (["settings=[loss=sac, loss=sick]"], "Could not find 'loss/sick'"),
        (["settings=[learning_rate=1]"], "'learning_rate=1' is not a setting of offpolicy"),
        (["settings=[lr=1, env.problem=Merton]"], "differ in env.problem"),
        (["settings=[lr=1]", "seeds=0"], "seeds must be a whole number of at least 1, got 0"),
        (["settings=[lr=1]", "split=train"], "split is validation or test, got 'train'"),
        (["settings=[lr=1]", "reach=growth"], "reach is figure:level"),
        (["settings=[lr=1]", "recipe=nothing"], "no recipes/nothing.py"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(arguments, message):
    given = [for_hydra(each) for each in (*arguments, f"common={COMMON}")]
    with initialize_config_dir(str(ROOT / "recipes" / "conf"), version_base="1.3"):
        config = compose("compare", given)
        with pytest.raises(SystemExit) as refused:
            main.__wrapped__(config)
    assert message in str(refused.value)


def test_settings_are_read_as_they_are_written():
    assert written("[loss=sac, loss=sac_discrete env.actions=discrete]") == [
        ("loss=sac", "loss=sac"),
        ("loss=sac_discrete env.actions=discrete", "loss=sac_discrete env.actions=discrete"),
    ]
    assert written("['', hidden=[16, 16]]") == [
        ("as it is", ""), ("hidden=[16, 16]", "hidden=[16, 16]")
    ]  # fmt: skip
    found = settings_of({"settings": "{a, b: 1}".replace("a, ", "'a: a': '', ")})
    assert found == {"a: a": [], "b": ["1"]}
    assert split_at("x={a: 1, b: [2, 3]} y='p q'", " ") == ["x={a: 1, b: [2, 3]}", "y='p q'"]
    with pytest.raises(SystemExit, match="do not close"):
        split_at("hidden=[16", " ")


@pytest.mark.parametrize(
    "text", ["[loss=sac]", "['', a='b c']", r"[x=\'y\', z=a\b]", '{a: "it\'s"}', "a\\"]
)
def test_hydra_hands_on_what_was_written(text):
    quoted = for_hydra(f"settings={text}")
    assert OverridesParser.create().parse_override(quoted).value() == text
    assert for_hydra("seeds=2") == "seeds=2"


def test_the_sweep_of_losses_names_losses_that_there_are():
    sweep = OmegaConf.to_container(OmegaConf.load(ROOT / "recipes/conf/sweep/losses.yaml"))
    named = {each for overrides in settings_of({"sweep": sweep, "settings": None}).values()
             for each in overrides}  # fmt: skip
    there = {f"loss={path.stem}" for path in (ROOT / "recipes/conf/loss").glob("*.yaml")}
    assert {"loss=sac", "loss=td3"} < named <= there


def job(tmp_path, *overrides, seed=0):
    return Job.of("name", seed, "offpolicy", overrides, "validation", tmp_path)


def test_a_folder_is_a_run(tmp_path, monkeypatch):
    own = tmp_path / "my_own.py"
    own.write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    prices = tmp_path / "prices.csv"
    prices.write_text("a")
    one = job(tmp_path, "loss=sac", "tau=0.1")
    assert one.folder == job(tmp_path, "tau=0.1", "loss=sac").folder
    others = [
        job(tmp_path, "loss=sac", "tau=0.1", seed=1),
        job(tmp_path, "loss=sac", "tau=0.2"),
        job(tmp_path, "loss=sac", "tau=0.1", "loss._target_=my_own.Loss"),
        job(tmp_path, "loss=sac", "tau=0.1", "market=csv", f"market.path={prices}"),
    ]
    assert len({each.folder for each in (one, *others)}) == 5


def run(**figures):
    clock = {"updates_per_second": 10.0, "training_seconds": 5.0, "seconds": 6.0}
    return {"figures": figures, "evaluations": [], "runtime": clock, "updates": 50,
            "seed": 0, "frames": 100, "folder": "there"}  # fmt: skip


def compared(settings, runs, figures=None, reach=None):
    table = Comparison("offpolicy", [], {name: [] for name in settings}, "test", figures, reach)
    for name, seed, metrics in runs:
        setting = Job(name, seed, "offpolicy", (), {}, Path("there"))
        table.add(Done(setting, metrics) if metrics else Done(setting, {}, "out of memory"))
    return table


def test_main_figures_are_those_that_all_report():
    market = {"sharpe_ratio_mean": 1.0, "growth": 0.1, "turnover": 9.0, "other": 1.0}
    assert chosen(market | {"growth_share": 0.5}) == [
        "sharpe_ratio_mean", "growth", "growth_share", "turnover"
    ]  # fmt: skip
    assert chosen({"mine": 1.0, "mine_error": 0.1, "random/mine": 0.0}) == ["mine"]
    runs = [("a", 0, run(**market, growth_share=0.5)), ("b", 0, run(**market))]
    assert compared("ab", runs).figures == ["sharpe_ratio_mean", "growth", "turnover"]
    with pytest.raises(SystemExit, match="they learn different tasks"):
        compared("ab", [runs[0], ("b", 0, run(optimum_share=1.0))]).text()


def test_a_figure_that_a_run_lacks_is_refused():
    there = run(share=1.0, growth=0.1) | {"evaluations": [{"frames": 10, "share": 0.5}]}
    with pytest.raises(SystemExit, match="'a' reports no figure 'sharp'; there are share, growth"):
        compared("a", [("a", 0, there)], ["sharp"])
    with pytest.raises(SystemExit, match="have no 'growth'; there are frames, share"):
        compared("a", [("a", 0, there)], ["share"], ("growth", 0.5))


def test_seeds_that_never_arrive_count():
    def rows(*shares):
        return [{"frames": 10 * (i + 1), "share": each} for i, each in enumerate(shares)]

    runs = [
        ("a", seed, run(share=1.0) | {"evaluations": rows(*shares)})
        for seed, shares in enumerate([(0, 0, 1), (1, 1, 1), (0, 0, 0)])
    ]
    table = compared("a", runs, ["share"], ("share", 0.5))
    assert table.reached("a") == {0: 30, 1: 10, 2: math.inf}
    assert table.figure_rows() == [
        ["setting", "seeds", "share", "frames to share 0.5"], ["a", "3", "1 ± 0", "30 (2 of 3)"]
    ]  # fmt: skip
    never = compared("a", [runs[2]], ["share"], ("share", 0.5))
    assert never.figure_rows()[1][-1] == "never (0 of 1)"
    half = compared("a", runs[1:], ["share"], ("share", 0.5))
    assert half.figure_rows()[1][-1] == "no median (1 of 2)"


def test_all_may_fail(tmp_path):
    table = compared("ab", [("a", 0, None), ("b", 0, None)])
    assert table.text().count("out of memory") == 2
    table.write(tmp_path)
    assert "out of memory" in (tmp_path / "comparison.html").read_text()


def test_a_difference_is_marked_where_it_is_clear():
    one = [("a", seed, run(share=0.1 * seed)) for seed in range(3)]
    other = [("b", seed, run(share=0.1 * seed + 1 + 0.01 * seed)) for seed in range(3)]
    rows = compared("ab", [*one, *other], ["share"]).difference_rows()
    assert rows == [["difference to a", "pairs", "share"], ["b", "3", "+1.01 ± 0.02484 *"]]


def test_speed_is_of_runs_in_one_go():
    whole, rest = run(share=1.0), run(share=1.0) | {"updates": 60}
    table = compared("a", [("a", 0, whole), ("a", 1, rest)], ["share"])
    assert table.speed("a", "seconds").mean == 6.0
    assert not in_one_go(rest)
