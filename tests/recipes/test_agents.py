"""What recipes make of settings: agents, what is stored for them, and beginning with another's."""

import copy
import sys
from pathlib import Path

import pytest
import torchrl.objectives
from tensordict import TensorDict
from torchrl.objectives import LossModule

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.modules import MLP
from trading_torchrl.objectives import FromTorchRL

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes"))
import agents
import earlier
from composing import composed
from hydra import initialize_config_dir
from omegaconf import OmegaConf
from tasks import make_task

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).stem


def settings_of(*overrides):
    with initialize_config_dir(str(ROOT / "recipes" / "conf"), version_base="1.3"):
        config, choices = composed("offpolicy", ["env=garleanu_pedersen", "hidden=[8]", *overrides])
    found = OmegaConf.to_container(config, resolve=True)
    accounts = found["env"].pop("num_envs")
    return found | {"num_envs": accounts, "choices": choices}


def made(settings, **changed):
    settings = settings | changed
    task = make_task(settings)
    return task, *agents.make_agent(settings["loss"], settings["network"], task, settings["hidden"])


class Own(LossModule):
    """A loss from nothing, with a setting that is a mapping."""

    def __init__(self, actor_network, *, weights=None, reads=()):
        super().__init__()
        self.actor_network, self.weights = actor_network, weights
        self.in_keys = ["observation", "action", ("next", "reward"), *reads]
        self.out_keys = ["loss_actor", "error"]

    def forward(self, tensordict):
        dist = self.actor_network.get_dist(tensordict.select("observation"))
        error = (dist.mode - tensordict["action"]).square().mean()
        return TensorDict({"loss_actor": error, "error": error.detach()}, [])

    def update_targets(self, rate):
        """Nothing is slow."""


class NoKeys(LossModule):
    def __init__(self, actor_network):
        super().__init__()
        self.actor_network = actor_network

    def update_targets(self, rate):
        """Nothing is slow."""


class NoOutputs(NoKeys):
    in_keys = ("observation",)


class NothingSummed(NoOutputs):
    out_keys = ("error",)


class NoTargets(LossModule):
    pass


class TorchRLDDPG(FromTorchRL, torchrl.objectives.DDPGLoss):
    pass


def own(kind, **given):
    return {"_target_": f"{HERE}.{kind.__name__}", **given}


ACTOR = {"_target_": "trading_torchrl.modules.make_actor"}


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (own(NoTargets, actor_network=ACTOR), r"NoTargets has no update_targets\(rate\), which"),
        (own(NoKeys, actor_network=ACTOR), "NoKeys has no in_keys, which lists all that forward"),
        (own(NoOutputs, actor_network=ACTOR), "NoOutputs has no out_keys, which lists"),
        (own(NothingSummed, actor_network=ACTOR), "no name in NothingSummed.out_keys begins with"),
        (own(Own), "loss.actor_network must say what builds the policy"),
        (own(Own, actor_network={"noise": 1}), "loss.actor_network must name what builds it"),
        (own(Own, actor_network=ACTOR, weight=1), "Own takes actor_network, weights, reads"),
    ],
)
def test_what_a_loss_of_ones_own_lacks_is_said_at_the_start(loss, said):
    with pytest.raises(SystemExit, match=said):
        made(settings_of(), loss=loss)


def test_a_mapping_is_a_network_only_where_it_says_what_builds_it():
    weights = {"profit": 0.5, "risk": {"low": 1, "high": 2}}
    _, actor, loss = made(settings_of(), loss=own(Own, actor_network=ACTOR, weights=weights))
    assert loss.weights == weights
    assert loss.actor_network is actor


MARKET = [
    "env=long_short", "market.train.paths=2", "market.train.bars=300", "market.validation.paths=2",
    "market.validation.bars=60", "market.test.paths=2", "market.test.bars=60",
    "+env.compiled=false", "+env.episode_bars=100", "window=4", "env.num_envs=2",
]  # fmt: skip


class Careful(MLP):
    """A network that sees more than the observation."""

    reads = (("account", "share"),)

    def __init__(self, inputs, hidden, outputs):
        super().__init__(inputs + 1, hidden, outputs)

    def forward(self, share, *inputs):
        return super().forward(*inputs, share)


def test_what_a_loss_or_a_network_reads_is_stored():
    settings = settings_of(*MARKET)
    usual = agents.keys_to_store(*made(settings)[::2])
    reads = [("next", "truncated"), ("account", "equity"), ("market", "bar"), "window"]
    task, _, loss = made(settings, loss=own(Own, actor_network=ACTOR, reads=reads))
    assert {*agents.keys_to_store(task, loss)} - {*usual} == {
        ("next", "truncated"), ("account", "equity")  # the others are rebuilt, and stored already
    }  # fmt: skip
    task, actor, loss = made(settings, network={"_target_": f"{HERE}.Careful"})
    kept = agents.keys_to_store(task, loss)
    assert {*kept} - {*usual} == {("account", "share"), ("next", "account", "share")}
    rows = task.env.rollout(3, actor).select(*kept).reshape(-1)
    transform = task.replay_transform()
    sampled = transform(transform.inv(rows))
    assert loss(sampled)["loss_qvalue"].isfinite()


def test_what_no_environment_shows_is_refused_by_name():
    loss = own(Own, actor_network=ACTOR, reads=["sample_log_prob"])
    task, _, loss = made(settings_of(), loss=loss)
    with pytest.raises(SystemExit, match="Own, or a network of it, reads 'sample_log_prob', which"):
        agents.keys_to_store(task, loss)


def test_losses_of_torchrl_list_what_they_can_do_without():
    parts = {
        "actor_network": {"_target_": "trading_torchrl.modules.make_deterministic_actor"},
        "value_network": {"_target_": "trading_torchrl.modules.make_critic"},
    }
    task, _, loss = made(settings_of(), loss=own(TorchRLDDPG, **parts))
    assert {"priority_weight", ("next", "action")} <= {*loss.in_keys}
    assert agents.keys_to_store(task, loss) == (*task.stored, ("next", "done"))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["loss=redq", "loss.qvalue_network.members=1"],
            r"\(REDQLoss with loss.qvalue_netw",
        ),
        (["loss=tqc", "loss.dropped=30"], "loss.dropped=30"),
        (["loss=crossq", "network=per_symbol"], "choose network=mlp.*loss.qvalue_network.wider=2"),
        (["loss=td3", "loss.actor_network.noise=-1"], "loss.actor_network.noise=-1"),
        (["temperature.start=-1"], "loss.alpha_init=-1"),
        (["loss=redq", f"network._target_={HERE}.Careful", "loss.subset=20"], "loss.subset=20"),
    ],
)
def test_what_a_constructor_refuses_names_the_settings_of_the_loss(overrides, said, monkeypatch):
    monkeypatch.setattr(agents, "_symbols", lambda task: ("AAA",))
    with pytest.raises(SystemExit, match=said) as refused:
        made(settings_of(*overrides))
    assert "\n" not in str(refused.value)


def test_offline_nobody_is_told_to_change_the_data():
    settings = settings_of("loss=dqn")
    with pytest.raises(SystemExit, match=r"add env\.actions=discrete"):
        made(settings)
    with pytest.raises(SystemExit, match="take loss=iql") as refused:
        agents.make_agent(
            settings["loss"], settings["network"], make_task(settings), [8], stored=True
        )
    assert "add env.actions" not in str(refused.value)


def left(folder, settings):
    """The folder of a run that ended with a new agent."""
    task, actor, loss = made(settings)
    OmegaConf.save(OmegaConf.create(settings), folder / "config.yaml")
    state = {"task": task.state_dict(), "loss": loss.state_dict(), "averaged": actor.state_dict()}
    Checkpoints(folder / "checkpoints").save(1, state)
    return actor


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["hidden=[4]"], r"network.layers.0.weight is \[4, 2\] here, and that run has \[8, 2\]; it"
                         r" had hidden=\[8\]: give the same"),
        (["hidden=[8,8]"], r"layers.1.weight is \[8, 8\] here, and that run has \[2, 8\]"),
        (["loss=td3"], "that run has nothing; it had loss=sac"),
        (["env=planted_leak"], "it had env=garleanu_pedersen"),
        (["env.actions=discrete", "loss=sac_discrete"], "loss=sac, env.actions=continuous"),
        ([f"network._target_={HERE}.Careful"], "network._target_=trading_torchrl.modules.MLP"),
    ],
)  # fmt: skip
def test_an_actor_that_does_not_fit_is_refused(tmp_path, changed, said):
    left(tmp_path, settings_of())
    settings = settings_of(*changed)
    _, actor, loss = made(settings)
    with pytest.raises(SystemExit, match=said):
        earlier.begin_from(earlier.earlier_run(tmp_path), actor, loss, settings)


def test_what_fits_goes_over_and_critics_may_be_others(tmp_path):
    first = left(tmp_path, settings_of())
    settings = settings_of("loss=redq")
    _, actor, loss = made(settings)
    before = copy.deepcopy(loss.qvalue_network.state_dict())
    earlier.begin_from(earlier.earlier_run(tmp_path), actor, loss, settings)
    assert all(value.equal(first.state_dict()[key]) for key, value in actor.state_dict().items())
    assert all(value.equal(before[key]) for key, value in loss.qvalue_network.state_dict().items())


def test_heads_of_symbols_need_not_be_there(tmp_path, monkeypatch):
    monkeypatch.setattr(agents, "_symbols", lambda task: ("AAA", "BBB"))
    settings = settings_of("network=per_symbol")
    first = left(tmp_path, settings)
    monkeypatch.setattr(agents, "_symbols", lambda task: ("BBB", "CCC"))
    _, actor, loss = made(settings)
    earlier.begin_from(earlier.earlier_run(tmp_path), actor, loss, settings)
    for key, value in actor.state_dict().items():
        if "CCC" not in key:
            assert value.equal(first.state_dict()[key])
    wider = settings_of("network=per_symbol", "hidden=[9]", "network.freeze_trunk=true")
    _, actor, loss = made(wider)
    with pytest.raises(SystemExit, match=r"trunk.* it had hidden=\[8\]: give"):
        earlier.begin_from(earlier.earlier_run(tmp_path), actor, loss, wider)
