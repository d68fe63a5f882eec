"""The evolution strategy: known answers, then what must hold of any returns."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trading_torchrl.evolution import EvolutionStrategy, ranked, standardised


@pytest.mark.parametrize("elite", [1.0, 0.2])
@pytest.mark.parametrize("shaped", ["rank", "z"])
@pytest.mark.parametrize("seed", range(5))
def test_points_along_the_gradient_of_a_linear_objective(shaped, elite, seed):
    slope = torch.randn(10, generator=torch.Generator().manual_seed(seed))
    strategy = EvolutionStrategy(
        torch.zeros(10), population=2_000, shaped=shaped, elite=elite, seed=seed
    )
    found = strategy.estimate(strategy.ask() @ slope)
    assert torch.cosine_similarity(found, slope, dim=0) >= 0.98


@pytest.mark.parametrize("elite", [1.0, 0.2])
@pytest.mark.parametrize("shaped", ["rank", "z"])
def test_comes_down_a_sphere_and_stays_there(shaped, elite):
    strategy = EvolutionStrategy(torch.ones(10), shaped=shaped, elite=elite)
    for _ in range(200):
        strategy.tell(-strategy.ask().square().sum(-1))
    after = []
    for _ in range(100):
        strategy.tell(-strategy.ask().square().sum(-1))
        after.append(float(strategy.centre.square().sum()))
    assert max(after) <= 1e-2


def test_with_all_pairs_deviations_and_a_linear_objective_it_is_the_gradient_in_expectation():
    slope = torch.tensor([0.6, -0.8], dtype=torch.float64)
    strategy = EvolutionStrategy(slope.new_zeros(2), population=200_000, sigma=0.5, shaped="z")
    returns = strategy.ask() @ slope
    found = strategy.estimate(returns) * returns.std()
    assert torch.allclose(found, slope, atol=0.01)


def test_pairs_lie_opposite_each_other_as_far_away_as_asked():
    strategy = EvolutionStrategy(torch.full((1_000,), 3.0), population=8, sigma=0.1)
    members = strategy.ask().view(4, 2, 1_000)
    assert torch.allclose(members.mean(1), strategy.centre.expand(4, -1), atol=1e-6)
    away = (members[:, 0] - strategy.centre).std(-1)
    assert torch.allclose(away, torch.full((4,), 0.1), rtol=0.1)


def test_noise_follows_from_seed_generation_and_pair_alone():
    strategy = EvolutionStrategy(torch.zeros(50), population=20, seed=3)
    whole = strategy.ask()
    assert torch.equal(strategy.ask(4, 7), whole[8:14])
    torch.manual_seed(1)  # nobody else's draws count
    assert torch.equal(strategy.ask(), whole)
    assert not torch.equal(EvolutionStrategy(torch.zeros(50), population=20).ask(), whole)
    strategy.tell(torch.zeros(20))
    assert not torch.allclose(strategy.noise(), whole[::2] / strategy.sigma)
    rows = strategy.noise()
    assert len({tuple(row.tolist()) for row in rows}) == 10


def test_elites_are_the_pairs_whose_better_member_did_best():
    strategy = EvolutionStrategy(torch.zeros(4), population=8, elite=0.25, shaped="z", sigma=1.0)
    returns = torch.tensor([0.0, 1.0, 9.0, -9.0, 2.0, 3.0, 4.0, -4.0])
    noise, shaped = strategy.noise(), standardised(returns.double())
    only = (shaped[2] - shaped[3]).float() * noise[1]
    assert torch.allclose(strategy.estimate(returns), only / 2)


def test_equal_returns_move_nothing_but_the_decay():
    strategy = EvolutionStrategy(torch.ones(5), population=8, weight_decay=0.1, lr=0.1)
    moved = strategy.tell(torch.full((8,), 7.0))
    assert torch.allclose(strategy.centre, torch.full((5,), 0.99))
    assert moved == pytest.approx(0.01 * 5**0.5)


def test_equals_share_their_ranks():
    assert ranked(torch.tensor([1.0, 1.0, 1.0])).tolist() == [0, 0, 0]
    assert ranked(torch.tensor([2.0, 1.0, 2.0, 0.0])).tolist() == pytest.approx(
        [1 / 3, -1 / 6, 1 / 3, -1 / 2]
    )


numbers = st.lists(st.integers(-1_000, 1_000).map(float), min_size=8, max_size=8).filter(
    lambda each: len(set(each)) > 1
)


@given(numbers)
def test_ranks_do_not_care_by_how_much(returns):
    returns = torch.tensor(returns, dtype=torch.float64)
    assert torch.equal(ranked(returns), ranked(returns**3))
    assert abs(float(ranked(returns).sum())) < 1e-12


@given(numbers, st.floats(0.1, 10), st.floats(-100, 100))
def test_deviations_do_not_care_for_scale_and_place(returns, scale, place):
    returns = torch.tensor(returns, dtype=torch.float64)
    assert torch.allclose(standardised(scale * returns + place), standardised(returns))


@given(
    numbers, st.permutations(range(8)), st.sampled_from([float("nan"), float("inf"), -float("inf")])
)
def test_what_is_lost_counts_as_the_least(returns, places, lost):
    returns = torch.tensor(returns)
    strategy = EvolutionStrategy(torch.zeros(3), population=8)
    hole, least = places[0], torch.cat([returns[: places[0]], returns[places[0] + 1 :]]).min()
    with_hole, instead = returns.clone(), returns.clone()
    with_hole[hole], instead[hole] = lost, least
    assert torch.equal(strategy.estimate(with_hole), strategy.estimate(instead))


def test_where_nothing_is_left_it_stays():
    strategy = EvolutionStrategy(torch.ones(3), population=4, weight_decay=0.0)
    strategy.tell(torch.full((4,), float("nan")))
    assert torch.equal(strategy.centre, torch.ones(3))


def test_goes_on_bit_for_bit():
    def after(strategy, times):
        for _ in range(times):
            strategy.tell(-strategy.ask().square().sum(-1))
        return strategy

    whole = after(EvolutionStrategy(torch.ones(10), population=16), 20)
    first = after(EvolutionStrategy(torch.ones(10), population=16), 8)
    second = EvolutionStrategy(torch.zeros(10), population=16)
    second.load_state_dict(first.state_dict())
    assert torch.equal(after(second, 12).centre, whole.centre)
    assert second.generation == 20


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"population": 7}, "population must be even"),
        ({"population": 0}, "population must be a whole number, at least 2"),
        ({"sigma": 0.0}, "sigma must be above 0"),
        ({"lr": float("nan")}, "lr must be above 0"),
        ({"weight_decay": -0.1}, "weight_decay must not be negative"),
        ({"shaped": "log"}, "shaped"),
        ({"elite": 0.0}, "elite must be above 0 and at most 1"),
        ({"elite": 1.5}, "elite must be above 0 and at most 1"),
        ({"centre": torch.zeros(0)}, "centre must be a row of numbers"),
        ({"centre": torch.zeros(2, 2)}, "centre must be a row of numbers"),
    ],
)
def test_refuses_what_makes_no_sense(wrong, said):
    with pytest.raises(ValueError, match=said):
        EvolutionStrategy(**{"centre": torch.zeros(3), **wrong})


def test_refuses_returns_of_another_population():
    with pytest.raises(ValueError, match="one for each of 8 members"):
        EvolutionStrategy(torch.zeros(3), population=8).tell(torch.zeros(4))
