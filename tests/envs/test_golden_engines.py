"""Our account against those of other engines that were given the same trades.

The fixtures hold a market, target actions, and what `vectorbt` and `bt` made of the units our
environment traded; `python results/engines.py --write` renews them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tensordict import TensorDict

from trading_torchrl.data import Market
from trading_torchrl.data.features import WARMUP
from trading_torchrl.envs import TradingEnv

GOLDEN = Path(__file__).parent / "golden"
SCENARIOS = ("next_open", "close")
ENGINES = ("vectorbt", "bt")
ALLOWED = 1e-6
CASH = 1e6
FEE = 0.001

Arrays = dict[str, NDArray[Any]]


def play(scenario: Arrays, fee: float = FEE) -> Arrays:
    """Units, cash, equity and fees after every bar of a scenario, each ``[T]``.

    A scenario has ``open`` and ``close`` ``[T + 1]``, the first bar being the one before the first
    trade, ``action`` float32 ``[T]`` and ``fill``.
    """

    def warmed(prices: NDArray[Any]) -> torch.Tensor:
        before = np.full(WARMUP - 1, scenario["close"][0])
        return torch.from_numpy(np.concatenate([before, prices]))[:, None]

    opening, close = warmed(scenario["open"]), warmed(scenario["close"])
    market = Market(
        symbols=("S",),
        timestamps=torch.arange(len(close)) * 3_600_000_000_000,
        open=opening,
        high=torch.maximum(opening, close),
        low=torch.minimum(opening, close),
        close=close,
        volume=torch.ones_like(close),
        bars_per_year=252.0,
    )
    env = TradingEnv(
        market,
        actions="target",
        short=True,
        max_position=0.05,
        fill=str(scenario["fill"]),  # type: ignore[arg-type]
        emit=("units", "cash", "equity", "fees"),
        episode_bars=None,
        cash=CASH,
        commission=fee,
        slippage=0.0,
        min_trade=5_000.0,
        compiled=False,
    )
    state = env.reset()
    rows: list[list[float]] = []
    names = ("units", "cash", "equity", "fees")
    for action in torch.from_numpy(scenario["action"]):
        given = TensorDict({**state, "action": action.reshape(1, 1)}, [1])
        state = env.step(given)["next"].exclude("reward")
        rows.append([float(state["account", name]) for name in names])
    return dict(zip(names, np.array(rows).T, strict=True))


def load(name: str) -> Arrays:
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as stored:
        return dict(stored)


def apart(scenario: Arrays, ours: Arrays, engine: str) -> float:
    """Largest difference of equity and cash to an engine's, in money."""
    differences = [np.abs(ours[key] - scenario[f"{engine}_{key}"]) for key in ("equity", "cash")]
    return float(np.max(differences))


@pytest.mark.parametrize("name", SCENARIOS)
def test_trades_are_those_the_engines_were_given(name: str) -> None:
    scenario = load(name)
    units = scenario["units"]
    held = np.abs(play(scenario)["units"] - units) * scenario["close"][1:]
    assert held.max() < ALLOWED
    assert (units > 0).sum() > 50
    assert (units < 0).sum() > 50
    assert (units[1:] * units[:-1] < 0).sum() > 3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_account_is_that_of_the_engine(name: str, engine: str) -> None:
    scenario = load(name)
    assert apart(scenario, play(scenario), engine) < ALLOWED


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fee_off_by_one_percent_shows(name: str) -> None:
    scenario = load(name)
    fees = play(scenario)["fees"].sum()
    wrong = play(scenario, fee=1.01 * FEE)
    difference = apart(scenario, wrong, "vectorbt")
    assert difference == pytest.approx(0.01 * fees, rel=0.3)
    assert difference > 5


@pytest.mark.parametrize("name", SCENARIOS)
def test_marking_a_bar_later_shows(name: str) -> None:
    scenario = load(name)
    later = scenario["vectorbt_cash"][:-1] + scenario["units"][:-1] * scenario["close"][2:]
    assert np.abs(later - scenario["vectorbt_equity"][:-1]).max() > 100
