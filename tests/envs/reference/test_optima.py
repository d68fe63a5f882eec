"""Closed forms of the reference problems against figures known from elsewhere."""

from __future__ import annotations

import math

import pytest
import torch
from tensordict import TensorDictBase
from torchrl.envs import Compose, RewardScaling, RewardSum, StepCounter, TransformedEnv

from trading_torchrl.envs.reference import (
    BitFlip,
    Chain,
    FourRooms,
    GarleanuPedersen,
    Merton,
    OUSpread,
    PlantedLeak,
    Rule,
    SparseMaze,
    optimum_share,
    scores,
)


def test_garleanu_pedersen_known_figures() -> None:
    env = GarleanuPedersen()
    keep, follow = env.best_rule
    assert 1 - keep == pytest.approx(0.41789, abs=1e-5)
    assert follow / (1 - keep) == pytest.approx(1.46289, abs=1e-5)
    best = env.rate(env.best_rule)
    assert best == pytest.approx(0.6420, abs=5e-5)
    assert env.rate(env.myopic_rule) / best == pytest.approx(0.9312, abs=5e-5)
    assert env.rate(env.cost_blind_rule) / best == pytest.approx(0.4327, abs=5e-5)


@pytest.mark.parametrize("risk", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("cost", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("decay", [0.02, 0.1, 0.5, 1.0])
def test_no_neighbouring_linear_rule_beats_the_best(risk: float, cost: float, decay: float) -> None:
    env = GarleanuPedersen(risk=risk, cost=cost, decay=decay)
    best = env.rate(env.best_rule)
    keep, follow = env.best_rule
    for angle in torch.linspace(0, 2 * math.pi, 16):
        other = Rule(keep + 0.01 * math.cos(angle), follow * (1 + 0.01 * math.sin(angle)))
        assert env.rate(other) < best


def test_long_episodes_approach_the_long_run() -> None:
    env = GarleanuPedersen(steps=20_000)
    assert env.value == pytest.approx(env.rate(env.best_rule), rel=1e-3)


def test_noise_is_common_and_the_share_is_sharp() -> None:
    env = GarleanuPedersen(64)
    myopic = optimum_share(env.policy_of(env.myopic_rule), env)
    expected = env.mean_reward(env.myopic_rule) / env.value
    assert myopic.error < 0.005 < 0.05 < myopic.best_error / myopic.best
    assert abs(myopic.share - expected) < 3 * myopic.error


def test_reward_noise_changes_no_observation_and_no_mean() -> None:
    noisy = GarleanuPedersen(256, reward_noise=2.0)
    quiet = GarleanuPedersen(256)
    one, two = (env.rollout(50, env.best_policy()) for env in (noisy, quiet))
    assert torch.equal(one["observation"], two["observation"])
    position = one["next", "observation"][..., 1:]
    noise = ((one["next", "reward"] - two["next", "reward"]) / position).double()
    assert float(noise.std()) == pytest.approx(2.0, rel=0.03)
    assert abs(float(noise.mean())) < 4 * 2.0 / noise.numel() ** 0.5


def test_merton_is_a_parabola_with_its_top_at_the_known_share() -> None:
    env = Merton()
    assert env.best_share == pytest.approx(0.75)
    assert env.value == pytest.approx((0.08 - 0.02) ** 2 / (2 * 2 * 0.2**2))
    assert env.mean_reward(0.7) < env.value > env.mean_reward(0.8)


def test_spread_tends_to_bertrams_rule() -> None:
    env = OUSpread(dt=0.02, short=False, points=601)
    enters, leaves = env.thresholds
    # A step of 0.02 still waits about 0.58 deviations of a step less.
    slack = 0.6 * math.sqrt(2 * 0.1 * 0.02) + 0.01
    assert -0.9643 < enters < -0.9643 + slack
    assert 0.9643 - slack < leaves < 0.9643
    assert env.rate == pytest.approx(0.02506, rel=0.02)


def test_shorts_double_what_the_spread_pays() -> None:
    long, both = OUSpread(short=False, points=301), OUSpread(points=301)
    assert both.rate == pytest.approx(2 * long.rate, rel=1e-3)


@pytest.mark.parametrize("short", [False, True])
def test_no_other_thresholds_beat_the_spreads(short: bool) -> None:
    """On common noise, a policy with thresholds moved by a third of a deviation earns less."""
    env = OUSpread(512, short=short, points=301)
    top = 2 if short else 1
    for shift in (-0.35, 0.35):

        def moved(td: TensorDictBase, shift: float = shift) -> TensorDictBase:
            seen = td["observation"].clone()
            side = torch.where(seen[:, 1] > 0, 1.0, -1.0) if not short else seen[:, 1].sign()
            seen[:, 0] = seen[:, 0] + shift * side
            return td.set("action", env.best_action(seen).clamp(max=top))

        found = optimum_share(moved, env, episodes=512)
        assert found.share < 1 - 2 * found.error


def test_walks_have_the_length_they_must() -> None:
    assert Chain(length=20).value == pytest.approx(0.99**18)
    assert FourRooms(slip=0.0).value == pytest.approx(0.99**17)
    assert 0.5 < FourRooms().value < FourRooms(slip=0.0).value


def test_mazes_are_mazes() -> None:
    for layout in range(5):
        maze = SparseMaze(size=6, layout=layout)
        free = set(maze.cells)
        joints = sum((r, c + 1) in free for r, c in free) + sum((r + 1, c) in free for r, c in free)
        assert len(free) == 2 * 36 - 1
        assert joints == len(free) - 1  # a tree: connected, or the value would be 0, and no loop
        assert maze.value > 0
    assert SparseMaze(size=6, layout=0).plan != SparseMaze(size=6, layout=1).plan


def test_a_slip_goes_every_other_way_alike() -> None:
    env = FourRooms(30_000, slip=0.6, start=(3, 3))
    seen = env.reset()
    at = env.step(seen.set("action", torch.zeros(30_000, dtype=torch.long)))["next", "observation"]
    cells, counts = at.unique(dim=0, return_counts=True)
    assert len(cells) == 4
    counts = counts.sort().values / 30_000
    assert counts[:3] == pytest.approx([0.2] * 3, abs=0.01)
    assert counts[3] == pytest.approx(0.4, abs=0.01)


def test_bits_never_start_at_their_goal() -> None:
    env = BitFlip(4_096, bits=2)
    seen = env.reset()
    assert (seen["goal", "achieved"] != seen["goal", "desired"]).any(-1).all()
    assert BitFlip(bits=2, steps=1).value == pytest.approx(0.75)


def test_the_leak_is_the_next_return() -> None:
    env = PlantedLeak(8, volatility=0.5)
    seen = env.reset()
    after = env.step(seen.clone().set("action", torch.ones(8, 1)))
    assert torch.allclose(after["next", "reward"], 0.5 * seen["observation"][:, :1])


def test_optimum_share_refuses_what_it_cannot_know() -> None:
    from torchrl.envs import GymEnv

    with pytest.raises(TypeError, match="only of a reference problem"):
        optimum_share(lambda td: td, GymEnv("Pendulum-v1"))
    env = Merton(2)
    with pytest.raises(ValueError, match="episodes must be at least 2"):
        optimum_share(env.best_policy(), env, episodes=1)


def test_optimum_share_sees_through_transforms() -> None:
    env = GarleanuPedersen(8, steps=50)
    plain = optimum_share(env.policy_of(env.myopic_rule), env)
    transforms = Compose(RewardScaling(0, 10.0), RewardSum(), StepCounter(10))
    wrapped = TransformedEnv(env, transforms)
    assert optimum_share(env.policy_of(env.myopic_rule), wrapped) == plain


def test_optimum_share_takes_scores_of_the_best_that_are_known() -> None:
    env = GarleanuPedersen(8, steps=50)
    myopic = env.policy_of(env.myopic_rule)
    best = scores(None, env, episodes=32, seed=7)
    assert optimum_share(myopic, env, episodes=32, seed=7, best=best) == optimum_share(
        myopic, env, episodes=32, seed=7
    )
    assert optimum_share(myopic, env, episodes=32, seed=7, best=2 * best).share == pytest.approx(
        optimum_share(myopic, env, episodes=32, seed=7).share / 2
    )


def test_walks_that_are_hardly_worth_it_are_still_the_shortest() -> None:
    assert Chain(length=200, discount=0.9).value == pytest.approx(0.9**198, rel=1e-9)
    assert Chain(length=20, discount=0.1).value == pytest.approx(0.1**18, rel=1e-9)


def test_a_spread_that_never_pays_is_never_traded() -> None:
    env = OUSpread(round_trip=50.0)
    assert env.thresholds == (-math.inf, math.inf)
    assert env.value == 0


def test_optimum_share_leaves_the_problem_as_it_was() -> None:
    env = GarleanuPedersen(4, steps=50)
    reached = env.rollout(10, auto_reset=True)
    before = env.get_extra_state()
    optimum_share(env.best_policy(), env)
    after = env.get_extra_state()
    assert torch.equal(before["episode"], after["episode"])
    assert before["seed"] == after["seed"]
    assert all(torch.equal(before["fields"][k], after["fields"][k]) for k in before["fields"])
    assert reached is not None
