"""Behaviour cloning: what it recovers, edges; and what CQL and IQL make of the same skewed data."""

import pytest
import torch
from tensordict import TensorDict

from trading_torchrl.modules import make_actor, make_critics, make_value
from trading_torchrl.objectives import BCLoss, CQLLoss, IQLLoss


def learn(loss, batches, lr=1e-2):
    optimizer = torch.optim.Adam([p for p in loss.parameters() if p.requires_grad], lr=lr)
    summed = [key for key in loss.out_keys if key.startswith("loss_")]
    for batch in batches:
        out = loss(batch)
        optimizer.zero_grad()
        sum(out[key] for key in summed).backward()
        optimizer.step()
        loss.update_targets(0.02)


def mode(actor, seen):
    with torch.no_grad():
        return actor.get_dist(TensorDict({"observation": seen}, seen.shape[:-1])).mode


def test_it_recovers_a_linear_policy():
    torch.manual_seed(0)
    weights = torch.tensor([[0.4, -0.3], [0.1, 0.5]])
    actor = make_actor(2, 2, [])

    def batches():
        for _ in range(600):
            seen = torch.randn(128, 2)
            yield TensorDict({"observation": seen, "action": (seen @ weights.T).tanh()}, [128])

    learn(BCLoss(actor), batches())
    found = actor[0].module.network.layers[0].weight.detach()
    torch.testing.assert_close(found[:2], weights, rtol=0, atol=0.01)


def test_what_is_done_at_the_edge_does_not_outweigh_the_rest():
    """Nine in ten actions are 0 and one is 1: what it does stays near 0."""
    torch.manual_seed(0)
    seen = torch.zeros(100, 1)
    action = torch.zeros(100, 1)
    action[:10] = 1.0
    action[10:50] = 0.1
    actor = make_actor(1, 1, [8])
    learn(BCLoss(actor), [TensorDict({"observation": seen, "action": action}, [100])] * 400)
    assert abs(float(mode(actor, seen)[0])) < 0.5


def test_all_at_the_edge_is_learned_too():
    torch.manual_seed(0)
    seen = torch.tensor([[-1.0], [1.0]]).repeat(50, 1)
    actor = make_actor(1, 1, [8])
    learn(BCLoss(actor), [TensorDict({"observation": seen, "action": seen.sign()}, [100])] * 400)
    found = mode(actor, torch.tensor([[-1.0], [1.0]]))
    torch.testing.assert_close(found, torch.tensor([[-1.0], [1.0]]), rtol=0, atol=0.02)
    assert all(parameter.isfinite().all() for parameter in actor.parameters())


def test_what_a_mask_leaves_out_counts_nowhere():
    torch.manual_seed(0)
    loss = BCLoss(make_actor(3, 1, [8]))
    batch = TensorDict({"observation": torch.randn(8, 3), "action": torch.rand(8, 1)}, [8])
    padded = batch.clone()
    padded["collector", "mask"] = torch.arange(8)[:, None] < 5
    padded["action"][5:] = torch.nan
    out, few = loss(padded), loss(batch[:5])
    torch.testing.assert_close(out["loss_actor"], few["loss_actor"])
    torch.testing.assert_close(out["action_error"], few["action_error"])
    out["loss_actor"].backward()
    assert all(each.grad.isfinite().all() for each in loss.parameters())


def test_it_reads_no_rewards():
    loss = BCLoss(make_actor(3, 1, [8]))
    assert loss.in_keys == ["observation", "action"]
    with pytest.raises(ValueError, match="reduction"):
        BCLoss(make_actor(3, 1, [8]), reduction="median")


COMMON, GOOD = -0.5, 0.5


def skewed(count):
    """Four of five actions lie near -1/2 and pay nothing, the rest near 1/2 and pay 1."""
    good = torch.arange(count)[:, None] % 5 == 0
    action = torch.where(good, GOOD, COMMON) + 0.1 * (torch.rand(count, 1) - 0.5)
    seen = torch.zeros(count, 1)
    following = {
        "observation": seen,
        "reward": good.float(),
        "terminated": torch.ones(count, 1, dtype=torch.bool),
    }
    return TensorDict({"observation": seen, "action": action, "next": following}, [count])


def decided(kind, *networks, **settings):
    torch.manual_seed(0)
    loss = kind(*(build(1, 1, [32]) for build in networks), **settings)
    learn(loss, (skewed(100) for _ in range(500)), lr=1e-2)
    return float(mode(loss.actor_network, torch.zeros(1, 1)))


def test_cloning_does_the_average_of_what_was_done():
    raw = 0.8 * torch.tensor(COMMON).atanh() + 0.2 * torch.tensor(GOOD).atanh()
    assert decided(BCLoss, make_actor) == pytest.approx(float(raw.tanh()), abs=0.05)


def test_iql_does_the_better_of_what_was_done():
    found = decided(IQLLoss, make_actor, make_critics, make_value, temperature=0.1)
    assert found == pytest.approx(GOOD, abs=0.1)


def test_cql_does_the_better_of_what_was_done():
    settings = {"weight": 0.2, "alpha_init": 0.01, "target_entropy": -4.0}
    found = decided(CQLLoss, make_actor, make_critics, **settings)
    assert found == pytest.approx(GOOD, abs=0.15)
