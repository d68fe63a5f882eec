"""REDQ and TQC: what makes their targets and what their actors follow, by hand; what is learned."""

import pytest
import torch
from tensordict import TensorDict

from trading_torchrl.modules import make_actor, make_critics
from trading_torchrl.objectives import REDQLoss, SACLoss, TQCLoss, quantile_loss


def rows(count=16, seed=0):
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draw)

    following = {
        "observation": normal(count, 3),
        "reward": normal(count, 1),
        "terminated": torch.arange(count)[:, None] % 3 == 0,
    }
    return TensorDict(
        {"observation": normal(count, 3), "action": normal(count, 1).tanh(), "next": following},
        [count],
    )


def make(kind, members=2, objectives=1, **settings):
    torch.manual_seed(0)
    critics = make_critics(3, 1, [16], members=members, objectives=objectives)
    return kind(make_actor(3, 1, [16]), critics, **settings)


def seeded(loss, batch):
    torch.manual_seed(1)
    return loss(batch).detach()


def test_redq_of_as_many_critics_as_make_a_target_has_the_target_of_sac():
    settings = {"gamma": 0.9, "alpha_init": 0.2}
    redq, sac = (seeded(make(kind, **settings), rows()) for kind in (REDQLoss, SACLoss))
    assert redq["loss_qvalue"] == sac["loss_qvalue"]
    assert redq["loss_actor"] < sac["loss_actor"]  # the mean is above the lowest


def test_redq_draws_the_critics_of_its_target_anew():
    loss = make(REDQLoss, members=3, subset=2)
    values = torch.tensor([[[0.0], [10.0], [20.0]]])
    torch.manual_seed(0)
    found = torch.stack([loss._believed(values, None)[0, 0] for _ in range(3_000)])
    assert set(found.tolist()) == {0.0, 10.0}
    assert float((found == 0).float().mean()) == pytest.approx(2 / 3, abs=0.03)
    assert float(loss._worth(values, None)) == 10


def test_quantile_loss_by_loops():
    draw = torch.Generator().manual_seed(0)
    values, wanted = (3 * torch.randn(5, *shape, generator=draw) for shape in ((2, 4), (7,)))
    found = quantile_loss(values, wanted)
    for row in range(5):
        for member in range(2):
            total = 0.0
            for i in range(4):
                for t in range(7):
                    apart = float(wanted[row, t] - values[row, member, i])
                    huber = 0.5 * apart**2 if abs(apart) <= 1 else abs(apart) - 0.5
                    total += abs((i + 0.5) / 4 - (apart < 0)) * huber
            assert float(found[row, member]) == pytest.approx(total / 28, rel=1e-5)


def test_the_highest_quantiles_do_not_count():
    loss = make(TQCLoss, objectives=3, dropped=1, gamma=0.5)
    values = torch.tensor([[[1.0, 5.0, 9.0], [2.0, 4.0, 30.0]]])
    assert loss._believed(values, None).tolist() == [[1.0, 2.0, 4.0, 5.0]]
    assert float(loss._worth(values, None)) == pytest.approx(51 / 6)
    batch = TensorDict(
        {"next": {"reward": torch.tensor([[10.0]] * 2),
                  "terminated": torch.tensor([[False], [True]])}}, [2]
    )  # fmt: skip
    following = torch.tensor([[2.0, 4.0], [2.0, 4.0]])
    assert loss._one_step(batch, following).tolist() == [[11.0, 12.0], [10.0, 10.0]]


def test_quantile_critics_learn_a_distribution():
    normal = torch.distributions.Normal(0.0, 20.0)
    samples = normal.icdf((torch.arange(999) + 0.5) / 999)[None]
    values = torch.zeros(1, 1, 9, requires_grad=True)
    optimizer = torch.optim.Adam([values], lr=0.1)
    for _ in range(2_000):
        optimizer.zero_grad()
        quantile_loss(values, samples).sum().backward()
        optimizer.step()
    wanted = normal.icdf((torch.arange(9) + 0.5) / 9)
    torch.testing.assert_close(values.detach()[0, 0], wanted, rtol=0, atol=0.5)


@pytest.mark.parametrize(
    ("kind", "objectives", "settings", "said"),
    [
        (REDQLoss, 1, {"subset": 0}, "subset must be at least 1"),
        (REDQLoss, 1, {"subset": 5}, "there are 2: build more critics"),
        (TQCLoss, 5, {"dropped": -1}, "dropped must be at least 0"),
        (TQCLoss, 5, {"dropped": 5}, "a critic has 5: build critics"),
        (TQCLoss, 2, {"objective_weights": [0.5, 0.5]}, "quantile critics have one objective"),
    ],
)
def test_what_does_not_fit_is_refused(kind, objectives, settings, said):
    with pytest.raises(ValueError, match=said):
        make(kind, objectives=objectives, **settings)(rows())


@pytest.mark.parametrize(
    ("kind", "members", "objectives", "settings"),
    [(REDQLoss, 5, 1, {"subset": 2}), (TQCLoss, 2, 11, {"dropped": 1})],
)
def test_they_find_the_best_action_of_a_bandit(kind, members, objectives, settings):
    """Reward -(action - observation / 2)^2, which ends at once."""
    torch.manual_seed(0)
    actor = make_actor(1, 1, [32])
    critics = make_critics(1, 1, [32], members=members, objectives=objectives)
    loss = kind(actor, critics, alpha_init=0.01, target_entropy=-4.0, **settings)
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
        sum(out[f"loss_{name}"] for name in ("actor", "qvalue", "alpha")).backward()
        optimizer.step()
        loss.update_targets(0.01)
    seen = torch.linspace(-1, 1, 21)[:, None]
    with torch.no_grad():
        decided = actor.get_dist(TensorDict({"observation": seen}, [21])).mode
    torch.testing.assert_close(decided, seen / 2, rtol=0, atol=0.1)
