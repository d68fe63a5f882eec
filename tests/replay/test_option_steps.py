"""Rows of steps for the option-critic, from a market; and ends that are learned."""

from functools import cache

import pytest
import torch
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import Compose, TransformedEnv

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import RunningOption, Signals, TradingEnv
from trading_torchrl.envs.running_option import INDEX, STEPS
from trading_torchrl.modules import Controller, Levels, OptionPolicy, trading_options
from trading_torchrl.modules.option_policy import END_LOGITS, ENDED, LOGITS, VALUES
from trading_torchrl.modules.option_turns import BY_PURPOSE, GOES_ON
from trading_torchrl.objectives import OptionCriticLoss
from trading_torchrl.replay import OptionSteps
from trading_torchrl.replay.option_steps import ENDS


@cache
def market():
    return synthetic_market(symbols=8, bars=3_000, seed=0)


def made(accounts, ends=True):
    env = TradingEnv(
        market(), accounts, short=True, max_position=1.0, smoothing=1,
        emit=("index", "share", "equity", "unrealised"), episode_bars=120, compiled=False,
    )  # fmt: skip
    env = TransformedEnv(env, Compose(Signals.of(env), RunningOption()))
    options = trading_options(Levels(trend=1.0, stop=2.0))
    width = env.observation_spec["observation"].shape[-1]
    keys = [LOGITS, VALUES, END_LOGITS] if ends else [LOGITS, VALUES]
    controller = TensorDictModule(
        Controller(width, len(options), [32], ends=ends), in_keys=["observation"], out_keys=keys
    )
    return env, controller, OptionPolicy(options, controller, cap=1.0)


@pytest.mark.parametrize("ends", [True, False])
def test_rows_say_how_options_may_end_and_what_became_of_them_agrees(ends):
    torch.manual_seed(0)
    env, _, policy = made(64, ends)
    rollout = env.rollout(100, policy, break_when_any_done=False)
    rows = OptionSteps(policy.may, policy.bounds)(rollout).reshape(64, 100)
    least, most = rows["next", *ENDS].unbind(-1)
    assert (least <= most).all()
    assert bool((least < most).any()) == ends
    alive = ~rows["next", "done"][:, :-1, 0]
    ended = rows[:, 1:][ENDED][..., 0] != GOES_ON
    assert not (ended & alive & (most[:, :-1] == 0)).any()
    assert ended[alive & (least[:, :-1] == 1)].all()
    assert torch.equal(
        rows["next", "option", "allowed"][:, :-1][alive],
        rows["option", "allowed"][:, 1:][alive],
    )


def test_learned_ends_are_as_frequent_as_they_say():
    torch.manual_seed(0)
    env, controller, policy = made(512)
    heads = controller.module.heads
    with torch.no_grad():
        heads.weight.zero_()
        heads.bias[12:] = torch.tensor([0.25]).logit()
    rollout = env.rollout(110, policy, break_when_any_done=False)
    bounds = policy.bounds(rollout["next"])
    free = (bounds[..., 0] == 0) & (bounds[..., 1] == 1) & ~rollout["next", "done"][..., 0]
    ended = rollout[ENDED][:, 1:, 0][free[:, :-1]]
    assert float((ended != GOES_ON).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert not (ended == BY_PURPOSE).any()
    steps, index = rollout["next", *STEPS][..., 0], rollout[INDEX][..., 0]
    least = torch.tensor([each.least for each in policy.options])[index]
    short = (steps < least)[:, :-1] & ~rollout["next", "done"][:, :-1, 0]
    assert (rollout[ENDED][:, 1:, 0][short] == GOES_ON).all()


def test_a_collector_and_the_option_critic_work_together():
    torch.manual_seed(0)
    env, controller, policy = made(16)
    loss = OptionCriticLoss(controller, gamma=0.95, temperature=lambda: policy.temperature)
    collector = Collector(
        env, policy, frames_per_batch=16 * 8, total_frames=16 * 32,
        auto_register_policy_transforms=False,
    )  # fmt: skip
    bar_by_bar = OptionSteps(policy.may, policy.bounds)
    before = [each.clone() for each in controller.parameters()]
    optimizer = torch.optim.Adam(controller.parameters(), lr=1e-3)
    for batch in collector:
        losses = loss(bar_by_bar(batch))
        optimizer.zero_grad()
        sum(losses[key] for key in loss.out_keys if key.startswith("loss_")).backward()
        optimizer.step()
        loss.update_targets(0.005)
    collector.shutdown()
    moved = [bool((a != b).any()) for a, b in zip(before, controller.parameters(), strict=True)]
    assert all(moved)
    assert all(each.isfinite().all() for each in controller.parameters())
