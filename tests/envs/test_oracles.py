"""Oracles of the synthetic market: filter, bands, and what they earn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from trading_torchrl.data import Knobs, Market, named_market, synthetic_market
from trading_torchrl.envs import LONG_ONLY, LONG_SHORT, OraclePolicy, TradingEnv, solve_bands
from trading_torchrl.envs.oracles import (
    KNOWLEDGE,
    Bands,
    filtered_signal,
    kalman,
    knowledge_of,
    plain_returns,
)
from trading_torchrl.evaluation import RandomPolicy, follow, whole_split

BARS_PER_YEAR = 1638
DRIFT = np.array([0.30, -0.20, 0.02, 0.0]) / BARS_PER_YEAR
DEVIATION = np.array([0.14, 0.22, 0.10, 0.40]) / math.sqrt(BARS_PER_YEAR)
EFFECT, COST, LAMBDA = 4e-4, 3e-4, 10.0
RHO, STAY = 0.5**0.1, 1 - 1 / 150
# Stationary variance before an observation: q = rho^2 q r / (q + r) + 1 - rho^2, noise r = .25.
_B = 0.25 - RHO**2 * 0.25 - (1 - RHO**2)
PRIOR = (-_B + math.sqrt(_B * _B + (1 - RHO**2))) / 2
POSTERIOR = PRIOR * 0.25 / (PRIOR + 0.25)
STEP = 2 / 200
"""between positions of the default grid"""

Band = tuple[NDArray[Any], NDArray[Any]]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Value iteration on a busy machine loses more by waiting for threads than it wins."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def market() -> Market:
    return synthetic_market(symbols=16, bars=3_000, seed=21)


@pytest.fixture(scope="module")
def bands() -> dict[str, Bands]:
    return {knowledge: solve_bands(Knobs(), knowledge) for knowledge in KNOWLEDGE}


@pytest.fixture(scope="module")
def followed(market: Market) -> dict[str, Any]:
    """Equity and shares of the three oracles in the environment."""
    env = whole_split(market, compiled=False, **LONG_SHORT)
    return {
        knowledge: follow(env, OraclePolicy(market, Knobs(), knowledge)) for knowledge in KNOWLEDGE
    }


def sharpe(returns: NDArray[Any]) -> NDArray[Any]:
    """Of each column, by the definition."""
    return returns.mean(0) / returns.std(0, ddof=1) * math.sqrt(BARS_PER_YEAR)


def test_kalman_filter() -> None:
    gain, posterior = kalman(Knobs())
    assert gain == pytest.approx(0.4844, abs=5e-5)
    assert posterior == pytest.approx(0.1211, abs=5e-5)
    assert gain == pytest.approx(PRIOR / (PRIOR + 0.25), abs=1e-12)
    assert posterior == pytest.approx(POSTERIOR, abs=1e-12)


def test_filter_sees_all_without_noise_and_little_through_much() -> None:
    assert kalman(Knobs(noise=0.0)) == pytest.approx((1.0, 0.0))
    gain, posterior = kalman(Knobs(noise=100.0))
    assert gain < 0.01
    assert posterior > 0.9


def test_filtered_signal_is_the_recursion_and_as_good_as_it_promises() -> None:
    market = synthetic_market(symbols=16, bars=6_000, seed=22)
    estimate = filtered_signal(market, Knobs())
    seen, last = market.columns["signal"][:, 3].tolist(), 0.0
    gain, _ = kalman(Knobs())
    for bar, value in enumerate(seen[:500]):
        last = RHO * last + gain * (value - RHO * last)
        assert float(estimate[bar, 3]) == pytest.approx(last, abs=1e-12)
    error = (market.hidden["true_signal"] - estimate)[100:]
    assert float((error**2).mean()) == pytest.approx(0.1211, abs=0.003)
    assert float(estimate[100:].var()) == pytest.approx(0.8789, abs=0.03)
    assert float((error * estimate[100:]).mean()) == pytest.approx(0, abs=0.01)  # nothing is left


def test_filter_is_causal(market: Market) -> None:
    short = filtered_signal(market.bars(0, 500), Knobs())
    assert torch.equal(filtered_signal(market, Knobs())[:500], short)


@pytest.mark.parametrize("knowledge", KNOWLEDGE)
@pytest.mark.parametrize(
    "settings", [{}, {"cap": 0.15, "short": False, "risk_aversion": 67.0}, {"risk_aversion": 1.0}]
)
def test_bands_are_monotone_in_the_signal(knowledge: Any, settings: dict[str, Any]) -> None:
    bands = solve_bands(Knobs(), knowledge, positions=101, signals=41, **settings)
    assert bands.lower.shape == (1 if knowledge == "signal" else 4, 41)
    cap = settings.get("cap", 1.0)
    for edge in (bands.lower, bands.upper):
        assert (edge.diff(dim=-1) >= 0).all()
        assert edge.min() >= (0 if settings.get("short") is False else -cap)
        assert edge.max() <= cap
        assert (edge[:, -1] > edge[:, 0]).all()
    assert (bands.lower <= bands.upper).all()
    assert (bands.lower < bands.upper).any()


def test_bands_of_regimes_are_ordered_by_drift(bands: dict[str, Bands]) -> None:
    """Bull above bear at every signal."""
    for edge in (bands["full"].lower, bands["full"].upper):
        assert (edge[0] >= edge[1]).all()
        assert (edge[0] > edge[1]).any()


@pytest.mark.parametrize("risk_aversion", [1.0, 10.0, 67.0])
@pytest.mark.parametrize("knowledge", KNOWLEDGE)
def test_bands_without_costs_are_the_closed_form(knowledge: Any, risk_aversion: float) -> None:
    """mean / (lambda variance), clipped to the cap, to half a step of the grid."""
    bands = solve_bands(Knobs(), knowledge, cost=0.0, risk_aversion=risk_aversion)
    unseen = 0.0 if knowledge == "full" else POSTERIOR
    grid = np.linspace(-4, 4, 61) * math.sqrt(1 - unseen)
    np.testing.assert_allclose(bands.grid.numpy(), grid, atol=1e-12)
    variance, drift = DEVIATION**2 + EFFECT**2 * unseen, DRIFT
    if knowledge == "signal":
        variance, drift = variance.mean(keepdims=True), drift.mean(keepdims=True)
    wanted = (drift[:, None] + EFFECT * grid) / (risk_aversion * variance[:, None])
    wanted = wanted.clip(-1, 1)
    for edge in (bands.lower.numpy(), bands.upper.numpy()):
        assert np.abs(edge - wanted).max() <= STEP / 2 + 1e-9


@pytest.mark.parametrize(
    ("short", "cap", "lowest"), [(True, 1.0, -1.0), (False, 0.15, 0.0), (True, 0.4, -0.4)]
)
def test_bands_without_costs_keep_to_the_cap(short: bool, cap: float, lowest: float) -> None:
    bands = solve_bands(Knobs(), "full", cost=0.0, cap=cap, short=short, risk_aversion=1.0)
    assert bands.lower.min() == lowest
    assert bands.upper.max() == cap


def test_higher_costs_widen_bands() -> None:
    widths = []
    for cost in (0.0, 1e-4, 3e-4, 1e-3):
        bands = solve_bands(Knobs(), "signal", cost=cost, risk_aversion=LAMBDA)
        widths.append(float((bands.upper - bands.lower).mean()))
    assert widths[0] < 0.01
    assert all(low < high for low, high in pairwise(widths))


def test_bands_between_grid_points_are_linear() -> None:
    grid = torch.linspace(-2, 2, 5).double()
    lower, upper = torch.stack([grid, grid**2]), torch.stack([grid + 1, grid**2 + 1])
    bands = Bands(grid, lower, upper)
    signal = torch.tensor([-3.0, -0.5, 0.25, 1.5, 9.0]).double()
    low, high = bands.at(signal, torch.tensor([0, 1, 0, 1, 1]))
    assert low.tolist() == pytest.approx([-2.0, 0.5, 0.25, 2.5, 4.0])
    assert high.tolist() == pytest.approx([-1.0, 1.5, 1.25, 3.5, 5.0])
    alone = Bands(grid, lower[:1], upper[:1])  # an oracle that does not know the regime
    assert alone.at(torch.ones(1).double(), torch.tensor([3]))[0].tolist() == [1.0]


def brute_force(
    knowledge: str, positions: int, signals: int, stability: float, discount: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Value of holding each position [K, G, X], and the best that can be had from it.

    Plain value iteration that tries every position from every position, with transitions from
    the normal distribution's own table.
    """
    unseen = 0.0 if knowledge == "full" else POSTERIOR
    drift, variance = DRIFT, DEVIATION**2 + EFFECT**2 * unseen
    switch = np.full((4, 4), 1 / stability / 3)
    np.fill_diagonal(switch, 1 - 1 / stability)
    if knowledge == "signal":
        drift, variance, switch = drift.mean(keepdims=True), variance.mean(keepdims=True), np.eye(1)
    normal = NormalDist(0, math.sqrt((1 - unseen) * (1 - RHO**2)))
    grid = np.linspace(-4, 4, signals) * math.sqrt(1 - unseen)
    half = (grid[1] - grid[0]) / 2
    move = np.array(
        [
            [
                (normal.cdf(to + half - RHO * at) if to < grid[-1] else 1.0)
                - (normal.cdf(to - half - RHO * at) if to > grid[0] else 0.0)
                for to in grid
            ]
            for at in grid
        ]
    )
    x = np.linspace(-1, 1, positions)
    reward = (drift[:, None] + EFFECT * grid)[..., None] * x
    reward = reward - LAMBDA / 2 * variance[:, None, None] * x**2
    moving = COST * np.abs(x[:, None] - x)  # from the row's position to the column's
    value = np.zeros_like(reward)
    for _ in range(700):
        held = reward + discount * np.einsum("kj,gh,jhx->kgx", switch, move, value, optimize=True)
        value = (held[:, :, None, :] - moving).max(-1)
    return held, value


@pytest.mark.parametrize("knowledge", KNOWLEDGE)
@pytest.mark.parametrize("stability", [150.0, 10.0])
def test_bands_are_as_good_as_trying_every_position(knowledge: Any, stability: float) -> None:
    positions, signals, discount = 21, 13, 0.97
    bands = solve_bands(
        Knobs(stability=stability), knowledge, positions=positions, signals=signals,
        discount=discount, risk_aversion=LAMBDA,
    )  # fmt: skip
    held, value = brute_force(knowledge, positions, signals, stability, discount)
    x = np.linspace(-1, 1, positions)
    lower, upper = bands.lower.numpy(), bands.upper.numpy()
    chosen = np.clip(x, lower[..., None], upper[..., None])
    place = np.rint((chosen + 1) * (positions - 1) / 2).astype(int)
    earned = np.take_along_axis(held, place, -1) - COST * np.abs(chosen - x)
    lost = value - earned
    assert lost.max() < 1e-10
    assert np.ptp(value) > 0.01


def plain_value(
    band: Band, grid: NDArray[Any], chains: int = 2_000, bars: int = 500
) -> NDArray[Any]:
    """Discounted reward of each chain under a band, the noise the same for every band.

    Knows the signal and the regime. Rewards are expected ones, so that only states are drawn.
    """
    rng = np.random.default_rng(99)
    lower, upper = band
    signal, regime = rng.standard_normal(chains), rng.integers(0, 4, chains)
    position, total, weight = np.zeros(chains), np.zeros(chains), 1.0
    spacing = grid[1] - grid[0]
    for _ in range(bars):
        place = ((signal - grid[0]) / spacing).clip(0, len(grid) - 1)
        left = np.minimum(place.astype(int), len(grid) - 2)
        part = place - left
        edges = [e[regime, left] * (1 - part) + e[regime, left + 1] * part for e in (lower, upper)]
        target = position.clip(*edges)
        total += weight * (
            target * (DRIFT[regime] + EFFECT * signal)
            - LAMBDA / 2 * (DEVIATION[regime] * target) ** 2
            - COST * np.abs(target - position)
        )
        position, weight = target, 0.99 * weight
        signal = RHO * signal + math.sqrt(1 - RHO**2) * rng.standard_normal(chains)
        leaves = rng.random(chains) > STAY
        regime = np.where(leaves, (regime + rng.integers(1, 4, chains)) % 4, regime)
    return total


PERTURBED: dict[str, Callable[[NDArray[Any], NDArray[Any]], Band]] = {
    "higher": lambda low, up: ((low + 0.1).clip(-1, 1), (up + 0.1).clip(-1, 1)),
    "lower": lambda low, up: ((low - 0.1).clip(-1, 1), (up - 0.1).clip(-1, 1)),
    "wider": lambda low, up: ((low - 0.1).clip(-1, 1), (up + 0.1).clip(-1, 1)),
    "narrower": lambda low, up: (
        np.minimum(low + 0.1, (low + up) / 2),
        np.maximum(up - 0.1, (low + up) / 2),
    ),
    "no band": lambda low, up: ((low + up) / 2, (low + up) / 2),
    "bolder": lambda low, up: ((1.25 * low).clip(-1, 1), (1.25 * up).clip(-1, 1)),
    "shyer": lambda low, up: (0.8 * low, 0.8 * up),
    "blind to regimes": lambda low, up: (
        np.repeat(low.mean(0, keepdims=True), 4, 0),
        np.repeat(up.mean(0, keepdims=True), 4, 0),
    ),
    "a bar late": lambda low, up: (np.roll(low, 2, axis=1), np.roll(up, 2, axis=1)),
}


@pytest.fixture(scope="module")
def best(bands: dict[str, Bands]) -> tuple[Band, NDArray[Any], NDArray[Any]]:
    full = bands["full"]
    band, grid = (full.lower.numpy(), full.upper.numpy()), full.grid.numpy()
    return band, grid, plain_value(band, grid)


@pytest.mark.parametrize("change", PERTURBED)
def test_value_iteration_beats_perturbed_bands(
    best: tuple[Band, NDArray[Any], NDArray[Any]], change: str
) -> None:
    band, grid, value = best
    gap = value - plain_value(PERTURBED[change](*band), grid)
    assert gap.mean() > 2 * gap.std() / math.sqrt(len(gap))
    assert gap.mean() > 0


@pytest.mark.parametrize("knowledge", KNOWLEDGE)
def test_the_environment_pays_what_the_plain_model_pays(
    market: Market, bands: dict[str, Bands], followed: dict[str, Any], knowledge: Any
) -> None:
    equity = followed[knowledge].equity.T.numpy()
    earned = equity[1:] / equity[:-1] - 1
    start = len(market) - len(equity)
    signal, regime = knowledge_of(market, Knobs(), knowledge)
    rest = market.bars(start)
    plain = plain_returns(rest, bands[knowledge], signal[start:], regime[start:]).numpy()
    assert plain.shape == earned.shape
    assert abs(sharpe(earned).mean() - sharpe(plain).mean()) < 0.03
    assert np.abs(sharpe(earned) - sharpe(plain)).max() < 0.1
    assert np.abs(followed[knowledge].share.numpy()).max() > 0.9


def objective(market: Market, share: NDArray[Any], before: NDArray[Any]) -> float:
    """Expected reward a bar of positions [T, S] with changes from ``before``."""
    regime = market.hidden["regime"].numpy()[-len(share) :]
    mean = market.hidden["expected_return"].numpy()[-len(share) :]
    reward = share * mean - LAMBDA / 2 * (DEVIATION[regime] * share) ** 2
    return float((reward - COST * np.abs(share - before)).mean())


def test_knowing_more_earns_more(market: Market, bands: dict[str, Bands]) -> None:
    """The same bars, expected rewards: about 2.16, 2.82 and 2.94 in Sharpe."""
    values = {}
    for knowledge in KNOWLEDGE:
        signal, regime = knowledge_of(market, Knobs(), knowledge)
        lower, upper = (edge.numpy() for edge in bands[knowledge].at(signal, regime))
        position, path = np.zeros(16), []
        for bar in range(len(market)):
            position = position.clip(lower[bar], upper[bar])
            path.append(position)
        share = np.stack(path)
        values[knowledge] = objective(market, share, np.concatenate([0 * share[:1], share[:-1]]))
    assert 0 < values["signal"] < values["filtered"] < values["full"]
    assert values["signal"] < 0.85 * values["full"]
    assert values["filtered"] > 0.9 * values["full"]


def test_knowing_more_earns_more_in_the_environment(followed: dict[str, Any]) -> None:
    """Log growth less its variance penalty, in the environment's own money."""
    values = {}
    for knowledge, account in followed.items():
        growth = (account.equity[:, 1:] / account.equity[:, :-1]).log()
        values[knowledge] = float((growth - (LAMBDA - 1) / 2 * account.gross**2).mean())
    assert 0 < values["signal"] < values["filtered"] < values["full"]


def test_an_oracle_moves_to_the_nearest_edge_and_no_further(market: Market) -> None:
    policy = OraclePolicy(market, Knobs(), "full")
    env = TradingEnv(
        market, 16, emit=("index", "share", "units", "value"), compiled=False, episode_bars=200,
        min_trade=0.0, **LONG_SHORT,
    )  # fmt: skip
    signal, regime = knowledge_of(market, Knobs(), "full")
    lower, upper = solve_bands(Knobs(), "full").at(signal, regime)
    seen, moved = env.reset(), 0
    for _ in range(40):
        bar, symbol = seen["market", "bar"][:, 0], seen["market", "symbol"][:, 0]
        low, high = lower[bar, symbol], upper[bar, symbol]
        share = seen["account", "share"][:, 0].double()
        action = policy(seen)["action"][:, 0].double()
        assert torch.allclose(action, torch.minimum(torch.maximum(share, low), high), atol=1e-6)
        inside = (share > low + 1e-6) & (share < high - 1e-6)
        assert (action - share)[inside].abs().max() < 1e-6 if inside.any() else True
        moved += int((~inside).sum())
        seen = env.step(seen)["next"].exclude("reward")
    assert 50 < moved < 600


def test_oracles_stay_out_of_a_martingale() -> None:
    """Nothing is to be had, so every band holds zero: no trade at all."""
    knobs = Knobs(predictability=0.0)
    market = synthetic_market(symbols=4, bars=600, seed=1, knobs=knobs)
    for knowledge in KNOWLEDGE:
        bands = solve_bands(knobs, knowledge, positions=101, signals=41)
        assert (bands.lower <= 1e-12).all()
        assert (bands.upper >= -1e-12).all()
        account = follow(
            whole_split(market, compiled=False, **LONG_SHORT),
            OraclePolicy(market, knobs, knowledge),
        )
        assert (account.share == 0).all()
        assert (account.equity == 10_000).all()


def test_a_random_policy_loses_about_its_costs_in_a_martingale() -> None:
    market = synthetic_market(symbols=32, bars=700, seed=6, predictability=0.0)
    env = whole_split(market, compiled=False, **LONG_SHORT)
    account = follow(env, RandomPolicy(env, seed=3))
    gross = account.gross.mean(-1) * BARS_PER_YEAR
    error = float(gross.std()) / math.sqrt(len(gross))
    assert abs(float(gross.mean())) < 2.6 * error
    net = (account.equity[:, 1:] / account.equity[:, :-1] - 1).mean(-1) * BARS_PER_YEAR
    costs = (account.fees[:, 1:] / account.equity[:, :-1]).mean(-1) * BARS_PER_YEAR
    assert float((gross - net - costs).abs().max()) < 1e-9
    assert 0.25 < float(costs.mean()) < 0.4  # a change of 2/3 a bar at 3 bps: 33 % a year
    assert float((net + costs).mean()) == pytest.approx(0, abs=2.6 * error)
    assert float(net.mean()) < -0.15


def test_long_only_oracle_in_its_environment(market: Market) -> None:
    """Target actions under the long-only cap: never short, never above 0.15 at a trade."""
    settings = {**LONG_ONLY, "actions": "target"}
    env = whole_split(market.bars(0, 800), compiled=False, **settings)
    policy = OraclePolicy(
        market.bars(0, 800), Knobs(), "filtered", cap=0.15, short=False, risk_aversion=67.0
    )
    account = follow(env, policy)
    assert account.share.min() >= 0
    assert 0.14 < float(account.share.max()) < 0.16
    assert (account.share == 0).any()


def test_symbols_with_knobs_of_their_own_have_oracles_of_their_own() -> None:
    """Side by side they have the bands that each has alone; with the other's they lose."""
    knobs = {"WITH": Knobs(predictability=3.0), "AGAINST": Knobs(predictability=-3.0)}
    market = named_market(knobs, 700, seed=2)
    own = OraclePolicy(market, list(knobs.values()))
    for row, (name, one) in enumerate(knobs.items()):
        alone = OraclePolicy(market.select([name]), one)
        assert own.lower[:, row].equal(alone.lower[:, 0])
        assert own.upper[:, row].equal(alone.upper[:, 0])

    def earned(policy: OraclePolicy) -> torch.Tensor:
        account = follow(whole_split(market, compiled=False, **LONG_SHORT), policy)
        return account.equity[:, -1] / account.equity[:, 0] - 1

    assert earned(own).min() > 0.1
    assert earned(OraclePolicy(market, list(knobs.values())[::-1])).max() < -0.1
    with pytest.raises(ValueError, match="zip"):
        OraclePolicy(market, [Knobs()])


def test_oracles_refuse_what_they_cannot_know(market: Market) -> None:
    with pytest.raises(ValueError, match="full, filtered, signal, got 'all'"):
        solve_bands(Knobs(), "all")  # type: ignore[arg-type]
    stripped = Market(
        symbols=market.symbols, timestamps=market.timestamps, bars_per_year=market.bars_per_year,
        open=market.open, high=market.high, low=market.low, close=market.close,
        volume=market.volume,
    )  # fmt: skip
    with pytest.raises(ValueError, match="only synthetic markets"):
        OraclePolicy(stripped, Knobs())


def test_several_assets_each_have_their_band(market: Market) -> None:
    env = TradingEnv(
        market, 3, assets=2, emit=("index", "share"), compiled=False, **LONG_SHORT
    )  # fmt: skip
    policy = OraclePolicy(market, Knobs(), "full")
    seen = policy(env.rollout(20, policy)[:, -1]["next"])
    bar, symbol = seen["market", "bar"], seen["market", "symbol"]
    signal, regime = knowledge_of(market, Knobs(), "full")
    lower, upper = solve_bands(Knobs(), "full").at(signal, regime)
    for account in range(3):
        for asset in range(2):
            place = (int(bar[account, 0]), int(symbol[account, asset]))
            share = float(seen["account", "share"][account, asset])
            wanted = min(max(share, float(lower[place])), float(upper[place]))
            assert float(seen["action"][account, asset]) == pytest.approx(wanted, abs=1e-6)
