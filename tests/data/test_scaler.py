"""The scaler: known values, what it refuses, and its state."""

import json
from dataclasses import replace

import pytest
import torch

from trading_torchrl.data import FEATURES, Scaler, with_features


def test_standardises_over_bars_and_symbols(make_market):
    market = with_features(make_market(bars=500, symbols=3))
    scaled = Scaler.fit(market, clip=1e6)(market.features, market.feature_names)
    assert scaled.dtype == torch.float32
    flat = scaled.double().flatten(0, 1)
    torch.testing.assert_close(flat.mean(0), torch.zeros_like(flat[0]), atol=1e-4, rtol=0)
    torch.testing.assert_close(
        flat.std(0, correction=0), torch.ones_like(flat[0]), atol=1e-4, rtol=0
    )


def test_known_values_and_clip(make_market):
    values = torch.tensor([[1.0, 3.0], [5.0, 7.0]])
    market = replace(make_market(bars=2), features=values[..., None], feature_names=("x",))
    scaler = Scaler.fit(market, clip=1.5)
    assert scaler.mean.item() == 4
    assert scaler.std.item() == pytest.approx(5**0.5)
    scaled = scaler(torch.tensor([[4.0], [4 + 5**0.5], [100.0], [-torch.inf]]))
    assert scaled[:, 0].tolist() == pytest.approx([0, 1, 1.5, -1.5])


def test_constant_features_keep_their_unit(make_market):
    values = torch.full((300, 2, 2), 0.1)
    values[0, 0, 1] = 1e-42  # so far apart, and yet nothing in float32
    values[..., 1] *= 1e-42
    market = replace(make_market(bars=300), features=values, feature_names=("x", "y"))
    scaler = Scaler.fit(market)
    assert scaler.std.tolist() == [1, 1]
    assert scaler(torch.tensor([0.1, 0.0])).tolist() == pytest.approx([0, 0], abs=1e-30)
    assert scaler(torch.tensor([2.1, 0.0])).tolist() == pytest.approx([2, 0])


def test_refuses_other_features(make_market):
    market = with_features(make_market(bars=50))
    scaler = Scaler.fit(market)
    with pytest.raises(ValueError, match="missing rsi; unknown mine"):
        scaler(market.features, [name if name != "rsi" else "mine" for name in FEATURES])
    with pytest.raises(ValueError, match="unknown mine"):
        scaler(market.features, (*FEATURES, "mine"))
    with pytest.raises(ValueError, match="order differs"):
        scaler(market.features, FEATURES[::-1])
    with pytest.raises(ValueError, match="22 features, but the scaler was fitted on 23: return_1"):
        scaler(market.features[..., 1:])
    with pytest.raises(ValueError, match="no features yet"):
        Scaler.fit(make_market(bars=50))
    for mean, std, clip in (([0.0], [0.0], 1), ([0.0, 1.0], [1.0], 1), ([0.0], [1.0], 0)):
        with pytest.raises(ValueError, match=r"positive|one value"):
            Scaler(torch.tensor(mean), torch.tensor(std), ["x"], clip)


def test_state_dict_restores_it_whole(make_market, tmp_path):
    market = with_features(make_market(bars=50))
    scaler = Scaler.fit(market, clip=2.0)
    state = scaler.state_dict()
    assert json.loads(json.dumps(state["_extra_state"])) == {"names": [*FEATURES], "clip": 2.0}
    torch.save(state, tmp_path / "scaler.pt")
    other = Scaler(torch.zeros(23), torch.ones(23), [f"f{i}" for i in range(23)])
    other.load_state_dict(torch.load(tmp_path / "scaler.pt", weights_only=True))
    assert other.names == FEATURES
    assert torch.equal(other(market.features), scaler(market.features))
    with pytest.raises(RuntimeError, match="size mismatch"):
        Scaler(torch.zeros(1), torch.ones(1), ["x"]).load_state_dict(state)
