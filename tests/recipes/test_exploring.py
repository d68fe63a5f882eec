"""Curiosity and hindsight, switched on in the recipe."""

import json

import pytest
from running import (
    MARKET,
    TINY,
    run,
    same,
    stopped_and_resumed,
    trained,
    with_changes,
)

CURIOUS = ["icm=on", "icm.hidden=[16]", "icm.features=8", "icm.warmup_frames=64", "icm.every=2"]
CURIOUS_NAMES = [each.split("=")[0] for each in CURIOUS]
BOTH = [
    *with_changes(
        MARKET, "++env.episode_bars=30", "market.validation.bars=120", "market.test.bars=120"
    ),
    *CURIOUS,
    "her=on",
    "buffer_size=256",
]
MAZE = [
    *TINY, *CURIOUS, "env=sparse_maze", "loss=dqn", "env.size=5", "env.steps=50",
    "total_frames=960", "evaluate_every=480", "checkpoint_every=320",
]  # fmt: skip
BITS = [
    *TINY, "env=bit_flip", "loss=dqn", "her=on", "env.bits=3", "total_frames=960",
    "evaluate_every=480", "checkpoint_every=320",
]  # fmt: skip


@pytest.mark.parametrize("window", ["null", "8"])
def test_both_on_a_market_resume_in_the_middle_of_an_episode(tmp_path, window):
    whole = trained(tmp_path / "whole", *BOTH, f"window={window}")
    assert {"goal_success", "goal_distance", "stochastic_goal_success"} <= whole["figures"].keys()
    assert 360 % (30 * 8) != 0  # an episode runs, and the storage of 256 rows has wrapped
    halves = stopped_and_resumed(tmp_path / "halves", [*BOTH, f"window={window}"], 360)
    assert same(whole, halves)
    if window == "8":
        assert not run("evaluate", None, f"run={tmp_path / 'whole'}", "split=validation").returncode
        again = json.loads((tmp_path / "whole" / "evaluation_validation.json").read_text())
        assert whole["figures"] in again.values()


@pytest.mark.parametrize("settings", [MAZE, BITS], ids=["maze", "bits"])
def test_either_alone_on_a_reference_problem(tmp_path, settings):
    whole = trained(tmp_path / "whole", *settings)
    assert (whole["state_coverage"] is None) == (settings is BITS)
    if settings is MAZE:
        assert 0 < whole["state_coverage"] <= 1
        assert 0 < whole["curiosity"]["icm/intrinsic_share"] <= 1
    assert same(whole, stopped_and_resumed(tmp_path / "halves", settings, 560))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["env=pendulum", "her=on"], "has no goals; a market has"),
        (["env=merton", "count_places=true"], "has no places to count"),
        (["icm=on", "icm.every=0"], "icm.every must be a whole number of at least 1"),
        (["icm=on", "icm.eta=-1"], "icm: eta must not be negative, got -1"),
        (["her=on", "her.strategy=best"], "her: strategy must be one of future, final"),
        (["her=on", "her.k=-1"], "her: k must not be negative, got -1"),
        (["her=on", "her.goal.low=0.05"], "low at most high; got low=0.05, high=0.02"),
        (["her=on", "env.episode_bars=null"], "env.episode_bars=500"),
        (["her=on", "env.episode_bars=150"], "market.validation: episode_bars=150 after 63 bars"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, overrides, said):
    names = [each.split("=")[0] for each in overrides]
    kept = [each for each in BOTH if each.split("=")[0] not in (*names, *CURIOUS_NAMES, "her")]
    if "env" in names:
        kept = [each for each in kept if not each.lstrip("+").startswith("env.")]
    elif "env.episode_bars" in names:
        kept.remove("++env.episode_bars=30")
    ended = run("offpolicy", tmp_path, *kept, *overrides)
    assert ended.returncode != 0
    assert said in ended.stderr, ended.stderr[-600:]
