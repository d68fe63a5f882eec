"""Every reference problem against its contract and its known value."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torchrl.envs import RewardSum, TransformedEnv, check_env_specs

from trading_torchrl.envs import reference
from trading_torchrl.envs.reference import (
    BitFlip,
    Chain,
    FourRooms,
    GarleanuPedersen,
    GridWorld,
    Martingale,
    Merton,
    OUSpread,
    PlantedLeak,
    ReferenceProblem,
    SparseMaze,
    optimum_share,
)

PROBLEMS: dict[str, tuple[type[ReferenceProblem], dict[str, Any]]] = {
    "garleanu_pedersen": (GarleanuPedersen, {}),
    "garleanu_pedersen_trade": (GarleanuPedersen, {"action": "trade", "reward_noise": 1.0}),
    "merton": (Merton, {}),
    "ou_spread": (OUSpread, {"points": 301}),
    "ou_spread_long_only": (OUSpread, {"points": 301, "short": False, "action": "continuous"}),
    "planted_leak": (PlantedLeak, {}),
    "martingale": (Martingale, {}),
    "sparse_maze": (SparseMaze, {"size": 4}),
    "four_rooms": (FourRooms, {}),
    "chain": (Chain, {}),
    "bit_flip": (BitFlip, {}),
    "bit_flip_short": (BitFlip, {"bits": 8, "steps": 3}),
}


def build(name: str, num_envs: int = 4, **more: Any) -> ReferenceProblem:
    kind, settings = PROBLEMS[name]
    return kind(num_envs, **{**settings, **more})


def actions(env: ReferenceProblem, steps: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    shape = (steps, *env.action_spec.shape)
    if env.action_spec.dtype is torch.int64:
        drawn = torch.randint(0, env.action_spec.space.n, shape, generator=generator)
    else:
        drawn = 2 * torch.rand(shape, generator=generator) - 1
    return list(drawn)


def play(env: ReferenceProblem, script: list[torch.Tensor]) -> Any:
    seen, rows = env.reset(), []
    for action in script:
        step, seen = env.step_and_maybe_reset(seen.set("action", action))
        rows.append(step.clone())
    return torch.stack(rows, 1)


def differing(left: Any, right: Any) -> list[Any]:
    keys = set(left.keys(True, True)) | set(right.keys(True, True))
    return [key for key in keys if not torch.equal(left[key], right[key])]


@pytest.mark.parametrize("name", PROBLEMS)
def test_specs(name: str) -> None:
    check_env_specs(build(name), seed=0)
    check_env_specs(TransformedEnv(build(name), RewardSum()), seed=0)


@pytest.mark.parametrize("name", PROBLEMS)
def test_together_equals_alone_and_same_seed_same_episode(name: str) -> None:
    env = build(name, 3, steps=7, seed=3)
    script = actions(env, 30)
    together = play(env, script)
    assert together["next", "done"].sum() > 3
    assert not differing(together, play(build(name, 3, steps=7, seed=3), script))
    for account in range(3):
        single = build(name, 1, steps=7, seed=3, first_account=account)
        alone = play(single, [action[account : account + 1] for action in script])
        assert not differing(together[account : account + 1], alone)
    other = play(build(name, 3, steps=7, seed=4), script)
    if name not in ("merton", "sparse_maze", "chain", "four_rooms"):  # no noise to be seen there
        assert "observation" in differing(together, other)


@pytest.mark.parametrize("name", PROBLEMS)
def test_an_account_that_sits_out_stands_still(name: str) -> None:
    env = build(name, 2)
    seen = env.reset()
    seen["action"] = actions(env, 1)[0]
    seen["_step"] = torch.tensor([True, False])
    after = env.step(seen)["next"]
    assert torch.equal(after["observation"][1], seen["observation"][1])
    assert after["reward"][1] == 0


@pytest.mark.parametrize("name", PROBLEMS)
def test_saved_problems_go_on_bit_for_bit(name: str) -> None:
    env = build(name, steps=9)
    script = actions(env, 20)
    play(env, script[:5])
    state = env.get_extra_state()
    other = build(name, steps=9)
    other.set_extra_state(state)

    def go_on(each: ReferenceProblem) -> Any:
        rows = []
        for action in script[5:]:
            step = (
                each.step(each.reset().set("action", action))
                if not rows
                else each.step(rows[-1]["next"].exclude("reward").set("action", action))
            )
            rows.append(step.clone())
        return torch.stack(rows, 1)

    assert not differing(go_on(env), go_on(other))


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_best_policy_earns_its_exact_value(name: str) -> None:
    env = build(name, 512)
    found = optimum_share(env.best_policy(), env, episodes=1_024)
    assert found.share == 1 or env.value == 0
    assert abs(found.best - env.value) <= 3 * found.best_error + 1e-9
    if env.value:
        # The value is sharp enough to tell the best policy from one that tosses a coin.
        coin = optimum_share(lambda td: td.set("action", env.action_spec.rand()), env)
        assert coin.score < env.value - 5 * coin.score_error


@pytest.mark.parametrize("name", PROBLEMS)
def test_bad_actions_are_refused_and_harm_nothing(name: str) -> None:
    env = build(name, 2)
    seen = env.reset()
    before = env.get_extra_state()["fields"]
    if env.action_spec.dtype is torch.int64:
        seen["action"] = torch.tensor([0, 999])
    else:
        seen["action"] = torch.tensor([[0.0], [math.nan]])
    with pytest.raises(ValueError, match="account 1 got the action"):
        env.step(seen)
    after = env.get_extra_state()["fields"]
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (GarleanuPedersen, {"cost": 0}, "cost must be larger than 0"),
        (GarleanuPedersen, {"decay": 1.5}, "decay must lie in"),
        (GarleanuPedersen, {"action": "buy"}, "allowed are target, trade"),
        (GarleanuPedersen, {"risk": math.nan}, "risk must be larger than 0"),
        (Merton, {"limit": 0.5}, "raise the limit"),
        (OUSpread, {"speed": -1}, "speed must be larger than 0"),
        (OUSpread, {"points": 3}, "points must be a whole number"),
        (PlantedLeak, {"distractors": -1}, "distractors must be a whole number"),
        (Martingale, {"memory": 0}, "memory must be a whole number"),
        (SparseMaze, {"size": 1}, "size must be a whole number"),
        (FourRooms, {"goal": (0, 0)}, "goal must be a free cell"),
        (FourRooms, {"goal": (1, 1)}, "start and goal must differ"),
        (Chain, {"length": 1}, "length must be a whole number"),
        (BitFlip, {"bits": 0}, "bits must be a whole number"),
        (Martingale, {"memory": 257}, "memory must be at most 256"),
        (PlantedLeak, {"distractors": 256}, "distractors must be fewer than 256"),
        (GarleanuPedersen, {"limit": 1.0}, "limit must be at least"),
        (OUSpread, {"dt": 0.001}, "too coarse"),
        (OUSpread, {"round_trip": math.inf}, "round_trip must be larger"),
        (FourRooms, {"discount": 1.0}, "discount must be below 1"),
        (Merton, {"drift": math.nan}, "drift must lie in"),
        (Merton, {"steps": 0}, "steps must be a whole number"),
        (Merton, {"num_envs": 0}, "num_envs must be a whole number"),
    ],
)
def test_bad_settings_are_refused(
    kind: type[ReferenceProblem], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**settings)


def test_a_goal_behind_walls_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no way"):
        GridWorld(1, (" # ",), (0, 0), (0, 2))


def test_saved_accounts_of_another_problem_are_refused() -> None:
    state = GarleanuPedersen(4).get_extra_state()
    for other in (GarleanuPedersen(4, risk=0.9), GarleanuPedersen(4, first_account=1), Merton(4)):
        with pytest.raises(ValueError, match="do not fit this environment"):
            other.set_extra_state(state)


def test_an_ended_account_that_sits_out_stays_ended_and_may_act_on_nothing() -> None:
    env = Merton(2, steps=1)
    ended = env.step(env.reset().set("action", torch.zeros(2, 1)))["next"]
    ended["action"] = torch.tensor([[0.0], [math.nan]])
    ended["_step"] = torch.tensor([True, False])
    after = env.step(ended.exclude("reward"))["next"]
    assert after["done"].all()


def test_a_step_before_a_reset_and_a_move_elsewhere_are_refused() -> None:
    env = Chain(2)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(env.full_action_spec.rand())
    with pytest.raises(ValueError, match="lives on cpu"):
        env.to("meta")
    with pytest.raises(ValueError, match="whole numbers from 0 to 1"):
        env.step(env.reset().set("action", torch.tensor([0.5, 1.0])))


def test_all_problems_are_exported() -> None:
    kinds = {kind for kind, _ in PROBLEMS.values()}
    exported = {
        each
        for each in vars(reference).values()
        if isinstance(each, type) and issubclass(each, ReferenceProblem)
    }
    assert exported - {ReferenceProblem, GridWorld} == kinds
