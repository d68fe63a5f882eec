"""Three worlds of cells: a chain, four rooms, a sparse maze."""

from __future__ import annotations

import random
from typing import Literal

import torch

from trading_torchrl.envs.reference.grid import COMPASS, Cell, GridWorld
from trading_torchrl.envs.settings import at_least

ROOMS = (
    "#############",
    "#     #     #",
    "#     #     #",
    "#           #",
    "#     #     #",
    "#     #     #",
    "## ####     #",
    "#     ### ###",
    "#     #     #",
    "#     #     #",
    "#           #",
    "#     #     #",
    "#############",
)
"""The plan of Sutton, Precup & Singh (1999)."""


class Chain(GridWorld):
    """A corridor with the reward at its far end; actions left and right, nothing is random.

    A walk that tosses coins takes about ``length^2`` steps to the first reward. Observation: one
    number for each cell.

    Args:
        num_envs: number of accounts.
        length: number of cells.
        discount: of the reward.
        steps: length of an episode; ``None`` is four times the chain's.
        seed: of all noise; there is none here.
        first_account: number of the first account.
        device: where it runs.

    Example:
        >>> from trading_torchrl.envs.reference import Chain
        >>> round(Chain(num_envs=4, length=20).value, 4)  # 0.99 ** 18
        0.8345
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        length: int = 20,
        discount: float = 0.99,
        steps: int | None = None,
        seed: int = 0,
        first_account: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        at_least("length", length, 2)
        super().__init__(
            num_envs,
            (" " * length,),
            (0, 0),
            (0, length - 1),
            moves=((0, -1), (0, 1)),
            discount=discount,
            observation="cells",
            steps=4 * length if steps is None else steps,
            seed=seed,
            first_account=first_account,
            device=device,
        )


class FourRooms(GridWorld):
    """Four rooms joined by four doorways (Sutton, Precup & Singh 1999).

    From the upper left corner to a cell in the lower right room. As in the paper a step goes
    another way one time in three. Paper: Between MDPs and semi-MDPs, Artificial Intelligence 112.

    Args:
        num_envs: number of accounts.
        start: (row, column) where episodes begin.
        goal: (row, column) that pays.
        slip: probability that a step goes another way.
        discount: of the reward.
        observation: ``coordinates`` or ``cells``.
        steps: length of an episode.
        seed: of all noise.
        first_account: number of the first account.
        device: where it runs.

    Example:
        >>> from trading_torchrl.envs.reference import FourRooms
        >>> round(FourRooms(num_envs=4, slip=0.0).value, 4)  # 18 steps
        0.8429
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        start: Cell = (1, 1),
        goal: Cell = (10, 10),
        slip: float = 1 / 3,
        discount: float = 0.99,
        observation: Literal["coordinates", "cells"] = "coordinates",
        steps: int = 500,
        seed: int = 0,
        first_account: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(
            num_envs,
            ROOMS,
            start,
            goal,
            slip=slip,
            discount=discount,
            observation=observation,
            steps=steps,
            seed=seed,
            first_account=first_account,
            device=device,
        )


class SparseMaze(GridWorld):
    """A maze without loops, from one corner to the opposite one; nothing is random.

    Between any two cells there is exactly one way. The same ``layout`` is the same maze everywhere.

    Args:
        num_envs: number of accounts.
        size: cells a side, not counting the walls between them.
        layout: which maze.
        discount: of the reward.
        observation: ``coordinates`` or ``cells``.
        steps: length of an episode.
        seed: of all noise; there is none here.
        first_account: number of the first account.
        device: where it runs.

    Example:
        >>> from trading_torchrl.envs.reference import SparseMaze
        >>> maze = SparseMaze(num_envs=4, size=5)
        >>> len(maze.cells)
        49
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        size: int = 8,
        layout: int = 0,
        discount: float = 0.99,
        observation: Literal["coordinates", "cells"] = "coordinates",
        steps: int = 500,
        seed: int = 0,
        first_account: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        at_least("size", size, 2)
        super().__init__(
            num_envs,
            maze(size, layout),
            (1, 1),
            (2 * size - 1, 2 * size - 1),
            discount=discount,
            observation=observation,
            steps=steps,
            seed=seed,
            first_account=first_account,
            device=device,
        )


def maze(size: int, layout: int) -> tuple[str, ...]:
    """A plan of ``2 size + 1`` rows, dug out from the upper left corner (depth first)."""
    choose = random.Random(layout).choice
    plan = [["#"] * (2 * size + 1) for _ in range(2 * size + 1)]
    plan[1][1] = " "
    path = [(1, 1)]
    while path:
        row, column = path[-1]
        around = [
            (down, right)
            for down, right in COMPASS
            if 0 < row + 2 * down < 2 * size
            and 0 < column + 2 * right < 2 * size
            and plan[row + 2 * down][column + 2 * right] == "#"
        ]
        if not around:
            path.pop()
            continue
        down, right = choose(around)
        plan[row + down][column + right] = " "
        plan[row + 2 * down][column + 2 * right] = " "
        path.append((row + 2 * down, column + 2 * right))
    return tuple("".join(line) for line in plan)
