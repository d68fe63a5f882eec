"""Learned weights: alignments by hand, and that they do not fall for what is easy."""

from copy import deepcopy

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn

from trading_torchrl.modules import (
    WeightNetwork,
    make_actor,
    make_critics,
    make_deterministic_actor,
    make_normalised_critics,
)
from trading_torchrl.objectives import WeightLoss

GOOD, EASY = {"good": 0.5, "easy": 0.5}, 4.0


class Known(nn.Module):
    """Values ``[*, 1, K]`` of functions of the action."""

    def __init__(self, *functions):
        super().__init__()
        self.functions = functions
        self.idle = nn.Parameter(torch.zeros(()))

    def forward(self, seen, action):
        values = [each(action[..., 0]) for each in self.functions]
        return (torch.stack(values, -1) + 0 * self.idle).unsqueeze(-2)


def critics(*functions):
    return TensorDictModule(
        Known(*functions), in_keys=["observation", "action"], out_keys=["state_action_value"]
    )


def good(action):
    return -((action - 0.2) ** 2)


def easy(action):
    """Pays a lot, the more the larger the action: no part of the result."""
    return EASY * (1 + action)


def rows(count=64, width=3):
    torch.manual_seed(0)
    return TensorDict(
        {
            "observation": torch.randn(count, width),
            "action": torch.rand(count, 1) * 2 - 1,
            "next": {
                "observation": torch.randn(count, width),
                "reward": torch.randn(count, 1),
                "terminated": torch.rand(count, 1) < 0.3,
            },
        },
        [count],
    )


def made(actor=None, network=None, qvalue=None, result=None, **settings):
    return WeightLoss(
        network or WeightNetwork(3, GOOD),
        actor or make_deterministic_actor(3, 1, [8]),
        qvalue or critics(good, easy),
        result or critics(good),
        **{"gamma": 0.0} | settings,
    )


def test_no_weight_is_over_the_limit_and_it_learns_as_if_there_were_none():
    torch.manual_seed(0)
    network = WeightNetwork(3, {"a": 0.5, "b": 0.3, "c": 0.2}, [8], most=0.6)
    seen = torch.randn(64, 3)
    torch.testing.assert_close(network(seen), network.free(seen))  # so it begins
    with torch.no_grad():
        for each in network.parameters():
            each.normal_(std=0.6)
    free, used = network.free(seen), network(seen)
    over = free.amax(-1) > 0.6
    assert 10 < over.sum() < 60
    torch.testing.assert_close(used.sum(-1), torch.ones(64))
    torch.testing.assert_close(used[over].amax(-1), torch.full((int(over.sum()),), 0.6))
    torch.testing.assert_close(used[~over], free[~over])
    assert (used >= 0).all()
    assert used.argsort(-1).equal(free.argsort(-1))
    slopes = []
    for most in (0.6, 1.0):
        limited = deepcopy(network)
        limited.most = most
        torch.manual_seed(1)  # the same actor
        loss = made(network=limited, qvalue=critics(good, easy, good))
        loss(rows())["loss_weights"].backward()
        slopes.append([each.grad for each in limited.parameters()])
    assert all(one.equal(other) for one, other in zip(*slopes, strict=True))


def test_alignments_by_hand():
    loss, given = made(), rows()
    action = loss._acted(given)[:, 0]
    slope, other = -2 * (action - 0.2), torch.full_like(action, EASY)
    steepest = max(slope.square().mean(), other.square().mean()).sqrt()
    usual = steepest * slope.square().mean().sqrt()
    wanted = torch.stack([slope * slope, other * slope], -1) / usual
    torch.testing.assert_close(loss.alignment(given), wanted.clamp(-3, 3))


def test_it_trains_weights_and_critics_of_the_result_alone():
    actor, qvalue = make_actor(3, 1, [8]), make_critics(3, 1, [8], objectives=2)
    result = make_critics(3, 1, [8])
    loss = made(actor, qvalue=qvalue, result=result, gamma=0.9)
    out = loss(rows())
    (out["loss_weights"] + out["loss_result"]).backward()
    assert all(each.grad is not None for each in loss.weight_network.parameters())
    assert all(each.grad is not None for each in result.parameters())
    own = {id(each) for each in loss.parameters()}
    for network in (actor, qvalue):
        for each in network.parameters():
            assert each.grad is None
            assert id(each) not in own
    assert all(each.grad is None for each in loss.target_result_network.parameters())


def test_the_target_of_the_result_by_hand():
    result = make_critics(3, 1, [8])
    loss, given = (
        made(qvalue=make_critics(3, 1, [8], objectives=2), result=result, gamma=0.9),
        rows(),
    )
    with torch.no_grad():
        for each in result.parameters():
            each.add_(0.1)  # the slow copy stays
        after = given["next"]
        ahead = after.clone().set("action", loss._acted(after))
        slow = loss.target_result_network(ahead)["state_action_value"].amin(-2)
        wanted = after["reward"] + 0.9 * torch.where(after["terminated"], 0.0, slow)
        values = result(given.clone())["state_action_value"]
        error = 0.5 * (values - wanted[:, None]).square().sum((-1, -2)).mean()
    torch.testing.assert_close(loss(given)["loss_result"].detach(), error)


def learned(gain):
    """An actor that follows the weights, and weights that follow what ``gain`` says."""
    torch.manual_seed(0)
    actor, network = make_deterministic_actor(3, 1, [16]), WeightNetwork(3, GOOD)
    loss = made(actor, network, entropy=0.1)
    both = (
        torch.optim.Adam(actor.parameters(), lr=3e-3),
        torch.optim.Adam(network.parameters(), 3e-3),
    )
    given = rows()
    for _ in range(1_500):
        action = actor.module[0](given.select("observation"))["loc"].tanh()
        worth = torch.stack([good(action[:, 0]), easy(action[:, 0])], -1)
        weights = network(given["observation"])
        both[0].zero_grad()
        (-(weights.detach() * worth).sum(-1).mean()).backward()
        both[0].step()
        both[1].zero_grad()
        gain(loss, given, weights, worth.detach()).backward()
        both[1].step()
    with torch.no_grad():
        action = loss._acted(given)[:, 0]
        return float(network(given["observation"])[:, 1].mean()), float(action.mean())


def test_what_is_easy_and_leads_nowhere_loses_its_weight():
    """The reward would be largest with all weight on it; the result is best at 0.2."""
    easy_weight, action = learned(lambda loss, given, *_: loss(given)["loss_weights"])
    assert easy_weight < 0.1
    assert action == pytest.approx(0.2, abs=0.15)


def test_the_naive_loss_falls_for_it():
    easy_weight, action = learned(
        lambda loss, given, weights, worth: -(weights * worth).sum(-1).mean()
    )
    assert easy_weight > 0.9
    assert action > 0.9


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gamma": 2.0}, "gamma must lie"),
        ({"entropy": -1.0}, "entropy must not"),
        ({"reduction": "max"}, "reduction must be"),
    ],
)
def test_what_does_not_fit_is_refused(changed, said):
    with pytest.raises(ValueError, match=said):
        made(**changed)
    with pytest.raises(ValueError, match="weights to begin with must be above 0"):
        WeightNetwork(3, {"good": 1.0, "easy": 0.0})
    for most in (0.5, 0.55, 1.1):
        with pytest.raises(ValueError, match="most must be at most 1 and above 1 / 2"):
            WeightNetwork(3, {"good": 0.6, "easy": 0.4}, most=most)


def test_rows_that_a_mask_leaves_out_count_nowhere():
    loss = made(make_actor(3, 1, [8]), qvalue=make_critics(3, 1, [8], objectives=2), gamma=0.9)
    given = rows()
    kept = torch.arange(64) % 4 == 0
    given["next", "observation"][~kept] = torch.nan
    given["observation"][~kept] *= 100
    given["collector", "mask"] = kept[:, None]
    alone = loss(given[kept].exclude("collector"))
    torch.testing.assert_close(loss(given).to_dict(), alone.to_dict())


class Remembers(nn.Module):
    """What a user may bring: layers that know no slopes but backwards."""

    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.first = nn.LSTM(inputs, 8, batch_first=True)
        self.last = nn.Linear(8, outputs)

    def forward(self, *inputs):
        together = torch.cat(inputs, -1)
        return self.last(self.first(together.unsqueeze(-2))[0][..., 0, :])


def test_critics_of_any_kind_have_slopes():
    torch.manual_seed(0)
    qvalue = make_critics(3, 2, [8], objectives=2, network=Remembers)
    loss = made(make_actor(3, 2, [8]), qvalue=qvalue, result=make_critics(3, 2, [8]))
    given = rows()
    action = loss._acted(given).requires_grad_()
    values = loss._values(qvalue, given, action).mean(-2)
    each = values.sum(0).unbind(-1)
    wanted = [torch.autograd.grad(value, action, retain_graph=True)[0] for value in each]
    found = loss._slopes(qvalue, given, action.detach())
    torch.testing.assert_close(found, torch.stack(wanted, -2), atol=1e-4, rtol=1e-3)


def test_normalised_critics_have_slopes_and_learn_nothing_of_these_rows():
    qvalue = make_normalised_critics(3, 1, [8], objectives=2)
    loss, before = made(qvalue=qvalue), deepcopy(qvalue.state_dict())
    loss(rows())
    assert all(each.equal(before[name]) for name, each in qvalue.state_dict().items())
    assert qvalue.training
    slopes = loss._slopes(qvalue, rows(), torch.zeros(64, 1))
    assert slopes.abs().mean() > 1e-3
