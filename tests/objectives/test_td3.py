"""TD3: targets by hand, the actor's turns, gradients one loss at a time, a problem it solves."""

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from trading_torchrl.modules import EnsembleMLP, make_critics, make_deterministic_actor
from trading_torchrl.objectives import TD3Loss


def rows(count=16, observed=3, actions=1, objectives=1, seed=0):
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draw)

    following = {
        "observation": normal(count, observed),
        "reward": normal(count, objectives),
        "terminated": torch.rand(count, 1, generator=draw) < 0.3,
    }
    taken = {"observation": normal(count, observed), "action": normal(count, actions).tanh()}
    return TensorDict({**taken, "next": following}, [count])


def make(observed=3, actions=1, objectives=1, **settings):
    torch.manual_seed(0)
    actor = make_deterministic_actor(observed, actions, [16])
    return TD3Loss(actor, make_critics(observed, actions, [16], objectives=objectives), **settings)


def gradients(loss, value):
    named = {name: each for name, each in loss.named_parameters() if each.requires_grad}
    found = torch.autograd.grad(value, list(named.values()), allow_unused=True, retain_graph=True)
    return {name: each for name, each in zip(named, found, strict=True) if each is not None}


def linear_critics(weights, biases):
    """Critics ``[M, 2, 1]`` x (observation, action) + ``[M, 1]``."""
    network = EnsembleMLP(len(weights), 2, [], 1)
    network.weights[0].data, network.biases[0].data = weights, biases[:, None]
    return TensorDictModule(network, ["observation", "action"], ["state_action_value"])


def certain(bias):
    actor = make_deterministic_actor(1, 1, [])
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.zero_()
        actor[0].module.layers[-1].bias.fill_(bias)
    return actor


def test_target_by_hand():
    """One row ends in ruin, one at the end of the data: only the second one goes on."""
    critics = linear_critics(torch.tensor([[[1.0], [2.0]], [[-1.0], [4.0]]]), torch.zeros(2, 1))
    loss = TD3Loss(certain(torch.tensor(0.25).atanh()), critics, gamma=0.9, target_noise=0.0)
    slow = linear_critics(
        torch.tensor([[[2.0], [-4.0]], [[1.0], [0.0]]]), torch.tensor([[0.0], [1.5]])
    )
    loss.target_qvalue_network.load_state_dict(slow.state_dict())
    loss.target_actor_network.load_state_dict(certain(torch.tensor(0.5).atanh()).state_dict())
    following = {
        "observation": torch.tensor([[2.0], [3.0]]),
        "reward": torch.tensor([[10.0], [20.0]]),
        "terminated": torch.tensor([[True], [False]]),
        "truncated": torch.tensor([[False], [True]]),
    }
    taken = {
        "observation": torch.tensor([[1.0], [-1.0]]),
        "action": torch.tensor([[0.5], [-0.5]]),
    }
    batch = TensorDict({**taken, "next": following}, [2])
    first, second = loss(batch).detach(), loss(batch).detach()
    # Of the second row: 2 x 3 - 4 / 2 = 4 and 3 + 1.5 = 4.5.
    wanted = (10.0, 20.0 + 0.9 * 4.0)
    held = ((2.0, 1.0), (-2.0, -1.0))
    squares = [sum(0.5 * (q - y) ** 2 for q in both) for both, y in zip(held, wanted, strict=True)]
    assert float(first["loss_qvalue"]) == pytest.approx(sum(squares) / 2, rel=1e-6)
    # The actor's turn is the second call: the first critic at 0.25, (1 + .5) and (-1 + .5).
    assert float(first["loss_actor"]) == 0
    assert float(second["loss_actor"]) == pytest.approx(-(1.5 - 0.5) / 2, rel=1e-6)


def test_noise_on_the_next_action_is_clipped():
    critics = linear_critics(torch.tensor([[[0.0], [1.0]]]), torch.zeros(1, 1))
    batch = rows(count=4_096, observed=1)
    batch["next", "reward"].zero_()
    batch["next", "terminated"].zero_()
    for noise, clip, centre in ((0.2, 0.3, 0.5), (5.0, 0.3, 0.5), (5.0, 9.0, 0.5)):
        actor = certain(torch.tensor(centre).atanh())
        loss = TD3Loss(actor, critics, gamma=1.0, target_noise=noise, noise_clip=clip)
        torch.manual_seed(0)
        wanted = loss._wanted(batch, None)  # the action itself
        low, high = max(centre - clip, -1), min(centre + clip, 1)
        assert low - 1e-6 <= float(wanted.min()) < low + 0.05
        assert high - 0.05 < float(wanted.max()) <= high + 1e-6


def test_slow_copies_move_with_the_actor_alone():
    loss = make(actor_every=3)
    with torch.no_grad():
        for parameter in (*loss.actor_network.parameters(), *loss.qvalue_network.parameters()):
            parameter.add_(1.0)
    before = {name: value.clone() for name, value in loss.state_dict().items()}

    def moved():
        return {name for name, now in loss.state_dict().items() if not now.equal(before[name])}

    for _ in range(2):
        loss(rows())
        loss.update_targets(0.1)
    assert moved() == {"calls"}
    loss(rows())
    loss.update_targets(0.1)
    slow = {name for name in before if name.startswith("target_")}
    assert moved() == slow | {"calls"}


@pytest.mark.parametrize("objectives", [1, 3])
def test_each_loss_reaches_its_own_parameters(objectives):
    weights = None if objectives == 1 else [0.5, 0.3, 0.2]
    loss = make(objectives=objectives, objective_weights=weights, actor_every=1)
    out = loss(rows(objectives=objectives))
    assert {name.split(".")[0] for name in gradients(loss, out["loss_actor"])} == {"actor_network"}
    reached = {name.split(".")[0] for name in gradients(loss, out["loss_qvalue"])}
    assert reached == {"qvalue_network"}


def test_it_explores_around_what_it_does():
    actor = make_deterministic_actor(3, 2, [16], noise=0.1)
    seen = torch.randn(20_000, 3)
    dist = actor.get_dist(TensorDict({"observation": seen}, [20_000]))
    apart = (dist.rsample() - dist.mode).detach()
    assert float(apart.std()) == pytest.approx(0.1, rel=0.05)
    assert dist.rsample().abs().max() <= 1


def test_settings_are_checked():
    for settings in ({"gamma": 2}, {"target_noise": -1}, {"noise_clip": -1}, {"actor_every": 0}):
        (name,) = settings
        with pytest.raises(ValueError, match=name):
            make(**settings)
    with pytest.raises(ValueError, match="noise must not be negative"):
        make_deterministic_actor(3, 1, noise=-1.0)


@pytest.mark.parametrize("settings", [{}, {"target_noise": 0.0, "actor_every": 1}])
def test_it_finds_the_best_action_of_a_bandit(settings):
    """Reward -(action - observation / 2)^2, which ends at once."""
    torch.manual_seed(0)
    actor = make_deterministic_actor(1, 1, [32])
    loss = TD3Loss(actor, make_critics(1, 1, [32]), gamma=0.9, **settings)
    optimizer = torch.optim.Adam([p for p in loss.parameters() if p.requires_grad], lr=3e-3)
    for _ in range(1_000):
        seen, action = 2 * torch.rand(128, 1) - 1, 2 * torch.rand(128, 1) - 1
        following = {
            "observation": seen,
            "reward": -((action - seen / 2) ** 2),
            "terminated": torch.ones(128, 1, dtype=torch.bool),
        }
        out = loss(TensorDict({"observation": seen, "action": action, "next": following}, [128]))
        optimizer.zero_grad()
        (out["loss_actor"] + out["loss_qvalue"]).backward()
        optimizer.step()
        loss.update_targets(0.01)
    seen = torch.linspace(-1, 1, 21)[:, None]
    with torch.no_grad():
        decided = actor.get_dist(TensorDict({"observation": seen}, [21])).mode
    torch.testing.assert_close(decided, seen / 2, rtol=0, atol=0.08)
