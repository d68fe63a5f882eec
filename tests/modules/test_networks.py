"""Perceptrons against torch's own layers; ensembles against their members one by one."""

import math

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.envs.utils import ExplorationType, set_exploration_type

from trading_torchrl.modules import MLP, EnsembleMLP, make_actor, make_critics

BATCHES = [(), (1,), (5,), (3, 4), (0,)]


def layered(weights, biases):
    """A perceptron of ``nn.Linear`` with these weights ``[in, out]``."""
    layers = []
    for weight, bias in zip(weights, biases, strict=True):
        layer = nn.Linear(*weight.shape)
        layer.weight.data, layer.bias.data = weight.detach().T, bias.detach().reshape(-1)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("hidden", [[], [7], [16, 8]])
def test_ensemble_is_its_members_one_by_one(batch, hidden):
    torch.manual_seed(0)
    ensemble = EnsembleMLP(3, 5 + 2, hidden, 4)
    inputs = [torch.randn(*batch, 5), torch.randn(*batch, 2)]
    found = ensemble(*inputs)
    assert found.shape == (*batch, 3, 4)
    for member in range(3):
        weights = [each[member] for each in ensemble.weights]
        alone = layered(weights, [each[member] for each in ensemble.biases])
        expected = alone(torch.cat(inputs, -1))
        torch.testing.assert_close(found[..., member, :], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("batch", BATCHES)
def test_mlp_is_torchs_layers(batch):
    torch.manual_seed(0)
    network = MLP(5, [16, 8], 3)
    weights = [layer.weight.T for layer in network.layers]
    alone = layered(weights, [layer.bias for layer in network.layers])
    inputs = torch.randn(*batch, 5)
    assert torch.equal(network(inputs), alone(inputs))


def test_members_are_independent():
    torch.manual_seed(0)
    ensemble = EnsembleMLP(3, 4, [8, 8], 2)
    ensemble(torch.randn(6, 4))[:, 0].sum().backward()
    for parameter in ensemble.parameters():
        assert (parameter.grad[0] != 0).any()
        assert (parameter.grad[1:] == 0).all()


def test_an_ensemble_begins_like_torchs_layers():
    torch.manual_seed(0)
    ensemble = EnsembleMLP(2, 100, [400], 300)
    for weight, bias in zip(ensemble.weights, ensemble.biases, strict=True):
        bound = 1 / math.sqrt(weight.shape[1])
        for each in (weight.detach(), bias.detach()):
            assert 0.97 * bound < float(each.abs().max()) <= bound
            assert float(each.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)
            assert not torch.equal(each[0], each[1])


@pytest.mark.parametrize("batch", [(), (6,), (2, 3)])
@pytest.mark.parametrize("window", [(4, 5), (2, 4, 5)])
def test_windows_stand_beside_the_first_input(batch, window):
    torch.manual_seed(0)
    seen, bars, width = torch.randn(*batch, 3), torch.randn(*batch, *window), 3 + math.prod(window)
    flat = torch.cat([seen, bars.reshape(*batch, -1)], -1)
    for network in (MLP(width, [8], 2), EnsembleMLP(2, width, [8], 2)):
        assert torch.equal(network(seen, bars), network(flat))


@pytest.mark.parametrize("sizes", [(0, [8], 1), (4, [0], 1), (4, [8, -1], 1), (4, [8], 0)])
def test_widths_are_checked(sizes):
    with pytest.raises(ValueError, match="widths must be at least 1"):
        MLP(*sizes)
    with pytest.raises(ValueError, match="widths must be at least 1"):
        EnsembleMLP(2, *sizes)


def test_members_are_counted():
    with pytest.raises(ValueError, match="at least 1 member, got 0"):
        EnsembleMLP(0, 4, [8], 1)


@pytest.mark.parametrize("batch", [(), (7,), (2, 3)])
def test_actor(batch):
    torch.manual_seed(0)
    actor = make_actor(3 + 4 * 5, 2, [16], in_keys=["observation", "window"])
    seen = TensorDict(
        {"observation": torch.randn(*batch, 3), "window": torch.randn(*batch, 4, 5)}, batch
    )
    still, again = actor(seen.clone()), actor(seen.clone())
    assert still["action"].shape == (*batch, 2)
    assert torch.equal(still["action"], still["loc"].tanh())
    assert torch.equal(still["action"], again["action"])
    with set_exploration_type(ExplorationType.RANDOM):
        explored = actor(seen.clone())
    assert (explored["action"] != still["action"]).all()


def test_the_width_of_an_actors_distribution_is_bounded():
    torch.manual_seed(0)
    actor = make_actor(3, 2, [16])
    wild = TensorDict({"observation": 1e6 * torch.randn(100, 3)}, [100])
    scale = actor(wild)["scale"].detach()
    assert float(scale.min()) == pytest.approx(math.exp(-5))
    assert float(scale.max()) == pytest.approx(math.exp(2))


@pytest.mark.parametrize("batch", [(), (7,), (2, 3)])
def test_critics(batch):
    torch.manual_seed(0)
    critics = make_critics(3 + 4 * 5, 2, [16], ["observation", "window"], members=4, objectives=3)
    seen = TensorDict(
        {
            "observation": torch.randn(*batch, 3),
            "window": torch.randn(*batch, 4, 5),
            "action": torch.randn(*batch, 2),
        },
        batch,
    )
    value = critics(seen.clone())["state_action_value"]
    assert value.shape == (*batch, 4, 3)
    for key in ("observation", "window", "action"):
        changed = seen.clone()
        changed[key] = changed[key] + 1
        assert (critics(changed)["state_action_value"] != value).any(), key
