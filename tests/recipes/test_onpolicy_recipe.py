"""recipes/onpolicy.py through its command line: losses, tasks, resume, refusals."""

import json

import pytest
from running import FEW_BARS, SHORT, done, metrics_of, run, same, stopped_and_resumed

TINY = [
    "hidden=[16]", "threads=1", "batch_size=32", "alerts=none", "env.num_envs=8",
    "steps_per_batch=8", "epochs=2", "log_every=128",
]  # fmt: skip
GRID = [
    *TINY, "env=garleanu_pedersen", "+env.steps=20", "total_frames=1_280", "evaluate_every=640",
    "checkpoint_every=320",
]  # fmt: skip
MARKET = [*TINY, *SHORT]
POLE = [*TINY, "env=cartpole", "total_frames=1_280", "evaluate_every=640", "checkpoint_every=320"]
SCALES = ["normalise.observations=true", "normalise.rewards=true"]


@pytest.mark.parametrize(
    ("settings", "stop_at"),
    [
        (MARKET, 384),
        ([*MARKET, "loss=ppo_kl", "window=8", *SCALES], 384),
        ([*MARKET, "env.actions=discrete", "loss=reinforce"], 384),
        ([*GRID, "loss=vtrace", *SCALES], 832),
        ([*POLE, "loss=a2c", *SCALES, "max_kl=0.05", "actor_average=0.1"], 832),
        ([*MARKET, "icm=on", "icm.warmup_frames=64", "shaping=learned", "objectives=regime"], 384),
        ([*GRID, "loss=vtrace", "icm=on", "icm.warmup_frames=64", "shaping=learned"], 832),
    ],
    ids=["market", "window", "names", "stretches", "cartpole", "paid", "stretches paid"],
)
def test_a_run_resumes_bit_for_bit(tmp_path, settings, stop_at):
    whole = done("onpolicy", tmp_path / "whole", *settings)
    assert whole["updates"] > 10
    assert same(whole, stopped_and_resumed(tmp_path / "halves", settings, stop_at, "onpolicy"))
    assert (tmp_path / "whole" / "report.html").exists()
    evaluated = run("evaluate", None, f"run={tmp_path / 'whole'}", "split=validation")
    assert evaluated.returncode == 0, evaluated.stderr
    again = json.loads((tmp_path / "whole" / "evaluation_validation.json").read_text())
    assert again["figures"] == whole["figures"]


def test_a_batch_is_let_go_where_the_policy_has_moved_too_far(tmp_path):
    free = done("onpolicy", tmp_path / "free", *GRID, "lr=0.01", "epochs=10")
    held = done("onpolicy", tmp_path / "held", *GRID, "lr=0.01", "epochs=10", "max_kl=1e-4")
    assert held["updates"] < 0.5 * free["updates"]


def test_a_run_begins_with_anothers_networks(tmp_path):
    done("onpolicy", tmp_path / "first", *GRID, *SCALES)
    first = metrics_of(tmp_path / "first")
    begun = done(
        "onpolicy", tmp_path / "begun", *GRID, *SCALES, f"init={tmp_path / 'first'}",
        "lr=1e-12", "lr_end=0",
    )  # fmt: skip
    assert begun["figures"]["optimum_share"] == pytest.approx(
        first["figures"]["optimum_share"], abs=0.2
    )


@pytest.mark.parametrize(
    ("recipe", "settings", "said"),
    [
        ("onpolicy", ["loss=sac", "+temperature={start: 1.0, least: 0.0, entropy: auto}",
                      "+critics=2"], "learns from what is stored, and here nothing is"),
        ("onpolicy", ["her=on"], "her=off"),
        ("onpolicy", ["objectives=learned"], "take objectives=fixed or regime"),
        ("onpolicy", ["env=garleanu_pedersen", "objectives=pareto"], "take objectives=fixed"),
        ("onpolicy", ["epochs=0"], "epochs must be a whole number of at least 1"),
        ("onpolicy", ["max_kl=0"], "max_kl must be above 0"),
        ("onpolicy", ["lmbda=1.5"], "lmbda"),
        ("onpolicy", ["loss=reinforce", "lmbda=0.9"], "does not read lmbda"),
        ("onpolicy", ["std=0"], "std must be above 0"),
        ("onpolicy", ["loss.clip=2"], "clip must lie between 0 and 1"),
        ("onpolicy", ["env=cartpole", "env.actions=continuous"], "take env.actions=discrete"),
        ("onpolicy", ["env=pendulum", "env.actions=discrete"], "take env.actions=continuous"),
        ("offpolicy", ["loss=ppo", "+std=0.5", "+entropy=0.0", "+lmbda=0.9"],
         "learns from the newest steps alone"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(tmp_path, recipe, settings, said):
    ended = run(recipe, tmp_path / "refused", *FEW_BARS, *settings)
    assert ended.returncode != 0
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
