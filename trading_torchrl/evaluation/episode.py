"""A picture of an episode: price with trades, position, equity, drawdown."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tensordict import TensorDictBase

from trading_torchrl.data.market import Market

EMIT = ("index", "equity", "share", "value")
"""What an environment must emit for the picture."""

BUY, SELL, LINE, FILL = "#1a7f5a", "#c0392b", "#2c3e50", "#8fa8c8"


def plot_episode(
    rollout: TensorDictBase, market: Market, account: int = 0, fill: str = "next_open"
) -> Figure:
    """Draws the first episode of one account.

    Args:
        rollout: ``[N, T]`` (or ``[T]``), as ``env.rollout`` returns it, from an environment that
            emits :data:`EMIT`.
        market: the market it traded.
        account: which of the N.
        fill: the environment's, so that trades are drawn at the price they were made at.

    Returns:
        a figure; ``figure.savefig("episode.png")`` writes it.

    Example:
        >>> from trading_torchrl.data import synthetic_market
        >>> from trading_torchrl.envs import TradingEnv
        >>> market = synthetic_market(symbols=2, bars=1_000)
        >>> env = TradingEnv(market, num_envs=2, emit=EMIT, compiled=False)
        >>> figure = plot_episode(env.rollout(500), market)
    """
    steps = rollout[account] if rollout.ndim == 2 else rollout
    after = steps["next"]
    needed = [("market", "bar"), ("account", "equity"), ("account", "share"), ("trade", "value")]
    missing = [key for key in needed if key not in after.keys(include_nested=True)]
    if missing:
        raise KeyError(
            f"the rollout lacks {missing[0]}; build the environment with emit={EMIT} (or more)"
        )
    ends = after["done"][:, 0].nonzero()
    steps = steps[: int(ends[0, 0]) + 1] if len(ends) else steps
    after = steps["next"]

    bar = after["market", "bar"][:, 0].cpu()
    when = market.dates[bar.numpy()]
    equity = after["account", "equity"][:, 0].cpu().numpy()
    share = after["account", "share"].cpu().numpy()
    value = after["trade", "value"].cpu().numpy()
    symbols = after["market", "symbol"][0].tolist()
    start = float(steps["account", "equity"][0, 0])

    figure = Figure(figsize=(11, 8.5), layout="constrained")
    axes = figure.subplots(4, 1, sharex=True, height_ratios=[3, 1.2, 1.6, 1.2])
    place = np.arange(len(when))
    for asset, symbol in enumerate(symbols):
        close = market.close[bar, symbol].cpu().numpy()
        filled = market.open[bar, symbol] if fill == "next_open" else market.close[bar - 1, symbol]
        paid = filled.cpu().numpy()
        scale = close[0] if len(symbols) > 1 else 1.0
        axes[0].plot(
            place,
            close / scale,
            color=LINE if len(symbols) == 1 else None,
            lw=1,
            label=market.symbols[symbol],
        )
        for side, marker, colour in ((1, "^", BUY), (-1, "v", SELL)):
            at = np.sign(value[:, asset]) == side
            size = 15 + 60 * np.abs(value[at, asset]) / max(np.abs(value).max(), 1e-12)
            axes[0].scatter(
                place[at], paid[at] / scale, size, colour, marker=marker, linewidths=0, zorder=3
            )
        axes[1].plot(place, share[:, asset], drawstyle="steps-post", lw=1)
    axes[0].set_ylabel("price" if len(symbols) == 1 else "price / first")
    axes[0].legend(loc="upper left", frameon=False, ncols=5, fontsize=8)
    axes[1].axhline(0, color="grey", lw=0.5)
    axes[1].set_ylabel("share of equity")
    axes[2].plot(place, equity, color=LINE, lw=1)
    axes[2].axhline(start, color="grey", lw=0.5, ls=":")
    axes[2].set_ylabel("equity")
    fallen = 100 * (equity / np.maximum.accumulate(np.maximum(equity, start)) - 1)
    axes[3].fill_between(place, fallen, 0, color=FILL, lw=0)
    axes[3].set_ylabel("drawdown, %")
    trades = int((value != 0).sum())
    figure.suptitle(
        f"{', '.join(market.symbols[s] for s in symbols[:4])}: {len(place)} bars, {trades} trades,"
        f" equity {start:,.0f} to {equity[-1]:,.0f} ({100 * (equity[-1] / start - 1):+.2f} %)"
    )
    _date_ticks(axes[3], when)
    return figure


def _date_ticks(axis: Axes, when: np.ndarray) -> None:
    """Bars are drawn side by side, nights and weekends left out; the labels say when."""
    at = np.linspace(0, len(when) - 1, min(8, len(when))).astype(int)
    intraday = len(when) > 1 and np.diff(when[:2])[0] < np.timedelta64(20, "h")
    unit = "m" if intraday else "D"
    labels = [str(moment).replace("T", "\n") for moment in when[at].astype(f"datetime64[{unit}]")]
    axis.set_xticks(at, labels, fontsize=8)
    axis.set_xlim(0, max(len(when) - 1, 1))
