"""Heads on a shared trunk against as many perceptrons one by one, and by the names of symbols."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from trading_torchrl.modules import (
    EnsembleMLP,
    PerSymbolMLP,
    SymbolHeads,
    follow_slowly,
    make_actor,
    make_critics,
    make_deterministic_actor,
)
from trading_torchrl.objectives import SACLoss, TD3Loss

NAMES = ("AAA", "BRK.B", "weight")
KEYS = [("market", "symbol"), "observation"]


def network(symbols=NAMES, outputs=2, **settings):
    return PerSymbolMLP(5, [16, 8], outputs, symbols=symbols, **settings)


def alone(trunk, weight, bias):
    """One symbol's perceptron, from torch's own layers: the trunk's and its own head."""
    layers = []
    for layer in trunk.layers:
        layers += [layer, nn.ReLU()]
    head = nn.Linear(weight.shape[1], weight.shape[0])
    head.weight.data, head.bias.data = weight.detach(), bias.detach()
    return nn.Sequential(*layers, head)


@pytest.mark.parametrize("batch", [(), (1,), (7,), (3, 4), (0,)])
def test_it_is_as_many_perceptrons_that_share_their_hidden_layers(batch):
    torch.manual_seed(0)
    whole = network()
    each = [alone(whole.trunk, *row) for row in zip(*whole.heads.parameters(), strict=True)]
    symbol, seen = torch.randint(3, (*batch, 1)), torch.randn(*batch, 5)
    found = whole(symbol, seen[..., :2], seen[..., 2:])
    assert found.shape == (*batch, 2)
    expected = [
        each[int(index)](row)
        for index, row in zip(symbol.reshape(-1), seen.reshape(-1, 5), strict=True)
    ]
    if expected:
        torch.testing.assert_close(found.reshape(-1, 2), torch.stack(expected))


@pytest.mark.parametrize("batch", [(7,), (3, 4)])
def test_an_ensemble_is_its_members_one_by_one(batch):
    torch.manual_seed(0)
    whole = network(members=4)
    symbol, seen = torch.randint(3, (*batch, 1)), torch.randn(*batch, 5)
    found = whole(symbol, seen)
    assert found.shape == (*batch, 4, 2)
    for member in range(4):
        one = network()
        for layer, weight, bias in zip(
            one.trunk.layers, whole.trunk.weights, whole.trunk.biases, strict=True
        ):
            layer.weight.data, layer.bias.data = weight[member].T, bias[member, 0]
        one.heads.weight.data = whole.heads.weight[:, member]
        one.heads.bias.data = whole.heads.bias[:, member]
        torch.testing.assert_close(found[..., member, :], one(symbol, seen))


def test_critics_are_one_product_by_the_networks_own_ensemble():
    made = make_critics(4, 1, [8], KEYS, members=3, network=partial(PerSymbolMLP, symbols=NAMES))
    assert isinstance(made.module, PerSymbolMLP)
    assert isinstance(made.module.trunk, EnsembleMLP)
    rows = TensorDict(
        {
            "market": {"symbol": torch.zeros(6, 1, dtype=torch.int64)},
            "observation": torch.zeros(6, 4),
            "action": torch.zeros(6, 1),
        },
        [6],
    )
    assert made(rows)["state_action_value"].shape == (6, 3, 1)


def test_gradients_reach_the_heads_of_the_symbols_in_the_batch():
    whole = network(members=2)
    whole(torch.tensor([[2], [0], [2]]), torch.randn(3, 5)).square().sum().backward()
    for parameter in whole.heads.parameters():
        reached = parameter.grad.flatten(1).ne(0).any(1)
        assert reached.tolist() == [True, False, True]
    assert all(each.grad is not None for each in whole.trunk.parameters())


def test_a_frozen_trunk_takes_no_gradient_but_lets_it_through():
    whole = network(freeze_trunk=True)
    seen = torch.randn(3, 5, requires_grad=True)
    whole(torch.tensor([[2], [0], [2]]), seen).sum().backward()
    assert seen.grad.ne(0).any()
    assert not any(each.requires_grad for each in whole.trunk.parameters())
    assert all(each.grad is not None for each in whole.heads.parameters())


def test_heads_follow_their_symbols_names():
    torch.manual_seed(0)
    first = network()
    other = network(symbols=NAMES[::-1])
    other.load_state_dict(first.state_dict())
    symbol, seen = torch.tensor([[0], [1], [2]]), torch.randn(3, 5)
    torch.testing.assert_close(other(2 - symbol, seen), first(symbol, seen), rtol=0, atol=0)


def test_a_new_symbol_gets_the_mean_of_the_heads_that_are_known():
    first = network(members=2)
    other = network(symbols=["NEW", "AAA"], members=2)
    lacking = other.load_state_dict(first.state_dict(), strict=False).missing_keys
    assert lacking == ["heads.NEW.weight", "heads.NEW.bias"]
    for own, known in zip(other.heads.parameters(), first.heads.parameters(), strict=True):
        torch.testing.assert_close(own[0], sum(known.unbind()) / 3)
        assert own[1].equal(known[0])
    for own, known in zip(other.trunk.parameters(), first.trunk.parameters(), strict=True):
        assert own.equal(known)


def test_a_symbol_without_a_head_is_refused_by_name():
    with pytest.raises(RuntimeError, match=r"heads\.NEW\.weight"):
        network(symbols=["NEW", "AAA"]).load_state_dict(network().state_dict())
    with pytest.raises(RuntimeError, match="Unexpected"):
        network(symbols=["AAA"]).load_state_dict(network().state_dict())


def test_an_index_beyond_the_symbols_is_refused():
    with pytest.raises(IndexError):
        network()(torch.tensor([[3]]), torch.zeros(1, 5))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hidden": []}, "hidden needs at least one"),
        ({"symbols": []}, "names that differ"),
        ({"symbols": ["A", "A"]}, "names that differ"),
        ({"outputs": 0}, "outputs must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(changed, said):
    settings = {"inputs": 5, "hidden": [4], "outputs": 1, "symbols": NAMES} | changed
    with pytest.raises(ValueError, match=said):
        PerSymbolMLP(**settings)


def rows_of(symbols, n=64):
    def seen():
        return {
            "observation": torch.randn(n, 4),
            "market": {"symbol": torch.randint(symbols, (n, 1))},
        }

    following = {
        "reward": torch.randn(n, 1),
        "terminated": torch.zeros(n, 1, dtype=torch.bool),
        **seen(),
    }
    return TensorDict({**seen(), "action": torch.rand(n, 1) * 2 - 1, "next": following}, [n])


@pytest.mark.parametrize("kind", [SACLoss, TD3Loss])
def test_a_frozen_trunk_stands_still_in_all_copies_while_heads_learn(kind):
    torch.manual_seed(0)
    body = partial(PerSymbolMLP, symbols=NAMES, freeze_trunk=True)
    make = make_actor if kind is SACLoss else make_deterministic_actor
    actor = make(4, 1, [16, 8], KEYS, network=body)
    loss = kind(actor, make_critics(4, 1, [16, 8], KEYS, network=body), gamma=0.9)
    averaged = deepcopy(actor)
    before = deepcopy(loss.state_dict())
    optimizer = torch.optim.Adam([p for p in loss.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(6):
        out = loss(rows_of(3))
        optimizer.zero_grad()
        sum(out[key] for key in loss.out_keys if key.startswith("loss_")).backward()
        optimizer.step()
        loss.update_targets(0.1)
        follow_slowly(averaged, actor, 0.1)
    after = loss.state_dict()
    trunks = [key for key in after if ".trunk." in key]
    heads = [key for key in after if ".heads." in key]
    assert len(trunks) == (12 if kind is SACLoss else 16)
    assert all(after[key].equal(before[key]) for key in trunks)
    assert not any(after[key].equal(before[key]) for key in heads)
    for own, copied in zip(actor.parameters(), averaged.parameters(), strict=True):
        assert own.equal(copied) == (not own.requires_grad)


def test_heads_begin_as_layers_of_torch_do():
    torch.manual_seed(0)
    heads = SymbolHeads([f"S{n}" for n in range(400)], 25, 4)
    for each in heads.parameters():
        assert each.abs().max() <= 0.2
        assert each.std().item() == pytest.approx(0.2 / 3**0.5, rel=0.05)
