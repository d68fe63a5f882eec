"""Many settings over seeds: what is refused, what is run once, and the real command line."""

import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes"))
import many_runs
from compare import check_alike, for_hydra, main, settings_of, split_at, written
from comparison import Comparison, chosen, in_one_go
from comparison_page import page_of
from comparison_tables import as_text, difference_rows, figure_rows
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from many_runs import Done, Job, changed, composed, ended, run_all
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


def heeds_ctrl_c():
    """Where tests run in the background of a shell, they and what they start ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


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

    with stopping(subprocess.Popen(given, preexec_fn=heeds_ctrl_c, **quiet)) as first:
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
    assert failed[0]["said"].splitlines()[-2:] == ["lr must be above 0, got -1", "exit code 1"]
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
        (["settings=[lr=1, +env.cost=2]"], "'lr=1' and '+env.cost=2' differ in env.cost"),
        (["settings=[lr=1, loss=redq critics=20]"], "'loss=redq critics=20': critics=20: REDQ"),
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


def test_what_belongs_to_the_agent_or_its_training_may_differ(tmp_path):
    free = [
        [], ["env.actions=discrete", "loss=sac_discrete"], ["env.risk_aversion=1"], ["window=4"],
        ["+env.episode_bars=100"], ["env.num_envs=8"], ["+env.smoothing=1"],
        ["+env.compiled=false"], ["reward=log_return"],
    ]  # fmt: skip
    check_alike([job(tmp_path, *overrides) for overrides in free])
    for world in (
        "env.short=false", "env.max_position=0.5", "+env.commission=0.01", "+env.fill=close",
        "env=long_only", "market=martingale",
    ):  # fmt: skip
        with pytest.raises(SystemExit, match="differ in"):
            check_alike([job(tmp_path), job(tmp_path, world)])


def test_numbers_and_choices_are_one_list_for_results_and_comparisons(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "results"))
    import learn_discrete

    sweep = OmegaConf.to_container(OmegaConf.load(ROOT / "recipes/conf/sweep/actions.yaml"))
    listed = settings_of({"sweep": sweep, "settings": None})
    assert {"env.actions=discrete", "loss=sac_discrete"} == {*listed["discrete"]}
    often = learn_discrete.OFTEN
    assert {name: [*often, *each] for name, each in listed.items()} == learn_discrete.RUNS


def test_the_sweep_of_losses_names_losses_that_there_are():
    sweep = OmegaConf.to_container(OmegaConf.load(ROOT / "recipes/conf/sweep/losses.yaml"))
    named = {each for overrides in settings_of({"sweep": sweep, "settings": None}).values()
             for each in overrides}  # fmt: skip
    there = {f"loss={path.stem}" for path in (ROOT / "recipes/conf/loss").glob("*.yaml")}
    assert {"loss=sac", "loss=td3"} < named <= there


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("ablation", "offpolicy"),
        ("sensitivity", "offpolicy"),
        ("relabelling", "offpolicy"),
        ("options", "options"),
        ("newest", "onpolicy"),
    ],
)
def test_sweeps_of_parts_are_of_the_same_data_and_budget(tmp_path, name, recipe):
    sweep = OmegaConf.to_container(OmegaConf.load(ROOT / f"recipes/conf/sweep/{name}.yaml"))
    settings = settings_of({"sweep": sweep, "settings": None})
    assert len(settings) >= 5
    jobs = [
        Job.of(each, 0, recipe, given, "validation", tmp_path) for each, given in settings.items()
    ]
    check_alike(jobs)
    assert len({job.folder for job in jobs}) == len(jobs)


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


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    """A loss in a module with a helper, one in a package, and one in a package without a file."""
    monkeypatch.syspath_prepend(tmp_path / "here")
    for path in ("mine.py", "helper.py", "whole/__init__.py", "whole/deep/a.py", "bare/b.py"):
        (tmp_path / "here" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / path).write_text("x = 1\n")
    return tmp_path / "here"


@pytest.mark.parametrize(
    ("target", "edited", "matters"),
    [
        ("mine.Loss", "mine.py", True),
        ("mine.Loss", "helper.py", True),
        ("mine.Loss", "whole/deep/a.py", False),
        ("whole.deep.a.Loss", "whole/deep/a.py", True),
        ("bare.b.Loss", "bare/b.py", True),
        ("bare.b.Loss", "helper.py", False),
    ],
)
def test_what_changes_while_a_run_waits_is_named(tmp_path, own_code, target, edited, matters):
    one = job(tmp_path, f"loss._target_={target}")
    assert changed(one) == []
    (own_code / edited).write_text("x = 2\n")
    assert changed(one) == ([f"the code of {target.split('.')[0]}"] if matters else [])
    again = job(tmp_path, f"loss._target_={target}")
    assert (again.folder == one.folder) is not matters


def test_data_package_recipes_and_settings_are_looked_at_too(tmp_path, monkeypatch):
    prices, package, recipes = (tmp_path / name for name in ("prices.csv", "package", "recipes"))
    prices.write_text("a")
    package.mkdir()
    (package / "code.py").write_text("x = 1\n")
    shutil.copytree(ROOT / "recipes", recipes, ignore=shutil.ignore_patterns("__pycache__"))
    assert Path(many_runs.trading_torchrl.__file__).parent == many_runs.PACKAGE
    monkeypatch.setattr(many_runs, "PACKAGE", package)
    monkeypatch.setattr(many_runs, "RECIPES", recipes)
    edits = {
        prices: f"market.path={prices}",
        package / "code.py": "the package trading_torchrl",
        recipes / "loop.py": "the code of recipes/",
        recipes / "conf" / "offpolicy.yaml": "the settings in recipes/conf",
    }
    for path, name in edits.items():
        one = job(tmp_path, "market=csv", f"market.path={prices}")
        assert changed(one) == []
        path.write_text(path.read_text().replace("tau: 0.005", "tau: 0.006") + "\n# more\n")
        assert changed(one) == [name]
    (recipes / "evaluate.py").write_text("")  # of another recipe
    one = job(tmp_path, "market=csv", f"market.path={prices}")
    (recipes / "evaluate.py").write_text("x = 1\n")
    assert changed(one) == []
    (recipes / "conf" / "offpolicy.yaml").write_text("a: b: c")
    assert changed(one)[0].startswith("what offpolicy.py reads (")


def test_a_run_whose_code_changed_is_not_run(tmp_path, own_code):
    one = job(tmp_path, "loss._target_=mine.Loss")
    (own_code / "helper.py").write_text("x = 2\n")
    (done,) = run_all([one], 1)
    assert done.failure == (
        "not run: the code of mine changed while it waited for its turn; the same command runs it"
        " as it is now"
    )
    assert not one.folder.exists()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('as far as this'); exit(3)", "as far as this\nexit code 3"),
        ("import os; print('so far', flush=True); os.kill(os.getpid(), 9)",
         "so far\nkilled by signal 9 (Killed): for want of memory, perhaps; try jobs=1"),
        ("exit(4)", "exit code 4"),
    ],
)  # fmt: skip
def test_how_a_run_ended_is_told_whatever_it_said(tmp_path, monkeypatch, code, said):
    monkeypatch.setattr(many_runs, "command", lambda *_, **__: [sys.executable, "-c", code])
    (done,) = run_all([job(tmp_path)], 1)
    assert done.failure == said
    assert ended(-15) == "killed by signal 15 (Terminated)"


def test_a_network_of_symbols_brings_a_market_unless_one_is_chosen():
    alone = composed("offpolicy", ["network=per_symbol"])
    assert alone["market"]["source"] == "synthetic_symbols"
    assert alone == composed("offpolicy", ["network=per_symbol", "market=ten_symbols"])
    blind = composed("offpolicy", ["market=ten_symbols"])
    assert {key for key in alone if alone[key] != blind[key]} == {"network"}  # learn_on is the same
    own = composed("offpolicy", ["market=synthetic", "network=per_symbol"])
    plain = composed("offpolicy", [])
    assert {key for key in own if own[key] != plain[key]} == {"network"}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["loss=redq", "critics=20"], "critics=20: REDQLoss does not read critics, so that nothing"
                                      " would change; it has loss.qvalue_network.members=10"),
        (["loss=sac_discrete", "temperature.entropy=-1"], "loss.target_entropy=auto"),
        (["loss=sac_discrete", "temperature={start: 0.1, entropy: 1}"], "read temperature.entropy"),
        (["loss=td3", "++temperature.start=1"], "TD3Loss does not read temperature.start"),
        (["loss=bc", "gamma=0.9"], "BCLoss does not read gamma, so that nothing would change; it"
                                   " has no settings of its own"),
        (["loss.gamma=0.9", "gamma=0.8"], "does not read gamma"),
    ],
)  # fmt: skip
def test_a_shared_setting_that_a_loss_does_not_read_is_refused(overrides, said):
    with pytest.raises(SystemExit, match=re.escape(said)):
        composed("offpolicy", overrides)
    composed("offpolicy", ["loss=sac_discrete", "temperature={start: 0.1}", "critics=3"])


def test_all_that_losses_share_is_known():
    files = (ROOT / "recipes" / "conf" / "loss").glob("*.yaml")
    found = {name for path in files for name in re.findall(r"\$\{(.+?)\}", path.read_text())}
    assert found == {*many_runs.composing.SHARED}


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
        as_text(compared("ab", [runs[0], ("b", 0, run(optimum_share=1.0))]))


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
    assert figure_rows(table) == [
        ["setting", "seeds", "share", "frames to share 0.5"], ["a", "3", "1 ± 0", "30 (2 of 3)"]
    ]  # fmt: skip
    never = compared("a", [runs[2]], ["share"], ("share", 0.5))
    assert figure_rows(never)[1][-1] == "never (0 of 1)"
    half = compared("a", runs[1:], ["share"], ("share", 0.5))
    assert figure_rows(half)[1][-1] == "no median (1 of 2)"


def test_all_may_fail():
    table = compared("ab", [("a", 0, None), ("b", 0, None)])
    assert as_text(table).count("out of memory") == 2
    assert "out of memory" in page_of(table)


def test_a_difference_is_marked_where_it_is_clear():
    one = [("a", seed, run(share=0.1 * seed)) for seed in range(3)]
    other = [("b", seed, run(share=0.1 * seed + 1 + 0.01 * seed)) for seed in range(3)]
    rows = difference_rows(compared("ab", [*one, *other], ["share"]))
    assert rows == [["difference to a", "pairs", "share"], ["b", "3", "+1.01 ± 0.02484 *"]]


def test_pairs_are_those_of_each_figure():
    one = [("a", seed, run(share=1.0, ratio=1.0)) for seed in range(3)]
    other = [("b", seed, run(share=2.0, ratio=2.0 if seed else math.nan)) for seed in range(3)]
    rows = difference_rows(compared("ab", [*one, *other], ["share", "ratio"]))
    assert rows[1][:2] == ["b", "3, 2"]
    rows = difference_rows(compared("ab", [*one, *other], ["share"]))
    assert rows[1][:2] == ["b", "3"]


def test_what_learns_from_stored_rows_is_told_in_updates():
    rows = [{"frames": 0, "updates": 50 * (i + 1), "share": 0.5 * i} for i in range(3)]
    offline = run(share=1.0) | {"evaluations": rows}
    told = compared("a", [("a", 0, offline)], ["share"], ("share", 0.5)).summary()
    assert told["clock"] == "updates"
    assert told["settings"]["a"]["reach"]["updates"] == {0: 100}
    assert told["settings"]["a"]["curves"]["share"]["updates"] == [50, 100, 150]
    assert "frames" not in json.dumps(told)


def test_speed_is_of_runs_in_one_go():
    whole, rest = run(share=1.0), run(share=1.0) | {"updates": 60}
    table = compared("a", [("a", 0, whole), ("a", 1, rest)], ["share"])
    assert table.speed("a", "seconds").mean == 6.0
    assert not in_one_go(rest)
