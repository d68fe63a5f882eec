"""A seeded market whose best policy is known: regimes, a decaying signal, and a noisy view of it.

One symbol's bar t has a regime ``k`` and a signal ``s`` (AR(1), unit variance); the simple return
over the next bar is ``drift[k] + effect * s + volatility[k] * noise``. An observer sees prices and
``signal = s + observation_noise * noise``. The open is the previous close, so a fill at the next
open costs no delay.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from trading_torchrl.data.features import FeatureFunction, with_features
from trading_torchrl.data.market import Market

BARS_PER_YEAR = 1638.0
REGIMES = ("bull", "bear", "sideways", "high_volatility")
ANNUAL_DRIFT = (0.30, -0.20, 0.02, 0.0)
ANNUAL_VOLATILITY = (0.14, 0.22, 0.10, 0.40)
SIGNAL_EFFECT = 4e-4
FIRST_DAY = np.datetime64("2000-01-03")


@dataclass(frozen=True)
class Knobs:
    """What can be turned on the synthetic market.

    Args:
        volatility: multiplies every regime's volatility.
        trend: multiplies every regime's drift.
        noise: standard deviation of the noise on the observed signal.
        stability: mean number of bars a regime lasts.
        regimes: which regimes occur, by name, all alike.
        half_life: bars in which the signal loses half its strength.
        predictability: multiplies the signal's effect on returns; below 0 prices go against the
            signal, and at 0 the drift goes too: the market is a martingale, in which nothing can
            earn after costs.
    """

    volatility: float = 1.0
    trend: float = 1.0
    noise: float = 0.5
    stability: float = 150.0
    regimes: tuple[str, ...] = REGIMES
    half_life: float = 10.0
    predictability: float = 1.0

    def __post_init__(self) -> None:
        for name in ("volatility", "trend", "noise", "stability", "half_life", "predictability"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value)):
                raise ValueError(f"{name} must be a finite number, got {value!r}")
        for name in ("volatility", "half_life"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if not self.noise >= 0:
            raise ValueError(f"noise must not be negative, got {self.noise}")
        if not self.stability >= 1:
            raise ValueError(
                f"stability is a mean duration in bars, at least 1, got {self.stability}"
            )
        unknown = [name for name in self.regimes if name not in REGIMES]
        if unknown or not self.regimes or len(set(self.regimes)) < len(self.regimes):
            raise ValueError(f"regimes must be some of {REGIMES}, each once, got {self.regimes}")

    @property
    def drift(self) -> np.ndarray:
        """Expected return of a bar in each regime, without the signal."""
        scale = self.trend / BARS_PER_YEAR if self.predictability else 0.0
        return scale * np.array([ANNUAL_DRIFT[REGIMES.index(name)] for name in self.regimes])

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of a bar's return in each regime."""
        annual = np.array([ANNUAL_VOLATILITY[REGIMES.index(name)] for name in self.regimes])
        return self.volatility / math.sqrt(BARS_PER_YEAR) * annual

    @property
    def effect(self) -> float:
        """Expected return of a bar for each unit of signal."""
        return SIGNAL_EFFECT * self.predictability

    @property
    def persistence(self) -> float:
        """AR(1) coefficient of the signal."""
        return 0.5 ** (1 / self.half_life)


def synthetic_market(
    symbols: int = 5,
    bars: int = 20_000,
    seed: int = 0,
    knobs: Knobs | None = None,
    functions: Sequence[FeatureFunction] = (),
    **turned: object,
) -> Market:
    """Draws a market of independent symbols, features included.

    A symbol's path is keyed by (seed, symbol): more symbols or more bars change nothing drawn
    before. ``market.hidden`` keeps what no observation may show: ``true_signal`` and ``regime`` at
    each bar, and ``expected_return``, the true mean of the return over the next bar.

    Args:
        symbols: number of symbols; training wants at least 32, one path overfits.
        bars: bars of each.
        seed: any non-negative integer.
        knobs: see :class:`Knobs`; single ones can be turned by keyword.
        functions: further features, see :func:`~trading_torchrl.data.with_features`.

    Example:
        >>> market = synthetic_market(symbols=2, bars=1_000, seed=0, noise=0.2)
        >>> market.symbols, len(market), sorted(market.columns)
        (('SYN000', 'SYN001'), 1000, ['confidence', 'sentiment', 'signal'])
    """
    if symbols < 1 or bars < 2 or seed < 0:
        raise ValueError(
            "symbols >= 1, bars >= 2 and seed >= 0 are needed,"
            f" got symbols={symbols}, bars={bars}, seed={seed}"
        )
    knobs = replace(knobs or Knobs(), **turned)  # type: ignore[arg-type]
    paths = {f"SYN{each:03d}": _path(bars, (seed, each), knobs) for each in range(symbols)}
    market = _market(paths, bars, ("signal", "sentiment", "confidence"))
    return with_features(market, *functions)


def named_market(
    symbols: Mapping[str, Knobs],
    bars: int = 20_000,
    seed: int = 0,
    functions: Sequence[FeatureFunction] = (),
) -> Market:
    """Draws a market of symbols that differ in what moves them, features included.

    A symbol's path follows from the seed and its name, whatever stands beside it. Of the columns
    there is the signal alone: what else :func:`synthetic_market` shows is computed from a symbol's
    knobs, and would tell which symbol it is.

    Args:
        symbols: knobs of each, by name.
        bars: bars of each.
        seed: any non-negative integer.
        functions: further features, see :func:`~trading_torchrl.data.with_features`.

    Example:
        >>> knobs = {"UP": Knobs(), "DOWN": Knobs(predictability=-1.0, volatility=0.5)}
        >>> market = named_market(knobs, bars=1_000)
        >>> market.symbols, sorted(market.columns)
        (('UP', 'DOWN'), ['signal'])
    """
    if not symbols or bars < 2 or seed < 0:
        raise ValueError(
            "at least one symbol, bars >= 2 and seed >= 0 are needed,"
            f" got {len(symbols)} symbols, bars={bars}, seed={seed}"
        )
    whole: dict[str, Tensor] = {}
    for row, (name, knobs) in enumerate(symbols.items()):
        # One after the other: drawing a symbol takes several times the memory that it needs then.
        path = _path(bars, (seed, zlib.crc32(name.encode())), knobs)
        alone = with_features(_market({name: path}, bars, ("signal",)), *functions)
        for key, tensor in alone._tensors():
            if key != "timestamps":
                size = (bars, len(symbols), *tensor.shape[2:])
                whole.setdefault(key, tensor.new_empty(size))[:, row] = tensor[:, 0]
    return alone._map(lambda key, tensor: whole.get(key, tensor), symbols=tuple(symbols))


def _market(
    paths: Mapping[str, dict[str, np.ndarray]], bars: int, observed: Sequence[str]
) -> Market:
    drawn = list(paths.values())
    stacked = {
        name: torch.from_numpy(np.stack([path[name] for path in drawn], 1)) for name in drawn[0]
    }
    hidden = ("true_signal", "regime", "expected_return")
    return Market(
        symbols=tuple(paths),
        timestamps=_timestamps(bars),
        bars_per_year=BARS_PER_YEAR,
        columns={name: stacked[name] for name in observed},
        hidden={name: stacked[name] for name in hidden},
        open=stacked["open"],
        high=stacked["high"],
        low=stacked["low"],
        close=stacked["close"],
        volume=stacked["volume"],
    )


def _path(bars: int, key: tuple[int, int], knobs: Knobs) -> dict[str, np.ndarray]:
    """One symbol: every stream of noise has its own generator, so a longer path begins alike."""

    def stream(number: int) -> np.random.Generator:
        return np.random.default_rng([*key, number])

    kinds = len(knobs.regimes)
    leaves = stream(0).random(bars) < 1 / knobs.stability
    steps = np.where(leaves, 1 + (stream(1).random(bars) * (kinds - 1)).astype(np.int64), 0)
    steps[0] = int(stream(2).random() * kinds)
    regime = np.cumsum(steps) % kinds

    signal = _autoregression(stream(3).standard_normal(bars), knobs.persistence)
    observed = signal + knobs.noise * stream(4).standard_normal(bars)
    expected = knobs.drift[regime] + knobs.effect * signal
    shock = stream(5).standard_normal(bars)
    returns = np.maximum(expected + knobs.deviation[regime] * shock, -0.9)

    close = 100 * np.cumprod(np.concatenate([[1.0], 1 + returns[:-1]]))
    opening = np.concatenate([close[:1], close[:-1]])
    reach = knobs.deviation[np.concatenate([regime[:1], regime[:-1]])] / 2
    above, below = np.abs(stream(6).standard_normal((bars, 2))).T
    move = np.abs(np.diff(close, prepend=close[0])) / (opening * reach * 2)
    volume = 1e6 * np.exp(0.4 * move + 0.3 * stream(7).standard_normal(bars))
    return {
        "open": opening,
        "high": np.maximum(opening, close) * (1 + reach * above),
        "low": np.minimum(opening, close) / (1 + reach * below),
        "close": close,
        "volume": volume,
        "signal": observed,
        "sentiment": _normal_cdf(observed / math.sqrt(1 + knobs.noise**2)),
        "confidence": _confidence(observed, knobs),
        "true_signal": signal,
        "regime": regime,
        "expected_return": expected,
    }


def _autoregression(noise: np.ndarray, coefficient: float) -> np.ndarray:
    """Unit-variance AR(1) driven by ``noise``, stationary from the first bar on."""
    signal = np.empty_like(noise)
    innovation = math.sqrt(1 - coefficient**2) * noise
    previous = noise[0]
    for bar in range(len(noise)):
        if bar:
            previous = coefficient * previous + innovation[bar]
        signal[bar] = previous
    return signal


def _confidence(observed: np.ndarray, knobs: Knobs) -> np.ndarray:
    """Probability that the next return has the likelier sign, given the observed signal alone.

    Calibrated: the regime is averaged out, the true signal given the observed one is normal.
    """
    variance = 1 + knobs.noise**2
    mean = knobs.drift[:, None] + knobs.effect * observed / variance
    deviation = np.sqrt(knobs.deviation**2 + (knobs.effect * knobs.noise) ** 2 / variance)
    up = _normal_cdf(mean / deviation[:, None]).mean(0)
    return np.maximum(up, 1 - up)


def _normal_cdf(x: np.ndarray) -> np.ndarray:
    return torch.special.ndtr(torch.from_numpy(x)).numpy()


def _timestamps(bars: int) -> Tensor:
    """Hourly bars on weekdays from 10:00 UTC, six and seven a day by turns: 6.5 on average."""
    day_pairs, rest = np.divmod(np.arange(bars), 13)
    second = rest >= 6
    day = np.busday_offset(FIRST_DAY, 2 * day_pairs + second)
    hour = 10 + rest - 6 * second
    return torch.from_numpy(
        (day.astype("datetime64[h]") + hour).astype("datetime64[ns]").view(np.int64)
    )
