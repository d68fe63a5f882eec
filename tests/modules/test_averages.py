"""Slow copies, and networks that are looked through but not taught."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from trading_torchrl.modules import follow_slowly, frozen, make_actor, make_critics, moving
from trading_torchrl.objectives import SACLoss, TD3Loss


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize("rate", [0.0, 0.005, 0.3, 1.0])
def test_follows_by_the_rate(rate):
    slow, fast = network(0).requires_grad_(False), network(1)
    before, target = deepcopy(slow), deepcopy(fast)
    follow_slowly(slow, fast, rate)
    for new, old, goal in zip(
        slow.parameters(), before.parameters(), target.parameters(), strict=True
    ):
        torch.testing.assert_close(new, old + rate * (goal.detach() - old))
        assert not new.requires_grad
    for new, old in zip(fast.parameters(), target.parameters(), strict=True):
        assert torch.equal(new, old)


def test_repeated_steps_close_the_gap_geometrically():
    slow, fast = network(0), network(1)
    gap = fast[0].weight.detach() - slow[0].weight.detach()
    for _ in range(50):
        follow_slowly(slow, fast, 0.1)
    left = fast[0].weight.detach() - slow[0].weight.detach()
    torch.testing.assert_close(left, 0.9**50 * gap, atol=1e-6, rtol=1e-3)


class Normalised(nn.Sequential):
    """A network of somebody's own, with running means."""

    def __init__(self, inputs, hidden, outputs):
        first = nn.Linear(inputs, hidden[0])
        super().__init__(first, nn.BatchNorm1d(hidden[0]), nn.Linear(hidden[0], outputs))

    def forward(self, *inputs):
        return super().forward(torch.cat(inputs, -1))


def test_running_means_follow_and_counts_stay():
    slow, fast = Normalised(3, [4], 2), Normalised(3, [4], 2)
    with torch.no_grad():
        fast[1].running_mean.fill_(2.0)
        fast[1].running_var.fill_(5.0)
        fast[1].num_batches_tracked.fill_(8)
    follow_slowly(slow, fast, 0.25)
    assert slow[1].running_mean.tolist() == [0.5] * 4
    assert slow[1].running_var.tolist() == [2.0] * 4
    assert int(slow[1].num_batches_tracked) == 0
    follow_slowly(moving(slow), moving(fast), 1.0)  # as loops call it
    torch.manual_seed(0)
    inputs = torch.randn(5, 3)
    assert torch.equal(slow.eval()(inputs), fast.eval()(inputs))


@pytest.mark.parametrize("kind", [SACLoss, TD3Loss])
def test_slow_copies_of_a_loss_normalise_as_the_networks_do(kind):
    actor = make_actor(3, 1, [4], network=Normalised)
    loss = kind(actor, make_critics(3, 1, [4], network=Normalised), gamma=0.9)
    loss.calls = torch.tensor(2)  # TD3's actor's turn
    means = {name: each for name, each in loss.named_buffers() if name.endswith("running_mean")}
    pairs = {name: means[name.removeprefix("target_")] for name in means if "target_" in name}
    assert len(pairs) == (3 if kind is TD3Loss else 2)  # of two critics, and of TD3's actor
    for fast in pairs.values():
        fast.fill_(1.0)
    loss.update_targets(0.25)
    assert all(means[name].tolist() == [0.25] * 4 for name in pairs)


def test_following_leaves_no_graph():
    slow, fast = network(0), network(1)
    follow_slowly(slow, fast, 0.5)
    assert all(each.grad_fn is None and each.requires_grad for each in slow.parameters())
    slow(torch.ones(1, 3)).sum().backward()
    assert all(each.grad is None for each in fast.parameters())


def test_frozen_lets_a_gradient_through_and_keeps_none():
    module, inputs = network(), torch.ones(2, 3, requires_grad=True)
    expected = torch.autograd.grad(module(inputs).sum(), inputs)[0]
    with frozen(module):
        out = module(inputs).sum()
    out.backward()  # outside, as a loss does
    assert torch.equal(inputs.grad, expected)
    assert (expected != 0).any()
    assert all(each.grad is None for each in module.parameters())
    module(inputs).sum().backward()
    assert all(each.grad is not None for each in module.parameters())


def test_what_was_frozen_before_stays_frozen():
    module = network()
    module[0].weight.requires_grad_(False)
    with frozen(module):
        assert not any(each.requires_grad for each in module.parameters())
    trained = {name for name, each in module.named_parameters() if each.requires_grad}
    assert trained == {"0.bias", "2.weight", "2.bias"}


def test_frozen_ends_with_an_exception_too():
    module = network()
    with pytest.raises(RuntimeError, match="midway"), frozen(module):
        raise RuntimeError("midway")
    assert all(each.requires_grad for each in module.parameters())


def test_frozen_within_frozen():
    module = network()
    with frozen(module):
        with frozen(module):
            pass
        assert not any(each.requires_grad for each in module.parameters())
    assert all(each.requires_grad for each in module.parameters())
