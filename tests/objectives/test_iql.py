"""IQL: expectiles that are known, targets and weights by hand, gradients one loss at a time."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn

from trading_torchrl.modules import MLP, EnsembleMLP, make_actor, make_critics, make_value
from trading_torchrl.objectives import IQLLoss, expectile_loss

PARTS = {
    "loss_actor": "actor_network", "loss_qvalue": "qvalue_network", "loss_value": "value_network"
}  # fmt: skip


def rows(count=16, observed=3, actions=1, seed=0):
    draw = torch.Generator().manual_seed(seed)

    def normal(width):
        return torch.randn(count, width, generator=draw)

    following = {
        "observation": normal(observed),
        "reward": normal(1),
        "terminated": torch.rand(count, 1, generator=draw) < 0.3,
    }
    return TensorDict(
        {"observation": normal(observed), "action": normal(actions).tanh(), "next": following},
        [count],
    )


def make(observed=3, actions=1, **given):
    torch.manual_seed(0)
    parts = [build(observed, actions, [16]) for build in (make_actor, make_critics, make_value)]
    return IQLLoss(*parts, **given)


def gradients(loss, value):
    named = {name: each for name, each in loss.named_parameters() if each.requires_grad}
    found = torch.autograd.grad(value, list(named.values()), allow_unused=True, retain_graph=True)
    return {name: each for name, each in zip(named, found, strict=True) if each is not None}


def best_constant(samples, expectile):
    """The number whose expectile loss is least, by bisection on its gradient."""
    low, high = float(samples.min()), float(samples.max())
    for _ in range(60):
        middle = torch.tensor((low + high) / 2, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(expectile_loss(samples - middle, expectile).mean(), middle)
        low, high = (middle.item(), high) if slope < 0 else (low, middle.item())
    return low


@pytest.mark.parametrize("expectile", [0.5, 0.7, 0.9, 0.99])
def test_expectiles_of_distributions_that_are_known(expectile):
    """Of a fair coin it is the expectile itself; of a uniform, a ratio of square roots."""
    coin = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert best_constant(coin, expectile) == pytest.approx(expectile, abs=1e-9)
    uniform = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    up, down = math.sqrt(expectile), math.sqrt(1 - expectile)
    assert best_constant(uniform, expectile) == pytest.approx(up / (up + down), abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=20))
def test_the_middle_expectile_is_the_mean_and_higher_ones_lie_higher(values):
    samples = torch.tensor(values, dtype=torch.float64)
    middle, high, higher = (best_constant(samples, each) for each in (0.5, 0.7, 0.95))
    assert middle == pytest.approx(float(samples.mean()), abs=1e-6)
    assert middle <= high + 1e-9 <= higher + 2e-9


def linear(weights, biases, keys, out):
    network = EnsembleMLP(len(weights), weights.shape[1], [], 1)
    network.weights[0].data, network.biases[0].data = weights, biases[:, None]
    return TensorDictModule(network, keys, [out])


class Twice(nn.Module):
    """V = 2 x observation."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(2.0))

    def forward(self, observation):
        return self.slope * observation


def test_targets_and_weights_by_hand():
    """One row ends in ruin, one at the end of the data: only the second one goes on."""
    keys = ["observation", "action"]
    actor = make_actor(1, 1, [])
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.zero_()  # a standard normal before the tanh
    critics = linear(
        torch.tensor([[[1.0], [2.0]], [[-1.0], [4.0]]]), torch.zeros(2, 1), keys,
        "state_action_value",
    )  # fmt: skip
    loss = IQLLoss(
        actor, critics, TensorDictModule(Twice(), ["observation"], ["state_value"]),
        gamma=0.9, expectile=0.8, temperature=0.5, max_weight=20.0,
    )  # fmt: skip
    slow = linear(
        torch.tensor([[[2.0], [-4.0]], [[1.0], [0.0]]]), torch.tensor([[6.0], [8.0]]), keys,
        "state_action_value",
    )  # fmt: skip
    loss.target_qvalue_network.load_state_dict(slow.state_dict())
    following = {
        "observation": torch.tensor([[2.0], [3.0]]),
        "reward": torch.tensor([[10.0], [20.0]]),
        "terminated": torch.tensor([[True], [False]]),
        "truncated": torch.tensor([[False], [True]]),
    }
    taken = {
        "observation": torch.tensor([[1.0], [4.0]]),
        "action": torch.tensor([[0.5], [-0.5]]),
    }
    out = loss(TensorDict({**taken, "next": following}, [2])).detach()
    # Critics: 2, 1 and 3, -6 at what was done; their targets: 10, and 20 + .9 x V(3) = 25.4.
    wanted, held = (10.0, 25.4), ((2.0, 1.0), (3.0, -6.0))
    squares = [sum(0.5 * (q - y) ** 2 for q in both) for both, y in zip(held, wanted, strict=True)]
    assert float(out["loss_qvalue"]) == pytest.approx(sum(squares) / 2)
    assert float(out["q"]) == pytest.approx((1.0 - 6.0) / 2)
    # Slow critics: 6, 9 and 16, 12, the lower ones 6 and 12; V = 2 and 8: advantages of 4 and 4.
    advantages = (4.0, 4.0)
    assert float(out["advantage"]) == pytest.approx(4.0)
    assert float(out["value"]) == pytest.approx(5.0)
    assert float(out["loss_value"]) == pytest.approx(sum(0.8 * a**2 for a in advantages) / 2)
    # exp(4 / .5) is above the largest weight; both actions are as likely.
    raw = math.atanh(0.5)
    likely = -0.5 * raw**2 - 0.5 * math.log(2 * math.pi) - math.log(1 - 0.25)
    assert float(out["loss_actor"]) == pytest.approx(-20.0 * likely, rel=1e-5)

    worse = TensorDict({**taken, "next": following}, [2])
    worse["observation"] = torch.tensor([[5.0], [7.0]])  # slow 14, 13; 22, 15: less than V here
    out = loss(worse).detach()
    advantages = (13.0 - 10.0, 15.0 - 14.0)
    assert float(out["advantage"]) == pytest.approx(sum(advantages) / 2)
    weights = [min(math.exp(a / 0.5), 20.0) for a in advantages]
    assert float(out["loss_actor"]) == pytest.approx(-sum(weights) / 2 * likely, rel=1e-5)


def test_values_above_what_the_critics_say_weigh_less():
    assert expectile_loss(torch.tensor([2.0, -2.0]), 0.9).tolist() == pytest.approx([3.6, 0.4])


def test_each_loss_reaches_its_own_parameters():
    loss = make()
    out = loss(rows())
    for name, part in PARTS.items():
        assert {each.split(".")[0] for each in gradients(loss, out[name])} == {part}


def test_actions_that_were_not_taken_are_never_valued():
    """What the actor would do changes no target: the critics' loss stays as it is."""
    loss, batch = make(), rows()
    before = loss(batch).detach()
    with torch.no_grad():
        for parameter in loss.actor_network.parameters():
            parameter.add_(1.0)
    after = loss(batch).detach()
    assert torch.equal(before["loss_qvalue"], after["loss_qvalue"])
    assert torch.equal(before["loss_value"], after["loss_value"])
    assert not torch.equal(before["loss_actor"], after["loss_actor"])


def test_what_a_mask_leaves_out_counts_nowhere():
    loss, batch = make(), rows(8)
    padded = batch.clone()
    padded["collector", "mask"] = torch.arange(8)[:, None] < 5
    padded["observation"][5:] = torch.nan
    padded["next", "reward"][5:] = torch.nan
    out, few = loss(padded), loss(batch[:5])
    for key in loss.out_keys:
        torch.testing.assert_close(out[key], few[key], msg=key)
    total = sum(out[name] for name in PARTS)
    assert all(each.isfinite().all() for each in gradients(loss, total).values())


def test_what_it_learns_survives_in_its_state():
    loss, other = make(), make()
    with torch.no_grad():
        for parameter in (*loss.value_network.parameters(), *loss.qvalue_network.parameters()):
            parameter.add_(0.1)
    other.load_state_dict(loss.state_dict())
    assert torch.equal(loss(rows())["loss_value"], other(rows())["loss_value"])
    loss.update_targets(0.5)
    assert not torch.equal(loss(rows())["loss_value"], other(rows())["loss_value"])


@pytest.mark.parametrize(
    "given",
    [{"gamma": 2}, {"expectile": 0.4}, {"expectile": 1.0}, {"temperature": 0.0},
     {"max_weight": 0.0}, {"reduction": "median"}],
)  # fmt: skip
def test_settings_are_checked(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        make(**given)


def test_a_value_network_of_your_own():
    value = make_value(3, 1, [8], network=MLP)
    assert value(rows(5))["state_value"].shape == (5, 1)
