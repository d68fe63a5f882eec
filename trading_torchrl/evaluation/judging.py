"""All figures of merit of a policy at once, by name."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from trading_torchrl.evaluation.metrics import (
    calmar,
    exposure,
    fills,
    growth,
    max_drawdown,
    sharpe,
    simple_returns,
    sortino,
    total_return,
    turnover,
)
from trading_torchrl.evaluation.rollout import Account
from trading_torchrl.evaluation.trades import profit_factor, round_trips, trade_length, win_rate
from trading_torchrl.monitoring.collapse import (
    ALLOWED,
    coverage,
    entropy,
    largest_share,
    longest_repeat,
    names_of,
    position_spread,
    trade_rate,
)


def judge(account: Account, bars_per_year: float, kind: str) -> dict[str, float]:
    """Figures of what :func:`~trading_torchrl.evaluation.follow` returned.

    Each is taken per symbol and averaged; symbols where it is undefined are left out (NaN if it is
    so on all). ``profit_factor`` is over the trades of all symbols: to leave out those that never
    lost would be to keep the worst. ``action_entropy``, ``coverage`` and ``largest_name_share`` are
    over all outputs of the policy, and ``exact_repeats`` is the most of any symbol, as
    ``worst_drawdown`` is the largest. ``*_error`` is the standard error over symbols, NaN for one,
    and ``paths`` the number of symbols.

    Args:
        account: what became of the policy.
        bars_per_year: of the market.
        kind: of the actions: ``continuous``, ``target`` or ``discrete``; the actions of a hybrid
            environment are numbers, ``continuous``.

    Example:
        >>> from trading_torchrl.data import synthetic_market
        >>> from trading_torchrl.evaluation import ConstantPolicy, follow, whole_split
        >>> market = synthetic_market(symbols=3, bars=300)
        >>> env = whole_split(market, actions="target", max_position=1.0, compiled=False)
        >>> figures = judge(follow(env, ConstantPolicy(env)), market.bars_per_year, "target")
        >>> figures["trades"], figures["round_trips"], figures["largest_name_share"]
        (1.0, 1.0, 1.0)
    """
    equity, fees, value, share = account.equity, account.fees, account.value, account.share[:, 1:]
    returns = simple_returns(equity)
    trips = round_trips(equity, account.share, value, fees, account.unrealised)
    ratio, grown = sharpe(returns, bars_per_year), growth(returns, bars_per_year)
    gross = account.gross.mean(-1) * bars_per_year
    names = names_of(account.actions, kind)
    return {
        "sharpe_ratio_mean": _mean(ratio),
        "sharpe_error": _error(ratio),
        "sortino": _mean(sortino(returns, bars_per_year)),
        "calmar": _mean(calmar(equity, bars_per_year)),
        "growth": _mean(grown),
        "growth_error": _error(grown),
        "gross_profit": _mean(gross),
        "gross_profit_error": _error(gross),
        "net_profit": _mean(returns.mean(-1) * bars_per_year),
        "net_profit_error": _error(returns.mean(-1) * bars_per_year),
        "costs": _mean(turnover(fees, equity, bars_per_year)),
        "total_return": _mean(total_return(equity)),
        "max_drawdown": _mean(max_drawdown(equity)),
        "worst_drawdown": float(max_drawdown(equity).max()),
        "win_rate": _mean(win_rate(trips.profit)),
        "profit_factor": float(profit_factor(trips.profit.flatten())),
        "trades": _mean(fills(value)),
        "round_trips": _mean(trips.profit.isfinite().sum(-1).double()),
        "trade_length": _mean(trade_length(trips.bars)),
        "turnover": _mean(turnover(value, equity, bars_per_year)),
        "exposure": _mean(exposure(share)),
        "position_std": sum(position_spread(path) for path in share) / len(share),
        "action_entropy": entropy(names),
        "coverage": coverage(names, ALLOWED[kind]),
        "largest_name_share": largest_share(names),
        "exact_repeats": float(longest_repeat(account.action[:, 1:])),
        "trade_rate": trade_rate(value[:, 1:]),
        "paths": float(len(equity)),
    }


def judge_each(
    account: Account, symbols: Sequence[str], bars_per_year: float
) -> dict[str, dict[str, float]]:
    """A few of the figures of :func:`judge` for each symbol by itself.

    Args:
        account: what became of the policy, one row a symbol.
        symbols: their names, in this order.
        bars_per_year: of the market.
    """
    equity, returns = account.equity, simple_returns(account.equity)
    found = {
        "sharpe_ratio_mean": sharpe(returns, bars_per_year),
        "growth": growth(returns, bars_per_year),
        "max_drawdown": max_drawdown(equity),
        "turnover": turnover(account.value, equity, bars_per_year),
        "position_std": account.share[:, 1:].std(-1, correction=0),
    }
    return {
        symbol: {name: float(values[row]) for name, values in found.items()}
        for row, symbol in enumerate(symbols)
    }


def judge_pooled(account: Account, bars_per_year: float) -> dict[str, float]:
    """Figures of all accounts as one portfolio, in which each began with the same part.

    Money stays in the account where it is. What accounts lose and win at the same time cancels out
    here, so that these are not means of the figures of :func:`judge`; a portfolio has no error over
    symbols.

    Args:
        account: what became of the policy, one row a symbol.
        bars_per_year: of the market.
    """
    equity, fees = account.equity.sum(0), account.fees.sum(0)
    value, share = account.value.abs().sum(0), (account.share * account.equity).sum(0) / equity
    gross_share = (account.share * account.equity).abs().sum(0) / equity
    returns = simple_returns(equity)
    gross = (equity[1:] + fees[1:]) / equity[:-1] - 1
    found = {
        "sharpe_ratio_mean": sharpe(returns, bars_per_year),
        "sortino": sortino(returns, bars_per_year),
        "calmar": calmar(equity, bars_per_year),
        "growth": growth(returns, bars_per_year),
        "gross_profit": gross.mean() * bars_per_year,
        "net_profit": returns.mean() * bars_per_year,
        "costs": turnover(fees, equity, bars_per_year),
        "total_return": total_return(equity),
        "max_drawdown": max_drawdown(equity),
        "turnover": turnover(value, equity, bars_per_year),
        "exposure": gross_share[1:].mean(),
        "position_std": share[1:].std(correction=0),
    }
    return {**{name: float(figure) for name, figure in found.items()}, "paths": 1.0}


def _mean(values: Tensor) -> float:
    return float(values.nanmean())


def _error(values: Tensor) -> float:
    """Standard error of the mean."""
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else float("nan")
