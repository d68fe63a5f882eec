"""A learned potential: what it aims at by hand, and what it learns where the answer is known."""

import pytest
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer

from trading_torchrl.envs.reference import Chain
from trading_torchrl.modules import Potential
from trading_torchrl.objectives import Column, PotentialLoss


def rows(reward, terminated, *signals):
    count = len(reward)
    return TensorDict(
        {
            "observation": torch.zeros(count, 3),
            "next": {
                "observation": torch.ones(count, 3),
                "reward": torch.tensor(reward)[:, None],
                "terminated": torch.tensor(terminated)[:, None],
                "signals": torch.tensor(signals or [[0.0] * count]).T,
            },
        },
        [count],
    )


def test_each_head_aims_at_its_own_signal_and_slow_value():
    torch.manual_seed(0)
    potential = Potential(3, {"profit": 0.5, "risk": 0.25}, hidden=[4])
    signals = {"profit": Column("signals", 1), "risk": Column("signals", 0)}
    loss = PotentialLoss(potential, gamma=0.9, signals=signals)
    given = rows([9.0, 9.0], [True, False], [-3.0, -4.0], [1.0, 2.0])
    with torch.no_grad():
        slow = potential.parts(torch.ones(3)).tolist()
        for each in potential.parameters():
            each.add_(0.1)  # the slow copy stays
        now = potential.parts(torch.zeros(3)).tolist()
    wanted = [[1.0, -3.0], [2.0 + 0.9 * slow[0], -4.0 + 0.9 * slow[1]]]
    error = sum(0.5 * (now[k] - each[k]) ** 2 for each in wanted for k in range(2)) / 4
    out = loss(given)
    assert float(out["loss_potential"].detach()) == pytest.approx(error, rel=1e-5)
    assert out["potential"].tolist() == pytest.approx(now, rel=1e-5)
    out["loss_potential"].backward()
    assert all(each.grad is not None for each in potential.parameters())
    assert all(each.grad is None for each in loss.target_potential.parameters())


def test_on_a_chain_it_learns_what_a_walk_is_worth():
    """Values of a walk that tosses coins follow from a linear system."""
    torch.manual_seed(0)
    length, gamma = 8, 0.9
    env = Chain(32, length=length, steps=10_000)
    replay = ReplayBuffer(storage=LazyTensorStorage(32 * 200), batch_size=256)
    replay.extend(env.rollout(200, break_when_any_done=False).reshape(-1))
    potential = Potential(length, {"return": 1.0}, hidden=[64])
    loss = PotentialLoss(potential, gamma=gamma)
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=1e-3)
    for _ in range(2_000):
        out = loss(replay.sample())
        optimizer.zero_grad()
        out["loss_potential"].backward()
        optimizer.step()
        loss.update_targets(0.05)
    walk, reward = torch.zeros(length - 1, length - 1), torch.zeros(length - 1)
    for cell in range(length - 1):
        walk[cell, max(cell - 1, 0)] += 0.5
        if cell + 1 < length - 1:
            walk[cell, cell + 1] += 0.5
        else:
            reward[cell] = 0.5
    known = torch.linalg.solve(torch.eye(length - 1) - gamma * walk, reward)
    with torch.no_grad():
        found = potential(torch.eye(length)[:-1])[:, 0]
    assert (found - known).abs().max() < 0.05
    assert known.max() > 0.4


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gamma": -0.1}, "gamma must lie"),
        ({"reduction": "max"}, "reduction must be"),
        ({"signals": {"profit": "reward"}}, "signals must name"),
        ({"signals": None}, "heads profit, risk"),
    ],
)
def test_what_does_not_fit_is_refused(changed, said):
    given = {"gamma": 0.9, "signals": {"profit": "reward", "risk": "reward"}} | changed
    with pytest.raises(ValueError, match=said):
        PotentialLoss(Potential(3, {"profit": 1.0, "risk": 1.0}), **given)


def test_what_a_mask_leaves_out_counts_for_nothing():
    loss = PotentialLoss(Potential(3, {"return": 1.0}), gamma=0.9)
    given = rows([1.0, float("nan")], [False, True])
    alone = loss(given[:1])["loss_potential"]
    given["mask"] = torch.tensor([[True], [False]])
    loss.loss_mask_key = "mask"
    torch.testing.assert_close(loss(given)["loss_potential"], alone)
