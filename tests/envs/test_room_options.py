"""Options of rooms: their walks against a scalar reference, and what they are good for."""

from collections import deque

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import TransformedEnv
from torchrl.envs.utils import ExplorationType, check_env_specs, set_exploration_type

from trading_torchrl.envs import RunningOption
from trading_torchrl.envs.reference import FourRooms, GridOptionPolicy, room_options, single_moves
from trading_torchrl.envs.running_option import ALLOWED, INDEX, STEPS
from trading_torchrl.modules import Controller, Scene
from trading_torchrl.modules.option_policy import ENDED, LOGITS, VALUES
from trading_torchrl.modules.option_turns import BY_PURPOSE, GOES_ON
from trading_torchrl.objectives import OptionCriticLoss
from trading_torchrl.replay import OptionSteps
from trading_torchrl.replay.option_steps import ENDS

DOORS = ((3, 6), (6, 2), (7, 9), (10, 6))
WAYS = ((-1, 0), (1, 0), (0, -1), (0, 1))
CORNERS = ((1, 1), (1, 11), (11, 1), (11, 11))


def world(accounts=1, **settings):
    return FourRooms(accounts, observation="cells", **settings)


def flood(free, corner):
    """A room, cell by cell from its corner; and the doors beside it."""
    room, doors, ahead = {corner}, set(), deque([corner])
    while ahead:
        row, column = ahead.popleft()
        for down, right in WAYS:
            cell = (row + down, column + right)
            if cell in DOORS:
                doors.add(cell)
            elif cell in free and cell not in room:
                room.add(cell)
                ahead.append(cell)
    return room, doors


def steps_to(door, ground):
    """Of each cell the fewest steps to a door that stay on the ground, breadth first."""
    found, ahead = {door: 0}, deque([door])
    while ahead:
        cell = ahead.popleft()
        for down, right in WAYS:
            other = (cell[0] + down, cell[1] + right)
            if other in ground and other not in found:
                found[other] = found[cell] + 1
                ahead.append(other)
    return found


def reference(grid):
    """Of each option by its name, steps from each cell on which it may start."""
    wanted = {}
    for number, corner in enumerate(CORNERS):
        room, doors = flood(set(grid.cells), corner)
        for door in doors:
            steps = steps_to(door, room | doors)
            del steps[door]
            wanted[f"ROOM_{number}_TO_{door[0]}_{door[1]}"] = steps
    return wanted


def standing_on(cells):
    nothing = torch.zeros(len(cells))
    return Scene({"cell": cells}, nothing, nothing, nothing.long(), nothing.bool())


def test_each_walks_the_shortest_way_from_wherever_it_may_start():
    grid = world()
    wanted, options = reference(grid), room_options(grid)
    assert len(wanted) == 8
    assert {option.name for option in options} == set(wanted)
    for option in options:
        ground = wanted[option.name]
        door = tuple(int(each) for each in option.name.split("_")[-2:])
        may = option.may_start(standing_on(torch.arange(len(grid.cells))))
        assert {grid.cells[at] for at in may.nonzero()[:, 0]} == set(ground)
        for start, steps in ground.items():
            cell = start
            for left in range(steps, 0, -1):
                scene = standing_on(torch.tensor([grid.cells.index(cell)]))
                assert float(option.met(scene)) == 0
                assert ground[cell] == left
                down, right = WAYS[int(option.act(scene))]
                cell = (cell[0] + down, cell[1] + right)
            assert cell == door
            scene = standing_on(torch.tensor([grid.cells.index(cell)]))
            assert float(option.met(scene)) == 1


def test_each_ends_wherever_it_has_left_its_room():
    grid = world()
    every = standing_on(torch.arange(len(grid.cells)))
    for option in room_options(grid):
        ground = reference(grid)[option.name]
        inside = torch.tensor([cell in ground for cell in grid.cells])
        assert torch.equal(option.met(every), (~inside).float())
    for option in single_moves(grid):
        assert option.may_start(every).all()
        assert (option.met(every) == 1).all()


def chooser(count):
    """Logits that are drawn anew each time."""

    def logits(seen):
        return torch.randn(*seen.shape[:-1], count)

    return TensorDictModule(logits, in_keys=["observation"], out_keys=[LOGITS])


def policy_of(grid, options=None):
    options = [*room_options(grid), *single_moves(grid)] if options is None else options
    return GridOptionPolicy(grid, options, chooser(len(options)))


def test_options_are_carried_out_among_slips():
    torch.manual_seed(0)
    env = TransformedEnv(world(200, seed=3), RunningOption())
    check_env_specs(env)
    policy = policy_of(world())
    wanted = reference(world())
    rows = env.rollout(300, policy, break_when_any_done=False)
    assert rows["action"].dtype == torch.int64
    assert rows["action"].shape == (200, 300)
    cells = [env.base_env.cells[at] for at in env.base_env.cell_of(rows["observation"]).flatten()]
    on = [set(wanted[each.name]) if each.name in wanted else None for each in policy.options]
    may = torch.tensor([[place is None or cell in place for place in on] for cell in cells])
    assert torch.equal(rows[ALLOWED].flatten(0, 1), may)

    index, ended, steps = (rows[key][..., 0] for key in (INDEX, ENDED, STEPS))
    running, walks = index[:, :-1], index[:, :-1] < 8
    over = ended[:, 1:] != GOES_ON
    inside = may.view(200, 300, -1)[:, 1:].gather(-1, running[..., None])[..., 0]
    fresh = rows["next", "done"][:, :-1, 0]
    assert torch.equal(over & ~fresh, (~walks | ~inside) & ~fresh)
    assert (ended[:, 1:][over] == BY_PURPOSE).all()
    assert int(steps.max()) > 10


def test_a_policy_says_what_it_needs():
    grid = world(2)
    with pytest.raises(ValueError, match="the environment needs the transform RunningOption"):
        policy_of(grid)(TensorDict({"observation": grid.reset()["observation"]}, [2]))


def test_a_step_teaches_all_that_would_have_done_the_same():
    torch.manual_seed(0)
    env = TransformedEnv(world(20, seed=3), RunningOption())
    policy = policy_of(world())
    rollout = env.rollout(50, policy, break_when_any_done=False)
    rows = OptionSteps(policy.may, policy.bounds, policy.alike)(rollout)
    alone = OptionSteps(policy.may, policy.bounds)(rollout)
    grid, wanted = world(), reference(world())
    count = 0
    walked = zip(rollout.reshape(-1), alone, strict=True)
    for step, (row, plain) in enumerate(walked):
        cell = grid.cells[int(grid.cell_of(row["observation"]))]
        then = grid.cells[int(grid.cell_of(row["next", "observation"]))]
        at = torch.tensor([grid.cells.index(cell)])
        for k, option in enumerate(policy.options):
            ground = set(wanted.get(option.name, grid.cells))
            if cell not in ground or int(option.act(standing_on(at))) != int(row["action"]):
                continue
            found = rows[count]
            count += 1
            assert torch.equal(found["observation"], row["observation"]), step
            assert int(found[INDEX]) == int(found["next", *INDEX]) == k
            ends = float(option.name not in wanted or then not in ground)
            assert found["next", *ENDS].tolist() == [ends, ends]
            if k == int(row[INDEX]):
                for key in plain.keys(True, True):
                    assert torch.equal(found.get(key), plain.get(key)), key
    assert count == len(rows) > 1.5 * len(alone)


def test_a_goal_is_found_and_learned_from_few_steps():
    torch.manual_seed(0)
    grid = world()
    options = [*room_options(grid), *single_moves(grid)]
    network = Controller(len(grid.cells), len(options), hidden=())
    controller = TensorDictModule(network, in_keys=["observation"], out_keys=[LOGITS, VALUES])
    policy = GridOptionPolicy(grid, options, controller)
    loss = OptionCriticLoss(controller, gamma=0.99, entropy=0.01, normalise=False)
    rows = OptionSteps(policy.may, policy.bounds, policy.alike)
    replay = TensorDictReplayBuffer(storage=LazyTensorStorage(10_000), batch_size=256)
    optimizer = torch.optim.Adam(controller.parameters(), lr=0.03, eps=1e-4)

    def around(accounts):
        return TransformedEnv(world(accounts, slip=0.0, goal=(10, 6)), RunningOption())

    collector = Collector(
        around(4), policy, frames_per_batch=32, total_frames=1_024,
        auto_register_policy_transforms=False, track_traj_ids=False, trust_policy=True,
    )  # fmt: skip
    for batch in collector:
        replay.extend(rows(batch))
        for _ in range(8):
            losses = loss(replay.sample())
            optimizer.zero_grad()
            sum(losses[f"loss_{name}"] for name in ("policy", "value", "entropy")).backward()
            optimizer.step()
            loss.update_targets(0.15)
    collector.shutdown()
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        found = around(1).rollout(60, policy)
    assert bool(found["next", "terminated"][0, -1])
    assert found.shape[1] <= 28  # the shortest way has 14 steps
