"""Rows that span several steps: what follows is discounted as often as there are steps."""

import pytest
import torch
from tensordict import TensorDict

from trading_torchrl.modules import (
    make_actor,
    make_critics,
    make_deterministic_actor,
    make_q_actor,
    make_value,
)
from trading_torchrl.objectives import DQNLoss, IQLLoss, SACLoss, TD3Loss, TQCLoss

GAMMA = 0.9


def sac(gamma):
    return SACLoss(make_actor(3, 1, [16]), make_critics(3, 1, [16]), gamma=gamma)


def td3(gamma):
    return TD3Loss(make_deterministic_actor(3, 1, [16]), make_critics(3, 1, [16]), gamma=gamma)


def tqc(gamma):
    critics = make_critics(3, 1, [16], objectives=25)
    return TQCLoss(make_actor(3, 1, [16]), critics, gamma=gamma)


def iql(gamma):
    actor, value = make_actor(3, 1, [16]), make_value(3, 1, [16])
    return IQLLoss(actor, make_critics(3, 1, [16]), value, gamma=gamma)


def dqn(gamma):
    return DQNLoss(make_q_actor(3, 2, [16]), gamma=gamma)


def rows(discrete, count=32):
    draw = torch.Generator().manual_seed(0)
    seen, then, reward = (torch.randn(count, n, generator=draw) for n in (3, 3, 1))
    action = torch.arange(count) % 2 if discrete else torch.rand(count, 1, generator=draw)
    over = torch.rand(count, 1, generator=draw) < 0.3
    following = {"observation": then, "reward": reward, "terminated": over}
    return TensorDict({"observation": seen, "action": action, "next": following}, [count])


def built(make, gamma):
    torch.manual_seed(0)
    return make(gamma)


def said(loss, batch):
    torch.manual_seed(1)
    return loss(batch)


@pytest.mark.parametrize("make", [sac, td3, tqc, iql, dqn])
def test_three_steps_are_one_of_the_discount_cubed(make):
    batch = rows(discrete=make is dqn)
    once = said(built(make, GAMMA**3), batch)
    batch["steps_to_next_obs"] = torch.full((32, 1), 3)
    thrice = said(built(make, GAMMA), batch)
    torch.testing.assert_close(thrice, once)
    batch["steps_to_next_obs"] = torch.ones(32, 1)
    torch.testing.assert_close(
        said(built(make, GAMMA), batch), said(built(make, GAMMA), rows(make is dqn))
    )
    assert not torch.allclose(*(sum_of(each) for each in (once, said(built(make, GAMMA), batch))))


def sum_of(losses):
    return torch.stack([each for name, each in losses.items() if name.startswith("loss_")]).sum()


def test_counts_of_another_shape_are_refused():
    batch = rows(discrete=True).set("steps_to_next_obs", torch.ones(32, 2))
    with pytest.raises(ValueError, match=r"counts the steps of each row: \[32, 1\], got \[32, 2\]"):
        built(dqn, GAMMA)(batch)
