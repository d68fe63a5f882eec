"""Options of sampled rows: what the agent saw of them, and what is decided where rows lead."""

import pytest
import torch
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import Compose

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import RunningOption, Showing, Signals, TradingEnv
from trading_torchrl.envs.reference import FourRooms, GridOptionPolicy, single_moves
from trading_torchrl.envs.running_option import INDEX, STEPS
from trading_torchrl.modules import (
    Controller,
    Levels,
    OptionPolicy,
    carried_out,
    make_actor,
    make_critics,
    trading_options,
)
from trading_torchrl.modules.carried_out import FACTOR, OFFSET
from trading_torchrl.modules.option_policy import CODE, ENDED
from trading_torchrl.modules.option_turns import GOES_ON
from trading_torchrl.objectives import SACLoss
from trading_torchrl.replay import OptionAhead, StoredByIndex


def made(action="blend"):
    torch.manual_seed(0)
    env = TradingEnv(
        synthetic_market(symbols=4, bars=1_500, seed=0), 32, short=True, max_position=1.0,
        smoothing=1, emit=("index", "share", "equity", "unrealised"), episode_bars=80,
        compiled=False,
    )  # fmt: skip
    shown = Showing(env, Signals.of(env), RunningOption())
    width = env.observation_spec["observation"].shape[-1]
    options = trading_options(Levels(trend=1.0, stop=2.0))
    keys = [("option", "logits"), ("option", "values")]
    controller = TensorDictModule(
        Controller(width, 6, [16]), in_keys=["observation"], out_keys=keys
    )
    actor = carried_out(make_actor(width + 7, 1, [16], ["observation", CODE]))
    policy = OptionPolicy(options, controller, cap=1.0, action=action, actor=actor)
    ahead = OptionAhead(policy)
    replay = TensorDictReplayBuffer(
        storage=LazyTensorStorage(10_000), batch_size=2_000,
        transform=Compose(StoredByIndex.of(env), Signals.of(env), ahead),
    )  # fmt: skip
    row = ("observation", "action", "market", ("next", "observation"), ("next", "market"))
    kept = (*row, ("next", "reward"), ("next", "terminated"), *ahead.stored)
    rows = shown.rollout(120, policy, break_when_any_done=False)
    replay.extend(rows.select(*kept).reshape(-1))
    return policy, rows, replay, width


def test_samples_say_which_option_ran_and_decide_what_comes_next():
    policy, rows, replay, _ = made()
    sample = replay.sample()
    index, steps = sample[INDEX][:, 0], sample[STEPS][:, 0]
    assert torch.equal(sample[CODE][:, :6].argmax(-1), index)
    most, least = (
        torch.tensor([getattr(each, name) for each in policy.options]) for name in ("most", "least")
    )
    torch.testing.assert_close(sample[CODE][:, 6], steps / most[index])
    then = sample["next", "option"]
    ended, chosen = then["ended"][:, 0] != GOES_ON, then["index"][:, 0]
    assert not ended[steps + 1 < least[index]].any()
    assert ended[steps + 1 >= most[index]].all()
    assert torch.equal(chosen[~ended], index[~ended])
    assert torch.equal(then["steps"][:, 0], torch.where(ended, 0, steps + 1))
    assert then["allowed"][ended].gather(-1, chosen[ended, None]).all()
    scales = torch.tensor([each.scale for each in policy.options])
    torch.testing.assert_close(then["factor"][:, 0], 0.5 * scales[chosen])
    # As often as while it was collected: the policy is the same.
    goes_on = ~rows["next", "done"][:, :-1, 0]
    while_collected = (rows[ENDED][:, 1:, 0] != GOES_ON)[goes_on].float().mean()
    assert float(ended.float().mean()) == pytest.approx(float(while_collected), abs=0.03)


def test_an_agent_learns_from_what_was_carried_out():
    policy, rows, replay, width = made("scaled")
    factor = rows[FACTOR]
    assert (rows["action"].abs() <= factor + 1e-6).all()
    critics = make_critics(width + 7, 1, [16], ["observation", CODE])
    loss = SACLoss(policy.actor, critics, gamma=0.9)
    found = loss(replay.sample())
    sum(found[name] for name in loss.out_keys if name.startswith("loss_")).backward()
    assert all(bool((each.grad != 0).any()) for each in policy.actor.parameters())
    assert all(each.grad is None for each in policy.controller.parameters())


def test_keys_of_other_worlds_are_stored_whole():
    world = FourRooms(observation="cells")
    controller = TensorDictModule(
        Controller(len(world.cells), 4, []), in_keys=["observation"],
        out_keys=[("option", "logits"), ("option", "values")],
    )  # fmt: skip
    ahead = OptionAhead(GridOptionPolicy(world, single_moves(world), controller))
    assert ("next", "observation") in ahead.stored
    assert {INDEX, STEPS, OFFSET, FACTOR} <= set(ahead.stored)
