"""Discrete SAC and DQN: targets by hand, sums against loops, masks, TorchRL's own, a bandit."""

import math

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch.distributions import Categorical
from torchrl.modules import MLP as TorchRLMLP
from torchrl.modules import MaskedCategorical, ProbabilisticActor, QValueActor
from torchrl.objectives import DiscreteSACLoss as TorchRLDiscreteSACLoss
from torchrl.objectives import DQNLoss as TorchRLDQNLoss

from trading_torchrl.modules import (
    EnsembleMLP,
    make_discrete_actor,
    make_discrete_critics,
    make_q_actor,
)
from trading_torchrl.objectives import DiscreteSACLoss, DQNLoss

OBSERVED, CHOICES = 3, 4
SEEN = ["observation", "action_mask"]
SAC_LOSSES = ("loss_actor", "loss_qvalue", "loss_alpha")


def rows(count=16, seed=0):
    """Random rows in which some choices are not allowed, and what was done is."""
    draw = torch.Generator().manual_seed(seed)
    masks = [torch.rand(count, CHOICES, generator=draw) < 0.6 for _ in range(2)]
    for mask in masks:
        mask[:, 0] = True
    following = {
        "observation": torch.randn(count, OBSERVED, generator=draw),
        "action_mask": masks[1],
        "reward": torch.randn(count, 1, generator=draw),
        "terminated": torch.rand(count, 1, generator=draw) < 0.3,
    }
    taken = {
        "observation": torch.randn(count, OBSERVED, generator=draw),
        "action_mask": masks[0],
        "action": torch.multinomial(masks[0].float(), 1, generator=draw)[:, 0],
    }
    return TensorDict({**taken, "next": following}, [count])


def moved(loss):
    """With slow copies of their own, or a target could be mistaken for what is trained."""
    with torch.no_grad():
        for parameter in loss.target_qvalue_network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return loss


def sac(in_keys=SEEN, members=2, **settings):
    torch.manual_seed(0)
    actor = make_discrete_actor(OBSERVED, CHOICES, [16], in_keys)
    critics = make_discrete_critics(OBSERVED, CHOICES, [16], in_keys, members=members)
    return moved(DiscreteSACLoss(actor, critics, **settings))


def dqn(in_keys=SEEN, members=1, **settings):
    torch.manual_seed(0)
    return moved(
        DQNLoss(make_q_actor(OBSERVED, CHOICES, [16], in_keys, members=members), **settings)
    )


def gradients(loss, value):
    named = {name: each for name, each in loss.named_parameters() if each.requires_grad}
    found = torch.autograd.grad(value, list(named.values()), allow_unused=True, retain_graph=True)
    return {name: each for name, each in zip(named, found, strict=True) if each is not None}


# --- Known answers: networks that are tables, of states that are rows of the identity


def table(values):
    """Values ``[M, states, choices]`` as an ensemble of critics."""
    values = torch.tensor(values)
    members, states, choices = values.shape
    network = EnsembleMLP(members, states, [], choices)
    network.weights[0].data, network.biases[0].data = values, torch.zeros(members, 1, choices)
    return TensorDictModule(network, ["observation"], ["action_value"])


def two_rows():
    """From the first state to the second; one row ends in ruin, one at the end of the data."""
    first, second = torch.eye(2)
    following = {
        "observation": second.expand(2, 2),
        "action_mask": torch.tensor([[True, True, False]]).expand(2, 3),
        "reward": torch.tensor([[10.0], [20.0]]),
        "terminated": torch.tensor([[True], [False]]),
        "truncated": torch.tensor([[False], [True]]),
    }
    taken = {
        "observation": first.expand(2, 2),
        "action_mask": torch.tensor([[True, False, True]]).expand(2, 3),
        "action": torch.tensor([0, 2]),
    }
    return TensorDict({**taken, "next": following}, [2])


@pytest.mark.parametrize("kind", ["l2", "smooth_l1"])
def test_dqn_target_by_hand(kind):
    actor = make_q_actor(2, 3, [], SEEN)
    held, ahead = [1.0, 50.0, 19.75], [1.0, 5.0, 90.0]
    actor[0].module.load_state_dict(table([[held, ahead]]).module.state_dict())
    loss = DQNLoss(actor, gamma=0.5, loss_function=kind)
    slow = table([[[0.0, 0.0, 0.0], [7.0, -1.0, 100.0]]])
    loss.target_qvalue_network.load_state_dict(slow.state_dict())
    out = loss(two_rows()).detach()
    # Next the network itself would choose 1 (2 is not allowed), which its slow copy values at -1,
    # though that values 0 at 7.
    errors = (1.0 - 10.0, 19.75 - (20.0 - 0.5))
    parts = [0.5 * e**2 if kind == "l2" or abs(e) < 1 else abs(e) - 0.5 for e in errors]
    assert float(out["loss_qvalue"]) == pytest.approx(sum(parts) / 2)
    assert float(out["td_error"]) == pytest.approx((9 + 0.25) / 2)
    assert float(out["q"]) == pytest.approx((1 + 19.75) / 2)


def test_dqn_with_members_follows_their_mean_and_believes_the_lowest():
    actor = make_q_actor(2, 3, [], SEEN, members=2)
    online = [[[0.0] * 3, [4.0, 3.0, 9.0]], [[0.0] * 3, [0.0, 2.0, 9.0]]]
    actor[0].module.load_state_dict(table(online).module.state_dict())
    loss = DQNLoss(actor, gamma=1.0, loss_function="l2", reduction="none")
    slow = table([[[0.0] * 3, [0.0, 6.0, 0.0]], [[0.0] * 3, [0.0, 5.0, 0.0]]])
    loss.target_qvalue_network.load_state_dict(slow.state_dict())
    # Means 2 and 2.5: choice 1, of which 5 is the lower value; both members learn it.
    assert loss(two_rows())["loss_qvalue"].tolist() == [2 * 0.5 * 10**2, 2 * 0.5 * 25**2]


def test_sac_target_by_hand():
    actor = make_discrete_actor(2, 3, [], SEEN)
    odds = torch.tensor([[3.0, 1.0, 1.0], [1.0, 3.0, 8.0]])
    with torch.no_grad():
        actor[0].module.layers[0].weight.copy_(odds.log().T)
        actor[0].module.layers[0].bias.zero_()
    critics = table([[[1.0, 9.0, 4.0], [0.0] * 3], [[2.0, 9.0, 3.0], [0.0] * 3]])
    loss = DiscreteSACLoss(actor, critics, gamma=0.9, alpha_init=0.2)
    slow = table([[[0.0] * 3, [5.0, 2.0, 50.0]], [[0.0] * 3, [4.0, 3.0, 50.0]]])
    loss.target_qvalue_network.load_state_dict(slow.state_dict())
    out = loss(two_rows()).detach()

    # Next: 1/4 and 3/4 on the first two, the lower values are 4 and 2.
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    wanted = (10.0, 20.0 + 0.9 * (0.25 * 4 + 0.75 * 2 + 0.2 * entropy))
    held = ((1.0, 2.0), (4.0, 3.0))
    squares = [sum(0.5 * (q - y) ** 2 for q in both) for both, y in zip(held, wanted, strict=True)]
    assert float(out["loss_qvalue"]) == pytest.approx(sum(squares) / 2)
    # Now: 3/4 and 1/4 on the first and the last, the lower values are 1 and 3.
    worth = 0.75 * 1 + 0.25 * 3
    assert float(out["q"]) == pytest.approx(worth)
    assert float(out["loss_actor"]) == pytest.approx(-0.2 * entropy - worth)
    assert float(out["entropy"]) == pytest.approx(entropy)
    # Two of three are allowed, in both rows.
    goal = 0.5 * math.log(2)
    assert float(out["loss_alpha"]) == pytest.approx(math.log(0.2) * (entropy - goal))


def test_means_over_choices_against_a_loop():
    loss = sac(members=3, gamma=0.8, alpha_init=0.3, target_entropy=0.4, reduction="none")
    batch = rows()
    out = loss(batch)

    def lowest(network, place, row):
        values = network.module(place["observation"][row])  # [M, choices]
        return values.min(0).values

    for row in range(len(batch)):
        probabilities = {}
        for name, place in (("now", batch), ("next", batch["next"])):
            logits = loss.actor_network[0].module(place["observation"][row]).exp()
            allowed = [i for i in range(CHOICES) if place["action_mask"][row, i]]
            probabilities[name] = {i: logits[i] / sum(logits[j] for j in allowed) for i in allowed}
        values = lowest(loss.qvalue_network, batch, row)
        each = [p * (0.3 * p.log() - values[i]) for i, p in probabilities["now"].items()]
        torch.testing.assert_close(out["loss_actor"][row], sum(each))
        entropy = -sum(p * p.log() for p in probabilities["now"].values())
        torch.testing.assert_close(out["loss_alpha"][row], math.log(0.3) * (entropy - 0.4))
        values = lowest(loss.target_qvalue_network, batch["next"], row)
        ahead = sum(p * (values[i] - 0.3 * p.log()) for i, p in probabilities["next"].items())
        goes_on = 0.8 * (not batch["next", "terminated"][row, 0])
        wanted = batch["next", "reward"][row, 0] + goes_on * ahead
        held = loss.qvalue_network.module(batch["observation"][row])[:, batch["action"][row]]
        torch.testing.assert_close(out["loss_qvalue"][row], (0.5 * (held - wanted) ** 2).sum())


# --- Properties


def test_each_loss_reaches_its_own_parameters():
    loss = sac()
    out = loss(rows())
    for name, part in (
        ("loss_actor", "actor_network"),
        ("loss_qvalue", "qvalue_network"),
        ("loss_alpha", "log_alpha"),
    ):
        found = gradients(loss, out[name])
        assert {each.split(".")[0] for each in found} == {part}
        assert all(bool(each.abs().sum() > 0) for each in found.values())
    loss = dqn()
    trained = [each for each in loss.parameters() if each.requires_grad]
    found = gradients(loss, loss(rows())["loss_qvalue"])
    assert len(found) == len(trained) == 4


@pytest.mark.parametrize("make", [sac, dqn])
def test_what_is_not_allowed_is_worth_nothing(make):
    """Whatever networks say of choices that are not allowed, no loss and no gradient moves."""
    outs = []
    for shift in (0.0, 1e4):
        loss = make()
        batch = rows(count=256)
        for place in (batch, batch["next"]):
            place["action_mask"][:, 1] = False
        batch["action"] = torch.where(batch["action"] == 1, 0, batch["action"])
        networks = [loss.actor_network[0], loss.qvalue_network, loss.target_qvalue_network]
        with torch.no_grad():
            for bias in {
                id(each): each
                for network in networks
                for each in network.parameters()
                if each.shape[-1] == CHOICES and each.numel() // CHOICES in (1, 2)
            }.values():
                bias[..., 1] += shift
        out = loss(batch)
        total = sum(value for name, value in out.items() if name.startswith("loss_"))
        outs.append((out.detach(), gradients(loss, total)))
    (first, slopes), (second, others) = outs
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], msg=str(name))
    for name, slope in slopes.items():
        torch.testing.assert_close(slope, others[name], msg=name)


@pytest.mark.parametrize("make", [sac, dqn])
@pytest.mark.parametrize("shape", [(16, 1), (16,)])
def test_rows_that_a_mask_leaves_out_count_nowhere(make, shape):
    loss, batch = make(), rows()
    good = torch.arange(16) % 3 > 0
    expected = loss(batch[good])
    for name in ("observation", ("next", "observation"), ("next", "reward")):
        batch[name] = torch.where(good[:, None], batch[name], torch.nan)
    for name in ("action_mask", ("next", "action_mask")):
        batch[name] &= good[:, None]
    batch["action"] = torch.where(good, batch["action"], 99)
    batch["collector", "mask"] = good.view(shape)
    found = loss(batch)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=str(name))
        if name.startswith("loss_"):
            slopes = gradients(loss, found[name]).values()
            assert all(bool(each.isfinite().all()) for each in slopes)


@pytest.mark.parametrize("make", [sac, dqn])
def test_actions_may_have_a_dimension_more_and_keys_other_names(make):
    plain, batch = make(), rows()
    expected = plain(batch)
    batch["action"] = batch["action"][:, None]
    torch.testing.assert_close(plain(batch)["loss_qvalue"], expected["loss_qvalue"])
    renamed = make()
    renamed.set_keys(reward="gain", action="choice")
    batch = batch.rename_key_("action", "choice")
    batch["next", "gain"] = batch["next"].pop("reward")
    torch.testing.assert_close(renamed(batch)["loss_qvalue"], expected["loss_qvalue"])
    assert {("next", "gain"), "choice", ("next", "action_mask")} <= set(renamed.in_keys)


def test_plain_categoricals_and_infinite_logits_do_too():
    """A policy of one's own, with TorchRL's default of minus infinity where it may not go."""
    theirs = ProbabilisticActor(
        make_discrete_actor(OBSERVED, CHOICES, [16])[0],
        in_keys={"logits": "logits", "mask": "action_mask"},
        distribution_class=MaskedCategorical,
    )
    ours = sac()
    theirs[0].load_state_dict(ours.actor_network[0].state_dict())
    other = DiscreteSACLoss(theirs, ours.qvalue_network)
    other.target_qvalue_network.load_state_dict(ours.target_qvalue_network.state_dict())
    first, second = ours(rows()), other(rows())
    for name in SAC_LOSSES:
        torch.testing.assert_close(first[name], second[name])
        assert all(bool(g.isfinite().all()) for g in gradients(other, second[name]).values())
    assert isinstance(
        make_discrete_actor(OBSERVED, CHOICES).get_dist(rows().select("observation")), Categorical
    )


def test_settings_are_checked():
    with pytest.raises(ValueError, match="one objective"):
        sac(objective_weights=[0.5, 0.5])
    with pytest.raises(ValueError, match="loss_function must be"):
        dqn(loss_function="l3")
    with pytest.raises(ValueError, match="gamma"):
        dqn(gamma=2.0)
    with pytest.raises(ValueError, match="at least 2 choices"):
        make_discrete_critics(3, 1)
    with pytest.raises(ValueError, match="epsilon must lie"):
        make_q_actor(3, 2, epsilon=1.5)


# --- TorchRL's own


def as_theirs(network, member=0, columns=CHOICES):
    """A member of an ensemble as a perceptron of TorchRL's."""
    single = TorchRLMLP(OBSERVED, columns, num_cells=[16], activation_class=torch.nn.ReLU)
    layers = [each for each in single if isinstance(each, torch.nn.Linear)]
    for layer, weight, bias in zip(layers, network.weights, network.biases, strict=True):
        layer.weight.data = weight.detach()[member].T.clone()
        layer.bias.data = bias.detach()[member, 0].clone()
    return single


@pytest.mark.filterwarnings("ignore:No target network updater")
def test_sac_equals_torchrls():
    ours = sac(gamma=0.9, alpha_init=0.3, target_entropy=0.7)
    batch = rows()
    batch["next", "done"] = batch["next", "terminated"].clone()
    singles, targets = (
        [
            TensorDictModule(as_theirs(each.module, m), ["observation"], ["action_value"])
            for m in range(2)
        ]
        for each in (ours.qvalue_network, ours.target_qvalue_network)
    )
    theirs = TorchRLDiscreteSACLoss(
        ours.actor_network, singles, action_space="categorical", num_actions=CHOICES,
        alpha_init=0.3, target_entropy=0.7, loss_function="l2",
    )  # fmt: skip
    theirs.make_value_estimator(gamma=0.9)
    theirs.target_qvalue_network_params.data.update_(TensorDict.from_modules(*targets).data)
    found, expected = ours(batch), theirs(batch.clone())
    for name in ("loss_actor", "loss_alpha", "alpha", "entropy"):
        torch.testing.assert_close(found[name], expected[name], msg=name)
    # Theirs is the square of the error, ours half of it.
    torch.testing.assert_close(2 * found["loss_qvalue"], expected["loss_qvalue"])


@pytest.mark.filterwarnings("ignore:No target network updater")
@pytest.mark.parametrize(("kind", "times"), [("l2", 2), ("smooth_l1", 1)])
def test_dqn_equals_torchrls(kind, times):
    ours = dqn(gamma=0.9, loss_function=kind)
    batch = rows()
    batch["next", "done"] = batch["next", "terminated"].clone()
    online, slow = (
        QValueActor(
            as_theirs(each.module), in_keys=["observation"], action_space="categorical",
            action_mask_key="action_mask",
        )
        for each in (ours.qvalue_network, ours.target_qvalue_network)
    )  # fmt: skip
    theirs = TorchRLDQNLoss(
        online, loss_function=kind, double_dqn=True, delay_value=True, action_space="categorical"
    )
    theirs.make_value_estimator(gamma=0.9)
    theirs.target_value_network_params.data.update_(TensorDict.from_module(slow).data)
    found, expected = ours(batch), theirs(batch.clone())
    torch.testing.assert_close(times * found["loss_qvalue"], expected["loss"])


# --- A problem


@pytest.mark.parametrize("make", [sac, dqn])
def test_it_finds_the_best_choice_of_a_bandit(make):
    """Choice i pays i x the first observation; the last is not allowed, episodes end at once."""
    loss = make(gamma=0.9)
    optimizer = torch.optim.Adam([p for p in loss.parameters() if p.requires_grad], lr=3e-3)
    mask = torch.tensor([True, True, True, False]).expand(128, CHOICES)
    for _ in range(400):
        seen = 2 * torch.rand(128, OBSERVED) - 1
        action = torch.randint(3, (128,))
        following = {
            "observation": seen,
            "action_mask": mask,
            "reward": action[:, None] * seen[:, :1],
            "terminated": torch.ones(128, 1, dtype=torch.bool),
        }
        taken = {"observation": seen, "action": action, "action_mask": mask}
        out = loss(TensorDict({**taken, "next": following}, [128]))
        optimizer.zero_grad()
        sum(value for name, value in out.items() if name.startswith("loss_")).backward()
        optimizer.step()
        loss.update_targets(0.01)
    seen = torch.zeros(20, OBSERVED)
    seen[:, 0] = torch.cat([torch.linspace(-1, -0.1, 10), torch.linspace(0.1, 1, 10)])
    given = TensorDict({"observation": seen, "action_mask": mask[:20]}, [20])
    with torch.no_grad():
        chosen = loss.actor_network.get_dist(given).mode
    assert chosen.tolist() == [0] * 10 + [2] * 10
