"""The synthetic market against the numbers it is described by."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from trading_torchrl.data import Knobs, Market, named_market, split, synthetic_market, validate
from trading_torchrl.envs import TradingEnv

BARS_PER_YEAR = 1638
DRIFT = np.array([0.30, -0.20, 0.02, 0.0]) / BARS_PER_YEAR
DEVIATION = np.array([0.14, 0.22, 0.10, 0.40]) / math.sqrt(BARS_PER_YEAR)
EFFECT = 4e-4
PERSISTENCE = 0.5 ** (1 / 10)
NORMAL = NormalDist()
SYMBOLS, BARS = 16, 20_000


@pytest.fixture(scope="module")
def market() -> Market:
    return synthetic_market(SYMBOLS, BARS, seed=5)


def small(**turned: Any) -> Market:
    return synthetic_market(4, 8_000, seed=3, **turned)


def returns(market: Market) -> NDArray[Any]:
    """Over the bar after each but the last, [T - 1, S]."""
    close = market.close.numpy()
    return close[1:] / close[:-1] - 1


def hidden(market: Market, name: str) -> NDArray[Any]:
    return market.hidden[name].numpy()


def column(market: Market, name: str) -> NDArray[Any]:
    return market.columns[name].numpy()


def shocks(market: Market) -> NDArray[Any]:
    """Returns less what was to be expected, [T - 1, S]."""
    return returns(market) - hidden(market, "expected_return")[:-1]


def slope(signal: NDArray[Any]) -> float:
    """Coefficient of each bar on the one before, around a mean of zero."""
    before, after = signal[:-1], signal[1:]
    return float((before * after).sum() / (before * before).sum())


def close_to(value: float, error: float, times: float = 4.5) -> Any:
    return pytest.approx(value, rel=0, abs=times * error)


def test_moments_in_each_regime(market: Market) -> None:
    plain = returns(market) - EFFECT * hidden(market, "true_signal")[:-1]
    regime = hidden(market, "regime")[:-1]
    for kind in range(4):
        values = plain[regime == kind]
        error = DEVIATION[kind] / math.sqrt(len(values))
        assert len(values) > 0.15 * regime.size
        assert values.mean() == close_to(DRIFT[kind], error)
        assert values.std() == close_to(DEVIATION[kind], error / math.sqrt(2))
        scaled = (values - values.mean()) / values.std()
        assert (scaled**3).mean() == close_to(0, math.sqrt(6 / len(values)))
        assert (scaled**4).mean() == close_to(3, math.sqrt(24 / len(values)))


def test_expected_return_is_drift_and_signal(market: Market) -> None:
    expected = DRIFT[hidden(market, "regime")] + EFFECT * hidden(market, "true_signal")
    np.testing.assert_allclose(hidden(market, "expected_return"), expected, rtol=1e-12, atol=1e-18)


def test_the_signal_moves_the_next_return_and_no_other(market: Market) -> None:
    signal = hidden(market, "true_signal")
    shock = shocks(market)
    error = DEVIATION.mean() * 1.3 / math.sqrt(shock.size)
    assert (signal[:-1] * returns(market)).mean() == close_to(EFFECT, error)
    # What the signal did not announce tells nothing of the signal, before or after.
    assert (signal[:-1] * shock).mean() == close_to(0, error)
    assert (signal[1:] * shock).mean() == close_to(0, error)
    assert (shock[1:] * shock[:-1]).mean() == close_to(0, 1.3e-4 / math.sqrt(shock.size))


def test_regimes_switch_to_any_other_alike(market: Market) -> None:
    regime = hidden(market, "regime")
    before, after = regime[:-1].ravel(), regime[1:].ravel()
    switched = before != after
    chance = 1 / 150
    assert switched.mean() == close_to(chance, math.sqrt(chance / switched.size))
    for kind in range(4):
        left = switched & (before == kind)
        here = (before == kind).sum()
        assert left.sum() / here == close_to(chance, math.sqrt(chance / here))
        for other in set(range(4)) - {kind}:
            share = (after[left] == other).mean()
            assert share == close_to(1 / 3, math.sqrt(2 / 9 / left.sum()))
    # Lengths are geometric: the deviation is as long as the mean.
    runs = np.concatenate([np.diff(np.flatnonzero(np.diff(path))) for path in regime.T])
    assert runs.mean() == close_to(150, 150 / math.sqrt(len(runs)))
    assert runs.std() == close_to(150, 300 / math.sqrt(len(runs)))


def test_first_bars_are_drawn_from_the_stationary_laws() -> None:
    market = synthetic_market(symbols=2_000, bars=2, seed=1)
    regime, signal = hidden(market, "regime"), hidden(market, "true_signal")
    for kind in range(4):
        assert (regime[0] == kind).mean() == close_to(0.25, math.sqrt(0.1875 / 2_000))
    for bar in range(2):
        assert signal[bar].mean() == close_to(0, 1 / math.sqrt(2_000))
        assert signal[bar].var() == close_to(1, math.sqrt(2 / 2_000))


def test_signal_is_autoregressive_with_unit_variance(market: Market) -> None:
    signal = hidden(market, "true_signal")
    effective = signal.size * (1 - PERSISTENCE) / (1 + PERSISTENCE)
    assert signal.mean() == close_to(0, 1 / math.sqrt(effective))
    assert signal.var() == close_to(1, math.sqrt(2 / effective))
    assert slope(signal) == close_to(PERSISTENCE, math.sqrt((1 - PERSISTENCE**2) / signal.size))
    innovation = signal[1:] - PERSISTENCE * signal[:-1]
    assert innovation.var() == close_to(1 - PERSISTENCE**2, 0.1294 * math.sqrt(2 / signal.size))
    assert slope(innovation) == close_to(0, 1 / math.sqrt(signal.size))
    together = np.corrcoef(signal.T)[np.triu_indices(SYMBOLS, 1)]
    assert np.abs(together).max() < 5 / math.sqrt(effective / SYMBOLS)


def test_observed_signal_has_white_noise(market: Market) -> None:
    noise = column(market, "signal") - hidden(market, "true_signal")
    assert noise.mean() == close_to(0, 0.5 / math.sqrt(noise.size))
    assert noise.std() == close_to(0.5, 0.5 / math.sqrt(2 * noise.size))
    assert slope(noise) == close_to(0, 1 / math.sqrt(noise.size))
    shock = shocks(market)
    assert (noise[:-1] * shock).mean() == close_to(0, 0.5 * 0.006 / math.sqrt(noise.size))


def test_sentiment_is_the_signals_rank(market: Market) -> None:
    sentiment = column(market, "sentiment")
    for place in ((0, 0), (777, 3), (19_999, 15)):
        rank = NORMAL.cdf(float(column(market, "signal")[place]) / math.sqrt(1.25))
        assert sentiment[place] == pytest.approx(rank, abs=1e-12)
    ranked = np.sort(sentiment.ravel())
    distance = np.abs(ranked - (np.arange(ranked.size) + 0.5) / ranked.size).max()
    assert distance < 1.95 / math.sqrt(ranked.size * (1 - PERSISTENCE) / (1 + PERSISTENCE))


@pytest.mark.parametrize("predictability", [1.0, 6.0])
@pytest.mark.parametrize("trend", [1.0, 12.0])
def test_confidence_is_calibrated(predictability: float, trend: float) -> None:
    """Reliability in ten bins: how often the likelier sign came is how often it was said to."""
    market = synthetic_market(8, 20_000, seed=9, predictability=predictability, trend=trend)
    confidence, observed = column(market, "confidence")[:-1], column(market, "signal")[:-1]
    assert confidence.min() >= 0.5
    assert confidence.max() <= 1
    # The likelier sign: up beyond the observed signal at which both are alike.
    threshold = observed.ravel()[confidence.ravel().argmin()]
    right = (returns(market) > 0) == (observed > threshold)
    order = np.argsort(confidence, axis=None)
    for rows in np.array_split(order, 10):
        said, came = confidence.ravel()[rows].mean(), right.ravel()[rows].mean()
        # Neighbours share their regime, so the errors are wider than independent ones at trend 12.
        error = math.sqrt(0.25 / len(rows)) * (1 if trend == 1 else 4)
        assert came == close_to(said, error)
    assert confidence.max() - confidence.min() > 0.05 * predictability


def test_confidence_by_hand(market: Market) -> None:
    """Of the four regimes alike; the true signal is normal around .8 x observed, variance .2."""
    for place in ((0, 0), (5_000, 7), (19_998, 15)):
        seen = float(column(market, "signal")[place])
        up = 0.0
        for drift, deviation in zip(DRIFT, DEVIATION, strict=True):
            wide = math.sqrt(deviation**2 + 0.2 * EFFECT**2)
            up += NORMAL.cdf((drift + EFFECT * 0.8 * seen) / wide) / 4
        assert column(market, "confidence")[place] == pytest.approx(max(up, 1 - up), abs=1e-12)


def test_volume_follows_the_size_of_returns(market: Market) -> None:
    volume = np.log(market.volume.numpy())[1:]
    size, regime = np.abs(returns(market)), hidden(market, "regime")[:-1]
    for kind in range(4):
        here = regime == kind
        assert np.corrcoef(volume[here], size[here])[0, 1] > 0.5
        calm, busy = np.quantile(size[here], [0.2, 0.8])
        ratio = volume[here & (size > busy)].mean() - volume[here & (size < calm)].mean()
        assert ratio > math.log(1.5)
    # Of its own bar: it announces no later one.
    scaled = shocks(market) / DEVIATION[regime]
    assert abs(np.corrcoef(volume[:-1].ravel(), np.abs(scaled[1:]).ravel())[0, 1]) < 0.01
    assert abs(np.corrcoef(volume[:-1].ravel(), scaled[1:].ravel())[0, 1]) < 0.01


def test_open_is_the_close_before(market: Market) -> None:
    assert torch.equal(market.open[1:], market.close[:-1])
    assert (market.close[0] == 100).all()
    assert (market.open[0] == 100).all()


@pytest.mark.parametrize(
    "turned",
    [{}, {"volatility": 5.0}, {"predictability": 0.0}, {"noise": 0.0}, {"trend": -3.0},
     {"predictability": 40.0}],
)  # fmt: skip
def test_bars_are_valid(turned: dict[str, Any]) -> None:
    market = small(**turned)
    assert validate(market) is market
    assert (market.volume > 0).all()
    assert ((market.low <= market.open) & (market.open <= market.high)).all()
    assert ((market.low <= market.close) & (market.close <= market.high)).all()
    assert market.bars_per_year == BARS_PER_YEAR
    assert market.features is not None
    assert market.features.isfinite().all()


def test_a_day_has_six_and_a_half_bars() -> None:
    market = synthetic_market(1, 1_300)
    days = np.unique(market.days.numpy(), return_counts=True)
    assert set(days[1].tolist()) == {6, 7}
    assert days[1].mean() == 6.5
    weekdays = (days[0] + 3) % 7  # day 0 was a Thursday
    assert weekdays.max() <= 4


def everything(market: Market) -> dict[str, torch.Tensor]:
    assert market.features is not None
    bars = {name: getattr(market, name) for name in ("open", "high", "low", "close", "volume")}
    return {**bars, **market.columns, **market.hidden, "features": market.features}


def test_more_symbols_or_bars_leave_what_was_drawn() -> None:
    few = everything(synthetic_market(2, 500, seed=4))
    for symbols, bars in ((5, 500), (2, 900), (6, 1_300)):
        more = synthetic_market(symbols, bars, seed=4)
        for name, tensor in everything(more).items():
            assert torch.equal(tensor[:500, :2], few[name]), name
        assert torch.equal(more.timestamps[:500], synthetic_market(2, 500).timestamps)


def test_a_seed_is_a_market_and_symbols_differ() -> None:
    one, same, other = (synthetic_market(3, 300, seed=seed) for seed in (1, 1, 2))
    for name, tensor in everything(one).items():
        assert torch.equal(tensor, everything(same)[name])
    assert (one.close[5:] != other.close[5:]).all()
    # Neither another seed's symbols nor this one's are the same path.
    paths = [
        market.hidden["true_signal"][:, symbol] for market in (one, other) for symbol in range(3)
    ]
    for i, path in enumerate(paths):
        for later in paths[i + 1 :]:
            assert not torch.isclose(path, later).any()


def test_volatility_knob() -> None:
    calm, wild = small(), small(volatility=2.0)
    np.testing.assert_allclose(shocks(wild), 2 * shocks(calm), rtol=1e-6, atol=1e-12)
    assert torch.equal(wild.hidden["expected_return"], calm.hidden["expected_return"])


def test_trend_knob() -> None:
    plain, strong, none, turned = (small(trend=trend) for trend in (1.0, 3.0, 0.0, -1.0))
    regime, signal = hidden(plain, "regime"), hidden(plain, "true_signal")
    for market, trend in ((strong, 3), (none, 0), (turned, -1)):
        drift = hidden(market, "expected_return") - EFFECT * signal
        np.testing.assert_allclose(drift, trend * DRIFT[regime], atol=1e-15)
        np.testing.assert_allclose(shocks(market), shocks(plain), atol=1e-12)


def test_noise_knob() -> None:
    clear, loud = small(noise=0.0), small(noise=2.0)
    assert torch.equal(clear.columns["signal"], clear.hidden["true_signal"])
    noise = column(loud, "signal") - hidden(loud, "true_signal")
    assert noise.std() == close_to(2, 2 / math.sqrt(2 * noise.size))
    assert torch.equal(clear.close, loud.close)
    for market, width in ((clear, 1.0), (loud, 5.0)):
        for place in ((3, 1), (7_000, 2)):
            rank = NORMAL.cdf(float(column(market, "signal")[place]) / math.sqrt(width))
            assert column(market, "sentiment")[place] == pytest.approx(rank, abs=1e-12)


@pytest.mark.parametrize("stability", [1.0, 20.0, 1_000.0])
def test_stability_knob(stability: float) -> None:
    regime = hidden(synthetic_market(8, 8_000, seed=2, stability=stability), "regime")
    switched = (regime[1:] != regime[:-1]).mean()
    assert switched == close_to(1 / stability, math.sqrt(1 / stability / regime.size))


def test_regimes_knob() -> None:
    market = small(regimes=("high_volatility", "bull"))
    regime = hidden(market, "regime")
    assert set(np.unique(regime)) == {0, 1}
    signal, expected = hidden(market, "true_signal"), hidden(market, "expected_return")
    np.testing.assert_allclose(expected - EFFECT * signal, DRIFT[[3, 0]][regime], atol=1e-15)
    for kind, deviation in ((0, DEVIATION[3]), (1, DEVIATION[0])):
        values = shocks(market)[regime[:-1] == kind]
        assert values.std() == close_to(deviation, deviation / math.sqrt(2 * len(values)))
    alone = small(regimes=("sideways",))
    assert (hidden(alone, "regime") == 0).all()
    assert shocks(alone).std() == pytest.approx(DEVIATION[2], rel=0.02)


@pytest.mark.parametrize("half_life", [2.0, 50.0])
def test_half_life_knob(half_life: float) -> None:
    signal = hidden(synthetic_market(8, 8_000, seed=2, half_life=half_life), "true_signal")
    rho = 0.5 ** (1 / half_life)
    assert slope(signal) == close_to(rho, math.sqrt((1 - rho**2) / signal.size))
    effective = signal.size * (1 - rho) / (1 + rho)
    assert signal.var() == close_to(1, math.sqrt(2 / effective))
    lag = int(half_life)
    halved = (signal[lag:] * signal[:-lag]).mean() / signal.var()
    assert halved == pytest.approx(0.5, abs=5 / math.sqrt(effective))


def test_predictability_knob() -> None:
    plain, strong = small(), small(predictability=2.5)
    regime, signal = hidden(plain, "regime"), hidden(plain, "true_signal")
    np.testing.assert_allclose(
        hidden(strong, "expected_return"), DRIFT[regime] + 2.5 * EFFECT * signal, atol=1e-15
    )
    np.testing.assert_allclose(shocks(strong), shocks(plain), atol=1e-12)


def test_no_predictability_is_a_martingale() -> None:
    market = synthetic_market(SYMBOLS, BARS, seed=12, predictability=0.0, trend=5.0)
    assert (market.hidden["expected_return"] == 0).all()
    change = returns(market)
    size = change.std() / math.sqrt(change.size)
    assert change.mean() == close_to(0, size, 4)
    regime = hidden(market, "regime")[:-1]
    for kind in range(4):
        values = change[regime == kind]
        assert values.mean() == close_to(0, DEVIATION[kind] / math.sqrt(len(values)), 4)
    for name in ("signal", "sentiment", "confidence"):
        seen = column(market, name)[:-1]
        seen = seen - seen.mean()
        if seen.std() > 1e-9:
            together = (seen * change).mean() / seen.std() / change.std()
            assert together == close_to(0, 1 / math.sqrt(change.size), 4)
    assert column(market, "confidence").max() == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize(
    ("turned", "message"),
    [
        ({"volatility": 0.0}, "volatility must be positive, got 0.0"),
        ({"volatility": -1.0}, "volatility must be positive"),
        ({"volatility": float("nan")}, "volatility must be a finite number, got nan"),
        ({"half_life": 0.0}, "half_life must be positive"),
        ({"noise": -0.1}, "noise must not be negative, got -0.1"),
        ({"noise": float("nan")}, "noise"),
        ({"stability": 0.5}, "stability is a mean duration in bars, at least 1, got 0.5"),
        ({"regimes": ()}, "regimes must be some of"),
        ({"regimes": ("bull", "bull")}, "each once"),
        ({"regimes": ("bull", "crash")}, "regimes must be some of.*crash"),
    ],
)
def test_bad_knobs_are_refused(turned: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Knobs(**turned)
    with pytest.raises(ValueError, match=message):
        synthetic_market(1, 10, **turned)


@pytest.mark.parametrize("name", ["volatility", "trend", "noise", "predictability"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_knobs_that_are_no_numbers_are_refused(name: str, value: float) -> None:
    """They would make a market of NaN, found much later."""
    with pytest.raises(ValueError, match=name):
        Knobs(**{name: value})


def test_an_unknown_knob_is_refused() -> None:
    with pytest.raises(TypeError, match="wiggle"):
        synthetic_market(1, 10, wiggle=2.0)


@pytest.mark.parametrize("given", [{"symbols": 0}, {"bars": 1}, {"seed": -1}])
def test_bad_sizes_are_refused(given: dict[str, int]) -> None:
    name, value = next(iter(given.items()))
    with pytest.raises(ValueError, match=rf"{name} >= .*{name}={value}"):
        synthetic_market(**{"symbols": 2, "bars": 10, "seed": 0, **given})


def test_hidden_columns_never_reach_an_observation(market: Market) -> None:
    assert set(market.hidden) == {"true_signal", "regime", "expected_return"}
    assert set(market.columns) == {"signal", "sentiment", "confidence"}
    assert not set(market.hidden) & set(market.feature_names)
    assert market.features is not None
    features = market.features.double().flatten(0, 1)
    features = (features - features.mean(0)) / features.std(0).clamp(min=1e-12)
    for name, values in market.hidden.items():
        flat = values.double().flatten()
        flat = (flat - flat.mean()) / flat.std()
        alike = (features * flat[:, None]).mean(0).abs().max()
        # The noisy signal is as near as one can come: 1 / sqrt(1.25).
        assert alike < 0.91, name
    for window in (None, 8):
        env = TradingEnv(market, 1, emit="all", window=window, compiled=False)
        assert not set(env.observation_names) & set(market.hidden)
        leaves = {
            key[-1] if isinstance(key, tuple) else key for key in env.reset().keys(True, True)
        }
        assert not leaves & set(market.hidden)


def test_a_named_symbol_is_its_own_path_whatever_stands_beside_it() -> None:
    knobs = {"AAA": Knobs(), "BBB": Knobs(volatility=2.0), "CCC": Knobs(predictability=-1.0)}
    whole = named_market(knobs, 400, seed=3)
    validate(whole)
    assert whole.symbols == ("AAA", "BBB", "CCC")
    alone = named_market({"BBB": knobs["BBB"]}, 300, seed=3)
    assert alone.close[:, 0].equal(whole.close[:300, 1])
    assert not named_market(knobs, 400, seed=4).close.equal(whole.close)
    parts = split(whole, purge=1)
    assert {part.symbols for part in parts} == {whole.symbols}


def test_prices_go_with_the_signal_or_against_it_and_both_together_tell_nothing() -> None:
    """Known by least squares: the return of the next bar over the true signal."""
    market = named_market(
        {name: Knobs(predictability=side, trend=0.0) for name, side in (("A", 2.0), ("B", -2.0))},
        60_000,
    )
    signal, earned = hidden(market, "true_signal")[:-1], returns(market)
    slopes = (signal * earned).mean(0) / (signal**2).mean(0)
    error = earned.std() / math.sqrt(len(signal))
    assert slopes[0] == close_to(2 * EFFECT, error)
    assert slopes[1] == close_to(-2 * EFFECT, error)
    assert float((signal * earned).mean() / (signal**2).mean()) == close_to(0, error)


def test_what_a_named_market_shows_is_no_name() -> None:
    """The other columns of a synthetic path are computed from its knobs."""
    assert set(named_market({"A": Knobs()}, 100).columns) == {"signal"}


@pytest.mark.parametrize("given", [{"symbols": {}}, {"bars": 1}, {"seed": -1}])
def test_bad_named_markets_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least one symbol"):
        named_market(**{"symbols": {"A": Knobs()}, "bars": 10, "seed": 0, **given})
