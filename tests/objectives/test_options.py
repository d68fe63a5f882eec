"""The controller's loss against a scalar reference, and on a choice whose answer is known."""

import math

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from trading_torchrl.envs.running_option import ALLOWED, INDEX
from trading_torchrl.modules.controller import Controller
from trading_torchrl.modules.option_policy import LOGITS, VALUES
from trading_torchrl.objectives.options import OptionsLoss


def controller_of(inputs, options, hidden=(16,), dropout=0.0):
    network = Controller(inputs, options, hidden, dropout=dropout)
    for head in network.heads.parameters():
        torch.nn.init.normal_(head)
    return TensorDictModule(network, in_keys=["observation"], out_keys=[LOGITS, VALUES])


def rows_of(count=40, options=3):
    may = torch.rand(2, count, options) < 0.6
    index = torch.randint(0, options, (count, 1))
    may[0].scatter_(-1, index, True)
    may[1, :, 0] = True
    ends = torch.rand(count, 1)
    return TensorDict(
        {
            "observation": torch.randn(count, 4),
            "option": {"index": index, "allowed": may[0]},
            "next": {
                "observation": torch.randn(count, 4),
                "reward": torch.randn(count, 1),
                "terminated": ends < 0.2,
                "option": {
                    "allowed": may[1],
                    "duration": torch.randint(1, 9, (count, 1)),
                },
            },
        },
        [count],
    ).apply(lambda each: each.double() if each.is_floating_point() else each)


@torch.no_grad()
def by_hand(loss, rows, temperature):
    """One row after the other, in plain numbers; the losses and what shows beside."""
    network, slow = loss.controller_network.module, loss.target_controller_network.module

    def policy(net, seen, may):
        logits, values = net(seen)
        exps = [
            math.exp(float(logit) / temperature) if ok else 0.0
            for logit, ok in zip(logits, may, strict=True)
        ]
        return [each / sum(exps) for each in exps], [float(value) for value in values]

    advantages, told = [], []
    for row in rows.unbind(0):
        then = row["next"]
        probs, values = policy(network, row["observation"], row[ALLOWED])
        k = int(row[INDEX])
        if bool(then["terminated"]):
            ahead = 0.0
        else:
            there, worth = policy(slow, then["observation"], then[ALLOWED])
            ahead = sum(p * q for p, q in zip(there, worth, strict=True))
        target = float(then["reward"]) + loss.gamma ** int(then["option", "duration"]) * ahead
        advantages.append(target - sum(p * q for p, q in zip(probs, values, strict=True)))
        entropy = -sum(p * math.log(p) for p in probs if p > 0)
        told.append((math.log(probs[k]), (values[k] - target) ** 2 / 2, entropy))
    mean = sum(advantages) / len(advantages)
    deviation = math.sqrt(sum((each - mean) ** 2 for each in advantages) / len(advantages))
    normal = [(each - mean) / deviation if loss.normalise else each for each in advantages]
    count = len(told)
    return {
        "loss_policy": -sum(a * t[0] for a, t in zip(normal, told, strict=True)) / count,
        "loss_value": loss.value * sum(t[1] for t in told) / count,
        "loss_entropy": -loss.entropy * sum(t[2] for t in told) / count,
    }


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_losses_are_those_of_a_plain_reference(normalise, temperature):
    torch.manual_seed(0)
    controller = controller_of(4, 3).double()
    loss = OptionsLoss(
        controller, gamma=0.9,
        temperature=lambda: torch.tensor(temperature, dtype=torch.float64),
        normalise=normalise, entropy=0.02, value=0.5,
    )  # fmt: skip
    for each in loss.target_controller_network.parameters():
        each.data += 0.1 * torch.randn_like(each)
    rows = rows_of()
    found, wanted = loss(rows), by_hand(loss, rows, temperature)
    for name, value in wanted.items():
        assert float(found[name].detach()) == pytest.approx(value, rel=1e-9), name


def test_gradients_stay_where_they_belong():
    torch.manual_seed(0)
    loss = OptionsLoss(controller_of(4, 3, hidden=()).double(), gamma=0.9)
    heads = loss.controller_network.module.heads
    rows = rows_of()
    for name, own in (("loss_policy", slice(0, 3)), ("loss_value", slice(3, 6))):
        (gradient,) = torch.autograd.grad(loss(rows)[name], [heads.weight])
        assert (gradient[own] != 0).any()
        rest = torch.ones(6, dtype=torch.bool)
        rest[own] = False
        assert (gradient[rest] == 0).all(), name


def test_rows_that_a_mask_leaves_out_count_nowhere():
    torch.manual_seed(0)
    loss = OptionsLoss(controller_of(4, 3).double(), gamma=0.9)
    rows = rows_of()
    some = loss(rows[:30])
    loss.loss_mask_key = "mask"
    rows["mask"] = torch.arange(40) < 30
    rows["next", "reward"][30:] = torch.nan
    masked = loss(rows)
    for name in ("loss_policy", "loss_value", "loss_entropy"):
        assert float(masked[name].detach()) == pytest.approx(float(some[name].detach()), rel=1e-9)


def learned(gamma, much, updates=1_500):
    """What a controller comes to of two options: 1 in a bar, or ``much`` in five; over and over."""
    torch.manual_seed(0)
    controller = controller_of(1, 2, hidden=())
    loss = OptionsLoss(controller, gamma=gamma, entropy=0.0)
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.02)
    index = torch.arange(2).repeat(32)[:, None]
    earned = torch.tensor([1.0, much])[index]
    rows = TensorDict(
        {
            "observation": torch.ones(64, 1),
            "option": {"index": index, "allowed": torch.ones(64, 2, dtype=torch.bool)},
            "next": {
                "observation": torch.ones(64, 1),
                "reward": earned,
                "terminated": torch.zeros(64, 1, dtype=torch.bool),
                "option": {
                    "allowed": torch.ones(64, 2, dtype=torch.bool),
                    "duration": torch.tensor([1, 5])[index],
                },
            },
        },
        [64],
    )
    for _ in range(updates):
        losses = loss(rows)
        optimizer.zero_grad()
        sum(losses[name] for name in ("loss_policy", "loss_value", "loss_entropy")).backward()
        optimizer.step()
        loss.update_targets(0.1)
    found = controller(rows[:1])
    return found[LOGITS][0].softmax(-1), found[VALUES][0]


@pytest.mark.parametrize("much", [3.0, 4.0])
def test_a_choice_between_soon_and_much_falls_as_it_should(much):
    """Both forever: 1 / (1 - gamma) against much / (1 - gamma^5)."""
    gamma = 0.8
    alone = [1 / (1 - gamma), much / (1 - gamma**5)]
    best = alone.index(max(alone))
    assert best == (much == 4.0)
    probs, values = learned(gamma, much)
    assert probs[best] > 0.95
    once = (much + gamma**5 * alone[0], 1 + gamma * alone[1])[best]  # then the best forever
    wanted = [0.0, 0.0]
    wanted[best], wanted[1 - best] = alone[best], once
    assert values.tolist() == pytest.approx(wanted, rel=0.03)


def test_nothing_that_ended_teaches_nothing():
    loss = OptionsLoss(controller_of(4, 3).double(), gamma=0.9)
    out = loss(rows_of()[:0])
    total = sum(out[name] for name in ("loss_policy", "loss_value", "loss_entropy"))
    total.backward()
    assert float(total.detach()) == 0
    assert all((each.grad == 0).all() for each in loss.controller_network.parameters())


def test_several_rewards_are_refused():
    rows = rows_of()
    rows["next", "reward"] = torch.zeros(40, 5)
    with pytest.raises(ValueError, match=r"one reward, \[\*, 1\], got \[40, 5\]"):
        OptionsLoss(controller_of(4, 3).double(), gamma=0.9)(rows)


def test_units_are_left_out_while_the_loss_learns_and_never_else():
    torch.manual_seed(0)
    loss = OptionsLoss(controller_of(4, 3, dropout=0.5).double(), gamma=0.9).train()
    rows = rows_of()
    assert torch.equal(loss._target(rows), loss._target(rows))
    acts = [loss.controller_network(rows.clone())[VALUES] for _ in range(2)]
    assert torch.equal(*acts)
    learns = [loss(rows)["value"] for _ in range(2)]
    assert not torch.equal(*learns)
    loss.eval()
    judges = [loss(rows)["value"] for _ in range(2)]
    assert torch.equal(*judges)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gamma": 1.5}, "gamma"),
        ({"gamma": 0.9, "entropy": -1.0}, "entropy must not be negative"),
        ({"gamma": 0.9, "value": math.inf}, "value must not be negative"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        OptionsLoss(controller_of(4, 3), **settings)
