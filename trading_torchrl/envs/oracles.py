"""The best policies of the synthetic market, by value iteration.

With proportional costs the best policy keeps its position inside a band that depends on the signal
and the regime: ``target = clip(previous position, lower, upper)``. Three oracles differ in what
they know:

- ``full``: the true signal and the regime;
- ``filtered``: the regime, and the signal as a Kalman filter sees it through its noise;
- ``signal``: the filtered signal alone, regimes averaged out.

The reward that is maximised is ``x * mean - risk_aversion / 2 * variance * x^2 - cost * |dx|``,
discounted: log growth for a risk aversion of 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from trading_torchrl.data.market import Market
from trading_torchrl.data.synthetic import Knobs

Knowledge = Literal["full", "filtered", "signal"]
KNOWLEDGE: tuple[Knowledge, ...] = ("full", "filtered", "signal")


@dataclass(frozen=True)
class Bands:
    """Where a position is left alone: between ``lower`` and ``upper``.

    Both are ``[K, G]`` over a signal grid ``[G]``.

    K is the number of regimes, or 1 for an oracle that does not know the regime.
    """

    grid: Tensor
    lower: Tensor
    upper: Tensor

    def at(self, signal: Tensor, regime: Tensor) -> tuple[Tensor, Tensor]:
        """The band for each (signal, regime), linear between the grid's points."""
        last = len(self.grid) - 1
        place = (signal - self.grid[0]) / (self.grid[1] - self.grid[0])
        place = place.clamp(0, last)
        left = place.long().clamp(max=last - 1)
        weight = place - left
        row = regime if len(self.lower) > 1 else torch.zeros_like(regime)

        def between(table: Tensor) -> Tensor:
            return torch.lerp(table[row, left], table[row, left + 1], weight)

        return between(self.lower), between(self.upper)


def kalman(knobs: Knobs) -> tuple[float, float]:
    """Stationary gain and posterior variance of the signal's filter."""
    rho, noise = knobs.persistence, knobs.noise**2
    posterior = 1.0
    for _ in range(10_000):
        prior = rho**2 * posterior + 1 - rho**2
        gain = prior / (prior + noise)
        posterior = (1 - gain) * prior
    return gain, posterior


def filtered_signal(market: Market, knobs: Knobs) -> Tensor:
    """What a Kalman filter makes of the observed signal, ``[T, S]``; causal."""
    gain, _ = kalman(knobs)
    observed = market.columns["signal"].numpy()
    estimate = np.empty_like(observed)
    previous = np.zeros(observed.shape[1])
    for bar, seen in enumerate(observed):
        predicted = knobs.persistence * previous
        previous = predicted + gain * (seen - predicted)
        estimate[bar] = previous
    return torch.from_numpy(estimate)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small products on several threads crawl wherever another process wants a core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@cache
@_one_thread()
def solve_bands(
    knobs: Knobs,
    knowledge: Knowledge = "full",
    *,
    cap: float = 1.0,
    short: bool = True,
    risk_aversion: float = 10.0,
    cost: float = 3e-4,
    discount: float = 0.99,
    positions: int = 201,
    signals: int = 61,
) -> Bands:
    """Value iteration over (regime, signal, previous position).

    Args:
        knobs: the market's.
        knowledge: see the module.
        cap: largest position, as a share of equity.
        short: whether positions may be negative.
        risk_aversion: lambda of the reward.
        cost: cost of a trade, as a share of the traded value.
        discount: of the next bar's value.
        positions: points of the position grid.
        signals: points of the signal grid, over four standard deviations either side.
    """
    if knowledge not in KNOWLEDGE:
        raise ValueError(f"knowledge must be one of {', '.join(KNOWLEDGE)}, got {knowledge!r}")
    if not (cap > 0 and risk_aversion >= 0 and cost >= 0 and 0 <= discount < 1):
        raise ValueError(
            "cap must be positive, risk_aversion and cost not negative, discount in [0, 1);"
            f" got {cap}, {risk_aversion}, {cost}, {discount}"
        )
    if positions < 3 or positions % 2 == 0 or signals < 2:
        raise ValueError(
            f"positions must be odd and at least 3, signals at least 2; got {positions}, {signals}"
        )
    _, posterior = kalman(knobs)
    unseen = 0.0 if knowledge == "full" else posterior
    spread = math.sqrt(1 - unseen)
    drift = torch.from_numpy(knobs.drift)
    variance = torch.from_numpy(knobs.deviation) ** 2 + knobs.effect**2 * unseen
    kinds = len(drift)
    leave = 1 / knobs.stability if kinds > 1 else 0.0
    switch = torch.full((kinds, kinds), leave / max(kinds - 1, 1), dtype=torch.float64)
    switch.fill_diagonal_(1 - leave)
    if knowledge == "signal":
        drift, variance = drift.mean()[None], variance.mean()[None]
        switch = torch.ones(1, 1, dtype=torch.float64)

    grid = spread * torch.linspace(-4, 4, signals, dtype=torch.float64)
    move = transition(grid, knobs.persistence, spread * math.sqrt(1 - knobs.persistence**2))
    # From whole numbers, so that the middle of a two-sided grid is exactly flat.
    half = (positions - 1) // 2
    steps = torch.arange(-half, half + 1) if short else torch.arange(positions)
    x = cap * steps.double() / steps[-1]
    mean = drift[:, None] + knobs.effect * grid
    reward = mean[..., None] * x - risk_aversion / 2 * variance[:, None, None] * x**2

    value = torch.zeros_like(reward)
    while True:
        ahead = torch.einsum("kj,jgx->kgx", switch, torch.einsum("gh,khx->kgx", move, value))
        held = reward + discount * ahead
        lower = (held - cost * x).argmax(-1, keepdim=True)
        upper = (held + cost * x).argmax(-1, keepdim=True).clamp(min=lower)
        place = torch.arange(positions).clamp(lower, upper)
        new = held.gather(-1, place) - cost * (x - x[place]).abs()
        # Bands follow differences of the value, which settle long before its level does.
        change = new - value
        value = new
        if (change.amax() - change.amin()) < 1e-9:
            break
    return Bands(grid, x[lower.squeeze(-1)], x[upper.squeeze(-1)])


def transition(grid: Tensor, persistence: float, deviation: float) -> Tensor:
    """Tauchen's discretisation: probability ``[from, to]`` of each point's neighbourhood."""
    edges = (grid[1:] + grid[:-1]) / 2
    below = torch.special.ndtr((edges - persistence * grid[:, None]) / deviation)
    below = torch.cat([torch.zeros(len(grid), 1), below, torch.ones(len(grid), 1)], 1)
    return below.diff(dim=1)


class OraclePolicy(TensorDictModuleBase):
    """An oracle as a policy for target actions in :class:`~trading_torchrl.envs.TradingEnv`.

    Reads ``("market", "symbol")``, ``("market", "bar")`` and ``("account", "share")``, so the
    environment must emit ``index`` and ``share``; writes ``action``. What it knows of the market it
    takes from ``market.hidden``: it is a yardstick, not an agent.

    Args:
        market: the synthetic market the environment trades.
        knobs: the knobs it was drawn with; of :func:`~trading_torchrl.data.named_market` one of
            each symbol, in their order.
        knowledge: see the module.
        cap: the environment's ``max_position``.
        short: whether the environment allows shorts.
        risk_aversion: lambda of the reward.
        cost: cost of a trade, as a share of the traded value.

    Example:
        >>> from trading_torchrl.data import Knobs, synthetic_market
        >>> from trading_torchrl.envs import TradingEnv
        >>> market = synthetic_market(symbols=2, bars=2_000)
        >>> env = TradingEnv(market, num_envs=4, actions="target", short=True, max_position=1.0,
        ...                  emit=("index", "share", "equity"))
        >>> policy = OraclePolicy(market, Knobs(), "filtered", cap=1.0, short=True)
        >>> env.rollout(10, policy)["next", "account", "equity"].shape
        torch.Size([4, 10, 1])
    """

    def __init__(
        self,
        market: Market,
        knobs: Knobs | Sequence[Knobs],
        knowledge: Knowledge = "full",
        *,
        cap: float = 1.0,
        short: bool = True,
        risk_aversion: float = 10.0,
        cost: float = 3e-4,
    ) -> None:
        super().__init__()
        self.in_keys = [("market", "symbol"), ("market", "bar"), ("account", "share")]
        self.out_keys = ["action"]
        self.cap = cap
        self.lower: Tensor
        self.upper: Tensor

        def edges(market: Market, knobs: Knobs) -> tuple[Tensor, Tensor]:
            bands = solve_bands(
                knobs, knowledge, cap=cap, short=short, risk_aversion=risk_aversion, cost=cost
            )
            return bands.at(*knowledge_of(market, knobs, knowledge))

        if isinstance(knobs, Knobs):
            lower, upper = edges(market, knobs)
        else:
            alone = [market.select([symbol]) for symbol in market.symbols]
            found = [edges(one, own) for one, own in zip(alone, knobs, strict=True)]
            lower, upper = (torch.cat(side, 1) for side in zip(*found, strict=True))
        self.register_buffer("lower", lower)
        self.register_buffer("upper", upper)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Moves each position to the nearest edge of its band."""
        symbol = tensordict["market", "symbol"]
        bar = tensordict["market", "bar"].expand_as(symbol)
        share = tensordict["account", "share"].double()
        target = share.clamp(self.lower[bar, symbol], self.upper[bar, symbol])
        return tensordict.set("action", (target / self.cap).float())


def knowledge_of(market: Market, knobs: Knobs, knowledge: Knowledge) -> tuple[Tensor, Tensor]:
    """Signal and regime as the oracle knows them, each ``[T, S]``."""
    if "true_signal" not in market.hidden:
        raise ValueError("oracles know only synthetic markets; this one has no hidden true_signal")
    signal = market.hidden["true_signal"] if knowledge == "full" else filtered_signal(market, knobs)
    return signal, market.hidden["regime"]


def plain_returns(
    market: Market, bands: Bands, signal: Tensor, regime: Tensor, cost: float = 3e-4
) -> Tensor:
    """Net simple returns ``[T - 1, S]`` of a band policy in a few lines that know no environment.

    The yardstick for the environment's accounting: position times return, less cost times change.
    """
    lower, upper = bands.at(signal, regime)
    returns = market.close[1:] / market.close[:-1] - 1
    position = torch.zeros(len(market.symbols), dtype=torch.float64)
    earned = torch.empty_like(returns)
    for bar in range(len(returns)):
        target = position.clamp(lower[bar], upper[bar])
        earned[bar] = target * returns[bar] - cost * (target - position).abs()
        position = target
    return earned
