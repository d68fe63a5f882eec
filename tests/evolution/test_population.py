"""Many policies as one batch: each does, and earns, what it would alone."""

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.envs import TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import TradingEnv
from trading_torchrl.envs.reference import ActionGrid, GarleanuPedersen, Merton
from trading_torchrl.evolution import EvolutionStrategy, Population, earned, flat, unflatten
from trading_torchrl.modules import (
    PerSymbolMLP,
    RunningScale,
    make_actor,
    make_deterministic_actor,
    make_discrete_actor,
    make_q_actor,
    scaled_by,
)
from trading_torchrl.modules.discrete import MASK

P, E = 6, 4
SYMBOL = ("market", "symbol")


class Precise(nn.Module):
    """Sees observations, float32, in the precision of what it is made of."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, observation):
        return self.network(observation.double())


def exact(network):
    """A policy in float64."""
    return TensorDictModule(
        nn.Sequential(Precise(network.double()), nn.Tanh()), ["observation"], ["action"]
    )


def scaled():
    scale = RunningScale(3)
    scale.see(torch.randn(100, 3) * 5 + 2)
    return make_actor(3, 2, [8], network=scaled_by(scale))


POLICIES = {
    "squashed normal": lambda: make_actor(3, 2, [8, 8]),
    "steady width": lambda: make_actor(3, 2, [8], std=0.5),
    "certain": lambda: make_deterministic_actor(3, 2, [8]),
    "linear": lambda: make_deterministic_actor(3, 2, []),
    "names": lambda: make_discrete_actor(3, 5, [8], ["observation", MASK]),
    "values": lambda: make_q_actor(3, 5, [8], ["observation", MASK], members=2),
    "heads": lambda: make_actor(
        3, 2, [8], [SYMBOL, "observation"],
        network=lambda *size: PerSymbolMLP(*size, symbols=["A", "B"]),
    ),
    "scaled": scaled,
    "plain module": lambda: TensorDictModule(nn.Linear(3, 2), ["observation"], ["action"]),
}  # fmt: skip


def seen():
    mask = torch.rand(P * E, 5) > 0.4
    mask[:, 2] = True
    symbol = torch.randint(2, (P * E, 1))
    entries = {"observation": torch.randn(P * E, 3), MASK: mask, "market": {"symbol": symbol}}
    return TensorDict(entries, [P * E])


@pytest.mark.parametrize("name", POLICIES)
def test_each_member_does_what_it_would_alone(name):
    torch.manual_seed(0)
    actor = POLICIES[name]()
    population = Population(actor)
    centre = flat(population.parameters)
    rows = centre + 0.5 * torch.randn(P, len(centre))
    population.weights = rows
    assert torch.equal(population.weights, rows)
    scene = seen()
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        found = population(scene.clone())["action"].unflatten(0, (P, E))
        for row, what, alone in zip(rows, scene.unflatten(0, (P, E)), found, strict=True):
            unflatten(row, population.parameters)
            assert torch.allclose(actor(what.clone())["action"].to(alone), alone, atol=1e-5)
    different = (found.flatten(1)[1:] != found.flatten(1)[0]).any(-1)
    assert different.any()  # or nothing would be compared


def test_members_draw_their_actions_apart():
    actor = make_actor(3, 2, [8])
    population = Population(actor)
    population.weights = flat(population.parameters).expand(P, -1)
    same = TensorDict({"observation": torch.zeros(P * E, 3)}, [P * E])
    with set_exploration_type(ExplorationType.RANDOM):
        assert len(population(same.clone())["action"].unique()) == P * E * 2
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        assert len(population(same.clone())["action"].unique(dim=0)) == 1


def test_the_policy_itself_stays_as_it_is():
    actor = make_actor(3, 2, [8])
    before = {name: value.clone() for name, value in actor.state_dict().items()}
    population = Population(actor)
    population.weights = torch.zeros(P, len(flat(population.parameters)))
    population(seen())
    assert all(torch.equal(value, before[name]) for name, value in actor.state_dict().items())


def test_what_is_frozen_is_not_evolved():
    actor = make_deterministic_actor(
        3, 1, [8], [SYMBOL, "observation"],
        network=lambda *size: PerSymbolMLP(*size, symbols=["A", "B"], freeze_trunk=True),
    )  # fmt: skip
    assert len(flat(Population(actor).parameters)) == 2 * (8 + 1)
    with pytest.raises(ValueError, match="no parameters that could be evolved"):
        Population(make_actor(3, 2, [8]).requires_grad_(False))


def test_refuses_rows_of_another_policy():
    with pytest.raises(ValueError, match="rows of 8 parameters"):
        Population(
            TensorDictModule(nn.Linear(3, 2), ["observation"], ["action"])
        ).weights = torch.zeros(P, 9)


def alone(actor, population, make, rows, **how):
    """What each member earns by itself, one after the other."""
    found = []
    for row in rows:
        unflatten(row, population.parameters)
        found.append(earned(actor, make(E), 1, **how).returns)
    return torch.cat(found)


def together(actor, make, rows, **how):
    population = Population(actor)
    population.weights = rows
    env = make(len(rows) * E)
    env.base_env.draw_alike(len(rows)) if isinstance(env, TransformedEnv) else env.draw_alike(
        len(rows)
    )
    return earned(population, env, len(rows), **how).returns


@pytest.mark.parametrize(
    "network", [nn.Linear(2, 1), nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))]
)
def test_returns_in_one_batch_are_those_of_one_by_one(network):
    actor = exact(network)
    population = Population(actor)
    rows = EvolutionStrategy(flat(population.parameters), population=P, sigma=0.1).ask()
    how = {"seed": 7}
    one = together(actor, lambda n: GarleanuPedersen(n, steps=50), rows, **how)
    other = alone(actor, population, lambda n: GarleanuPedersen(n, steps=50), rows, **how)
    assert (one - other).abs().max() <= 1e-6
    assert one.std(0).min() > 1e-3  # members differ
    assert one.std(1).min() > 1e-3  # so do episodes


@pytest.mark.parametrize("compiled", [False, None], ids=["eager", "compiled"])
def test_on_a_market_too_with_ruin_and_ends(compiled):
    market = synthetic_market(symbols=5, bars=400, seed=0)

    def make(n):
        return TradingEnv(
            market, n, actions="target", short=True, max_position=1.0, episode_bars=40, seed=3,
            compiled=compiled,
        )  # fmt: skip

    width = make(1).observation_spec["observation"].shape[-1]
    actor = make_deterministic_actor(width, 1, [8])
    population = Population(actor)
    rows = EvolutionStrategy(flat(population.parameters), population=P, sigma=0.3).ask()
    one, other = together(actor, make, rows, seed=7), alone(actor, population, make, rows, seed=7)
    assert torch.allclose(one, other, atol=1e-5)
    assert one.std(0).min() > 1e-5


def test_counts_rewards_and_frames_up_to_the_first_end():
    class Always(nn.Module):
        def forward(self, observation):
            return torch.ones(len(observation), 1)

    class Falls(GarleanuPedersen):
        """Pays 1; account k ends after k + 1 steps."""

        def advance(self, fields, action):
            changed, reward, _ = super().advance(fields, action)
            return changed, torch.ones_like(reward), fields["step"] > self._account

    env = Falls(6, steps=5)
    found = earned(TensorDictModule(Always(), ["observation"], ["action"]), env, 2, seed=0)
    assert found.returns.tolist() == [[1, 2, 3], [4, 5, 5]]
    assert found.frames == 20


def test_drawn_actions_follow_from_the_seed_and_nobody_else_draws_them():
    actor = make_actor(2, 1, [8])
    env = GarleanuPedersen(12, steps=10)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one = earned(actor, env, 3, seed=1, explores=True).returns
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(earned(actor, env, 3, seed=1, explores=True).returns, one)
    assert not torch.equal(earned(actor, env, 3, seed=1).returns, one)
    assert not torch.equal(earned(actor, env, 3, seed=2, explores=True).returns, one)


def test_accounts_that_draw_alike_are_copies():
    env = GarleanuPedersen(6, steps=5, seed=2, first_account=3)
    env.draw_alike(3)
    seen = env.rollout(5)["observation"]
    assert torch.equal(seen[:2, :, 0], seen[2:4, :, 0])
    assert not torch.equal(seen[0], seen[1])
    plain = GarleanuPedersen(2, steps=5, seed=2, first_account=3).rollout(5)["observation"]
    assert torch.equal(seen[4:, :, 0], plain[..., 0])
    with pytest.raises(ValueError, match="6 accounts are not so many copies alike: 4"):
        GarleanuPedersen(6).draw_alike(4)


def test_a_grid_of_choices_is_evolved_as_well():
    def make(n):
        return TransformedEnv(Merton(n, steps=10), ActionGrid(5))

    actor = make_discrete_actor(make(1).observation_spec["observation"].shape[-1], 5, [8])
    population = Population(actor)
    rows = EvolutionStrategy(flat(population.parameters), population=P, sigma=1.0).ask()
    one, other = together(actor, make, rows, seed=7), alone(actor, population, make, rows, seed=7)
    assert torch.allclose(one, other, atol=1e-6)


def test_accounts_must_be_shared_out_evenly():
    with pytest.raises(ValueError, match="10 accounts cannot be shared out among 3 members"):
        earned(lambda seen: seen, GarleanuPedersen(10), 3, seed=0)
