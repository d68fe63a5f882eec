"""CQL: what holds its critics down, by loops and by calculus; without it, SAC."""

import math

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from trading_torchrl.modules import EnsembleMLP, make_actor, make_critics
from trading_torchrl.objectives import CQLLoss, SACLoss

LOSSES = ("loss_actor", "loss_qvalue", "loss_alpha")


def rows(*batch, observed=3, actions=2, objectives=1, seed=0):
    draw = torch.Generator().manual_seed(seed)

    def normal(width):
        return torch.randn(*batch, width, generator=draw)

    following = {
        "observation": normal(observed),
        "reward": normal(objectives),
        "terminated": torch.rand(*batch, 1, generator=draw) < 0.3,
    }
    return TensorDict(
        {"observation": normal(observed), "action": normal(actions).tanh(), "next": following},
        batch,
    )


def make(kind=CQLLoss, observed=3, actions=2, objectives=1, **settings):
    torch.manual_seed(0)
    critics = make_critics(observed, actions, [16], objectives=objectives)
    return kind(make_actor(observed, actions, [16]), critics, gamma=0.9, **settings)


def gradients(loss, value):
    named = {name: each for name, each in loss.named_parameters() if each.requires_grad}
    found = torch.autograd.grad(value, list(named.values()), allow_unused=True, retain_graph=True)
    return {name: each for name, each in zip(named, found, strict=True) if each is not None}


def linear_critics(weights):
    """Critics ``[M, D + A, 1]`` x (observation, action)."""
    network = EnsembleMLP(len(weights), weights.shape[1], [], 1)
    network.weights[0].data, network.biases[0].data = weights, torch.zeros(len(weights), 1, 1)
    return TensorDictModule(network, ["observation", "action"], ["state_action_value"])


def test_without_weight_it_is_sac():
    batch, sac, cql = rows(16), make(SACLoss), make(weight=0.0)
    found = {}
    for name, loss in (("sac", sac), ("cql", cql)):
        torch.manual_seed(1)
        out = loss(batch)
        found[name] = out, gradients(loss, sum(out[key] for key in LOSSES))
    (plain, by_sac), (held, by_cql) = found["sac"], found["cql"]
    for key in sac.out_keys:
        assert torch.equal(plain[key], held[key]), key
    for name in by_sac:
        assert torch.equal(by_sac[name], by_cql[name]), name


def test_the_gap_by_loops():
    """Two states, three actions of each kind, a linear network each for actor and critics."""
    weights = torch.tensor([[[0.3], [-1.2], [2.0]], [[1.0], [0.5], [-0.7]]])
    actor = make_actor(2, 1, [])
    loss = CQLLoss(actor, linear_critics(weights), drawn=3, weight=0.4)
    batch = rows(2, observed=2, actions=1)
    torch.manual_seed(5)
    found = loss._gap(batch).detach().numpy()
    torch.manual_seed(5)
    noise = torch.randn(2, 3, 1).double().numpy()
    even = torch.empty(2, 3, 1).uniform_(-1, 1).double().numpy()

    layer = actor[0].module.network.layers[0]
    kernel, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    seen, taken = batch["observation"].double().numpy(), batch["action"].double().numpy()
    for state in range(2):
        loc, log_scale = kernel @ seen[state] + bias
        for member in range(2):

            def value(action, member=member, state=state):
                w = weights[member, :, 0].double().numpy()
                return w[0] * seen[state, 0] + w[1] * seen[state, 1] + w[2] * action

            total = 0.0
            for each in range(3):
                total += math.exp(value(even[state, each, 0])) / 0.5
                drawn = noise[state, each, 0]
                raw = loc + math.exp(log_scale) * drawn
                density = math.exp(-0.5 * drawn**2) / math.sqrt(2 * math.pi) / math.exp(log_scale)
                density /= 1 - math.tanh(raw) ** 2
                total += math.exp(value(math.tanh(raw))) / density
            wanted = math.log(total / 6) - value(taken[state, 0])
            assert found[state, member] == pytest.approx(wanted, rel=1e-4)

    torch.manual_seed(5)
    plain = SACLoss(actor, linear_critics(weights))
    torch.manual_seed(7)
    without = plain(batch)["loss_qvalue"]
    torch.manual_seed(7)
    out = loss(batch)
    # Critics are summed, rows are averaged.
    more = (out["loss_qvalue"] - without).item()
    assert out["gap"].item() * 2 * 0.4 == pytest.approx(more, 1e-4)


def test_the_gap_is_an_integral():
    """Q = c x action: the integral of exp Q over [-1, 1] is 2 sinh(c) / c."""
    slope = 2.0
    critics = linear_critics(torch.tensor([[[0.0], [slope]]]))
    loss = CQLLoss(make_actor(1, 1, [8]), critics, drawn=20_000)
    batch = rows(3, observed=1, actions=1)
    torch.manual_seed(0)
    found = loss._gap(batch).detach()
    wanted = np.log(2 * np.sinh(slope) / slope) - slope * batch["action"]
    torch.testing.assert_close(found, wanted.float(), rtol=0, atol=0.02)


def test_each_loss_reaches_its_own_parameters():
    loss = make()
    out = loss(rows(16))
    for name, part in (("loss_actor", "actor_network"), ("loss_qvalue", "qvalue_network")):
        assert {each.split(".")[0] for each in gradients(loss, out[name])} == {part}


def test_critics_fall_where_the_data_are_not():
    """After steps on one state where only actions near 1/2 are known, others are worth less."""
    torch.manual_seed(0)
    loss = make(observed=1, actions=1, weight=1.0)
    optimizer = torch.optim.Adam(loss.qvalue_network.parameters(), lr=1e-2)
    batch = rows(64, observed=1, actions=1)
    batch["action"].uniform_(0.4, 0.6)
    batch["next", "reward"].zero_()
    batch["next", "terminated"].fill_(True)
    for _ in range(150):
        optimizer.zero_grad()
        loss(batch)["loss_qvalue"].backward()
        optimizer.step()
    with torch.no_grad():
        at = {a: loss._values(loss.qvalue_network, batch, torch.full((64, 1), a)).mean()
              for a in (-0.9, -0.5, 0.5)}  # fmt: skip
    assert at[0.5] > at[-0.5] + 0.5
    assert at[0.5] > at[-0.9] + 0.5


@pytest.mark.parametrize("weights", [[0.5, 0.3, 0.2], None])
def test_several_objectives_and_rows_in_two_dimensions(weights):
    """Weights of the loss, or of every row, give the same; so do rows ``[4, 5]`` and ``[20]``."""
    loss = make(objectives=3, objective_weights=weights, reduction="none")
    batch = rows(4, 5, objectives=3)
    if weights is None:
        batch["objectives", "weights"] = torch.tensor([0.5, 0.3, 0.2]).expand(4, 5, 3)
    torch.manual_seed(1)
    whole = loss._gap(batch)
    torch.manual_seed(1)
    flat = loss._gap(batch.reshape(-1))
    assert whole.shape == (4, 5, 2)
    torch.testing.assert_close(whole.flatten(0, 1), flat)
    same = make(objectives=3, objective_weights=[0.5, 0.3, 0.2])
    torch.manual_seed(1)
    torch.testing.assert_close(same._gap(batch.exclude("objectives").reshape(-1)), flat)


def test_windows_stand_beside_what_is_seen():
    keys = ["observation", "window"]
    actor, critics = (build(3 + 4 * 5, 1, [16], keys) for build in (make_actor, make_critics))
    batch = rows(6, actions=1)
    batch["window"], batch["next", "window"] = torch.randn(6, 4, 5), torch.randn(6, 4, 5)
    out = CQLLoss(actor, critics, drawn=4)(batch)
    assert all(out[key].isfinite() for key in (*LOSSES, "gap"))


def test_what_a_mask_leaves_out_counts_nowhere():
    batch = rows(8)
    few = make(weight=2.0, reduction="sum")
    padded = batch.clone()
    padded["collector", "mask"] = torch.arange(8)[:, None] < 5
    padded["observation"][5:] = torch.nan
    out = few(padded)
    assert out["gap"].isfinite()
    assert all(each.isfinite().all() for each in gradients(few, out["loss_qvalue"]).values())


@pytest.mark.parametrize("settings", [{"weight": -1.0}, {"weight": math.inf}, {"drawn": 0}])
def test_settings_are_checked(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        make(**settings)
