"""Shaping: what is added by hand, that it sums to nothing, and that the best policy stays."""

from pathlib import Path

import pytest
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import TransformedEnv
from torchrl.envs.utils import check_env_specs

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import TradingEnv
from trading_torchrl.envs.reference import Chain, FourRooms, SparseMaze
from trading_torchrl.modules import Potential, TradingPotential
from trading_torchrl.replay import PotentialShaping
from trading_torchrl.state_file import load, save

RESULTS = Path(__file__).resolve().parents[2] / "results"


def total(seen):
    return seen.sum(-1, keepdim=True)


def batch(now, following, reward, terminated):
    return TensorDict(
        {
            "observation": torch.tensor(now),
            "next": {
                "observation": torch.tensor(following),
                "reward": torch.tensor(reward)[:, None],
                "terminated": torch.tensor(terminated)[:, None],
                "truncated": ~torch.tensor(terminated)[:, None],
            },
        },
        [len(now)],
    )


def test_by_hand_ended_and_cut_off():
    given = batch([[1.0, 2.0], [1.0, 2.0]], [[4.0, 5.0], [4.0, 5.0]], [7.0, 7.0], [True, False])
    shaped = PotentialShaping(total, gamma=0.5, weight=0.2)(given)
    added = torch.tensor([[-0.2 * 3.0], [0.5 * 0.2 * 9.0 - 0.2 * 3.0]])
    torch.testing.assert_close(shaped["next", "shaping"], added)
    torch.testing.assert_close(shaped["next", "reward"], 7 + added)
    assert (given["next", "reward"] == 7).all()
    assert given["next"].get("shaping", None) is None


def test_a_batch_is_shaped_as_each_step_was():
    def rolled(*transforms):
        env = TransformedEnv(Chain(8, length=4, steps=9, seed=3))
        for each in transforms:
            env.append_transform(each)
        torch.manual_seed(0)
        return env.rollout(40, break_when_any_done=False)

    settings = {"gamma": 0.9, "weight": 0.3}
    stepped = rolled(PotentialShaping(total, **settings))
    sampled = PotentialShaping(total, **settings)(rolled())
    assert stepped["next", "terminated"].any()
    assert stepped["next", "truncated"].any()
    torch.testing.assert_close(stepped["next", "reward"], sampled["next", "reward"])


def test_over_an_episode_it_depends_on_its_ends_alone():
    torch.manual_seed(1)
    potential = Potential(4, {"a": 0.3, "b": 0.7}, hidden=[8])
    rows = Chain(64, length=4, steps=9).rollout(9, break_when_any_done=False)
    shaped = PotentialShaping(potential, gamma=0.9, weight=0.5)(rows)["next", "shaping"]
    with torch.no_grad():
        start = potential(rows["observation"])[:, 0, 0]
        end = potential(rows["next", "observation"])[..., 0]
    over = rows["next", "done"][..., 0]
    last = over.long().argmax(1)
    goes_on = over.any(1) & rows["next", "truncated"][..., 0].any(1)
    within = torch.arange(over.shape[1]) <= last[:, None]
    told = (shaped[..., 0] * 0.9 ** torch.arange(over.shape[1]) * within).sum(1)
    account = torch.arange(64)
    left = torch.where(
        rows["next", "terminated"][account, last, 0], 0.0, 0.9 ** (last + 1.0) * end[account, last]
    )
    known = over.any(1)
    assert goes_on.any()
    assert rows["next", "terminated"].any()
    torch.testing.assert_close(told[known], 0.5 * (left - start)[known])


@pytest.fixture
def exact(monkeypatch):
    monkeypatch.syspath_prepend(str(RESULTS))
    import exact

    return exact


def maze():
    return SparseMaze(1, size=3, observation="cells", discount=0.95)


def rooms():
    return FourRooms(1, slip=0.0, observation="cells", discount=0.95)


@pytest.mark.parametrize("name", ["learned", "hand", "random"])
@pytest.mark.parametrize("world", [maze, rooms])
def test_the_best_policy_stays_whatever_the_potential(exact, world, name):
    world = world()
    none = PotentialShaping(lambda seen: seen[..., :1], gamma=0.95, weight=0.0)
    (wanted,) = exact.best_ways(world, none)
    assert not wanted.all()
    steps = world.every_step()
    assert wanted.gather(1, world.best_action(steps["observation"][:, 0])[:, None]).all()
    potential = exact.POTENTIALS[name](world, 0.95)
    for weight in (0.1, 1.0):
        shaping = PotentialShaping(potential, gamma=0.95, weight=weight)
        for cut_at in (None, 3):
            (found,) = exact.best_ways(world, shaping, cut_at)
            assert found.equal(wanted)
    # While it moves, a step every twenty sweeps, ways that are as good may look a little apart.
    shaping = PotentialShaping(potential, gamma=0.95, weight=0.1, step=1e-3)
    everywhere = exact.best_ways(world, shaping, changes=10)
    assert float(shaping.weight) == pytest.approx(0.11)
    assert not any((found & ~wanted).any() for found in everywhere)


@pytest.mark.parametrize("world", [maze, rooms])
def test_a_learned_potential_rises_towards_the_goal(exact, world):
    world = world()
    seen = world.every_step()["observation"][:, 0]
    foreseen = exact.POTENTIALS["learned"](world, 0.95)(seen)[:, 0]
    way = world.steps_to_goal(seen)
    near, on_the_way, far = (foreseen[part].mean() for part in (way <= 2, way == 4, way >= 6))
    assert near > 2 * on_the_way > 4 * far


def test_what_is_cut_off_goes_on(exact):
    """Were the potential zero where episodes are cut off, the best policy would be another."""
    world = maze()
    random = exact.POTENTIALS["random"](world, 0.95)
    shaping = PotentialShaping(random, gamma=0.95, weight=1.0)
    wrong = PotentialShaping(random, gamma=0.95, weight=1.0, terminated_key="truncated")
    (wanted,) = exact.best_ways(world, shaping, cut_at=3)
    assert not exact.best_ways(world, wrong, cut_at=3)[0].equal(wanted)


def test_every_step_is_one_that_the_world_takes():
    world = SparseMaze(4, size=3, seed=1)
    steps = world.every_step()
    rows = world.rollout(60, break_when_any_done=False).reshape(-1)
    cell, action = world.cell_of(rows["observation"]), rows["action"]
    at = (steps["cell"][:, 0] == cell[:, None]).long().argmax(1)
    same = steps[at, action]
    for key in ("observation", ("next", "observation"), ("next", "reward"), ("next", "terminated")):
        torch.testing.assert_close(same[key], rows[key])


def test_steps_to_the_goal_are_those_of_the_best_policy():
    maze = SparseMaze(1, size=6, discount=0.99)
    start = maze.reset()["observation"]
    assert maze.value == pytest.approx(0.99 ** (float(maze.steps_to_goal(start)) - 1), rel=1e-9)
    assert float(maze.steps_to_goal(maze._view[maze._goal])) == 0


def test_the_weight_moves_by_what_evaluations_find():
    shaping = PotentialShaping(total, gamma=0.9, weight=0.1, step=0.06, most=0.2)
    for found, wanted in (
        ({"entropy": 0.2}, 0.16),
        ({"entropy": 0.2}, 0.2),
        ({"entropy": 0.3, "sharpe": 1.0}, 0.2),
        ({"entropy": 0.2, "sharpe": 1.1}, 0.2),
        ({"sharpe": 1.1}, 0.14),
        ({"sharpe": 9.0}, 0.08),
        ({"sharpe": 9.0}, 0.02),
        ({"sharpe": 9.0}, 0.0),
    ):
        shaping.adapt(**found)
        assert float(shaping.weight) == pytest.approx(wanted)


def test_it_counts_from_so_many_rows_on_and_goes_on_where_it_stood(tmp_path):
    shaping = PotentialShaping(total, gamma=0.9, weight=0.3, warmup_frames=50)
    replay = ReplayBuffer(storage=LazyTensorStorage(100), transform=shaping, batch_size=16)
    rows = Chain(8, length=4).rollout(4, break_when_any_done=False).reshape(-1)
    replay.extend(rows)
    assert not replay.sample()["next", "shaping"].any()
    replay.extend(rows)
    assert replay.sample()["next", "shaping"].any()
    shaping.adapt(sharpe=2.0)
    save(tmp_path / "state.pt", shaping.state_dict())
    other = PotentialShaping(total, gamma=0.9, weight=0.3, warmup_frames=50)
    other.load_state_dict(load(tmp_path / "state.pt"))
    assert (other(rows) == shaping(rows)).all()
    assert other.frames == shaping.frames == 64


def test_the_learned_potential_is_not_part_of_it():
    potential = Potential(4, {"return": 1.0})
    shaping = PotentialShaping(potential, gamma=0.9)
    assert not list(shaping.parameters())
    rows = shaping(Chain(8, length=4).rollout(4))
    assert not rows["next", "reward"].requires_grad


def test_rules_of_thumb_in_a_trading_environment():
    def made():
        return TradingEnv(synthetic_market(2, 700), num_envs=4, actions="target", compiled=False)

    potential = TradingPotential(made().observation_names)
    shaping = PotentialShaping(potential, gamma=0.95)
    shaped = TransformedEnv(made(), shaping)
    check_env_specs(TransformedEnv(made(), PotentialShaping(potential, gamma=0.95)))
    torch.manual_seed(0)
    rows = shaped.rollout(60)
    torch.manual_seed(0)
    plain = made().rollout(60)
    torch.testing.assert_close(rows["next", "reward"], shaping(plain)["next", "reward"])
    assert (rows["next", "reward"] != plain["next", "reward"]).float().mean() > 0.5
    flat = rows["observation"].clone()
    for name in ("position", "unrealised"):
        flat[..., made().observation_names.index(name)] = 0
    assert not potential(flat).any()
    assert potential.parts(rows["observation"]).abs().amax((0, 1)).le(1.5).all()


def test_each_rule_of_thumb_has_its_sign():
    names = ("sma_ratio", "range_position", "position", "unrealised", "since_trade")
    potential = TradingPotential(names)
    long_in_an_uptrend_at_support = torch.tensor([1.0, -1.0, 1.0, 0.1, 0.5])
    short_there = torch.tensor([1.0, -1.0, -1.0, -0.1, 0.5])
    good, bad = potential.parts(long_in_an_uptrend_at_support), potential.parts(short_there)
    assert (good[:3] > 0).all()
    assert (bad[:3] < 0).all()
    assert good[3] == bad[3] == -0.5


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gamma": 1.1}, "gamma must lie"),
        ({"weight": -0.1}, "weight must lie"),
        ({"weight": 0.6, "most": 0.5}, "most=0.5, got 0.6"),
        ({"step": -1.0}, "step must not"),
    ],
)
def test_what_does_not_fit_is_refused(changed, said):
    with pytest.raises(ValueError, match=said):
        PotentialShaping(total, **{"gamma": 0.9} | changed)
    with pytest.raises(ValueError, match="one number a row"):
        PotentialShaping(lambda seen: seen, gamma=0.9)(Chain(2, length=4).rollout(3))
    with pytest.raises(ValueError, match="reads position"):
        TradingPotential(["range_position"])
    with pytest.raises(ValueError, match="weights above 0"):
        Potential(3, {"return": 0.0})
