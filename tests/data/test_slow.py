"""Features with a longer memory, against loops."""

import math
from itertools import pairwise

import pytest
import torch

from trading_torchrl.data import synthetic_market, with_features
from trading_torchrl.data.slow import slow_features


def test_against_loops():
    market = synthetic_market(3, 200, seed=4)
    found = slow_features(market)
    log = market.close[:, 1].log().tolist()
    returns = [0.0, *(after - before for before, after in pairwise(log))]
    for bar in (1, 30, 59, 60, 61, 199):
        last = returns[max(0, bar - 59) : bar + 1]
        mean = math.fsum(last) / len(last)
        spread = math.sqrt(math.fsum((each - mean) ** 2 for each in last) / (len(last) - 1))
        assert float(found["return_60"][bar, 1]) == pytest.approx(math.fsum(last), abs=1e-12)
        assert float(found["volatility_60"][bar, 1]) == pytest.approx(spread, rel=1e-6)
    mean = 0.0
    for bar, value in enumerate(market.columns["signal"][:, 1].tolist()):
        mean = value if bar == 0 else 0.5 * mean + 0.5 * value
        assert float(found["signal_mean"][bar, 1]) == pytest.approx(mean, abs=1e-12)


def test_they_stand_behind_the_others():
    market = synthetic_market(2, 200, functions=[slow_features])
    assert market.features is not None
    later = with_features(synthetic_market(2, 200), slow_features)
    assert torch.equal(market.features, later.features)
    assert market.feature_names == later.feature_names
    assert market.features.shape[-1] == 26 + 5
    assert torch.isfinite(market.features).all()
