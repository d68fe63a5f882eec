"""recipes/options.py through its command line: both levels, resumed in the middle of options."""

import json

import pytest
from running import MARKET, done, run, same, stopped_and_resumed, with_changes

from trading_torchrl.checkpoint import Checkpoints

OPTIONS = [
    *with_changes(
        MARKET, "++env.episode_bars=60", "total_frames=1_280", "evaluate_every=640",
        "checkpoint_every=320", "market.validation.bars=150", "market.test.bars=150",
    ),
    "options.hidden=[16]", "options.after=64", "options.batch_size=16", "options.keep=64",
]  # fmt: skip
SIX = {"OPEN_LONG", "OPEN_SHORT", "CLOSE_POSITION", "TREND_FOLLOW", "SCALP", "WAIT"}
SCALED = "options.action=scaled"
CURIOUS = [
    "icm=on", "icm.encoder=[16]", "icm.change=[16]", "icm.between=[16]", "icm.features=8",
    "icm.warmup_frames=64", "icm.rows=16",
]  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        [],
        [
            "options.action=blend",
            "options.controller=option_critic",
            "options.ends=true",
            "options.levels=shares",
            *CURIOUS,
            "shaping=hand",
            "objectives=fixed",
        ],
        [SCALED, "her=on", "buffer_size=512", "loss=td3", "temperature=null", "window=8"],
        [
            SCALED,
            "market.meta.paths=2",
            "market.meta.bars=200",
            "objectives=learned",
            "objectives.accounts=4",
            "objectives.buffer_size=64",
        ],
    ],
    ids=["rule", "parts", "goals", "weights"],
)
def test_a_run_resumes_in_the_middle_of_options(tmp_path, settings):
    settings = [*OPTIONS, *settings]
    whole = done("options", tmp_path / "whole", *settings)
    _, saved = Checkpoints(tmp_path / "whole" / "checkpoints").named("frames_000000000640.pt")
    assert (saved["collector"]["carrier"]["option"]["steps"] > 0).any()
    halves = stopped_and_resumed(tmp_path / "halves", settings, 576, "options")
    assert same(whole, halves)
    report = json.loads((tmp_path / "whole" / "report.json").read_text())
    assert set(report["options"]) == SIX
    assert sum(row["bars"] for row in report["options"].values()) == pytest.approx(1)
    told = whole["controller"][-1]
    assert {"options/loss_value", "options/entropy", "options/grad_norm"} <= told.keys()
    assert told["options/temperature"] < 1
    assert ("options/ends" in told) == ("options.ends=true" in settings)
    assert whole["figures"]["option_usage_entropy"] >= 0
    if "objectives=learned" in settings:
        assert whole["objectives"]["reward/weight_network_entropy"] > 1
        assert whole["objectives"]["reward/loss_result"] > 0
    assert "Options" in (tmp_path / "whole" / "report.html").read_text()


def test_the_agent_learns_where_it_acts_and_the_controller_always(tmp_path):
    rule = done("options", tmp_path / "rule", *OPTIONS)
    scaled = done("options", tmp_path / "scaled", *OPTIONS, SCALED)
    assert rule["updates"] == 0
    assert scaled["updates"] > 100
    frozen = done("options", tmp_path / "frozen", *OPTIONS, "options.after=2_000")
    assert frozen["parameters_sha256"] != rule["parameters_sha256"]
    assert "options/loss_value" not in frozen["controller"][-1]


def test_a_run_can_be_judged_again_and_begun_from(tmp_path):
    whole = done("options", tmp_path / "whole", *OPTIONS, SCALED)
    ended = run("evaluate", None, f"run={tmp_path / 'whole'}", "split=validation")
    assert ended.returncode == 0, ended.stderr
    again = json.loads((tmp_path / "whole" / "evaluation_validation.json").read_text())
    assert again["figures"] == whole["figures"]
    begun = done(
        "options", tmp_path / "begun", *OPTIONS, SCALED, f"init={tmp_path / 'whole'}",
        "options.after=2_000", "updates_per_frame=0",
    )  # fmt: skip
    told = [name for name in whole["figures"] if not name.startswith("stochastic")]
    assert len(told) > 20
    assert all(begun["figures"][name] == whole["figures"][name] for name in told)
    assert begun["controller"][-1]["options/temperature"] == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["options.action=wish"], "options: action is rule or scaled or blend, got 'wish'"),
        (["options.controller=ppo"], "options: controller is policy_gradient or option_critic"),
        (["options.ends=true"], "learned by controller=option_critic alone"),
        (["icm=on"], "icm pays an agent, and options.action=rule has none"),
        ([SCALED, "loss=sac_torchrl"], "TorchRLSACLoss needs to know how likely an action was"),
        (["options.least=1.5"], "options.least must be a whole number"),
        ([SCALED, "objectives=pareto"], "take objectives=learned, fixed or regime with options"),
        (["env=long_short"], "env.actions=continuous, got 'target'; env=by_trades has both"),
        (["env=garleanu_pedersen"], "options are plans for trading"),
        (["options.temperature.least=2"], "temperature falls from start to least"),
        (["options.least=30"], "least must be at least 1 and no more than most, got least=30"),
        (["options.lr=0"], "options.lr must be above 0"),
        (["replay.save=true"], "take recipes/offpolicy.py replay.save=true"),
        (["options.keep=0"], "options.keep must be a whole number of at least 1"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path, settings, said):
    ended = run("options", tmp_path / "refused", *with_changes(OPTIONS, *settings))
    assert ended.returncode != 0
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
