"""The squashed normal against torch's own transformed distribution, and against calculus."""

import math

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import ProbabilisticActor

from trading_torchrl.modules import SquashedNormal


def exact(loc, scale):
    """The same distribution as torch builds it."""
    return Independent(TransformedDistribution(Normal(loc, scale), TanhTransform()), 1)


def drawn(*shape, dtype=torch.float64, seed=0):
    """Centres and widths such as networks give them."""
    generator = torch.Generator().manual_seed(seed)
    loc, scale = torch.randn(2, *shape, generator=generator, dtype=dtype)
    return 0.7 * loc, 0.2 + 0.5 * scale.abs()


@pytest.mark.parametrize(("loc", "scale"), [(0.0, 0.3), (0.0, 1.5), (1.0, 0.8), (-2.0, 0.1)])
def test_density_integrates_to_one(loc, scale):
    raw = torch.linspace(-9, 9, 200_001, dtype=torch.float64)
    value = raw.tanh()  # dense where the density may be steep
    dist = SquashedNormal(torch.full_like(raw, loc)[:, None], torch.full_like(raw, scale)[:, None])
    density = dist.log_prob(value[:, None]).exp()
    assert float(torch.trapezoid(density, value)) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-9), (torch.float32, 2e-3)])
def test_log_prob_is_that_of_the_transformed_normal(dtype, error):
    loc, scale = drawn(50, 3, dtype=dtype)
    dist = SquashedNormal(loc, scale)
    value = torch.linspace(-0.999, 0.999, 101, dtype=dtype)[:, None, None].expand(101, 50, 3)
    found = dist.log_prob(value)
    assert found.dtype == dtype
    assert found.shape == (101, 50)
    torch.testing.assert_close(found, exact(loc, scale).log_prob(value), atol=error, rtol=error)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_far_out_the_density_stays_exact(side):
    loc = torch.full((1_000, 1), 20 * side, requires_grad=True)
    scale = torch.full((1_000, 1), 0.5, requires_grad=True)
    torch.manual_seed(0)
    action, log_prob = SquashedNormal(loc, scale).rsample_with_log_prob()
    assert (action == side).all()  # as far as float32 can tell
    torch.manual_seed(0)
    noise = torch.randn(1_000, 1).double()
    raw = 20 * side + 0.5 * noise
    slope = 2 * (math.log(2) - raw.abs())  # log of 1 - tanh^2, which vanishes in float32
    normal = Normal(20 * side, 0.5).log_prob(raw)
    torch.testing.assert_close(log_prob.double(), (normal - slope).squeeze(-1), atol=1e-4, rtol=0)
    log_prob.sum().backward()
    assert loc.grad.isfinite().all()
    assert scale.grad.isfinite().all()


@pytest.mark.parametrize("value", [-1.0, 1.0])
def test_the_very_edge_has_a_density(value):
    loc = torch.tensor([[0.0], [20.0], [-20.0]], requires_grad=True)
    found = SquashedNormal(loc, torch.ones(3, 1)).log_prob(torch.full((3, 1), value))
    assert found.isfinite().all()
    found.sum().backward()
    assert loc.grad.isfinite().all()


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-8), (torch.float32, 1e-3)])
def test_a_sample_comes_with_its_own_density(dtype, error):
    dist = SquashedNormal(*drawn(1_000, 2, dtype=dtype))
    torch.manual_seed(0)
    action, log_prob = dist.rsample_with_log_prob()
    assert action.dtype == log_prob.dtype == dtype
    inside = (action.abs() < 0.999).all(-1)  # nearer to the edge an action has too few digits
    assert inside.sum() > 900
    found = dist.log_prob(action)[inside]
    torch.testing.assert_close(log_prob[inside], found, atol=error, rtol=error)
    torch.manual_seed(0)
    assert torch.equal(dist.rsample(), action)


def test_gradients_are_those_of_the_formula():
    loc, scale = (each.requires_grad_() for each in drawn(20, 2))
    dist = SquashedNormal(loc, scale)
    torch.manual_seed(0)
    action, log_prob = dist.rsample_with_log_prob()
    torch.manual_seed(0)
    noise = torch.randn(20, 2, dtype=torch.float64)
    slope = 1 - action.detach() ** 2
    torch.manual_seed(0)
    for each in (action, dist.rsample()):
        found = torch.autograd.grad(each.sum(), (loc, scale), retain_graph=True)
        torch.testing.assert_close(found, (slope, slope * noise))
    # The sample moves with its distribution: of the normal's own density only -log scale is left.
    outwards = 2 * action.detach()
    of_density = torch.autograd.grad(log_prob.sum(), (loc, scale))
    expected = (outwards, outwards * noise - 1 / scale.detach())
    torch.testing.assert_close(of_density, expected)


def test_gradient_of_the_density_at_a_given_value():
    value = torch.tensor([[0.3, -0.8]], dtype=torch.float64)
    loc, scale = (each.requires_grad_() for each in drawn(1, 2))
    found = torch.autograd.grad(SquashedNormal(loc, scale).log_prob(value).sum(), (loc, scale))
    expected = torch.autograd.grad(exact(loc, scale).log_prob(value).sum(), (loc, scale))
    torch.testing.assert_close(found, expected)


def test_samples_are_spread_as_asked():
    loc, scale = torch.tensor([0.5, -1.0]).double(), torch.tensor([0.2, 0.7]).double()
    torch.manual_seed(0)
    raw = SquashedNormal(loc, scale).sample((100_000,)).atanh()
    torch.testing.assert_close(raw.mean(0), loc, atol=0.01, rtol=0)
    torch.testing.assert_close(raw.std(0), scale, atol=0.01, rtol=0)
    assert abs(float(torch.corrcoef(raw.T)[0, 1])) < 0.02


def test_shapes():
    loc, scale = (each.requires_grad_() for each in drawn(4, 3))
    dist = SquashedNormal(loc, scale)
    assert dist.batch_shape == (4,)
    assert dist.event_shape == (3,)
    assert dist.has_rsample
    many = dist.rsample((5,))
    assert many.shape == (5, 4, 3)
    assert dist.log_prob(many).shape == (5, 4)
    assert many.requires_grad
    assert not dist.sample().requires_grad


def test_deterministic_is_the_squashed_centre():
    loc, scale = drawn(4, 3)
    dist = SquashedNormal(loc, scale)
    for found in (dist.mode, dist.mean, dist.deterministic_sample):
        assert torch.equal(found, loc.tanh())


class Halves(nn.Module):
    def forward(self, observation):
        loc, scale = observation.chunk(2, -1)
        return loc, scale.exp()


def actor():
    return ProbabilisticActor(
        TensorDictModule(Halves(), in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=SquashedNormal,
        return_log_prob=True,
    )


def test_torchrl_actor_explores():
    seen = TensorDict({"observation": torch.randn(6, 4, generator=torch.manual_seed(1))}, [6])
    with set_exploration_type(ExplorationType.RANDOM):
        torch.manual_seed(0)
        first = actor()(seen.clone())
        second = actor()(seen.clone())
    dist = SquashedNormal(*Halves()(seen["observation"]))
    torch.manual_seed(0)
    assert torch.equal(first["action"], dist.rsample())
    assert (first["action"] != second["action"]).all()
    assert torch.equal(first["action_log_prob"], dist.log_prob(first["action"]))


@pytest.mark.parametrize("kind", ["DETERMINISTIC", "MODE", "MEAN"])
def test_torchrl_actor_does_not_explore(kind):
    seen = TensorDict({"observation": torch.randn(6, 4, generator=torch.manual_seed(1))}, [6])
    with set_exploration_type(getattr(ExplorationType, kind)):
        found = actor()(seen.clone())
    assert torch.equal(found["action"], seen["observation"][:, :2].tanh())


def test_likelihoods_of_all_actions_there_are_sum_to_one():
    """The density between the edges, and what lies beyond each of them."""
    loc, scale = torch.tensor([[0.8]]).double(), torch.tensor([[1.7]]).double()
    dist = SquashedNormal(loc, scale)
    value = torch.linspace(-0.999, 0.999, 400_001, dtype=torch.float64)[1:-1, None, None]
    inside = torch.trapezoid(dist.log_likelihood(value).exp().squeeze(), value.squeeze())
    edges = dist.log_likelihood(torch.tensor([[[-1.0]], [[1.0]]]).double()).exp().sum()
    assert float(inside + edges) == pytest.approx(1, abs=1e-3)
    torch.testing.assert_close(dist.log_likelihood(value), dist.log_prob(value))


def test_likelihood_at_the_edge_is_of_all_that_lies_beyond():
    loc, scale = drawn(200, 2)
    at = Normal(loc, scale)
    rim = torch.full_like(loc, math.atanh(1 - 1e-3))
    wanted = at.cdf(-rim)[:, 0].log() + (1 - at.cdf(rim))[:, 1].clamp(min=1e-300).log()
    edge = torch.tensor([-1.0, 1.0]).double().expand(200, 2)
    found = SquashedNormal(loc, scale).log_likelihood(edge)
    near = wanted > -25  # further out the reference is rounded away
    assert near.sum() > 20
    torch.testing.assert_close(found[near], wanted[near], rtol=1e-4, atol=1e-4)
    assert found.isfinite().all()
