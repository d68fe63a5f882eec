"""What actors apart are made of: the learner's bars, handed on instead of drawn again."""

import pickle
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from running import FEW_BARS

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes"))

import crews
import launch
from hydra import compose, initialize_config_dir
from tasks import make_task
from tasks.markets import Parts

Usage = namedtuple("Usage", "total used free")
CONF = str(Path(crews.__file__).parent / "conf")
SETTINGS = [*FEW_BARS, "+env.compiled=false", "env.num_envs=4", "hidden=[8]", "threads=1"]


@pytest.fixture
def settings():
    with initialize_config_dir(CONF, version_base="1.3"):
        return launch._plain(compose("impala", overrides=SETTINGS))


def test_an_actor_trades_on_the_learners_bars_and_draws_none(settings, monkeypatch):
    task = make_task(settings)
    parts, state = pickle.loads(pickle.dumps((task.parts.for_actors(), task.state_dict())))

    def drawn(*_):
        raise AssertionError("bars were drawn again")

    monkeypatch.setattr("tasks.markets.drawn", drawn)
    again = make_task(settings, {"task": state}, parts)
    assert torch.equal(again.base.table, task.base.table)
    assert not again.parts.train.hidden
    with pytest.raises(LookupError, match="not those of validation"):
        _ = again.parts.validation


def test_what_is_cut_from_a_larger_market_is_handed_on_alone(settings):
    whole = make_task(settings).parts.train
    cut = Parts(lambda _: whole.bars(100, 200), None, ()).for_actors()
    assert len(pickle.dumps(cut)) < 0.6 * len(pickle.dumps(whole))
    assert torch.equal(cut.train.close, whole.close[100:200])


@pytest.mark.parametrize("room", [0, 10**12])
def test_bars_are_shared_where_there_is_room(settings, monkeypatch, room):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(room, 0, room))
    parts = make_task(settings).parts.for_actors()
    found = crews.shared(parts)
    assert (found is parts) == bool(room)
    assert parts.train.features.is_shared() == bool(room)


def test_what_has_no_market_hands_on_none():
    assert crews.shared(None) is None
