import math

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from trading_torchrl.descent import differentiate


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
