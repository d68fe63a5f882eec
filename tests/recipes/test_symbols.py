"""One agent over many symbols through the real command lines, shrunken."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from running import TINY, done, metrics_of, run, same, trained

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.state_file import load

SMALL = [
    *TINY, "total_frames=640",
    "evaluate_every=640", "checkpoint_every=320", "+env.compiled=false",
    "++env.episode_bars=100", "network=per_symbol",
]  # fmt: skip
TEN = [*SMALL, "market.bars=1_000", "market.embargo=5"]  # the market comes with the network
FEW = [
    "market.train.paths=2", "market.train.bars=300", "market.validation.bars=60",
    "market.test.paths=2", "market.test.bars=80",
]  # fmt: skip
FROZEN = "network.freeze_trunk=true"


def csv(folder):
    return [*SMALL, "market=csv", f"market.path={folder}", "market.embargo=5"]


def write(folder, *names):
    folder.mkdir()
    for name in names:
        generator = np.random.default_rng(sum(map(ord, name)))
        close = 100 * np.exp(np.cumsum(0.01 * generator.standard_normal(700)))
        pd.DataFrame(
            {
                "timestamp": pd.date_range("2015-01-01", periods=700, freq="D"),
                "open": close, "high": close * 1.01, "low": close * 0.99, "close": close,
                "volume": 1e6,
            }
        ).to_csv(folder / f"{name}.csv", index=False)  # fmt: skip


def saved_of(folder):
    return Checkpoints(folder / "checkpoints").newest()[1]


def part(state, name):
    """Tensors of an actor's or a loss's state whose keys have this in them."""
    return {key: value for key, value in state.items() if f".{name}." in key}


def equal(first, second):
    return first.keys() == second.keys() and all(first[key].equal(second[key]) for key in first)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A run on three of the ten symbols."""
    folder = tmp_path_factory.mktemp("three")
    overrides = [*TEN, "market.only=[CEDAR,ELDER,ROWAN]"]
    return folder, overrides, trained(folder, *overrides, "replay.save=true")


def test_figures_of_each_symbol_are_in_all_that_a_run_leaves(three):
    folder, _, metrics = three
    assert list(metrics["symbols"]) == ["CEDAR", "ELDER", "ROWAN"]
    for rows in metrics["symbols"].values():
        assert rows.keys() == {"agent", "buy_and_hold"}
        assert {"sharpe_ratio_mean", "growth", "max_drawdown", "turnover", "position_std"} == set(
            rows["agent"]
        )
    mean = np.mean([rows["agent"]["growth"] for rows in metrics["symbols"].values()])
    assert mean == pytest.approx(metrics["figures"]["growth"])
    page = (folder / "report.html").read_text()
    assert "By symbol" in page
    for name in ("agent, equal weight", "equal_weight"):
        assert f"<th>{name}" in page
        for figure in ("sharpe_ratio_mean", "growth", "max_drawdown"):
            assert np.isfinite(metrics["figures"][f"{name}/{figure}"])
    said = run("evaluate", None, f"run={folder}")
    assert said.returncode == 0, said.stderr
    lines = [line.split() for line in said.stdout.splitlines() if line.startswith("ROWAN")]
    assert len(lines) == 1
    judged = json.loads((folder / "evaluation_validation.json").read_text())
    assert judged["symbols"] == metrics["symbols"]


def test_heads_are_saved_by_name(three):
    folder, _, _ = three
    heads = part(saved_of(folder)["averaged"], "heads")
    assert {key.split(".")[-2] for key in heads} == {"CEDAR", "ELDER", "ROWAN"}


def test_stored_rows_are_learned_from_with_the_same_heads(three, tmp_path):
    folder, _, _ = three
    settings = ["threads=1", "updates=20", "evaluate_every=20", "loss=cql", "gamma=0.9"]
    metrics = done("offline", tmp_path, f"data={folder}", *settings)
    assert list(metrics["symbols"]) == ["CEDAR", "ELDER", "ROWAN"]
    heads = part(saved_of(tmp_path)["averaged"], "heads")
    assert {key.split(".")[-2] for key in heads} == {"CEDAR", "ELDER", "ROWAN"}


def test_a_frozen_trunk_stays_and_the_run_goes_on_bit_for_bit_without_the_first(three, tmp_path):
    folder, overrides, _ = three
    moved = tmp_path / "moved"
    folder.rename(moved)
    given = [*(each for each in overrides if "only" not in each), "market.only=[ROWAN,ALDER,CEDAR]"]
    given.append(FROZEN)
    try:
        whole = trained(tmp_path / "whole", *given, f"init={moved}")
        halves = tmp_path / "halves"
        assert trained(halves, *given, f"init={moved}", "stop_at=360")["frames"] == 360
    finally:
        moved.rename(folder)
    # What it began with may be gone.
    ended = run("offpolicy", None, f"resume={halves}", "stop_at=null")
    assert ended.returncode == 0, ended.stderr
    assert same(whole, metrics_of(halves))
    before, after = saved_of(folder), saved_of(halves)
    trunk = part(before["averaged"], "trunk")
    assert equal(trunk, part(after["averaged"], "trunk"))
    critics = part(after["loss"], "trunk")
    for key, value in critics.items():
        assert value.equal(critics[key.replace("target_", "")])
    heads = part(after["averaged"], "heads")
    assert {key.split(".")[-2] for key in heads} == {"ROWAN", "ALDER", "CEDAR"}
    assert len({tuple(value.flatten().tolist()) for value in heads.values()}) == len(heads)


def test_a_new_symbol_of_your_own_gets_a_head(tmp_path):
    two, more = tmp_path / "two", tmp_path / "more"
    write(two, "AAA", "CCC")
    write(more, "AAA", "BBB", "CCC")
    trained(tmp_path / "first", *csv(two))
    trained(tmp_path / "second", *csv(more), FROZEN, f"init={tmp_path / 'first'}")
    first, second = (saved_of(tmp_path / name) for name in ("first", "second"))
    assert equal(part(first["averaged"], "trunk"), part(second["averaged"], "trunk"))
    for name in ("mean", "std"):
        assert first["task"]["scaler"][name].equal(second["task"]["scaler"][name])
    # Before it learned, the new one's was the mean of the others'.
    start = load(tmp_path / "second" / "checkpoints" / "frames_000000000000.pt")
    known, begun = (part(each["averaged"], "heads") for each in (first, start))
    for key, value in known.items():
        assert begun[key].equal(value)
    for key in (key for key in begun if ".BBB." in key):
        pair = [known[key.replace("BBB", name)] for name in ("AAA", "CCC")]
        torch.testing.assert_close(begun[key], sum(pair) / 2)

    # Prices with a symbol that a run knows nothing of are not evaluated as if it did.
    write(tmp_path / "kept", "BBB")
    (tmp_path / "kept" / "BBB.csv").rename(two / "BBB.csv")
    refused = run("evaluate", None, f"run={tmp_path / 'first'}")
    assert refused.returncode == 1
    assert "of BBB it knows nothing, init= begins with it" in refused.stderr


def test_what_does_not_fit_is_refused(three, tmp_path):
    folder, overrides, _ = three
    for given, said in (
        ([*SMALL, "market=synthetic", *FEW], "choose market=ten_symbols"),
        (
            [*TINY, "env=pendulum", "env.num_envs=1", "network=per_symbol"],
            "Pendulum-v1 has no symbols",
        ),
        ([*overrides, FROZEN], "name the run that trained it"),
        ([*overrides, "loss=sac_torchrl"], "without the names of the symbols: take loss=sac"),
        ([*overrides, FROZEN, f"init={folder}", "critics=3"], "window, actions and critics"),
        ([*overrides, "market.only=[NOBODY]"], "market.only is some of ALDER, BIRCH"),
    ):
        refused = run("offpolicy", tmp_path, *given)
        assert refused.returncode == 1
        assert said in refused.stderr, refused.stderr[-500:]
