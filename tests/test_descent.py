import math
from copy import deepcopy

import pytest
import torch
from torch.nn.utils import clip_grad_norm_, get_total_norm

from trading_torchrl.descent import Adam, differentiate, norm_of


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))


@pytest.mark.parametrize("longest", [0.01, 100.0, math.inf])
def test_it_is_pytorchs_backward_and_clipping(longest):
    ours, theirs = network(), network()
    seen = torch.randn(16, 3, generator=torch.Generator().manual_seed(1))
    for _ in range(2):  # the second time there are gradients from before
        norm = differentiate(ours(seen).square().mean(), list(ours.parameters()), longest)
    theirs(seen).square().mean().backward()
    expected = clip_grad_norm_(theirs.parameters(), longest)
    assert norm == pytest.approx(float(expected), rel=1e-6)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=0)


def test_gradients_within_the_limit_keep_their_bits():
    weight = torch.tensor([0.3, 0.4], requires_grad=True)
    factor = torch.tensor([0.1, 0.7])
    norm = differentiate((weight * factor).sum(), [weight], longest=1.0)
    assert norm < 1.0
    assert torch.equal(weight.grad, factor)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_nan(value):
    weight = torch.ones(2, requires_grad=True)
    assert math.isnan(differentiate((weight * value).sum(), [weight], longest=1.0))
    # the gradient alone is infinite: the root of 0 has no slope
    edge = torch.zeros(1, requires_grad=True)
    assert math.isnan(differentiate(edge.sqrt().sum(), [edge], longest=1.0))


def test_what_the_loss_does_not_depend_on_has_no_gradient():
    used, unused = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    unused.grad = torch.ones(1)
    assert differentiate(2 * used.sum(), [used, unused], longest=10.0) == 2.0
    assert unused.grad is None


def test_the_norm_is_pytorchs_and_tells_what_is_not_finite():
    parameters = list(network().parameters())
    assert norm_of(parameters) == pytest.approx(float(get_total_norm(parameters)), rel=1e-6)
    for value in (math.nan, math.inf, -math.inf, 3e38):  # the last is finite, its square is not
        assert not math.isfinite(norm_of([torch.ones(3), torch.tensor([1.0, value])]))


def train(optimizer, model, steps=20):
    draw = torch.Generator().manual_seed(2)
    for step in range(steps):
        for each in model.parameters():
            each.grad = None
        model(torch.randn(16, 3, generator=draw)).square().mean().backward()
        if step % 3 == 0:
            model[0].bias.grad = None  # not every parameter is moved at every step
        rate = 0.01 / (step + 1)
        if isinstance(optimizer, Adam):
            optimizer.lr = rate
        else:
            optimizer.param_groups[0]["lr"] = rate
        optimizer.step()


def same(one, other):
    return all(map(torch.equal, one.parameters(), other.parameters()))


@pytest.fixture
def settings():
    return {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-5}


def test_adam_is_pytorchs_bit_for_bit(settings):
    one, other = network(), network()
    train(torch.optim.Adam(one.parameters(), fused=True, **settings), one)
    train(Adam(other.parameters(), **settings), other)
    assert not same(one, network())
    assert same(one, other)


def test_adam_goes_on_from_its_state(settings):
    model = network()
    optimizer = Adam(model.parameters(), **settings)
    train(optimizer, model)
    again = deepcopy(model)
    follower = Adam(again.parameters(), **settings)
    follower.load_state_dict(optimizer.state_dict())
    train(follower, again)
    assert not same(model, again)  # what was loaded is a copy, not the same tensors
    train(optimizer, model)
    assert same(model, again)


def test_adam_refuses_the_state_of_other_networks():
    saved = Adam([torch.ones(2), torch.ones(3)]).state_dict()
    optimizer = Adam([torch.ones(2), torch.ones(4)])
    with pytest.raises(
        ValueError, match=r"saved means are of parameters \[\[2\], \[3\]\], these are"
    ):
        optimizer.load_state_dict(saved)


def test_adam_leaves_what_has_no_gradient():
    weight = torch.ones(1, requires_grad=True)
    optimizer = Adam([weight])
    optimizer.step()
    assert weight.tolist() == [1.0]
    assert optimizer.state_dict()["steps"][0].tolist() == 0.0
