"""Goals of episodes, and one after another on the way of an account."""

import pytest
import torch
from torchrl.envs import TransformedEnv
from torchrl.envs.utils import check_env_specs

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import DesiredGoal, GoalAfterGoal, ReachReturn, TradingEnv
from trading_torchrl.evaluation import follow, whole_split

GOAL = ReachReturn()
MARKET = synthetic_market(3, 400, seed=1)
ASKED = {"emit": ["equity", "achieved"], "compiled": False, "seed": 5}


def episodes(bars=20, accounts=3, **changed):
    env = TradingEnv(MARKET, accounts, episode_bars=bars, **ASKED)
    return TransformedEnv(env, DesiredGoal(accounts, GOAL, low=-0.02, high=0.04, **changed))


def on_and_on(bars, accounts=3, desired=0.04, **changed):
    env = TradingEnv(MARKET, accounts, **({"episode_bars": 60} | ASKED | changed))
    return TransformedEnv(env, GoalAfterGoal(accounts, GOAL, desired=desired, bars=bars))


@pytest.mark.parametrize("env", [episodes, lambda: on_and_on(7)])
def test_specs_are_what_is_shown(env):
    check_env_specs(env())


def test_goals_are_drawn_by_seed_account_and_episode():
    rows = episodes().rollout(65, break_when_any_done=False)
    desired = rows["goal", "desired"][..., 0]
    assert (desired.view(3, -1) >= -0.02).all()
    assert (desired <= 0.04).all()
    for account in range(3):
        assert len(desired[account].unique()) == 4  # 20 bars an episode
    again = episodes().rollout(65, break_when_any_done=False)["goal", "desired"]
    assert again.equal(rows["goal", "desired"])
    other = episodes(seed=1).rollout(65, break_when_any_done=False)["goal", "desired"]
    assert not other.equal(again)


def test_a_stretch_is_an_episode_as_an_agent_sees_it():
    """Until it ends, and the next one begins where the account stands."""
    bars = 7
    env = on_and_on(bars)
    rows = env.rollout(30, break_when_any_done=False)
    equity = rows["account", "equity"][..., 0]
    for t in range(30):
        start = equity[:, t - t % bars]
        earned = (equity[:, t] / start - 1).float()
        torch.testing.assert_close(rows["goal", "achieved"][:, t, 0], earned)
        seen = GOAL.seen(earned[:, None], torch.full((3, 1), 0.04))
        torch.testing.assert_close(rows["goal", "seen"][:, t], seen)
    torch.testing.assert_close(rows["next", "goal", "seen"][:, :-1], rows["goal", "seen"][:, 1:])
    assert (rows["goal", "achieved"][:, bars - 1] != 0).any()


def test_an_episode_that_ends_begins_a_stretch():
    rows = on_and_on(7, episode_bars=10).rollout(40, break_when_any_done=False)
    equity = rows["account", "equity"][..., 0]
    begins = torch.zeros(40, dtype=torch.bool)
    begins[[each for start in range(0, 40, 10) for each in (start, start + 7)]] = True
    achieved = rows["goal", "achieved"][..., 0]
    assert (achieved[:, begins] == 0).all()
    begun = equity[:, begins].repeat_interleave(torch.tensor([7, 3] * 4), 1)
    torch.testing.assert_close(achieved, (equity / begun - 1).float())


def test_accounts_are_followed_through_it():
    env = whole_split(MARKET, compiled=False)
    shown = TransformedEnv(env, GoalAfterGoal(3, GOAL, desired=0.04, bars=50))
    far = []

    def buys_until_there(tensordict):
        seen = tensordict["goal", "seen"]
        far.append(seen[:, 0])
        return tensordict.set("action", (seen[:, :1] > 0).float())

    account = follow(shown, buys_until_there)
    assert (account.share > 0).any()
    starts = torch.stack(far[::50])
    torch.testing.assert_close(starts, torch.full_like(starts, 0.04 / GOAL.width))


def test_who_sits_a_step_out_has_as_many_bars_left():
    env = on_and_on(7)
    tensordict = env.reset()
    for step in range(10):
        tensordict["action"] = torch.ones(3, 1)
        tensordict["_step"] = torch.tensor([True, True, step % 3 > 0])
        tensordict = env.step_mdp(env.step(tensordict))
    goals = env.transform
    assert goals.bar[:, 0].tolist() == [3, 3, 6]


def test_it_begins_with_any_account():
    env = on_and_on(7)
    start = env.reset()
    part = start.select("done", "terminated", "truncated")
    env.transform.start.fill_(5.0)
    part["_reset"] = torch.tensor([[True], [False], [False]])
    env.reset(part)
    assert env.transform.start[:, 0].tolist() == [10_000.0, 5.0, 5.0]
    assert {"start", "bar"} <= {name.split(".")[-1] for name in env.transform.state_dict()}


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"desired": -1.0}, "a return above -1"), ({"bars": 0}, "a stretch has at least 1 bar")],
)
def test_what_is_no_goal_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        GoalAfterGoal(3, GOAL, **({"desired": 0.02, "bars": 7} | settings))
