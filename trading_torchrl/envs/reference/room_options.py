"""Options of rooms: walks to their doorways, beside the single moves.

Sutton, Precup & Singh, "Between MDPs and semi-MDPs", Artificial Intelligence 112, 1999. What they
do is the number of a way; scenes show among ``signals`` the ``cell`` an account stands on, ``[*]``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trading_torchrl.envs.reference.grid import Cell, GridWorld
from trading_torchrl.modules.options import Option, Scene


class WalkTo(Option):
    """Walks the shortest way to a cell; ends there, and where it has left its ground.

    Args:
        name: of it.
        ground: where it may start and goes on, bool ``[cells]``; without the cell it walks to.
        ways: which way it takes on each cell, ``[cells]``.
    """

    least, most, likeliest = 1, 1_000, 0.0

    def __init__(self, name: str, ground: Tensor, ways: Tensor) -> None:
        self.name, self.ground, self.ways = name, ground, ways

    def may_start(self, scene: Scene) -> Tensor:
        """On its ground."""
        cell = scene.signals["cell"]
        return self.ground.to(cell.device)[cell]

    def act(self, scene: Scene) -> Tensor:
        """A step of the walk."""
        cell = scene.signals["cell"]
        return self.ways.to(cell.device)[cell].float()

    def met(self, scene: Scene) -> Tensor:
        """It has arrived, or left its ground."""
        return torch.where(self.may_start(scene), 0.0, 1.0)


class Move(Option):
    """One step.

    Args:
        way: its number.
    """

    least, most = 1, 2

    def __init__(self, way: int) -> None:
        self.name, self.way = f"MOVE_{way}", way

    def may_start(self, scene: Scene) -> Tensor:
        """Everywhere."""
        return torch.ones_like(scene.steps, dtype=torch.bool)

    def act(self, scene: Scene) -> Tensor:
        """That way."""
        return torch.full_like(scene.held, float(self.way))

    def met(self, scene: Scene) -> Tensor:
        """It is done."""
        return torch.ones_like(scene.held)


def single_moves(world: GridWorld) -> list[Option]:
    """One option for each way."""
    return [Move(way) for way in range(world.leads_to.shape[1])]


def room_options(world: GridWorld) -> list[Option]:
    """For each room, an option for each of its doorways.

    It may start anywhere in the room and in its other doorways, takes the shortest way where none
    slips, and ends where it has arrived or left the room.

    Example:
        >>> from trading_torchrl.envs.reference import FourRooms
        >>> len(room_options(FourRooms()))
        8
    """
    doors = doorways(world)
    found: list[Option] = []
    for number, room in enumerate(rooms(world)):
        near = torch.zeros_like(room)
        near[world.leads_to[room]] = True
        for door in (near & doors).nonzero()[:, 0].tolist():
            ground = room | (near & doors)
            steps = _steps_to(world, door, ground)
            ground[door] = False
            row, column = world.cells[door]
            ways = steps[world.leads_to].argmin(-1)
            found.append(WalkTo(f"ROOM_{number}_TO_{row}_{column}", ground, ways))
    return found


def doorways(world: GridWorld) -> Tensor:
    """Which cells are doorways, bool ``[cells]``: there are walls on two opposite sides."""
    free = set(world.cells)

    def closed(cell: Cell) -> bool:
        row, column = cell
        across = {(row, column - 1), (row, column + 1)}
        along = {(row - 1, column), (row + 1, column)}
        return free.isdisjoint(across) or free.isdisjoint(along)

    return torch.tensor([closed(cell) for cell in world.cells], device=world.device)


def rooms(world: GridWorld) -> Tensor:
    """Which cells are of each room, bool ``[rooms, cells]``; doorways are of none."""
    doors = doorways(world)
    number = torch.arange(len(world.cells), device=world.device)
    # The lowest number of a cell spreads over its room.
    for _ in world.cells:
        around = number[world.leads_to].masked_fill(doors[world.leads_to], len(number))
        spread = torch.where(doors, number, torch.minimum(number, around.amin(-1)))
        if spread.equal(number):
            break
        number = spread
    return torch.stack([number == each for each in number[~doors].unique()]) & ~doors


def _steps_to(world: GridWorld, cell: int, ground: Tensor) -> Tensor:
    """Steps to a cell that never leave the ground, ``[cells]``; infinity beyond it."""
    steps = torch.full((len(world.cells),), math.inf, device=world.device)
    steps[cell] = 0.0
    for _ in world.cells:
        nearer = torch.minimum(steps, steps[world.leads_to].amin(-1) + 1)
        nearer = nearer.masked_fill(~ground, math.inf)
        if nearer.equal(steps):
            break
        steps = nearer
    return steps
