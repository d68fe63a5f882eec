"""The option-critic against scalar references, plain actor-critic, and known answers."""

import math

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch.distributions import Normal
from torchrl.modules import NormalParamExtractor, ProbabilisticActor

from trading_torchrl.modules.controller import Controller
from trading_torchrl.modules.option_policy import END_LOGITS, LOGITS, VALUES
from trading_torchrl.objectives import OptionCriticLoss, OptionsLoss

LOSSES = ("loss_policy", "loss_value", "loss_entropy", "loss_ends")


def controller_of(inputs, options, ends=True, hidden=(16,)):
    network = Controller(inputs, options, hidden, dropout=0.0, ends=ends)
    for head in network.heads.parameters():
        torch.nn.init.normal_(head)
    keys = [LOGITS, VALUES, END_LOGITS] if ends else [LOGITS, VALUES]
    return TensorDictModule(network, in_keys=["observation"], out_keys=keys).double()


def rows_of(count=40, options=3):
    may = torch.rand(2, count, options) < 0.6
    index = torch.randint(0, options, (count, 1))
    may[0].scatter_(-1, index, True)
    may[1, :, 0] = True
    least = torch.where(torch.rand(count) < 0.2, 0.7, 0.0)
    most = torch.where(torch.rand(count) < 0.3, least, 1.0)
    return TensorDict(
        {
            "observation": torch.randn(count, 4).double(),
            "action": torch.randn(count, 1).double(),
            "option": {"index": index, "allowed": may[0]},
            "next": {
                "observation": torch.randn(count, 4).double(),
                "reward": torch.randn(count, 1).double(),
                "terminated": torch.rand(count, 1) < 0.2,
                "option": {"allowed": may[1], "ends": torch.stack([least, most], -1).double()},
            },
        },
        [count],
    )


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


@torch.no_grad()
def by_hand(loss, rows):
    """One row after the other, in plain numbers."""
    network, slow = loss.controller_network.module, loss.target_controller_network.module

    def policy(net, seen, may):
        logits, values, *ends = net(seen)
        exps = [math.exp(x) if ok else 0.0 for x, ok in zip(logits.tolist(), may, strict=True)]
        probs = [each / sum(exps) for each in exps]
        return probs, values.tolist(), ends[0].tolist() if ends else None

    told = []
    for row in rows.unbind(0):
        then, k = row["next"], int(row["option", "index"])
        probs, values, _ = policy(network, row["observation"], row["option", "allowed"])
        average = sum(p * q for p, q in zip(probs, values, strict=True))
        better = [q - average for q in values]
        at = then["observation"], then["option", "allowed"]
        there, worth, slowly = policy(slow, *at)
        least, most = then["option", "ends"].tolist()
        both = [
            least if logits is None else min(max(sigmoid(logits[k]), least), most)
            for logits in (slowly, policy(network, *at)[2])
        ]
        beta, ends = both
        choice = sum(p * q for p, q in zip(there, worth, strict=True))
        over = bool(then["terminated"])
        ahead = 0.0 if over else (1 - beta) * worth[k] + beta * choice
        target = float(then["reward"]) + loss.gamma * ahead
        told.append(
            {
                "probs": probs, "better": better, "misfit": values[k] - target,
                "square": sum(p * b * b for p, b in zip(probs, better, strict=True)),
                "entropy": -sum(p * math.log(p) for p in probs if p > 0),
                "stays": worth[k] - choice, "beta": ends, "over": over,
            }
        )  # fmt: skip
    count = len(told)
    size = math.sqrt(sum(t["square"] for t in told) / count) if loss.normalise else 1.0
    spread = math.sqrt(sum(t["stays"] ** 2 for t in told) / count) if loss.normalise else 1.0
    policies = [
        sum(p * b / size for p, b in zip(t["probs"], t["better"], strict=True)) for t in told
    ]
    stays = [0.0 if t["over"] else t["beta"] * (t["stays"] / spread + loss.margin) for t in told]
    return {
        "loss_policy": -sum(policies) / count,
        "loss_value": loss.value * sum(t["misfit"] ** 2 / 2 for t in told) / count,
        "loss_entropy": -loss.entropy * sum(t["entropy"] for t in told) / count,
        "loss_ends": sum(stays) / count,
    }


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("ends", [True, False])
def test_losses_are_those_of_a_plain_reference(normalise, ends):
    torch.manual_seed(0)
    loss = OptionCriticLoss(
        controller_of(4, 3, ends), gamma=0.9, normalise=normalise, entropy=0.02, value=0.5,
        margin=0.05,
    )  # fmt: skip
    for each in loss.target_controller_network.parameters():
        each.data += 0.1 * torch.randn_like(each)
    rows = rows_of()
    if not ends:
        rows["next", "option", "ends"][:, 1] = rows["next", "option", "ends"][:, 0]
    found, wanted = loss(rows), by_hand(loss, rows)
    for name in LOSSES[: 4 if ends else 3]:
        assert float(found[name].detach()) == pytest.approx(wanted[name], rel=1e-9, abs=1e-12)
    assert set(found.keys()) == set(loss.out_keys)


def test_each_loss_moves_its_own_head():
    torch.manual_seed(0)
    loss = OptionCriticLoss(controller_of(4, 3, hidden=()), gamma=0.9)
    heads, rows = loss.controller_network.module.heads, rows_of()
    for place, name in enumerate(("loss_policy", "loss_value", "loss_ends")):
        (gradient,) = torch.autograd.grad(loss(rows)[name], [heads.weight])
        for head, part in enumerate(gradient.split(3)):
            assert bool((part != 0).any()) == (head == place), (name, head)


def test_ends_learn_where_they_may_differ():
    """A surer end where a choice is worth more, none where limits or purposes decide."""
    torch.manual_seed(0)
    loss = OptionCriticLoss(controller_of(4, 3, hidden=()), gamma=0.9, normalise=False, margin=0.0)
    rows = rows_of(1)
    rows["next", "terminated"][:] = False
    rows["next", "option", "allowed"][:] = True
    k = int(rows["option", "index"])
    _, values, _ = loss.target_controller_network.module(rows["next", "observation"])
    logits = loss.target_controller_network.module(rows["next", "observation"])[0]
    worse = float(values[0, k]) < float((logits.softmax(-1) * values).sum())
    bias = loss.controller_network.module.heads.bias
    for bounds, free in (([0.0, 1.0], True), ([0.0, 0.0], False), ([1.0, 1.0], False)):
        rows["next", "option", "ends"] = torch.tensor([bounds]).double()
        (gradient,) = torch.autograd.grad(loss(rows)["loss_ends"], [bias], allow_unused=True)
        assert bool(gradient[6 + k] != 0) == free
        if free:
            assert bool(gradient[6 + k] < 0) == worse
    rows["next", "option", "ends"] = torch.tensor([[0.0, 1.0]]).double()
    rows["next", "terminated"][:] = True
    (gradient,) = torch.autograd.grad(loss(rows)["loss_ends"], [bias])
    assert float(gradient[6 + k]) == 0


def policy_of(inputs):
    net = torch.nn.Sequential(torch.nn.Linear(inputs, 2), NormalParamExtractor()).double()
    module = TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"])
    return net, ProbabilisticActor(module, in_keys=["loc", "scale"], distribution_class=Normal)


def test_one_option_that_never_ends_has_the_gradients_of_a_plain_actor_critic():
    torch.manual_seed(0)
    controller = controller_of(4, 1)
    net, actor = policy_of(4)
    loss = OptionCriticLoss(controller, actor, gamma=0.9, value=0.5)
    rows = rows_of(options=1)
    rows["next", "option", "ends"].zero_()
    losses = loss(rows)
    total = sum(losses[name] for name in loss.out_keys if name.startswith("loss_"))
    heads = controller.module.heads
    critic = [*controller.module.trunk.parameters(), heads.weight, heads.bias]
    found = torch.autograd.grad(total, [*critic, *net.parameters()])

    def value(seen):
        return heads(controller.module.trunk(seen))[:, 1]

    with torch.no_grad():
        going_on = ~rows["next", "terminated"][:, 0]
        ahead = value(rows["next", "observation"]) * going_on
        target = rows["next", "reward"][:, 0] + 0.9 * ahead
    error = target - value(rows["observation"])
    loc, scale = net(rows["observation"])
    done = Normal(loc, scale).log_prob(rows["action"])[:, 0]
    plain = (0.5 * 0.5 * error.square() - done * error.detach()).mean()
    for mine, theirs in zip(
        found, torch.autograd.grad(plain, [*critic, *net.parameters()]), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def test_rows_that_a_mask_leaves_out_count_nowhere():
    torch.manual_seed(0)
    loss = OptionCriticLoss(controller_of(4, 3), gamma=0.9)
    rows = rows_of()
    some = loss(rows[:30])
    loss.loss_mask_key = "mask"
    rows["mask"] = torch.arange(40) < 30
    rows["next", "reward"][30:] = torch.nan
    masked = loss(rows)
    for name in LOSSES:
        assert float(masked[name].detach()) == pytest.approx(float(some[name].detach()), rel=1e-9)


def test_nothing_teaches_nothing():
    loss = OptionCriticLoss(controller_of(4, 3), gamma=0.9)
    out = loss(rows_of()[:0])
    total = sum(out[name] for name in LOSSES)
    total.backward()
    assert float(total.detach()) == 0


CORRIDOR = 6


def corridor():
    """All that can happen in a corridor whose way out is at its end.

    One option walks on, the other stands still; a step costs 1. Whoever stands should walk: its
    option ends, the walking one does not.
    """
    place = torch.arange(CORRIDOR).repeat(2)
    index = torch.arange(2).repeat_interleave(CORRIDOR)
    then = torch.where(index == 0, place + 1, place)
    out = then == CORRIDOR
    seen = torch.eye(CORRIDOR + 1).double()
    count = len(place)
    return TensorDict(
        {
            "observation": seen[place],
            "option": {
                "index": index[:, None], "allowed": torch.ones(count, 2, dtype=torch.bool)
            },
            "next": {
                "observation": seen[then],
                "reward": -torch.ones(count, 1).double(),
                "terminated": out[:, None],
                "option": {
                    "allowed": torch.ones(count, 2, dtype=torch.bool),
                    "ends": torch.tensor([[0.0, 1.0]]).double().expand(count, 2).clone(),
                },
            },
        },
        [count],
    )  # fmt: skip


def test_options_end_where_another_is_worth_more_and_values_are_those_of_the_corridor():
    torch.manual_seed(0)
    rows, gamma = corridor(), 0.9
    controller = controller_of(CORRIDOR + 1, 2, hidden=())
    loss = OptionCriticLoss(controller, gamma=gamma, entropy=0.0, margin=0.05)
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.05)
    for _ in range(1_500):
        losses = loss(rows)
        optimizer.zero_grad()
        sum(losses[name] for name in LOSSES).backward()
        optimizer.step()
        loss.update_targets(0.1)
    found = controller(rows)
    walks = found[LOGITS].softmax(-1)[:CORRIDOR, 0]
    ends = found[END_LOGITS].sigmoid()
    assert (walks > 0.95).all()
    assert (ends[1:CORRIDOR, 0] < 0.1).all()  # where it gets to
    assert (ends[:CORRIDOR, 1] > 0.9).all()
    left = torch.arange(CORRIDOR, 0, -1).double()
    worth = -(1 - gamma**left) / (1 - gamma)
    torch.testing.assert_close(found[VALUES][:CORRIDOR, 0], worth, rtol=0.02, atol=0.02)
    torch.testing.assert_close(found[VALUES][:CORRIDOR, 1], -1 + gamma * worth, rtol=0.05, atol=0.1)


def test_it_is_given_what_the_other_loss_is_given():
    """Whoever swaps them changes the rows alone."""
    torch.manual_seed(0)
    controller, settings = controller_of(4, 3, ends=False), {"gamma": 0.9, "entropy": 0.02}
    for kind in (OptionsLoss, OptionCriticLoss):
        assert kind(controller, **settings).out_keys[:3] == list(LOSSES[:3])


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"margin": math.inf}, "margin must be a number"), ({"entropy": -1.0}, "entropy")],
)
def test_settings_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        OptionCriticLoss(controller_of(4, 3), gamma=0.9, **settings)
