"""The fast way to step with more shown is the usual way, bit for bit."""

import pytest
import torch
from torchrl.collectors import Collector
from torchrl.envs import Compose, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import MarketWindow, RunningOption, Showing, Signals, TradingEnv
from trading_torchrl.envs.running_option import ENTERED, INDEX, LASTED, STEPS

MARKET = synthetic_market(symbols=4, bars=600, seed=0)


def made(fast, window=8):
    env = TradingEnv(
        MARKET, 6, short=True, max_position=1.0, smoothing=1, window=window, seed=3,
        emit=("index", "share", "equity", "unrealised"), episode_bars=40, compiled=False,
    )  # fmt: skip
    shows = [MarketWindow.of(env), Signals.of(env), RunningOption()]
    return Showing(env, *shows) if fast else TransformedEnv(env, Compose(*shows))


def policy(rows):
    """Writes what a policy of options writes, and numbers that tell accounts and bars apart."""
    rows["action"] = 2 * torch.rand(6, 1) - 1
    rows[INDEX] = torch.randint(0, 6, (6, 1))
    rows[ENTERED] = torch.rand(6, 1) < 0.5
    rows[LASTED] = torch.rand(6, 1)
    rows["option", "code"] = torch.rand(6, 3)
    return rows


def test_specs():
    check_env_specs(made(fast=True))


def stepped(fast, bars):
    torch.manual_seed(0)
    env = made(fast)
    now, rows = env.reset(), []
    for _ in range(bars):
        then, now = env.step_and_maybe_reset(policy(now))
        rows.append(then)
    return torch.stack(rows, 1), now


def test_rows_are_the_same_over_the_ends_of_episodes():
    (fast, now), (usual, then) = stepped(True, 130), stepped(False, 130)
    assert fast["next", "done"].sum() == 18
    for key in usual.keys(True, True):
        torch.testing.assert_close(fast.get(key), usual.get(key), rtol=0, atol=0, equal_nan=True)
    for key in (INDEX, STEPS, ENTERED, LASTED, "window", ("signals", "trend"), "observation"):
        assert torch.equal(now.get(key), then.get(key)), key


def test_collectors_step_it_and_keep_rows_apart():
    def collected(fast):
        torch.manual_seed(0)
        collector = Collector(
            made(fast), policy, frames_per_batch=6 * 50, total_frames=6 * 100,
            auto_register_policy_transforms=False, track_traj_ids=False, trust_policy=True,
        )  # fmt: skip
        rows = torch.cat([batch.clone() for batch in collector], -1)
        collector.shutdown()
        return rows

    fast, usual = collected(True), collected(False)
    for key in usual.keys(True, True):
        assert torch.equal(fast.get(key), usual.get(key)), key
    assert torch.equal(fast["next", STEPS[0], STEPS[1]], fast[STEPS] + 1)


def test_with_other_transforms_it_steps_as_ever():
    env = made(fast=True)
    env.append_transform(StepCounter())
    now = env.reset()
    for _ in range(45):
        then, now = env.step_and_maybe_reset(policy(now))
    assert int(then["next", "step_count"].max()) == 5


@pytest.mark.parametrize("fast", [True, False])
def test_accounts_that_sit_a_step_out_stay(fast):
    torch.manual_seed(0)
    env = made(fast)
    now = policy(env.reset())
    now["_step"] = torch.tensor([True, False, True, True, False, True])
    then = env.step(now)["next"]
    assert torch.equal(then["market", "bar"][~now["_step"]], now["market", "bar"][~now["_step"]])
    assert (then[STEPS][~now["_step"]] == 0).all()
