"""CrossQ: batches and targets by hand in numpy, modes, turns, masks, a problem it solves."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn

from trading_torchrl.modules import NormalisedEnsembleMLP, make_actor, make_normalised_critics
from trading_torchrl.modules.normalised import EPSILON
from trading_torchrl.objectives import CrossQLoss

LOSSES = ("loss_actor", "loss_qvalue", "loss_alpha")


def rows(count=16, observed=3, actions=1, objectives=1, seed=0):
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draw)

    following = {
        "observation": 3 + 2 * normal(count, observed),
        "reward": normal(count, objectives),
        "terminated": torch.rand(count, 1, generator=draw) < 0.3,
    }
    taken = {"observation": normal(count, observed), "action": normal(count, actions).tanh()}
    return TensorDict({**taken, "next": following}, [count])


def make(observed=3, actions=1, objectives=1, **settings):
    torch.manual_seed(0)
    actor = make_actor(observed, actions, [16])
    critics = make_normalised_critics(observed, actions, [16], objectives=objectives)
    return CrossQLoss(actor, critics, **{"actor_every": 1, **settings})


def seeded(loss, batch, seed=0):
    torch.manual_seed(seed)
    return loss(batch)


def gradients(loss, value):
    named = {name: each for name, each in loss.named_parameters() if each.requires_grad}
    found = torch.autograd.grad(value, list(named.values()), allow_unused=True, retain_graph=True)
    return {name: each for name, each in zip(named, found, strict=True) if each is not None}


def numbers(tensor):
    return tensor.detach().double().numpy()


def forward(network, seen, mean=None, variance=None):
    """What the members say of ``seen`` [rows, D], in loops; by batches where no means are given."""
    said = []
    for member in range(network.members):
        values = seen
        for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
            one = min(member, len(network.norms[layer].mean) - 1)
            centre = values.mean(0) if mean is None else mean[layer][one]
            spread = values.var(0) if variance is None else variance[layer][one]
            values = (values - centre) / np.sqrt(spread + EPSILON)
            values = values @ numbers(weight[member]) + numbers(bias[member])
            values = np.maximum(values, 0) if layer < len(network.weights) - 1 else values
        said.append(values)
    return np.stack(said, 1)


def test_losses_by_hand():
    """Both halves are one batch; the actor learns from running means."""
    loss, batch = make(gamma=0.9, alpha_init=0.3), rows(count=6)
    network = loss.qvalue_network.module
    torch.manual_seed(1)
    for norm in network.norms:  # else they are 0 and 1
        norm.mean.normal_()
        norm.variance.uniform_(0.5, 2)
    before = [(numbers(norm.mean[:, 0]), numbers(norm.variance[:, 0])) for norm in network.norms]
    torch.manual_seed(0)
    following, following_log_prob = loss._act(batch["next"])
    action, log_prob = loss._act(batch)
    out = seeded(loss, batch)

    done = np.concatenate([numbers(batch["observation"]), numbers(batch["action"])], 1)
    after = np.concatenate([numbers(batch["next", "observation"]), numbers(following)], 1)
    both = forward(network, np.concatenate([done, after]))[..., 0]
    goes_on = 1 - numbers(batch["next", "terminated"])[:, 0]
    soft = both[6:].min(1) - 0.3 * numbers(following_log_prob)
    wanted = numbers(batch["next", "reward"])[:, 0] + 0.9 * goes_on * soft
    error = both[:6] - wanted[:, None]
    squared = 0.5 * (error**2).sum(1).mean()
    assert float(out["loss_qvalue"].detach()) == pytest.approx(squared, rel=1e-4)

    # The running means have moved by a hundredth of the way to the batch of both halves.
    seen = np.concatenate([done, after])
    moved = before[0][0] + 0.01 * (seen.mean(0) - before[0][0])
    np.testing.assert_allclose(numbers(network.norms[0].mean[:, 0]), moved, rtol=1e-5)
    moved = before[0][1] + 0.01 * (seen.var(0) - before[0][1])
    np.testing.assert_allclose(numbers(network.norms[0].variance[:, 0]), moved, rtol=1e-5)

    means, variances = zip(
        *((numbers(norm.mean[:, 0]), numbers(norm.variance[:, 0])) for norm in network.norms),
        strict=True,
    )
    decided = np.concatenate([numbers(batch["observation"]), numbers(action)], 1)
    worth = forward(network, decided, means, variances)[..., 0].min(1)
    actor = (0.3 * numbers(log_prob) - worth).mean()
    assert float(out["loss_actor"].detach()) == pytest.approx(actor, rel=1e-4)


def test_renormalised_batches_are_where_running_means_have_them():
    torch.manual_seed(0)
    network = NormalisedEnsembleMLP(2, 3, [8], 1, warmup=200)
    for norm in network.norms:
        norm.rate = 0.1
    for _ in range(199):  # until running means are near those of a batch
        network(torch.randn(64, 3))
    seen = torch.randn(64, 3)
    by_batch = network(seen)
    running = deepcopy(network).eval()(seen)
    renormalised = network(seen)  # the first batch after the warm-up
    torch.testing.assert_close(renormalised, running, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(by_batch, renormalised, atol=1e-3)


def test_corrections_stay_within_bounds():
    network = NormalisedEnsembleMLP(1, 1, [], 1, warmup=0)
    with torch.no_grad():
        network.weights[0].fill_(1.0)
        network.biases[0].zero_()
    seen = torch.tensor([[1_000.0], [1_002.0]])  # 1 beside a mean of 1,001; running: 0 and 1
    wide = (1 + EPSILON) ** -0.5 * 3
    said = network(seen).flatten().tolist()  # 1,001 deviations away, and told as 5
    assert said == pytest.approx([5 - min(wide, 1.0), 5 + min(wide, 1.0)], abs=2e-3)
    seen = 100 * (seen - 1_001)
    network.norms[0].mean.zero_()
    network.norms[0].variance.fill_(1.0)
    assert network(seen).flatten().tolist() == pytest.approx([-3, 3], abs=1e-3)


def test_there_are_no_slow_critics():
    loss = make()
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    assert not any(name.startswith("target") for name in before)
    loss.update_targets(0.5)
    assert all(torch.equal(value, before[name]) for name, value in loss.state_dict().items())


@pytest.mark.parametrize("objectives", [1, 3])
def test_each_loss_reaches_its_own_parameters(objectives):
    weights = None if objectives == 1 else [0.5, 0.3, 0.2]
    loss = make(objectives=objectives, objective_weights=weights)
    out = loss(rows(objectives=objectives))
    for key, owner in zip(LOSSES, ("actor_network", "qvalue_network", "log_alpha"), strict=True):
        assert {name.split(".")[0] for name in gradients(loss, out[key])} == {owner}


def test_no_gradient_comes_through_what_follows():
    """Only by the mean and the deviation that it shares with what was done."""
    loss, batch = make(gamma=0.9, alpha_init=0.3), rows()
    batch["next", "terminated"].fill_(False)
    found = gradients(loss, seeded(loss, batch)["loss_qvalue"])
    network = loss.qvalue_network.module
    torch.manual_seed(0)
    following, log_prob = loss._act(batch["next"])
    seen = torch.cat([batch["observation"], batch["next", "observation"]])
    value = network(seen, torch.cat([batch["action"], following]).detach())[..., 0]
    soft = value[16:].amin(1, keepdim=True) - 0.3 * log_prob[:, None]
    error = value[:16] - (batch["next", "reward"] + 0.9 * soft).detach()
    by_hand = torch.autograd.grad(0.5 * error.square().sum(1).mean(), list(network.weights))
    for index, gradient in enumerate(by_hand):
        torch.testing.assert_close(found[f"qvalue_network.module.weights.{index}"], gradient)


def test_the_actor_has_its_turns():
    loss = make(actor_every=3)
    outs = [loss(rows()) for _ in range(6)]
    turns = [gradients(loss, sum(out[key] for key in LOSSES)) for out in outs]
    moved = [{name.split(".")[0] for name in turn} for turn in turns]
    between, turn = {"qvalue_network"}, {"qvalue_network", "actor_network", "log_alpha"}
    assert moved == [between, between, turn, between, between, turn]


def test_evaluation_moves_no_means_and_judges_row_by_row():
    loss, batch = make(), rows()
    loss.eval()
    before = {name: value.clone() for name, value in loss.qvalue_network.state_dict().items()}
    whole = seeded(loss, batch)["loss_qvalue"]
    assert all(torch.equal(v, before[k]) for k, v in loss.qvalue_network.state_dict().items())
    assert not loss.qvalue_network.training
    loss.train()
    assert seeded(loss, batch)["loss_qvalue"] != whole
    assert loss.qvalue_network.training


def test_masked_rows_count_in_no_mean():
    plain, masked, batch = make(), make(), rows(count=24)
    expected = plain(batch[:10].clone())
    padded = batch.clone()
    padded["collector", "mask"] = torch.arange(24)[:, None] < 10
    padded["next", "reward"][10:] = torch.nan
    padded["next", "observation"][10:] = 1e9
    torch.manual_seed(0)
    found = masked(padded)
    for key in ("loss_qvalue", "td_error"):
        assert found[key].isfinite()
    names = dict(plain.named_buffers())
    for name, value in masked.named_buffers():
        if name.endswith(("norms.0.mean", "norms.0.variance")):
            # What was drawn for what follows differs: the observations' three columns do not.
            torch.testing.assert_close(value[..., :3], names[name][..., :3])
    assert expected["loss_qvalue"].isfinite()


def test_masked_rows_change_no_loss():
    """Where the noise on the next action counts for nothing, it is as if they were not there."""
    batch = rows(count=24)
    padded = batch.clone()
    padded["shifted_valid"] = torch.arange(24) < 10
    padded["next", "observation"][10:] = torch.nan
    found = []
    for each in (batch[:10], padded):
        loss = make()
        with torch.no_grad():
            loss.qvalue_network.module.weights[0][:, 3:] = 0  # critics do not see the action
        loss.log_alpha.data.fill_(-1e9)
        found.append(seeded(loss, each)["loss_qvalue"])
    torch.testing.assert_close(*found)


def test_rows_of_any_batch_shape():
    batch = rows(24)
    flat, square = seeded(make(), batch), seeded(make(), batch.reshape(4, 6))
    for key in LOSSES:
        torch.testing.assert_close(flat[key], square[key])


def test_any_critic_that_normalises_will_do():
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))

        def forward(self, observation, action):
            return self.layers(torch.cat([observation, action], -1)).unsqueeze(-1)

    critics = TensorDictModule(Joined(), ["observation", "action"], ["state_action_value"])
    loss = CrossQLoss(make_actor(3, 1, [8]), critics)
    loss(rows())
    counted = dict(loss.named_buffers())["qvalue_network.module.layers.0.num_batches_tracked"]
    assert int(counted) == 1  # not again for the actor


def test_running_means_and_turns_are_saved():
    used, fresh, batch = make(actor_every=3), make(actor_every=3), rows()
    for _ in range(2):
        used(batch)
    fresh.load_state_dict(used.state_dict())
    one, other = seeded(used, batch), seeded(fresh, batch)
    assert all(torch.equal(one[key], other[key]) for key in used.out_keys)
    assert gradients(used, one["loss_actor"]).keys() == gradients(fresh, other["loss_actor"]).keys()


def test_settings_are_checked():
    with pytest.raises(ValueError, match="actor_every must be at least 1 call, got 0"):
        make(actor_every=0)
    with pytest.raises(ValueError, match="choose network=mlp"):
        make_normalised_critics(3, 1, network=nn.Linear)


def test_it_finds_the_best_action_of_a_bandit():
    """Reward -(action - observation / 2)^2, which ends at once."""
    torch.manual_seed(0)
    actor, critics = make_actor(1, 1, [32]), make_normalised_critics(1, 1, [32])
    loss = CrossQLoss(actor, critics, actor_every=1, alpha_init=0.1, target_entropy=-3.0)
    optimizer = torch.optim.Adam([p for p in loss.parameters() if p.requires_grad], lr=5e-3)
    for _ in range(600):
        seen, action = 2 * torch.rand(128, 1) - 1, 2 * torch.rand(128, 1) - 1
        following = {
            "observation": seen,
            "reward": -((action - seen / 2) ** 2),
            "terminated": torch.ones(128, 1, dtype=torch.bool),
        }
        out = loss(TensorDict({"observation": seen, "action": action, "next": following}, [128]))
        optimizer.zero_grad()
        sum(out[key] for key in LOSSES).backward()
        optimizer.step()
    seen = torch.linspace(-1, 1, 21)[:, None]
    with torch.no_grad():
        decided = actor.get_dist(TensorDict({"observation": seen}, [21])).mode
    torch.testing.assert_close(decided, seen / 2, rtol=0, atol=0.1)
