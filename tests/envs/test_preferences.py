"""Preferences: evenly spread, keyed by account and episode, the same before and after a step."""

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs import TransformedEnv
from torchrl.envs.utils import check_env_specs

from trading_torchrl.envs import Preferences, PreferencesAnew, preferring
from trading_torchrl.envs.preferences import WEIGHTS
from trading_torchrl.envs.reference import GarleanuPedersen


def made(accounts=4, first=0, **settings):
    env = GarleanuPedersen(accounts, parts=True, steps=5, first_account=first)
    drawn = Preferences(accounts, 2, first_account=first, **settings)
    return TransformedEnv(env, drawn)


def test_each_episode_has_one_of_its_own():
    env = made(least=0.2, seed=3)
    check_env_specs(env)
    rows = made(least=0.2, seed=3).rollout(15, break_when_any_done=False)[WEIGHTS]
    assert (rows >= 0.2 - 1e-6).all()
    torch.testing.assert_close(rows.sum(-1), torch.ones(4, 15))
    episodes = rows.view(4, 3, 5, 2)
    assert (episodes == episodes[:, :, :1]).all()
    assert len({*episodes[:, :, 0, 0].flatten().tolist()}) == 12
    alone = made(1, first=2, least=0.2, seed=3).rollout(15, break_when_any_done=False)[WEIGHTS]
    assert alone[0].equal(rows[2])
    other = made(least=0.2, seed=4).rollout(15, break_when_any_done=False)[WEIGHTS]
    assert not other.equal(rows)


@pytest.mark.parametrize("objectives", [2, 3])
def test_they_are_spread_evenly(objectives):
    """Each weight of an even spread over the simplex has mean 1 / K and a known deviation."""
    torch.manual_seed(0)
    given = TensorDict({"next": {"reward": torch.zeros(50_000, 1)}}, [50_000])
    least = 0.1
    drawn = PreferencesAnew(objectives, least=least)(given)
    weights = drawn[WEIGHTS]
    assert weights.equal(drawn["next", "objectives", "weights"])
    assert given.get(WEIGHTS, None) is None
    torch.testing.assert_close(weights.sum(-1), torch.ones(50_000))
    free = 1 - least * objectives
    deviation = free * ((objectives - 1) / (objectives**2 * (objectives + 1))) ** 0.5
    assert weights.mean(0).tolist() == pytest.approx([1 / objectives] * objectives, abs=0.005)
    assert weights.std(0).tolist() == pytest.approx([deviation] * objectives, rel=0.02)


def test_a_policy_can_be_told_what_to_prefer():
    seen = []

    def policy(tensordict):
        seen.append(tensordict[WEIGHTS])
        return tensordict.set("action", torch.zeros(4, 1))

    GarleanuPedersen(4).rollout(2, preferring(policy, torch.tensor([0.3, 0.7])))
    assert seen[0].shape == (4, 2)
    assert (seen[0] == torch.tensor([0.3, 0.7])).all()


def test_the_parts_of_the_reward_add_up():
    env = GarleanuPedersen(8, parts=True, cost=2.0, seed=1)
    check_env_specs(env)
    torch.manual_seed(0)
    rows = GarleanuPedersen(8, parts=True, cost=2.0, seed=1).rollout(30)
    parts = rows["next", "objectives"]
    torch.testing.assert_close(parts["gross"] + 2 * parts["trading"], rows["next", "reward"])
    assert (parts["trading"] <= 0).all()
    torch.manual_seed(0)
    plain = GarleanuPedersen(8, cost=2.0, seed=1).rollout(30)
    assert plain["next", "reward"].equal(rows["next", "reward"])
    assert plain.get("objectives", None) is None


def test_the_best_rule_at_a_cost_is_the_best_rule_of_that_problem():
    problem = GarleanuPedersen(1)
    for cost in (0.25, 1.0, 4.0):
        wanted = GarleanuPedersen(1, cost=cost).best_rule
        assert problem.best_rule_at(cost) == wanted


@pytest.mark.parametrize("least", [-0.1, 0.5, 0.7])
def test_what_leaves_nothing_to_prefer_is_refused(least):
    with pytest.raises(ValueError, match="least must be at least 0 and below 1 / 2"):
        Preferences(4, 2, least=least)
    with pytest.raises(ValueError, match="least must be at least 0 and below 1 / 2"):
        PreferencesAnew(2, least=least)
