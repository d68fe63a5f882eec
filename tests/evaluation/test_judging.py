"""All figures at once, on the real environment."""

from __future__ import annotations

import math

import pytest
import torch

from trading_torchrl.data import Market, synthetic_market
from trading_torchrl.envs import LONG_SHORT
from trading_torchrl.evaluation import (
    Account,
    ConstantPolicy,
    RandomPolicy,
    follow,
    growth,
    judge,
    judge_each,
    judge_pooled,
    max_drawdown,
    sharpe,
    simple_returns,
    whole_split,
)

NAMES = {
    "sharpe_ratio_mean", "sharpe_error", "sortino", "calmar", "growth", "growth_error",
    "gross_profit", "gross_profit_error", "net_profit", "net_profit_error", "costs",
    "total_return", "max_drawdown", "worst_drawdown", "paths", "win_rate",
    "profit_factor", "trades", "round_trips", "trade_length", "turnover", "exposure",
    "position_std", "action_entropy", "coverage", "largest_name_share", "exact_repeats",
    "trade_rate",
}  # fmt: skip


@pytest.fixture(scope="module")
def market() -> Market:
    return synthetic_market(symbols=4, bars=500, seed=9)


def followed(market: Market, action: float | None) -> Account:
    env = whole_split(market, compiled=False, **LONG_SHORT)
    return follow(env, RandomPolicy(env) if action is None else ConstantPolicy(env, action))


def test_buy_and_hold(market: Market) -> None:
    account = followed(market, 1.0)
    figures = judge(account, market.bars_per_year, "target")
    assert set(figures) == NAMES
    assert all(isinstance(value, float) for value in figures.values())
    returns = simple_returns(account.equity)
    ratio = sharpe(returns, market.bars_per_year)
    assert figures["sharpe_ratio_mean"] == pytest.approx(float(ratio.mean()))
    error = math.sqrt(float(((ratio - ratio.mean()) ** 2).sum()) / 3 / 4)
    assert figures["sharpe_error"] == pytest.approx(error)
    assert figures["growth"] == pytest.approx(float(growth(returns, market.bars_per_year).mean()))
    assert figures["max_drawdown"] == pytest.approx(float(max_drawdown(account.equity).mean()))
    assert figures["worst_drawdown"] == max(max_drawdown(account.equity).tolist())
    assert figures["worst_drawdown"] > figures["max_drawdown"]
    held = account.equity.shape[1] - 1
    expected = {
        "trades": 1, "round_trips": 1, "trade_length": held, "exposure": 1, "position_std": 0,
        "action_entropy": 0, "coverage": 1 / 7, "largest_name_share": 1, "trade_rate": 1 / held,
        "exact_repeats": held - 1, "paths": 4,
        "win_rate": float((account.equity[:, -1] > 10_000).double().mean()),
        "costs": 3e-4 / 1.0003 / held * market.bars_per_year,
        "turnover": 1 / 1.0003 / held * market.bars_per_year,
    }  # fmt: skip
    for name, value in expected.items():
        assert figures[name] == pytest.approx(value, abs=1e-6), name


def test_a_portfolio_by_hand() -> None:
    """100 each: one goes up and down again, paying 1 at its purchase, the other rests half in cash.

    Together 200, 219, 201, 180.
    """
    account = Account(
        equity=torch.tensor([[100, 119, 101, 90], [100, 100, 100, 90]]).double(),
        share=torch.tensor([[0, 1, 1, 0], [0, 0, -0.5, 0.5]]).double(),
        fees=torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0]]).double(),
        value=torch.tensor([[0, 100, 0, -90], [0, 0, -50, 95]]).double(),
        unrealised=torch.zeros(2, 4, dtype=torch.float64),
        action=torch.zeros(2, 4, dtype=torch.float64),
    )
    returns = [219 / 200 - 1, 201 / 219 - 1, 180 / 201 - 1]
    mean = sum(returns) / 3
    spread = math.sqrt(sum((each - mean) ** 2 for each in returns) / 2)
    downside = math.sqrt(sum(min(each, 0) ** 2 for each in returns) / 3)
    held = [119 / 219, (101 + 50) / 201, 45 / 180]
    net = [119 / 219, (101 - 50) / 201, 45 / 180]
    expected = {
        "sharpe_ratio_mean": mean / spread * math.sqrt(12),
        "sortino": mean / downside * math.sqrt(12),
        "calmar": ((180 / 200) ** 4 - 1) / (1 - 180 / 219),
        "growth": math.log(180 / 200) / 3 * 12,
        "gross_profit": (220 / 200 - 1 + returns[1] + returns[2]) / 3 * 12,
        "net_profit": mean * 12,
        "costs": 1 / 200 / 3 * 12,
        "total_return": -0.1,
        "max_drawdown": 1 - 180 / 219,
        "turnover": (100 / 200 + 50 / 219 + 185 / 201) / 3 * 12,
        "exposure": sum(held) / 3,
        "position_std": math.sqrt(sum((each - sum(net) / 3) ** 2 for each in net) / 3),
        "paths": 1.0,
    }
    assert judge_pooled(account, 12.0) == pytest.approx(expected)


def test_profit_factor_is_over_all_trades(market: Market) -> None:
    """One trade a symbol: none of them has a factor of its own but 0 or none."""
    account = followed(market, 1.0)
    profit = account.equity[:, -1] - 10_000
    gains, losses = profit[profit > 0].sum(), -profit[profit < 0].sum()
    assert gains > 0
    assert losses > 0
    figures = judge(account, market.bars_per_year, "target")
    assert figures["profit_factor"] == pytest.approx(float(gains / losses))


def test_random_targets(market: Market) -> None:
    figures = judge(followed(market, None), market.bars_per_year, "target")
    assert all(map(math.isfinite, figures.values()))
    assert figures["action_entropy"] == pytest.approx(math.log(7), abs=0.01)
    assert figures["coverage"] == 1
    assert figures["exact_repeats"] == 0
    assert figures["position_std"] == pytest.approx(1 / math.sqrt(3), abs=0.03)
    assert figures["exposure"] == pytest.approx(0.5, abs=0.03)
    assert figures["turnover"] == pytest.approx(2 / 3 * market.bars_per_year, rel=0.05)
    assert figures["costs"] == pytest.approx(3e-4 * figures["turnover"])
    # Growth loses what is paid, and half the variance.
    assert figures["gross_profit"] - figures["net_profit"] == pytest.approx(
        figures["costs"], rel=1e-3
    )
    lost = figures["gross_profit"] - figures["growth"]
    assert figures["costs"] < lost < 1.1 * figures["costs"]
    assert figures["trade_length"] == pytest.approx(2, abs=0.2)


def test_who_never_trades(market: Market) -> None:
    account = followed(market, 0.0)
    figures = judge(account, market.bars_per_year, "target")
    undefined = {"win_rate", "profit_factor", "trade_length"}
    repeats = account.equity.shape[1] - 2
    full = {"largest_name_share": 1.0, "coverage": 1 / 7, "exact_repeats": repeats, "paths": 4}
    for name, value in figures.items():
        if name in undefined:
            assert math.isnan(value), name
        else:
            assert value == pytest.approx(full.get(name, 0.0)), name


def test_exact_repeats_are_the_most_of_any_symbol_before_its_ruin(market: Market) -> None:
    account = followed(market, None)
    account.action[1, 10:18] = 0.25
    account.action[2, 30:33] = -1.0
    account.action[3, 40:] = math.nan
    figures = judge(account, market.bars_per_year, "target")
    assert figures["exact_repeats"] == 7
    account.action[:, 1:10] = 0.5
    account.action[:, 10:] = math.nan
    assert judge(account, market.bars_per_year, "target")["exact_repeats"] == 8


def test_undefined_symbols_are_left_out_of_a_mean(market: Market) -> None:
    """Two of the four never trade: trades are averaged over four, their length over two."""
    trades, never = followed(market, None), followed(market, 0.0)
    mixed = Account(
        *(torch.cat([one[:2], two[:2]]) for one, two in zip(trades, never, strict=True))
    )
    half = Account(*(values[:2] for values in trades))
    given, alone = (judge(each, market.bars_per_year, "target") for each in (mixed, half))
    for name in ("win_rate", "trade_length", "profit_factor"):
        assert given[name] == pytest.approx(alone[name])
    for name in ("trades", "growth", "sortino", "turnover", "position_std", "trade_rate"):
        assert given[name] == pytest.approx(alone[name] / 2), name


def test_a_single_symbol_has_no_error(market: Market) -> None:
    account = Account(*(values[:1] for values in followed(market, None)))
    figures = judge(account, market.bars_per_year, "target")
    for name in ("sharpe_error", "growth_error", "gross_profit_error"):
        assert math.isnan(figures[name])
    assert math.isfinite(figures["sharpe_ratio_mean"])


def test_a_part_of_the_bars_can_be_judged(market: Market) -> None:
    """Positions held at its start included."""
    account = Account(*(values[:, 200:300] for values in followed(market, None)))
    figures = judge(account, market.bars_per_year, "target")
    assert all(map(math.isfinite, figures.values()))
    assert 30 < figures["round_trips"] < 70


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_other_kinds_of_actions(market: Market, kind: str) -> None:
    env = whole_split(market, compiled=False, actions=kind)
    figures = judge(follow(env, RandomPolicy(env)), market.bars_per_year, kind)
    assert figures["coverage"] == 1
    assert figures["trade_rate"] > 0.1
    with pytest.raises(ValueError, match="kind must be one of"):
        judge(followed(market, 0.0), market.bars_per_year, "hybrid")


def test_each_symbol_has_the_figures_it_has_alone(market: Market) -> None:
    account = followed(market, None)
    found = judge_each(account, market.symbols, market.bars_per_year)
    assert tuple(found) == market.symbols
    for row, symbol in enumerate(market.symbols):
        alone = Account(*(values[row : row + 1] for values in account))
        figures = judge(alone, market.bars_per_year, "target")
        assert found[symbol] == pytest.approx({name: figures[name] for name in found[symbol]})
