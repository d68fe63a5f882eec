"""What the picture of an episode shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from tensordict import TensorDictBase

from trading_torchrl.data import Market, synthetic_market
from trading_torchrl.envs import TradingEnv
from trading_torchrl.evaluation import plot_episode
from trading_torchrl.evaluation.episode import EMIT

GREEN, RED = to_rgba("#1a7f5a"), to_rgba("#c0392b")


@pytest.fixture(scope="module")
def market() -> Market:
    return synthetic_market(symbols=5, bars=400, seed=7)


def roll(market: Market, steps: int = 80, accounts: int = 2, **settings: Any) -> TensorDictBase:
    """Random targets, half of them as before: bars with and without a trade."""
    options: dict[str, Any] = {
        "actions": "target", "short": True, "max_position": 0.5, "emit": EMIT,
        "episode_bars": 100, "compiled": False, **settings,
    }  # fmt: skip
    env = TradingEnv(market, accounts, **options)
    generator = torch.Generator().manual_seed(2)
    seen, rows = env.reset(), []
    action = torch.zeros(env.action_spec.shape)
    for _ in range(steps):
        new = 2 * torch.rand(action.shape, generator=generator) - 1
        action = torch.where(torch.rand(action.shape, generator=generator) < 0.5, new, action)
        seen["action"] = action
        step, seen = env.step_and_maybe_reset(seen)
        rows.append(step.clone())
    return torch.stack(rows, 1)


def markers(axes: Axes) -> dict[str, list[PathCollection]]:
    """Scatters that show something, by their colour: purchases and sales, one of each an asset."""
    found: dict[str, list[PathCollection]] = {"buys": [], "sales": []}
    for part in axes.collections:
        if isinstance(part, PathCollection) and len(part.get_offsets()):
            colour = tuple(part.get_facecolor()[0])
            if colour == pytest.approx(GREEN):
                found["buys"].append(part)
            elif colour == pytest.approx(RED):
                found["sales"].append(part)
    return found


def points(parts: list[PathCollection]) -> np.ndarray:
    return np.concatenate([np.asarray(part.get_offsets()) for part in parts])


@pytest.mark.parametrize("account", [0, 1])
def test_trades_are_marked_where_they_were_filled(market: Market, account: int) -> None:
    rollout = roll(market)
    after = rollout[account]["next"]
    value = after["trade", "value"][:, 0].numpy()
    bar = after["market", "bar"][:, 0].numpy()
    symbol = int(after["market", "symbol"][0, 0])
    axes = plot_episode(rollout, market, account).axes[0]
    found = markers(axes)
    assert (value > 0).sum() > 10
    assert (value == 0).sum() > 0
    for parts, side in ((found["buys"], value > 0), (found["sales"], value < 0)):
        shown = points(parts)
        assert shown[:, 0].tolist() == np.flatnonzero(side).tolist()
        fills = market.open[bar[side], symbol].numpy()
        np.testing.assert_allclose(shown[:, 1], fills)
        sizes = np.concatenate([part.get_sizes() for part in parts])
        np.testing.assert_allclose(sizes, 15 + 60 * np.abs(value[side]) / np.abs(value).max())


def test_four_rows_and_what_is_drawn_in_them(market: Market) -> None:
    rollout = roll(market)
    figure = plot_episode(rollout, market, 1)
    after = rollout[1]["next"]
    equity = after["account", "equity"][:, 0].numpy()
    bar, symbol = after["market", "bar"][:, 0], int(after["market", "symbol"][0, 0])
    price, position, money, fallen = figure.axes
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["price", "share of equity", "equity", "drawdown, %"]
    np.testing.assert_allclose(price.lines[0].get_ydata(), market.close[bar, symbol])
    np.testing.assert_allclose(
        position.lines[0].get_ydata(), after["account", "share"][:, 0], rtol=1e-6
    )
    np.testing.assert_allclose(money.lines[0].get_ydata(), equity)
    assert set(np.asarray(money.lines[1].get_ydata()).tolist()) == {10_000.0}
    legend = price.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [market.symbols[symbol]]

    outline = np.asarray(fallen.collections[0].get_paths()[0].vertices)[1 : len(equity) + 1, 1]
    peak, expected = 10_000.0, []
    for now in equity.tolist():
        peak = max(peak, now)
        expected.append(100 * (now / peak - 1))
    assert expected[0] < 0  # below the start from the first bar on
    assert min(expected) < -0.1
    np.testing.assert_allclose(outline, expected, atol=1e-9)


def test_title_says_what_happened(market: Market) -> None:
    rollout = roll(market)
    after = rollout[0]["next"]
    title = plot_episode(rollout, market).get_suptitle()
    last = float(after["account", "equity"][-1, 0])
    trades = int((after["trade", "value"] != 0).sum())
    assert title.startswith(market.symbols[int(after["market", "symbol"][0, 0])])
    assert f"80 bars, {trades} trades" in title
    assert f"10,000 to {last:,.0f} ({last / 100 - 100:+.2f} %)" in title


def test_only_the_first_episode_is_drawn(market: Market) -> None:
    rollout = roll(market, steps=120, episode_bars=50)
    figure = plot_episode(rollout, market)
    first = rollout[0, :50]["next"]
    equity = figure.axes[2].lines[0].get_ydata()
    np.testing.assert_allclose(equity, first["account", "equity"][:, 0])
    assert "50 bars" in figure.get_suptitle()
    shown = markers(figure.axes[0])
    count = len(points(shown["buys"])) + len(points(shown["sales"]))
    assert count == int((first["trade", "value"] != 0).sum())


def test_one_account_alone_can_be_drawn(market: Market) -> None:
    rollout = roll(market)
    one, same = plot_episode(rollout, market, 1), plot_episode(rollout[1], market)
    assert one.get_suptitle() == same.get_suptitle()


def test_several_assets(market: Market) -> None:
    rollout = roll(market, assets=3, max_position=0.3)
    figure = plot_episode(rollout, market, 1)
    after = rollout[1]["next"]
    price, position = figure.axes[:2]
    value, bar = after["trade", "value"].numpy(), after["market", "bar"][:, 0]
    symbols = after["market", "symbol"][0].tolist()
    assert price.get_ylabel() == "price / first"
    assert len(price.lines) == 3
    legend = price.get_legend()
    assert legend is not None
    names = [market.symbols[symbol] for symbol in symbols]
    assert [text.get_text() for text in legend.get_texts()] == names
    assert figure.get_suptitle().startswith(", ".join(names))
    found = markers(price)
    assert len(found["buys"]) == len(found["sales"]) == 3
    for asset, symbol in enumerate(symbols):
        close = market.close[bar, symbol].numpy()
        np.testing.assert_allclose(price.lines[asset].get_ydata(), close / close[0])
        np.testing.assert_allclose(
            position.lines[asset].get_ydata(), after["account", "share"][:, asset], rtol=1e-6
        )
        for parts, side in ((found["buys"], 1), (found["sales"], -1)):
            at = np.flatnonzero(np.sign(value[:, asset]) == side)
            shown = np.asarray(parts[asset].get_offsets())
            assert shown[:, 0].tolist() == at.tolist()
            fills = market.open[bar[at], symbol].numpy()
            np.testing.assert_allclose(shown[:, 1], fills / close[0])
    assert f"{int((value != 0).sum())} trades" in figure.get_suptitle()


def test_an_account_that_never_trades(market: Market) -> None:
    env = TradingEnv(market, 1, emit=EMIT, compiled=False, episode_bars=30)
    seen, rows = env.reset(), []
    for _ in range(10):
        seen["action"] = torch.zeros(1, 1)
        step, seen = env.step_and_maybe_reset(seen)
        rows.append(step.clone())
    figure = plot_episode(torch.stack(rows, 1), market)
    assert "10 bars, 0 trades, equity 10,000 to 10,000 (+0.00 %)" in figure.get_suptitle()
    assert not any(len(parts) for parts in markers(figure.axes[0]).values())


@pytest.mark.parametrize(
    ("emit", "lacks"),
    [
        (("equity", "share", "value"), "market.*bar"),
        (("index", "share", "value"), "account.*equity"),
        (("index", "equity", "value"), "account.*share"),
        (("index", "equity", "share"), "trade.*value"),
    ],
)
def test_a_rollout_that_lacks_keys_is_refused(
    market: Market, emit: tuple[str, ...], lacks: str
) -> None:
    rollout = roll(market, steps=3, emit=emit)
    with pytest.raises(KeyError, match=rf"lacks.*{lacks}.*emit=.*index.*equity.*share.*value"):
        plot_episode(rollout, market)


def test_dates_stand_under_the_bars(market: Market) -> None:
    rollout = roll(market)
    axes = plot_episode(rollout, market).axes[3]
    bar = rollout[0]["next", "market", "bar"][:, 0].numpy()
    ticks = axes.get_xticks()
    for tick, label in zip(ticks, axes.get_xticklabels(), strict=True):
        when = market.dates[bar[int(tick)]].astype("datetime64[m]")
        assert label.get_text().replace("\n", "T") == str(when)
    assert len(ticks) == 8
    assert ticks[0] == 0
    assert ticks[-1] == 79


def test_a_single_bar_can_be_drawn_and_saved(market: Market, tmp_path: Path) -> None:
    figure = plot_episode(roll(market, steps=1), market)
    figure.savefig(tmp_path / "episode.png", dpi=40)
    assert (tmp_path / "episode.png").stat().st_size > 1_000
