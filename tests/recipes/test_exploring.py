"""Curiosity, hindsight and shaping, switched on in the recipe."""

import json
import math

import pytest
from running import (
    MARKET,
    REFERENCE,
    TINY,
    run,
    same,
    stopped_and_resumed,
    trained,
    with_changes,
)

CURIOUS = [
    "icm=on", "icm.encoder=[16]", "icm.change=[16]", "icm.between=[16]", "icm.features=8",
    "icm.warmup_frames=64", "icm.every=2", "icm.rows=16",
]  # fmt: skip
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

LEARNED = ["shaping=learned", "shaping.hidden=[16]", "shaping.warmup_frames=64"]


@pytest.mark.parametrize("window", ["null", "8"])
def test_both_on_a_market_resume_in_the_middle_of_an_episode(tmp_path, window):
    whole = trained(tmp_path / "whole", *BOTH, f"window={window}")
    reached = {"goal_success", "goal_distance", "stochastic_goal_success"}
    traded = {"sharpe_ratio_mean", "growth", "max_drawdown", "random/growth"}
    assert reached | traded <= whole["figures"].keys()
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
    ("settings", "told"),
    [
        ([*MARKET, *LEARNED, "window=8"], {"profit", "risk", "timing", "loss"}),
        ([*MARKET, "shaping=hand", "shaping.step=0.2"], set()),
        ([*BOTH, *LEARNED], {"return", "loss"}),
        ([*MAZE, "shaping=hand"], set()),
        ([*BITS, *LEARNED], {"return", "loss"}),
    ],
    ids=["market-learned", "market-hand", "goals-learned", "maze-hand", "bits-learned"],
)
def test_shaping_resumes(tmp_path, settings, told):
    whole = trained(tmp_path / "whole", *settings)
    assert {f"shaping/{name}" for name in told | {"weight", "added"}} == set(whole["shaping"])
    assert whole["shaping"]["shaping/added"] > 0
    plain = [each for each in settings if not each.startswith("shaping")]
    other = trained(tmp_path / "plain", *plain)
    assert other["parameters_sha256"] != whole["parameters_sha256"]
    assert other["shaping"] is None
    assert same(whole, stopped_and_resumed(tmp_path / "halves", settings, 360))


PARTS = ("component", "weight")
WEIGHED = [
    ("profit", 0.38), ("risk", 0.24), ("activity", 0.14), ("timing", 0.10), ("exploration", 0.09),
    ("consistency", 0.05),
]  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        [*MARKET, "objectives=fixed"],
        [*MARKET, *CURIOUS, "objectives=regime", "window=8"],
        [*BOTH, *LEARNED, "objectives=regime"],
        [*MARKET, "objectives=fixed", "env.actions=discrete", "loss=dqn"],
    ],
    ids=["fixed", "regime-curious", "all", "discrete"],
)
def test_objectives_resume(tmp_path, settings):
    whole = trained(tmp_path / "whole", *settings)
    told = whole["objectives"]
    for name, weight in WEIGHED:
        given = told[f"reward/{name}_weight"]
        by_regime = "objectives=regime" in settings
        assert given == pytest.approx(weight, rel=0.3 if by_regime else 1e-5)
        assert abs(told[f"reward/{name}_component"]) < 10
    assert sum(told[f"reward/{name}_share"] for name, _ in WEIGHED) == pytest.approx(1)
    assert told["reward/exploration_component"] > 0
    logged = json.loads((tmp_path / "whole" / "report.json").read_text())["training"]
    for name, _ in WEIGHED:
        assert all(f"reward/{name}_{part}" in row for row in logged for part in PARTS)
    if settings[-1] == "window=8":
        assert whole["curiosity"]["icm/intrinsic_share"] == 0  # it counts among objectives alone
    assert same(whole, stopped_and_resumed(tmp_path / "halves", settings, 360))


META = ["market.meta.paths=2", "market.meta.bars=200"]
WEIGHING = [*META, "objectives=learned", "objectives.accounts=4", "objectives.buffer_size=64"]


@pytest.mark.parametrize(
    "settings",
    [
        [*MARKET, *WEIGHING],
        [*MARKET, *WEIGHING, *CURIOUS, "shaping=hand", "loss=td3"],
        [*BOTH, *LEARNED, *WEIGHING, "window=8"],
    ],
    ids=["alone", "curious-shaped", "full-stack"],
)
def test_weights_are_learned_on_bars_of_their_own(tmp_path, settings):
    whole = trained(tmp_path / "whole", *settings)
    told = whole["objectives"]
    names = [name for name, _ in WEIGHED]
    assert sum(told[f"reward/{name}_weight"] for name in names) == pytest.approx(1)
    assert 1.0 < told["reward/weight_network_entropy"] < math.log(6)
    assert all(f"reward/{name}_alignment" in told for name in names)
    assert same(whole, stopped_and_resumed(tmp_path / "halves", settings, 360))


def test_weights_slow_down_as_the_agent_does(tmp_path):
    settings = [*MARKET, *WEIGHING, "objectives.every=1", "objectives.lr=1e-4", "lr=1e-12"]
    moved = []
    for last in ("1e-12", "1e-15"):  # of an agent that all but stands still
        told = trained(tmp_path / last, *settings, f"lr_end={last}")["objectives"]
        moved.append(sum(abs(told[f"reward/{name}_weight"] - start) for name, start in WEIGHED))
    assert moved[1] < 0.7 * moved[0], moved


@pytest.mark.parametrize("window", ["null", "8"])
def test_one_agent_for_all_preferences_on_a_market(tmp_path, window):
    settings = [*MARKET, "objectives=pareto", "objectives.points=2", f"window={window}"]
    whole = trained(tmp_path / "whole", *settings)
    report = json.loads((tmp_path / "whole" / "report.json").read_text())
    asked = [name for name in report["policies"] if name.startswith("agent, profit")]
    assert len(asked) == 2
    front = report["front"]["agent"]
    for name, (growth, fallen) in zip(asked, front, strict=True):
        row = report["policies"][name]
        assert (growth, -fallen) == pytest.approx((row["growth"], row["max_drawdown"]), rel=1e-5)
    assert front[0] != front[1]
    assert whole["figures"]["sharpe_ratio_mean"] is not None
    assert same(whole, stopped_and_resumed(tmp_path / "halves", settings, 360))


@pytest.mark.parametrize("loss", ["sac", "td3"])
def test_one_agent_for_all_preferences(tmp_path, loss):
    settings = [*REFERENCE, "objectives=pareto", "objectives.points=3", f"loss={loss}"]
    whole = trained(tmp_path / "whole", *settings)
    assert {"front_share", "least_optimum_share", "optimum_share"} <= whole["figures"].keys()
    front = json.loads((tmp_path / "whole" / "report.json").read_text())["front"]
    assert [len(points) for points in front.values()] == [3, 3]
    known = front["the best rule at each cost"]
    assert sorted(known) == known[::-1]  # dearer trading: less of it, and less gross profit
    assert same(whole, stopped_and_resumed(tmp_path / "halves", settings, 560))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["objectives=pareto", "her=on"], "objectives=pareto has no goals to reach"),
        (["objectives=learned", "loss=tqc"], "TQCLoss learns one objective"),
        (["objectives=learned", "objectives.every=0"], "objectives.every must be a whole number"),
        (["objectives=learned", "objectives.lr=0"], "objectives.lr must be above 0, got 0"),
        (["objectives=learned", "~objectives.lr"], "objectives.lr is missing: give objectives.lr="),
        (["shaping=learned", "~shaping.every"], "shaping.every is missing: give shaping.every="),
        (["objectives=fixed", "~objectives.kind"], "objectives.kind is weighed, learned or"),
        (["objectives=fixed", "objectives.kind=best"], "objectives.kind is weighed, learned or"),
        (["objectives=learned", "objectives.entropy=-1"], "objectives: entropy must not be"),
        (["objectives=pareto", "shaping=hand"], "shaping is of one reward: shaping=off"),
        (["objectives=pareto", "icm=on"], "icm: surprises are paid in one reward"),
        (["objectives=pareto", "env.actions=discrete", "loss=dqn"], "DQNLoss learns one objective"),
        (["objectives=pareto", "env=merton"], "objectives=pareto is for markets, and for"),
        (["objectives=pareto", "env=garleanu_pedersen", "+env.cost=2"], "leave out env.cost and"),
        (
            ["objectives=pareto", "env=garleanu_pedersen", "loss=tqc"],
            "TQCLoss learns one objective",
        ),
        (["objectives=pareto", "env=garleanu_pedersen", "objectives.least=0.5"], "below 1 / 2"),
        (
            ["objectives=pareto", "env=garleanu_pedersen", "objectives.points=1"],
            "at least 2, got 1",
        ),
        (["objectives=fixed", "env=merton"], "only trading has objectives to weigh"),
        (["objectives=fixed", "objectives.rule=best"], "objectives.rule is null or turbulence"),
        (["objectives=fixed", "objectives.weights.risk=-1"], "objectives: weights must not be"),
        (["objectives=fixed", "+objectives.weights.luck=1"], "objectives.weights has one for each"),
        (["objectives=learned", "objectives.most=0.2"], "objectives: most must be at most 1"),
        (["objectives=fixed", "objectives.novelty.decay=2"], "objectives: decay must lie"),
        (["shaping=hand", "window=8"], "shaping=hand: nobody wrote a potential for trading as it"),
        (["shaping=hand", "shaping.weight=2"], "shaping: weight must lie between 0 and most=1.0"),
        (["shaping=learned", "shaping.lr=0"], "shaping.lr must be above 0, got 0"),
        (["shaping=learned", "shaping.tau=2"], "shaping.tau must be above 0 and at most 1"),
        (["shaping=hand", "shaping.potential=best"], "take shaping=learned or shaping=hand"),
        (["env=pendulum", "her=on"], "has no goals; a market has"),
        (["env=merton", "count_places=true"], "has no places to count"),
        (["icm=on", "icm.every=0"], "icm.every must be a whole number of at least 1"),
        (["icm=on", "icm.rows=0"], "icm.rows must be a whole number of at least 1"),
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
