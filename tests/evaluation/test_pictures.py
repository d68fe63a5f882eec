"""What the pictures show, read off their axes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from trading_torchrl.evaluation import (
    Account,
    Difference,
    action_picture,
    differences_picture,
    drawdown_picture,
    growth_picture,
    position_picture,
    training_picture,
)


def account(equity: list[list[float]], action: list[float] | None = None) -> Account:
    money = torch.tensor(equity, dtype=torch.float64)
    nothing = torch.zeros_like(money)
    asked = torch.full_like(money, torch.nan)
    if action is not None:
        asked[0, 1 : 1 + len(action)] = torch.tensor(action, dtype=torch.float64)
    return Account(money, money / 400, nothing, nothing, nothing, asked)


FALLS = account([[100.0, 200.0, 150.0, 300.0], [100.0, 50.0, 100.0, 0.0]])


def test_growth_is_the_mean_over_symbols() -> None:
    figure = growth_picture({"a": FALLS, "b": FALLS}, bars_per_year=2.0, thick="b")
    first, second, _ = figure.axes[0].lines
    np.testing.assert_allclose(first.get_xdata(), [0, 0.5, 1, 1.5])
    ends = (math.log(3) + math.log(1e-6)) / 2
    np.testing.assert_allclose(
        first.get_ydata(), [0, 0, math.log(1.5) / 2, ends], rtol=1e-6, atol=1e-12
    )
    assert second.get_linewidth() > first.get_linewidth()
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["a", "b"]
    assert "2 symbols" in figure.axes[0].get_title(loc="left")


def test_drawdown_mean_and_worst() -> None:
    worst, mean = drawdown_picture(FALLS, 1.0).axes[0].lines
    np.testing.assert_allclose(worst.get_ydata(), [0, -0.5, -0.25, -1])
    np.testing.assert_allclose(mean.get_ydata(), [0, -0.25, -0.125, -0.5])
    (alone,) = drawdown_picture(account([[100.0, 90.0]]), 1.0).axes[0].lines
    np.testing.assert_allclose(alone.get_ydata(), [0, -0.1])


@pytest.mark.parametrize(
    ("kind", "actions", "expected", "label"),
    [
        ("target", [-1.0, 0.0, 1.0, 0.99], {0: 0.25, 3: 0.25, 6: 0.5}, "-1.00 to -0.71"),
        ("continuous", [0.5, 0.05, 0.05, -1.0], {2: 0.25, 0: 0.5, 5: 0.25}, "HOLD"),
        ("discrete", [6.0, 6.0, 1.0, 1.0], {6: 0.5, 1: 0.5}, "HOLD"),
    ],
)
def test_actions_by_name(
    kind: str, actions: list[float], expected: dict[int, float], label: str
) -> None:
    figure = action_picture(account([[100.0] * 5], actions), kind)
    bars = figure.axes[0].patches
    assert len(bars) == (6 if kind == "continuous" else 7)
    for number, bar in enumerate(bars):
        assert bar.get_width() == pytest.approx(expected.get(number, 0))
    assert figure.axes[0].get_yticklabels()[0].get_text() == label
    assert len(figure.axes) == (1 if kind == "discrete" else 2)
    if kind != "discrete":
        assert sum(bar.get_height() for bar in figure.axes[1].patches) == pytest.approx(1)


def test_positions_of_the_first_bars() -> None:
    figure = position_picture({"a": FALLS, "b": FALLS, "c": FALLS}, ["c", "a"], symbol=1, bars=3)
    for line in figure.axes[0].lines[:2]:
        np.testing.assert_allclose(line.get_ydata(), [0.25, 0.125, 0.25])
    lines = {line.get_label(): line.get_color() for line in figure.axes[0].lines[:2]}
    grown = growth_picture({"a": FALLS, "b": FALLS, "c": FALLS}, 1.0).axes[0].lines
    assert lines == {line.get_label(): line.get_color() for line in (grown[0], grown[2])}


def test_a_panel_for_every_figure_of_training() -> None:
    rows = [{"frames": 10, "loss": 1.0}, {"frames": 20, "loss": 2.0, "eval/x": 5.0},
            {"frames": 30, "a": 1.0, "b": 1.0}]  # fmt: skip
    figure = training_picture(rows)
    shown = {axis.get_title(loc="left"): axis for axis in figure.axes if axis.get_visible()}
    assert list(shown) == ["loss", "eval/x", "a", "b"]
    np.testing.assert_allclose(shown["loss"].lines[0].get_xydata(), [[10, 1], [20, 2]])
    np.testing.assert_allclose(shown["eval/x"].lines[0].get_xydata(), [[20, 5]])


def test_differences_lie_beside_zero_with_their_intervals() -> None:
    apart = {
        "Sharpe": {"a": Difference(0.5, 0.2, 5), "b": Difference(-0.1, 0.3, 5)},
        "growth": {"a": Difference(math.nan, math.nan, 0), "b": Difference(0.2, math.nan, 1)},
    }
    figure = differences_picture(apart, "none")
    first, second = figure.axes
    assert first.get_title(loc="left") == "Sharpe, less none"
    assert [label.get_text() for label in first.get_yticklabels()] == ["a", "b"]
    spans = [each.get_children()[-1].get_segments()[0] for each in first.containers]
    np.testing.assert_allclose(spans[0][:, 0], [0.3, 0.7])
    np.testing.assert_allclose(spans[1][:, 0], [-0.4, 0.2])
    assert len(second.containers) == 1  # what is not known is not drawn
    assert first.containers[0][0].get_color() != first.containers[1][0].get_color()
