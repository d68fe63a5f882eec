"""SAC: targets by hand, gradients one loss at a time, TorchRL's own, and a problem it solves."""

import math
from copy import deepcopy

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Independent, Uniform
from torchrl.modules import ProbabilisticActor
from torchrl.objectives import SACLoss as TorchRLSACLoss

from trading_torchrl.modules import MLP, EnsembleMLP, make_actor, make_critics
from trading_torchrl.objectives import SACLoss

LOSSES = ("loss_actor", "loss_qvalue", "loss_alpha")
WIDTH = 1e-6
LOG_PROB = -math.log(WIDTH)


class Narrow(Independent):
    """As good as certain, with a density that is the same everywhere."""

    def __init__(self, low, high):
        super().__init__(Uniform(low, high, validate_args=False), 1, validate_args=False)


class Around(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, observation):
        centre = self.network(observation)
        return centre - WIDTH / 2, centre + WIDTH / 2


def certain_actor(observed=3, actions=1):
    """A policy whose actions and densities are known without drawing any."""
    return ProbabilisticActor(
        TensorDictModule(Around(MLP(observed, [8], actions)), ["observation"], ["low", "high"]),
        in_keys=["low", "high"],
        distribution_class=Narrow,
    )


def rows(count=16, observed=3, actions=2, objectives=1, seed=0, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=dtype)

    return TensorDict(
        {
            "observation": normal(count, observed),
            "action": normal(count, actions).tanh(),
            "next": {
                "observation": normal(count, observed),
                "reward": normal(count, objectives),
                "terminated": torch.rand(count, 1, generator=draw) < 0.3,
            },
        },
        [count],
    )


def make(observed=3, actions=2, hidden=(16,), seed=0, objectives=1, **settings):
    torch.manual_seed(seed)
    actor = make_actor(observed, actions, hidden)
    critics = make_critics(observed, actions, hidden, objectives=objectives)
    loss = SACLoss(actor, critics, **settings)
    with torch.no_grad():  # or a target could be mistaken for the critics
        for parameter in loss.target_qvalue_network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return loss


def total(out):
    return sum(out[key] for key in LOSSES)


def seeded(loss, batch, seed=0):
    torch.manual_seed(seed)
    return loss(batch)


def gradients(loss, value):
    named = {name: p for name, p in loss.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(value, list(named.values()), retain_graph=True, allow_unused=True)
    return dict(zip(named, found, strict=True))


# --- Known answers


def linear_critics(weights, biases):
    """Critics ``[M, D, K]`` x (observation, action) + ``[M, K]``."""
    weights, biases = torch.tensor(weights).double(), torch.tensor(biases).double()
    members, width, objectives = weights.shape
    network = EnsembleMLP(members, width, [], objectives).double()
    network.weights[0].data, network.biases[0].data = weights, biases[:, None]
    return TensorDictModule(network, ["observation", "action"], ["state_action_value"])


def test_target_by_hand():
    """One row ends in ruin, one at the end of the data: only the second one goes on."""
    actor = certain_actor(observed=1).double()
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.zero_()
        actor[0].module.network.layers[-1].bias.fill_(0.25)  # what it always does
    critics = linear_critics([[[1.0], [2.0]], [[-1.0], [4.0]]], [[0.5], [0.0]])
    loss = SACLoss(actor, critics, gamma=0.9, alpha_init=0.2, target_entropy=-3.0).double()
    targets = linear_critics([[[2.0], [-4.0]], [[1.0], [0.0]]], [[0.0], [1.5]])
    loss.target_qvalue_network.load_state_dict(targets.state_dict())
    batch = TensorDict(
        {
            "observation": torch.tensor([[1.0], [-1.0]]).double(),
            "action": torch.tensor([[0.5], [-0.5]]).double(),
            "next": {
                "observation": torch.tensor([[2.0], [3.0]]).double(),
                "reward": torch.tensor([[10.0], [20.0]]).double(),
                "terminated": torch.tensor([[True], [False]]),
                "truncated": torch.tensor([[False], [True]]),
                "done": torch.tensor([[True], [True]]),
            },
        },
        [2],
    )
    out = loss(batch).detach()

    # Of the truncated row: 2 x 3 - 4 / 4 = 5 and 3 + 1.5 = 4.5 at what the policy does next.
    wanted = (10.0, 20.0 + 0.9 * (4.5 - 0.2 * LOG_PROB))
    held = ((2.5, 1.0), (-1.5, -1.0))  # by the critics, of the actions that were taken
    errors = [[q - y for q in both] for both, y in zip(held, wanted, strict=True)]
    squares = [sum(0.5 * error**2 for error in row) for row in errors]
    assert float(out["loss_qvalue"]) == pytest.approx(sum(squares) / 2, abs=1e-4)
    mean_error = sum(abs(error) for row in errors for error in row) / 4
    assert float(out["td_error"]) == pytest.approx(mean_error, abs=1e-5)
    # Of its own actions, 1/4: 2 and 0, then 0 (-1 + .5 + .5) and 2; the lower ones are 0 and 0.
    assert float(out["q"]) == pytest.approx(0, abs=1e-5)
    assert float(out["loss_actor"]) == pytest.approx(0.2 * LOG_PROB, abs=1e-5)
    assert float(out["entropy"]) == pytest.approx(-LOG_PROB)
    assert float(out["alpha"]) == pytest.approx(0.2)
    expected = math.log(0.2) * (-LOG_PROB + 3)
    assert float(out["loss_alpha"]) == pytest.approx(expected)


def test_auto_target_entropy_is_minus_the_number_of_actions():
    for actions in (1, 3):
        auto, plain = (
            make(actions=actions, alpha_init=0.5, target_entropy=goal)
            for goal in ("auto", float(-actions))
        )
        batch = rows(actions=actions)
        a, b = seeded(auto, batch), seeded(plain, batch)
        assert torch.equal(a["loss_alpha"], b["loss_alpha"])


@pytest.mark.filterwarnings("ignore:No target network updater")
@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_equals_torchrls(gamma):
    ours = make(gamma=gamma, alpha_init=0.3)
    batch = rows()
    batch["next", "done"] = batch["next", "terminated"].clone()
    singles, targets = [], []
    for network, built in (
        (ours.qvalue_network, singles),
        (ours.target_qvalue_network, targets),
    ):
        ensemble = network.module
        for member in range(2):
            single = MLP(5, [16], 1)
            for layer, weight, bias in zip(
                single.layers, ensemble.weights, ensemble.biases, strict=True
            ):
                layer.weight.data = weight.detach()[member].T.clone()
                layer.bias.data = bias.detach()[member, 0].clone()
            built.append(
                TensorDictModule(single, ["observation", "action"], ["state_action_value"])
            )
    theirs = TorchRLSACLoss(
        deepcopy(ours.actor_network),
        singles,
        loss_function="l2",
        alpha_init=0.3,
        target_entropy=-2.0,
    )
    theirs.make_value_estimator(gamma=gamma)
    wanted = TensorDict.from_modules(*targets)
    theirs.target_qvalue_network_params.data.update_(wanted.data)

    mine, other = seeded(ours, batch.clone()), seeded(theirs, batch.clone())
    for key in ("loss_actor", "loss_alpha", "alpha", "entropy"):
        torch.testing.assert_close(mine[key], other[key], msg=key)
    # Theirs is the square of the error, ours half of it.
    torch.testing.assert_close(2 * mine["loss_qvalue"], other["loss_qvalue"])
    found = gradients(ours, mine["loss_actor"])
    expected = torch.autograd.grad(
        other["loss_actor"], list(theirs.actor_network_params.values(True, True))
    )
    by_size = {each.shape: each for each in expected}
    assert len(by_size) == 4
    for name, gradient in found.items():
        if name.startswith("actor_network"):
            torch.testing.assert_close(gradient, by_size[gradient.shape])


def test_moves_targets_by_the_rate():
    loss = make()
    before, fast = deepcopy(loss.target_qvalue_network), loss.qvalue_network
    loss.update_targets(0.1)
    for new, old, goal in zip(
        loss.target_qvalue_network.parameters(), before.parameters(), fast.parameters(), strict=True
    ):
        torch.testing.assert_close(new, 0.9 * old + 0.1 * goal.detach())


# --- Gradients


def test_each_loss_teaches_its_own_parameters_alone():
    loss = make(alpha_init=0.3)
    out = seeded(loss, rows())
    alone = {key: gradients(loss, out[key]) for key in LOSSES}
    together = gradients(loss, total(out))
    owners = {
        "actor_network": "loss_actor",
        "qvalue_network": "loss_qvalue",
        "log_alpha": "loss_alpha",
    }
    assert {name.split(".")[0] for name in together} == set(owners)  # no target among them
    for name, gradient in together.items():
        for key in LOSSES:
            if key == owners[name.split(".")[0]]:
                assert torch.equal(gradient, alone[key][name])
                assert (gradient != 0).any(), name
            else:
                assert alone[key][name] is None, (name, key)
    assert not any(each.requires_grad for each in loss.target_qvalue_network.parameters())


def test_what_is_only_watched_carries_no_gradient():
    out = make()(rows())
    for key in ("alpha", "entropy", "q", "td_error"):
        assert not out[key].requires_grad, key


def test_trained_critics_stay_trainable():
    loss = make()
    loss(rows())
    assert all(each.requires_grad for each in loss.qvalue_network.parameters())


@pytest.mark.parametrize("masked", [False, True])
def test_input_stays_as_it_was(masked):
    batch = rows()
    if masked:
        batch["collector", "mask"] = torch.arange(16)[:, None] < 9
    before = batch.clone()
    make()(batch)
    make()(batch.lock_())
    assert set(batch.keys(True, True)) == set(before.keys(True, True))
    assert (batch == before).all()


# --- Several objectives


def test_one_objective_needs_no_weights():
    batch = rows()
    a, b = seeded(make(), batch), seeded(make(objective_weights=[1.0]), batch)
    assert (a == b).all()


def test_twice_the_same_objective_is_one():
    """Same values and rewards twice, half the weight each: the same actor, target and alpha."""
    single, double = make(), make(objectives=2, objective_weights=torch.tensor([0.5, 0.5]))
    double.actor_network.load_state_dict(single.actor_network.state_dict())
    for name in ("qvalue_network", "target_qvalue_network"):
        one, two = getattr(single, name).module, getattr(double, name).module
        two.load_state_dict(
            {
                key: value.repeat(1, 1, 2) if key.endswith(".1") else value
                for key, value in one.state_dict().items()
            }
        )
    batch = rows()
    twice = batch.clone()
    twice["next", "reward"] = batch["next", "reward"].repeat(1, 2)
    a, b = seeded(single, batch), seeded(double, twice)
    for key in ("loss_actor", "loss_alpha", "alpha", "entropy", "q", "td_error"):
        torch.testing.assert_close(a[key], b[key], msg=key)
    torch.testing.assert_close(2 * a["loss_qvalue"], b["loss_qvalue"])  # summed over objectives
    of_one, of_two = gradients(single, total(a)), gradients(double, total(b))
    for name, gradient in of_one.items():
        if name.startswith("actor_network") or name == "log_alpha":
            torch.testing.assert_close(gradient, of_two[name])
    head = "qvalue_network.module.weights.1"
    torch.testing.assert_close(of_one[head].repeat(1, 1, 2), of_two[head])


VALUES = [[1.0, 10.0], [4.0, 0.0], [3.0, 3.0]]  # of three members, wherever they look


def vector_loss(**settings):
    flat = [[[0.0] * 2] * 4] * 3
    actor = certain_actor().double()
    critics = linear_critics(flat, VALUES)
    return SACLoss(actor, critics, gamma=0.5, alpha_init=0.1, **settings).double()


def vector_rows(count=1):
    batch = rows(count, actions=1, objectives=2, dtype=torch.float64)
    batch["next", "terminated"] = torch.zeros(count, 1, dtype=torch.bool)
    return batch


@pytest.mark.parametrize(
    ("weights", "lowest", "worth"),
    [([0.75, 0.25], 1, 3.0), ([0.2, 0.8], 1, 0.8), ([1.0, 0.0], 0, 1.0), ([0.9, 0.1], 0, 1.9)],
)
def test_the_lowest_member_is_lowest_by_the_weighted_sum(weights, lowest, worth):
    """One member for all objectives: the lowest of each on its own would be (1, 0)."""
    batch = vector_rows()
    out = vector_loss(objective_weights=weights)(batch).detach()
    assert float(out["q"]) == pytest.approx(worth)
    entropy = 0.1 * LOG_PROB
    assert float(out["loss_actor"]) == pytest.approx(entropy - worth)
    wanted = [
        float(reward) + 0.5 * (value - entropy)
        for reward, value in zip(batch["next", "reward"][0], VALUES[lowest], strict=True)
    ]
    squares = [(VALUES[m][k] - wanted[k]) ** 2 for m in range(3) for k in range(2)]
    assert float(out["loss_qvalue"]) == pytest.approx(sum(squares) / 2)


def test_each_row_may_have_weights_of_its_own():
    weights = torch.tensor([[0.75, 0.25], [1.0, 0.0], [0.2, 0.8]]).double()
    batch = vector_rows(3)
    batch["objectives", "weights"] = weights
    found = vector_loss(objective_weights=[0.5, 0.5], reduction="none")(batch)
    torch.testing.assert_close(found["q"], torch.tensor([3.0, 1.0, 0.8]).double())
    for row in range(3):
        alone = vector_loss(objective_weights=weights[row], reduction="none")
        expected = alone(batch[row : row + 1].exclude("objectives"))
        for key in LOSSES:
            torch.testing.assert_close(found[key][row : row + 1], expected[key], msg=key)


def test_weights_must_be_there_and_fit():
    with pytest.raises(ValueError, match="2 objectives: pass as many objective_weights, got None"):
        vector_loss()(vector_rows())
    with pytest.raises(ValueError, match=r"pass as many objective_weights, got \[3\]"):
        vector_loss(objective_weights=[0.5, 0.25, 0.25])(vector_rows())
    batch = vector_rows(4)
    batch["objectives", "weights"] = torch.ones(4, 1)
    with pytest.raises(ValueError, match=r"pass as many objective_weights, got \[4, 1\]"):
        vector_loss()(batch)


def test_rewards_and_flags_must_fit_the_critics():
    """Else they would be broadcast, and every row learn from all others."""
    batch = rows(objectives=5)
    with pytest.raises(ValueError, match=r"need rewards \[16, 1\] .* got \[16, 5\] and \[16, 1\]"):
        make()(batch)
    with pytest.raises(ValueError, match="need rewards"):
        make(objectives=2, objective_weights=[0.5, 0.5])(rows())
    for key in ("reward", "terminated"):
        flat = rows()
        flat["next", key] = flat["next", key].squeeze(-1)
        with pytest.raises(ValueError, match=r"\[16\]"):
            make()(flat)


# --- Masks


def masked_loss(reduction="mean", objectives=1):
    torch.manual_seed(0)
    critics = make_critics(3, 1, [16], objectives=objectives)
    loss = SACLoss(certain_actor(), critics, alpha_init=0.3, reduction=reduction)
    return loss.double()


@pytest.mark.parametrize("key", [("collector", "mask"), "shifted_valid", ("mine", "good")])
@pytest.mark.parametrize("shape", [(16, 1), (16,)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_masked_rows_count_nowhere(key, shape, reduction):
    loss = masked_loss(reduction)
    if key == ("mine", "good"):
        loss.loss_mask_key = key
    batch = rows(actions=1, dtype=torch.float64)
    good = torch.arange(16) % 3 > 0
    expected = loss(batch[good])
    clean = {key: gradients(loss, expected[key].sum()) for key in LOSSES}

    for name in ("observation", "action", ("next", "observation"), ("next", "reward")):
        batch[name] = torch.where(good[:, None], batch[name], torch.nan)
    batch[key] = good.view(shape)
    found = loss(batch)
    for name in (*LOSSES, "entropy", "q", "td_error"):
        value = found[name]
        if reduction == "none":
            assert (value[~good] == 0).all(), name
            value = value[good]
        torch.testing.assert_close(value, expected[name], atol=1e-4, rtol=1e-5, msg=name)
    for name in LOSSES:
        for parameter, gradient in gradients(loss, found[name].sum()).items():
            other = clean[name][parameter]
            if other is None:
                assert gradient is None, parameter
            else:
                torch.testing.assert_close(gradient, other, atol=1e-4, rtol=1e-5, msg=parameter)


def test_masked_weights_count_nowhere():
    loss = masked_loss(objectives=2)
    batch = rows(actions=1, objectives=2, dtype=torch.float64)
    good = torch.arange(16) < 9
    batch["collector", "mask"] = good[:, None]
    batch["objectives", "weights"] = torch.where(good[:, None], 0.5, torch.nan).expand(16, 2)
    out = loss(batch)
    assert out.isfinite().all()
    assert all(each.isfinite().all() for each in gradients(loss, total(out)).values())


def test_a_batch_without_good_rows_teaches_nothing():
    loss = make()
    batch = rows()
    batch["collector", "mask"] = torch.zeros(16, 1, dtype=torch.bool)
    found = gradients(loss, total(loss(batch)))
    assert all((each == 0).all() for each in found.values())


def test_no_mask_key_no_mask():
    loss = masked_loss()
    batch = rows(actions=1, dtype=torch.float64)
    expected = loss(batch)
    batch["collector", "mask"] = torch.arange(16)[:, None] < 3
    loss.loss_mask_key = None
    torch.testing.assert_close(loss(batch)["loss_qvalue"], expected["loss_qvalue"])


@pytest.mark.parametrize("masked", [False, True])
def test_reductions_agree(masked):
    batch = rows()
    if masked:
        batch["collector", "mask"] = torch.arange(16)[:, None] < 5
    each, mean, added = (
        seeded(make(alpha_init=0.5, reduction=reduction), batch)
        for reduction in ("none", "mean", "sum")
    )
    for key in (*LOSSES, "entropy", "q", "td_error"):
        assert each[key].shape == (16,)
        torch.testing.assert_close(each[key].sum(), added[key], msg=key)
        torch.testing.assert_close(added[key] / (5 if masked else 16), mean[key], msg=key)


# --- Temperature


@pytest.mark.parametrize(("optimizer", "patience"), [("SGD", 1), ("Adam", 20)])
def test_temperature_floor(optimizer, patience):
    loss = make(alpha_init=0.2, min_alpha=0.05, target_entropy=-20.0)
    step = getattr(torch.optim, optimizer)([loss.log_alpha], lr=0.05)

    def alphas(updates):
        for _ in range(updates):
            out = loss(rows())
            step.zero_grad()
            out["loss_alpha"].backward()
            step.step()
            yield float(out["alpha"])

    falling = list(alphas(200))  # entropy is far above what is wanted
    assert falling[0] == pytest.approx(0.2)
    assert falling[-1] == pytest.approx(0.05)
    assert min(falling) >= 0.05 - 1e-7
    loss.target_entropy = 20.0
    rising = list(alphas(patience + 1))
    assert rising[-1] > 0.051


def test_without_a_floor_the_temperature_falls_on():
    loss = make(alpha_init=0.2, target_entropy=-20.0)
    step = torch.optim.SGD([loss.log_alpha], lr=0.05)
    for _ in range(20):
        step.zero_grad()
        loss(rows())["loss_alpha"].backward()
        step.step()
    assert float(loss(rows())["alpha"]) < 1e-3


# --- As a part of TorchRL


def test_keys_can_be_renamed():
    loss = make(objectives=2, objective_weights=[0.5, 0.5])
    plain = rows(objectives=2)
    plain["objectives", "weights"] = torch.tensor([0.3, 0.7]).expand(16, 2)
    expected = seeded(loss, plain)

    critics = TensorDictModule(loss.qvalue_network.module, ["observation", "move"], ["worth"])
    renamed = SACLoss(loss.actor_network, critics)
    renamed.target_qvalue_network.load_state_dict(loss.target_qvalue_network.state_dict())
    keys = {
        "action": "move",
        "reward": ("paid", "out"),
        "terminated": "ruined",
        "state_action_value": "worth",
        "objective_weights": "weights",
    }
    renamed.set_keys(**keys)
    batch = plain.clone()
    for old, new in (
        ("action", "move"),
        (("next", "reward"), ("next", "paid", "out")),
        (("next", "terminated"), ("next", "ruined")),
        (("objectives", "weights"), "weights"),
    ):
        batch.rename_key_(old, new)
    found = seeded(renamed, batch)
    assert all(torch.equal(found[key], expected[key]) for key in loss.out_keys)
    wanted = {"observation", "move", ("next", "observation"), ("next", "ruined")}
    assert set(renamed.in_keys) == wanted | {("next", "paid", "out")}
    with pytest.raises(ValueError, match="not an accepted tensordict key"):
        renamed.set_keys(move="action")


def test_critics_may_see_more_than_the_actor():
    torch.manual_seed(0)
    critics = make_critics(3 + 2, 1, [8], in_keys=["observation", "secret"])
    loss = SACLoss(make_actor(3, 1, [8]), critics)
    assert {"secret", ("next", "secret")} < set(loss.in_keys)
    batch = rows(actions=1)
    batch["secret"], batch["next", "secret"] = torch.ones(16, 2), torch.ones(16, 2)
    first = seeded(loss, batch)
    batch["next", "secret"] = 2 * batch["next", "secret"]
    second = seeded(loss, batch)
    assert first["loss_qvalue"] != second["loss_qvalue"]
    assert first["loss_actor"] == second["loss_actor"]


@pytest.mark.parametrize("observed", [1, 3])
def test_plain_tensors(observed):
    loss = make(observed=observed, actions=1)
    batch = rows(observed=observed, actions=1)
    expected = tuple(seeded(loss, batch)[key] for key in loss.out_keys)
    named = {"_".join(key) if isinstance(key, tuple) else key: batch[key] for key in loss.in_keys}
    torch.manual_seed(0)
    assert loss(**named) == expected
    torch.manual_seed(0)
    assert loss(*(batch[key] for key in loss.in_keys)) == expected


def test_rows_of_any_batch_shape():
    batch = rows(24)
    flat = seeded(make(), batch)
    square = seeded(make(), batch.reshape(4, 6))
    for key in LOSSES:
        torch.testing.assert_close(flat[key], square[key])


@pytest.mark.parametrize("weights", [None, [0.5, 0.5]])
def test_state_dict_round_trip(weights):
    objectives = 1 if weights is None else 2
    saved = make(seed=0, objectives=objectives, objective_weights=weights)
    fresh = make(seed=1, objectives=objectives, objective_weights=weights)
    with torch.no_grad():
        saved.log_alpha.fill_(-1.5)
    batch = rows(objectives=objectives)
    assert seeded(saved, batch)["loss_qvalue"] != seeded(fresh, batch)["loss_qvalue"]
    fresh.load_state_dict(saved.state_dict())
    a, b = seeded(saved, batch), seeded(fresh, batch)
    assert (a == b).all()
    names = {name.split(".")[0] for name in saved.state_dict()}
    assert {"actor_network", "qvalue_network", "target_qvalue_network", "log_alpha"} <= names


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 1.1}, r"gamma must lie in \[0, 1\], got 1.1"),
        ({"gamma": -0.1}, "gamma must lie"),
        ({"gamma": math.nan}, "gamma must lie"),
        ({"alpha_init": 0.0}, "alpha_init must be positive"),
        ({"alpha_init": math.inf}, "alpha_init must be positive"),
        ({"alpha_init": 0.1, "min_alpha": 0.2}, "min_alpha=0.2"),
        ({"min_alpha": -0.1}, "min_alpha=-0.1"),
        ({"target_entropy": "automatic"}, "'auto' or a number, got 'automatic'"),
        ({"reduction": "average"}, "'mean', 'sum' or 'none', got 'average'"),
        ({"objective_weights": [0.5, 0.6]}, "objective_weights must be"),
        ({"objective_weights": [1.5, -0.5]}, "none negative"),
        ({"objective_weights": [math.nan, 1.0]}, "objective_weights must be"),
        ({"objective_weights": [[0.5, 0.5]]}, "objective_weights must be"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        make(**settings)


# --- It learns


def learn(reward, updates=600, **settings):
    """What the policy does where nothing but its action counts."""
    loss = make(observed=1, actions=1, hidden=(64, 64), target_entropy=-3.0, **settings)
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=1e-2)
    still, ends = torch.zeros(64, 1), torch.ones(64, 1, dtype=torch.bool)
    for _ in range(updates):
        action = 2 * torch.rand(64, 1) - 1
        after = {"observation": still, "reward": reward(action), "terminated": ends}
        batch = TensorDict({"observation": still, "action": action, "next": after}, [64])
        optimizer.zero_grad()
        total(loss(batch)).backward()
        optimizer.step()
        loss.update_targets(0.05)
    seen = TensorDict({"observation": still[:1]}, [1])
    return float(loss.actor_network(seen)["action"].detach())


def test_finds_the_best_arm_of_a_bandit():
    mode = learn(lambda action: -((action - 0.3) ** 2))
    assert mode == pytest.approx(0.3, abs=0.05)


def test_finds_the_compromise_of_two_objectives():
    """Best for the first is 0.8, for the second -0.2; for 0.7 and 0.3 of them 0.5."""
    best = torch.tensor([0.8, -0.2])
    settings = {"objectives": 2, "objective_weights": [0.7, 0.3]}
    mode = learn(lambda action: -((action - best) ** 2), **settings)
    assert mode == pytest.approx(0.5, abs=0.05)
