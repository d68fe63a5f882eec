"""What recipes are trained on, built from settings; and what is refused, in words that help."""

import importlib

import gymnasium
import numpy as np
import pandas as pd
import pytest
import yaml
from running import ROOT, run

from trading_torchrl.data import MarketError


@pytest.fixture
def recipes(monkeypatch):
    """Imports a module of the recipes."""
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    return importlib.import_module


class Forgetful(gymnasium.Env):
    """Has no state to save."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Forgetful-v0", "does not say where it stands"),
        ("CartPole-v1", r"takes Discrete\(2\) for actions"),
        ("Nothing-v0", "env.gym=Nothing-v0: Environment `Nothing` doesn't exist"),
    ],
)
def test_gymnasium_environments_that_do_not_suit_are_refused(recipes, monkeypatch, name, said):
    monkeypatch.setitem(gymnasium.registry, "Forgetful-v0", None)  # forgotten after the test
    del gymnasium.registry["Forgetful-v0"]
    gymnasium.register("Forgetful-v0", Forgetful, max_episode_steps=5)
    with pytest.raises(ValueError, match=said):
        recipes("tasks.gym").Gym({"gym": name}, 1, 0)


def prices_in(folder, bars):
    """A CSV of daily bars, and the settings of the market that it is."""
    close = 100 + np.sin(np.arange(bars))
    pd.DataFrame(
        {
            "timestamp": pd.date_range("2015-01-01", periods=bars, freq="D"),
            "open": close, "high": close, "low": close, "close": close, "volume": 1e6,
        }
    ).to_csv(folder / "AAA.csv", index=False)  # fmt: skip
    settings = yaml.safe_load((ROOT / "recipes" / "conf" / "market" / "csv.yaml").read_text())
    return settings | {"path": str(folder)}


def test_the_fewest_daily_bars_that_docs_name_are_enough(recipes, tmp_path):
    learn = yaml.safe_load((ROOT / "recipes/conf/learn_on/csv_long_only.yaml").read_text())
    env = {"compiled": False, "episode_bars": learn["env"]["episode_bars"]}
    trading = recipes("tasks.trading")
    task = trading.Trading(trading.MadeOf(prices_in(tmp_path, 525), env, 2, None, 0, {}))
    assert len(task.parts.train) == 314
    assert "525 daily bars" in (ROOT / "docs" / "training.md").read_text()
    fewer = prices_in(tmp_path, 523)
    with pytest.raises(ValueError, match=r"env\.episode_bars=250 .* at most 249 bars, or more"):
        trading.Trading(trading.MadeOf(fewer, env, 2, None, 0, {}))


def test_bars_that_cannot_be_split_name_the_settings(recipes, tmp_path):
    settings = prices_in(tmp_path, 100) | {"embargo": 30}
    with pytest.raises(MarketError, match=r"choose a shorter embargo.*by market\.train=.*embargo="):
        recipes("tasks.markets").parts_of(settings)


def test_limits_are_those_of_the_settings(recipes):
    made = recipes("tasks.trading").limits_of({"drawdown": 0.2, "daily_trades": 3})
    assert (made.drawdown, made.daily_trades, made.exposure) == (0.2, 3, None)
    assert recipes("tasks.trading").limits_of(None) is None
    for given, said in (
        (0.2, r"env\.limits is a mapping, \{drawdown: 0\.1\} say"),
        ({"loss": 0.1}, r"env\.limits\.loss is no setting of Limits, which has exposure"),
        ({"drawdown": "abc"}, "drawdown must be a positive number or None, got 'abc'"),
    ):
        with pytest.raises(ValueError, match=said):
            recipes("tasks.trading").limits_of(given)


def test_the_preset_for_the_sharpe_ratio():
    shown = run("offpolicy", None, "preset=sharpe", "--cfg", "job")
    settings = yaml.safe_load(shown.stdout)
    assert settings["icm"]["share"] == 0.03
    assert settings["temperature"]["start"] == 0.35
    assert settings["temperature"]["entropy"] == -0.2
    assert yaml.safe_load(run("offpolicy", None, "--cfg", "job").stdout)["icm"] == {}
