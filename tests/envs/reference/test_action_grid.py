"""The best on a grid of actions: bounds, limits, its value on noise, and other ways to find it."""

import math

import pytest
import torch
from torchrl.envs import TransformedEnv
from torchrl.envs.utils import check_env_specs

from trading_torchrl.envs.reference import (
    ActionGrid,
    BestOnGrid,
    Chain,
    GarleanuPedersen,
    Martingale,
    Merton,
    OUSpread,
    PlantedLeak,
    optimum_share,
)

PROBLEMS = [
    lambda n: GarleanuPedersen(n),
    lambda n: Merton(n),
    lambda n: PlantedLeak(n),
    lambda n: OUSpread(n, action="continuous"),
]


def on_grid(problem, choices):
    return TransformedEnv(problem, ActionGrid(choices)), BestOnGrid(problem, choices)


def test_choices_are_evenly_spaced_numbers():
    env = TransformedEnv(PlantedLeak(5, steps=3), ActionGrid(5))
    check_env_specs(env)
    tensordict = env.reset()
    seen = tensordict["observation"][:, 0].clone()
    stepped = env.step(tensordict.set("action", torch.arange(5)))
    torch.testing.assert_close(
        stepped["next", "reward"][:, 0], seen * torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0])
    )
    assert stepped["action"].tolist() == [0, 1, 2, 3, 4]  # a buffer keeps the choice


def test_it_is_never_above_the_optimum_and_tends_to_it():
    problem = GarleanuPedersen()
    shares = [BestOnGrid(problem, n).value / problem.value for n in (5, 11, 21, 41)]
    assert shares == sorted(shares)
    assert shares[-1] < 1
    # What is lost goes with the square of the step, once it is small.
    lost = [1 - share for share in shares]
    assert lost[-2] / lost[-1] == pytest.approx(4, rel=0.05)
    merton = Merton()
    assert [BestOnGrid(merton, n).value <= merton.value for n in (3, 5, 21)] == [True] * 3
    assert BestOnGrid(merton, 17).value == pytest.approx(merton.value)  # 0.75 / 2 is one of them


@pytest.mark.parametrize("build", PROBLEMS)
def test_its_value_is_what_it_earns(build):
    problem = build(256)
    env, best = on_grid(problem, 11)
    found = optimum_share(best.policy(), env, episodes=256)
    assert abs(found.score - best.value) < 4 * found.score_error
    assert found.share <= 1 + 3 * found.error
    again = optimum_share(best.policy(), env, episodes=256, best=best.policy())
    assert (again.share, again.error) == (1.0, 0.0)


@pytest.mark.parametrize(("choices", "nearly"), [(7, 0.75), (21, 0.999)])
def test_it_beats_the_rounded_rule(choices, nearly):
    problem = GarleanuPedersen()
    best = BestOnGrid(problem, choices)
    held = problem.limit * best.levels
    seen = torch.stack(torch.meshgrid(best.signals.float(), held, indexing="ij"), -1)
    number = problem.best_action(seen)[..., 0]
    rounded = (number * (choices // 2)).round().long() + choices // 2
    assert nearly * best.value < best.mean_reward(rounded) < best.value


def test_a_single_decision_is_the_best_by_trying_all():
    """Where the signal is forgotten at once and positions cost nothing to keep: by hand."""
    problem = GarleanuPedersen(decay=1.0, cost=1e-9, risk=0.5)
    best = BestOnGrid(problem, 9)
    seen = torch.tensor([[p, x] for p in (-2.0, -0.3, 0.0, 0.9, 3.0) for x in (0.0,)])
    held = best.levels * problem.limit
    wanted = [int((p * held - 0.5 * held**2).argmax()) for p in seen[:, 0]]
    assert best.best_action(seen).tolist() == wanted


def test_no_neighbouring_choices_earn_more():
    problem = GarleanuPedersen(steps=2_000)
    best = BestOnGrid(problem, 5, points=101)
    held = problem.limit * best.levels
    seen = torch.stack(torch.meshgrid(best.signals, held.double(), indexing="ij"), -1)
    chosen = best.best_action(seen)
    assert best.mean_reward(chosen) == pytest.approx(best.value, rel=1e-9)
    draw = torch.Generator().manual_seed(0)
    for _ in range(20):
        other = torch.rand(chosen.shape, generator=draw) < 0.05
        step = 2 * torch.randint(2, chosen.shape, generator=draw) - 1
        tried = torch.where(other, (chosen + step).clamp(0, 4), chosen)
        assert best.mean_reward(tried) < best.value


def test_problems_with_whole_actions_have_their_own_best():
    for problem in (PlantedLeak(4), Martingale(4), OUSpread(4, action="continuous")):
        best = BestOnGrid(problem, 21)
        assert best.value == problem.value
        seen = problem.rollout(5, problem.best_policy())["observation"]
        torch.testing.assert_close(
            best.levels[best.best_action(seen)], problem.best_action(seen)[..., 0]
        )


def test_what_it_cannot_do_is_refused():
    for choices, said in ((4, "must be odd"), (1, "choices must be")):
        with pytest.raises(ValueError, match=said):
            ActionGrid(choices)
    with pytest.raises(ValueError, match="best choices among trades"):
        BestOnGrid(GarleanuPedersen(action="trade"), 21)
    with pytest.raises(ValueError, match="choices of its own"):
        BestOnGrid(Chain(4), 21)
    assert math.isfinite(BestOnGrid(GarleanuPedersen(), 3, points=101).value)
