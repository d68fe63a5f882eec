"""Advantages over time: by hand, as TorchRL has them, and across the ends of episodes."""

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.objectives.value.functional import generalized_advantage_estimate

from trading_torchrl.objectives.returns import gae, values_of


def stretch(accounts=5, steps=9, seed=0, dtype=torch.float64):
    draw = torch.Generator().manual_seed(seed)
    names = ("reward", "value", "ahead")
    numbers = {name: torch.randn(accounts, steps, 1, generator=draw, dtype=dtype) for name in names}
    done = torch.rand(accounts, steps, 1, generator=draw) < 0.3
    terminated = done & (torch.rand(accounts, steps, 1, generator=draw) < 0.5)
    return {**numbers, "done": done, "terminated": terminated}


def exact(number):
    """A float would be rounded to single precision where it meets a flag."""
    return torch.tensor(number, dtype=torch.float64)


def test_by_hand():
    """Three steps; the first account goes on, the second is ruined at the second step."""
    no = [False, False, False]
    given = {
        "reward": [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]],
        "value": [[0.5, 0.0, 1.0], [0.5, 0.0, 1.0]],
        "ahead": [[0.0, 1.0, 4.0], [0.0, 9.0, 4.0]],
        "done": [no, [False, True, False]],
        "terminated": [no, [False, True, False]],
    }
    tensors = {name: torch.tensor(each)[..., None] for name, each in given.items()}
    found = gae(**tensors, gamma=0.5, lmbda=0.5)[..., 0]
    last = 3 + 0.5 * 4 - 1
    going = 2 + 0.5 * 1 - 0
    first = 1 + 0.5 * 0 - 0.5
    wanted = [
        [first + 0.25 * (going + 0.25 * last), going + 0.25 * last, last],
        [first + 0.25 * 2, 2.0, last],
    ]
    torch.testing.assert_close(found, torch.tensor(wanted))


@pytest.mark.parametrize(("gamma", "lmbda"), [(0.0, 0.0), (0.9, 0.0), (0.97, 0.9), (1.0, 1.0)])
def test_equals_torchrls(gamma, lmbda):
    given = stretch()
    theirs, _ = generalized_advantage_estimate(
        exact(gamma), exact(lmbda), given["value"], given["ahead"], given["reward"], given["done"],
        given["terminated"],
    )  # fmt: skip
    ours = gae(**given, gamma=gamma, lmbda=lmbda)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_nothing_leaks_over_the_end_of_an_episode():
    given = stretch()
    given["done"][:, 4], given["terminated"][:, 4] = True, False
    before = gae(**given, gamma=0.99, lmbda=0.95)
    given["reward"][:, 5:] += 100
    after = gae(**given, gamma=0.99, lmbda=0.95)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5], after[:, 5])
    given["ahead"][:, 4] += 1  # truncated: what is expected beyond counts
    torch.testing.assert_close(gae(**given, gamma=0.99, lmbda=0.95)[:, 4], after[:, 4] + 0.99)


def test_values_where_steps_led_to():
    torch.manual_seed(0)
    critic = TensorDictModule(torch.nn.Linear(3, 1), ["observation"], ["state_value"])
    now = torch.randn(4, 6, 3)
    done = torch.rand(4, 6, 1) < 0.3
    after = torch.cat([now[:, 1:], torch.randn(4, 1, 3)], 1)
    after = torch.where(done, torch.randn(4, 6, 3), after)  # the last that an episode saw
    following = {"observation": after, "done": done}
    batch = TensorDict({"observation": now, "next": following}, [4, 6])
    value, ahead = values_of(critic, batch)
    torch.testing.assert_close(value, critic.module(now))
    torch.testing.assert_close(ahead, critic.module(after))
