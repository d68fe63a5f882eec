"""Losses swapped by a word, and losses, networks and rewards of one's own."""

import os
import re
import subprocess

import numpy as np
import pytest
from running import (
    MARKET,
    REFERENCE,
    ROOT,
    command,
    metrics_of,
    run,
    same,
    stopped_and_resumed,
    trained,
)

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.state_file import load


@pytest.mark.parametrize("loss", ["td3", "ddpg", "redq", "tqc", "crossq", "sac_torchrl"])
def test_another_loss_is_one_word(straight, tmp_path, loss):
    _, sac = straight
    overrides = [*REFERENCE, f"loss={loss}"]
    whole = trained(tmp_path / "whole", *overrides)
    assert whole["updates"] == sac["updates"]
    assert whole["parameters_sha256"] != sac["parameters_sha256"]
    stopped = stopped_and_resumed(tmp_path / "halves", overrides, 560)
    assert same(whole, stopped)


@pytest.mark.parametrize("loss", ["sac_discrete", "dqn"])
def test_discrete_agents_on_a_reference_problem(tmp_path, loss):
    grid = [*REFERENCE, "env.actions=discrete", "env.choices=5", f"loss={loss}"]
    grid += ["total_frames=960"]
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
        (
            ["env=pendulum", "env.actions=discrete"],
            "env.actions=discrete: take env.actions=continuous",
        ),
        (["env=ou_spread", "env.action=discrete"], "take env.actions=discrete"),
        (["env=merton", "env.actions=discrete", "loss=td3"], "take loss=sac_discrete or loss=dqn"),
    ],
)
def test_losses_and_actions_that_do_not_fit_are_refused(tmp_path, overrides, said):
    names = [each.split("=")[0] for each in overrides]
    kept = [each for each in MARKET if each.split("=")[0] not in names]
    if "env" in names:
        kept = [each for each in kept if "env." not in each]
    done = run("offpolicy", tmp_path, *kept, *overrides)
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


def run_own(folder, name, settings, *overrides, recipe="offpolicy"):
    given = ["--config-dir", str(folder / "conf"), f"hydra.run.dir={folder / name}"]
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [*command(recipe, None, *given, *overrides), settings.replace("/", "=")],
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


OWN_CODE = """
import torch
from torch import nn
from trading_torchrl.objectives import SACLoss


class Ends(SACLoss):
    @property
    def in_keys(self):
        return [*super().in_keys, ("next", "truncated")]

    def forward(self, tensordict):
        assert tensordict["next", "truncated"].dtype is torch.bool
        return super().forward(tensordict)


class Normalised(nn.Sequential):
    def __init__(self, inputs, hidden, outputs):
        width = hidden[0]
        super().__init__(
            nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, outputs)
        )

    def forward(self, *inputs):
        return super().forward(torch.cat(inputs, -1))
"""


def running_means(folder):
    averaged = Checkpoints(folder / "checkpoints").newest()[1]["averaged"]
    return [value for key, value in averaged.items() if key.endswith("running_mean")]


def test_what_a_loss_reads_is_kept_and_the_averaged_actor_normalises(tmp_path):
    """Online, and offline with what was kept."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "my_own.py").write_text(OWN_CODE)
    short = [*REFERENCE, "stop_at=160", "replay.save=true", "loss._target_=my_own.Ends"]
    done = run_own(tmp_path, "run", "network._target_=my_own.Normalised", *short)
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "run" / "replay.pt")["spec"]["next.truncated"] == ["bool", 1]
    offline = [f"data={tmp_path / 'run'}", "updates=10", "threads=1", "loss=cql"]
    offline += ["evaluate_every=10", "loss._target_=my_own.Ends", "~loss.weight", "~loss.drawn"]
    done = run_own(tmp_path, "offline", "seed=1", *offline, recipe="offline")
    assert done.returncode == 0, done.stderr
    for name in ("run", "offline"):
        means = running_means(tmp_path / name)
        assert means
        assert all(mean.abs().min() > 0 for mean in means)


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
        refused = run("offpolicy", tmp_path, *REFERENCE, f"loss._target_={path}")
        assert refused.returncode == 1
        assert said in refused.stderr
