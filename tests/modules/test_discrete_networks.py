"""Choices: what is allowed, how often, and what networks see."""

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs.utils import ExplorationType, set_exploration_type

from trading_torchrl.modules import (
    MLP,
    EpsilonGreedy,
    make_discrete_actor,
    make_discrete_critics,
    make_q_actor,
)

SEEN = ["observation", "window", "action_mask"]
MAKERS = [make_discrete_actor, make_q_actor]


def shown(count=2_000, choices=5):
    draw = torch.Generator().manual_seed(0)
    mask = torch.rand(count, choices, generator=draw) < 0.5
    mask[torch.arange(count), torch.randint(choices, (count,), generator=draw)] = True
    return TensorDict(
        {
            "observation": torch.randn(count, 3, generator=draw),
            "window": torch.randn(count, 4, 2, generator=draw),
            "action_mask": mask,
        },
        [count],
    )


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("exploration", [ExplorationType.RANDOM, ExplorationType.DETERMINISTIC])
def test_only_what_is_allowed_is_chosen(make, exploration):
    torch.manual_seed(0)
    actor, seen = make(3 + 8, 5, [16], SEEN), shown()
    probs = actor.get_dist(seen).probs
    assert (probs[~seen["action_mask"]] == 0).all()
    torch.testing.assert_close(probs.sum(-1), torch.ones(2_000))
    with set_exploration_type(exploration):
        action = actor(seen)["action"]
    assert action.dtype == torch.int64
    assert action.shape == (2_000,)
    assert seen["action_mask"].gather(1, action[:, None]).all()
    if exploration is ExplorationType.DETERMINISTIC:
        best = actor.get_dist(seen).probs.argmax(-1)
        assert torch.equal(action, best)


@pytest.mark.parametrize("make", MAKERS)
def test_networks_do_not_see_the_mask(make):
    assert make(3 + 8, 5, [16], SEEN)[0].in_keys == ["observation", "window"]
    assert make_discrete_critics(3 + 8, 5, [16], SEEN).in_keys == ["observation", "window"]
    without = make(3, 5, [16])
    assert without(shown().select("observation"))["action"].shape == (2_000,)


def test_epsilon_greedy_as_often_as_it_says():
    values = torch.tensor([[[1.0, 9.0, 3.0, 2.0], [1.0, 9.0, 2.0, 4.0]]])
    mask = torch.tensor([[True, False, True, True]])
    dist = EpsilonGreedy(values, mask, epsilon=0.3)
    assert dist.mode.tolist() == [3]  # of the means 1, 2.5, 3
    torch.testing.assert_close(dist.probs, torch.tensor([[0.1, 0.0, 0.1, 0.8]]))
    torch.manual_seed(0)
    drawn = dist.sample((40_000,))
    assert drawn.shape == (40_000, 1)
    often = drawn.flatten().bincount(minlength=4) / 40_000
    torch.testing.assert_close(often, dist.probs[0], atol=0.01, rtol=0)
    torch.testing.assert_close(dist.log_prob(torch.tensor([3])).exp(), torch.tensor([0.8]))


@pytest.mark.parametrize("network", [MLP, lambda *size: MLP(*size)])
def test_critics_value_every_choice(network):
    critics = make_discrete_critics(11, 5, [16], SEEN, members=3, network=network)
    assert critics(shown())["action_value"].shape == (2_000, 3, 5)
    actor = make_q_actor(11, 5, [16], SEEN, members=3, network=network)
    assert actor(shown())["action_value"].shape == (2_000, 3, 5)
