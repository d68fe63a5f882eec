"""TorchRL's losses as ours: the same numbers on the same weights, what is slow, the actor."""

from copy import deepcopy

import pytest
import torch
import torchrl.objectives
from tensordict import TensorDict

from trading_torchrl.modules import (
    make_actor,
    make_critic,
    make_critics,
    make_deterministic_actor,
)
from trading_torchrl.objectives import FromTorchRL, SACLoss, TorchRLSACLoss


class DDPG(FromTorchRL, torchrl.objectives.DDPGLoss):
    pass


class TD3(FromTorchRL, torchrl.objectives.TD3Loss):
    pass


class CQL(FromTorchRL, torchrl.objectives.CQLLoss):
    pass


def rows(count=16, observed=3, actions=1, seed=0):
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draw)

    ends = torch.rand(count, 1, generator=draw) < 0.3
    following = {
        "observation": normal(count, observed),
        "reward": normal(count, 1),
        "terminated": ends,
        "done": ends | (torch.rand(count, 1, generator=draw) < 0.3),
    }
    taken = {"observation": normal(count, observed), "action": normal(count, actions).tanh()}
    return TensorDict({**taken, "next": following}, [count])


def seeded(loss, batch, seed=0):
    torch.manual_seed(seed)
    return loss(batch)


def copy_critics(ours, params):
    """Into TorchRL's ``params`` [members, out, in] what our ensemble holds [members, in, out]."""
    for index, (weight, bias) in enumerate(zip(ours.weights, ours.biases, strict=True)):
        layer = params["module", "layers", str(index)]
        layer["weight"].data.copy_(weight.detach().transpose(1, 2))
        layer["bias"].data.copy_(bias.detach()[:, 0])


@pytest.mark.parametrize(("gamma", "members"), [(0.9, 2), (0.0, 3)])
def test_sac_is_ours_on_the_same_weights_and_noise(gamma, members):
    torch.manual_seed(0)
    actor, settings = make_actor(3, 1, [16]), {"gamma": gamma, "alpha_init": 0.3}
    ours = SACLoss(deepcopy(actor), make_critics(3, 1, [16], members=members), **settings)
    theirs = TorchRLSACLoss(actor, make_critic(3, 1, [16]), members=members, **settings)
    copy_critics(ours.qvalue_network.module, theirs.qvalue_network_params)
    for parameter in ours.target_qvalue_network.parameters():
        parameter.data.add_(0.1)
    copy_critics(ours.target_qvalue_network.module, theirs.target_qvalue_network_params)

    batch = rows()
    mine, other = seeded(ours, batch), seeded(theirs, batch)
    for key in ("loss_actor", "loss_alpha", "alpha", "entropy", "q"):
        torch.testing.assert_close(mine[key], other[key], msg=key)
    # Theirs is the square of the error, ours half of it; theirs the worst error, ours the mean.
    torch.testing.assert_close(2 * mine["loss_qvalue"], other["loss_qvalue"])
    assert other["td_error"] > mine["td_error"]
    pairs = zip(ours.actor_network.parameters(), actor.parameters(), strict=True)
    mine["loss_actor"].backward()
    other["loss_actor"].backward()
    for one, two in pairs:
        torch.testing.assert_close(one.grad, two.grad)


def test_the_actor_that_acts_is_the_one_that_learns():
    actor = make_actor(3, 1, [16])
    loss = TorchRLSACLoss(actor, make_critic(3, 1, [16]))
    trained = {id(each) for each in loss.parameters() if each.requires_grad}
    assert {id(each) for each in actor.parameters()} < trained
    optimizer = torch.optim.SGD([p for p in loss.parameters() if p.requires_grad], lr=0.1)
    before = [each.detach().clone() for each in actor.parameters()]
    out = loss(rows())
    sum(out[key] for key in ("loss_actor", "loss_qvalue", "loss_alpha")).backward()
    optimizer.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, actor.parameters(), strict=True))


def test_the_temperature_has_its_floor():
    loss = TorchRLSACLoss(
        make_actor(3, 1, [16]), make_critic(3, 1, [16]), alpha_init=0.2, min_alpha=0.1
    )
    with torch.no_grad():
        loss.log_alpha.fill_(-9.0)
    assert float(loss(rows())["alpha"]) == pytest.approx(0.1)


def test_entropy_aims_at_minus_the_number_of_actions():
    loss = TorchRLSACLoss(make_actor(3, 2, [16]), make_critic(3, 2, [16]))
    assert float(loss.target_entropy) == -2


OTHERS = [
    (DDPG, make_deterministic_actor, "value_network", {"delay_value": True}),
    (TD3, make_deterministic_actor, "qvalue_network", {"bounds": (-1, 1)}),
    (CQL, make_actor, "qvalue_network", {}),
]


@pytest.mark.parametrize(("kind", "make", "critic", "settings"), OTHERS)
def test_other_losses_learn_move_what_is_slow_and_leave_the_batch(kind, make, critic, settings):
    torch.manual_seed(0)
    networks = {"actor_network": make(3, 1, [16]), critic: make_critic(3, 1, [16])}
    loss, batch = kind(**networks, **settings, gamma=0.9), rows()
    given = batch.clone()
    out = loss(batch)
    assert (batch == given).all()
    assert set(batch.keys(True, True)) == set(given.keys(True, True))
    sum(value for key, value in out.items() if key.startswith("loss_")).backward()
    assert all(each.grad is not None for each in networks["actor_network"].parameters())
    assert all(value.shape == () for value in out.values())

    fast, slow = getattr(loss, f"{critic}_params"), getattr(loss, f"target_{critic}_params")
    name = ("module", "layers", "0", "weight")
    with torch.no_grad():
        fast[name].add_(1.0)
    wanted = slow[name].detach().lerp(fast[name].detach(), 0.25)
    loss.update_targets(0.25)
    torch.testing.assert_close(slow[name].detach(), wanted)


def test_what_has_nothing_slow_moves_nothing():
    loss = DDPG(make_deterministic_actor(3, 1, [16]), make_critic(3, 1, [16]), delay_value=False)
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    loss.update_targets(0.5)
    assert all(torch.equal(value, before[name]) for name, value in loss.state_dict().items())


def test_the_discount_is_checked():
    with pytest.raises(ValueError, match=r"gamma must lie in \[0, 1\], got 2"):
        TorchRLSACLoss(make_actor(3, 1, [8]), make_critic(3, 1, [8]), gamma=2)
