"""Worlds of cells with one reward far away, solved by dynamic programming."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Literal

import torch
from tensordict import TensorDict
from torch import Tensor

from trading_torchrl.envs.reference.problem import Fields, ReferenceProblem, above
from trading_torchrl.envs.settings import one_of, within

Cell = tuple[int, int]

COMPASS: tuple[Cell, ...] = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Up, down, left, right, as (row, column)."""


class GridWorld(ReferenceProblem):
    """An account walks over free cells; entering the goal pays 1 and ends the episode.

    Walls are bumped into. With probability ``slip`` a step goes another way, all others alike. The
    best policy and its value come from dynamic programming: the discounted return from the start,
    over the ``steps`` of an episode.

    Args:
        num_envs: number of accounts.
        plan: rows of characters, ``#`` a wall, anything else free.
        start: (row, column) where episodes begin.
        goal: (row, column) that pays.
        moves: (row, column) step of each action.
        slip: probability that a step goes another way.
        discount: of the reward, for the score and the best policy.
        observation: ``coordinates`` in [-1, 1], or ``cells``, one for each free cell.
        steps: length of an episode.
        seed: of all noise.
        first_account: number of the first account.
        device: where it runs.
    """

    continuing: ClassVar[bool] = False

    def __init__(
        self,
        num_envs: int,
        plan: Sequence[str],
        start: Cell,
        goal: Cell,
        *,
        moves: Sequence[Cell] = COMPASS,
        slip: float = 0.0,
        discount: float = 0.99,
        observation: Literal["coordinates", "cells"] = "coordinates",
        steps: int = 500,
        seed: int = 0,
        first_account: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        within("slip", slip, 0, 1, "probability")
        above("discount", discount, 0)
        if not discount < 1:
            raise ValueError(f"discount must be below 1, or no way is shorter; got {discount}")
        if not moves or (slip and len(moves) < 2):
            raise ValueError(f"{len(moves)} moves are too few, with slip {slip:g}")
        one_of("observation", observation, ("coordinates", "cells"))
        free = [
            (row, column)
            for row, line in enumerate(plan)
            for column, mark in enumerate(line)
            if mark != "#"
        ]
        number = {cell: index for index, cell in enumerate(free)}
        for name, cell in (("start", start), ("goal", goal)):
            if cell not in number:
                raise ValueError(f"{name} must be a free cell, got {cell}")
        if start == goal:
            raise ValueError(f"start and goal must differ, both are {start}")
        super().__init__(
            num_envs,
            observed=len(free) if observation == "cells" else 2,
            choices=len(moves),
            steps=steps,
            seed=seed,
            first_account=first_account,
            device=device,
        )
        self.plan, self.slip, self.discount = tuple(plan), slip, discount
        self.cells = tuple(free)
        self._start, self._goal = number[start], number[goal]
        following = [
            [number.get((row + down, column + right), here) for down, right in moves]
            for here, (row, column) in enumerate(free)
        ]
        self._next = torch.tensor(following, device=self.device)
        size = torch.tensor([len(plan) - 1, max(map(len, plan)) - 1]).clamp(min=1)
        self._view = (
            torch.eye(len(free), device=self.device)
            if observation == "cells"
            else (2 * torch.tensor(free) / size - 1).float().to(self.device)
        )
        self._best, self._value = self._solve()

    def _solve(self) -> tuple[Tensor, float]:
        """Best action of every cell in the long run, and what it is worth within an episode."""
        moves = self._next.shape[1]
        other = self.slip / max(moves - 1, 1)
        way = torch.full((moves, moves), other, dtype=torch.float64, device=self.device)
        way.fill_diagonal_(1 - self.slip)
        arrives = (self._next == self._goal).double()

        def worth(value: Tensor) -> Tensor:
            ahead = arrives + self.discount * torch.where(arrives > 0, 0.0, value[self._next])
            return ahead @ way.T

        value = torch.zeros(len(self.cells), dtype=torch.float64, device=self.device)
        for sweep in range(100_000):
            new = worth(value).amax(-1)
            settled = ((new - value).abs() <= 1e-13 * new).all()
            value = new
            if sweep >= len(self.cells) and bool(settled):
                break
        if not value[self._start] > 0:
            start, goal = self.cells[self._start], self.cells[self._goal]
            raise ValueError(f"there is no way from {start} to the goal {goal}")
        best = worth(value).argmax(-1)
        value = torch.zeros_like(value)
        for _ in range(self.steps):
            value = worth(value).gather(1, best[:, None])[:, 0]
        return best, float(value[self._start])

    @property
    def leads_to(self) -> Tensor:
        """Where each way leads from each cell, where none slips, ``[cells, ways]``."""
        return self._next

    @property
    def value(self) -> float:
        """Expected discounted return from the start."""
        return self._value

    def best_action(self, observation: Tensor) -> Tensor:
        """The way to the goal from the cell that is seen."""
        return self._best.to(observation.device)[self.cell_of(observation)]

    def cell_of(self, observation: Tensor) -> Tensor:
        """The index ``[*]`` in :attr:`cells` of observations ``[*, D]``."""
        view = self._view.to(observation.device)
        cell = torch.cdist(observation.reshape(-1, view.shape[1]), view).argmin(-1)
        return cell.view(observation.shape[:-1])

    @cached_property
    def _steps(self) -> Tensor:
        """Of every cell, steps to the goal where none slips; infinity where there is no way."""
        steps = torch.full((len(self.cells),), math.inf, device=self.device)
        steps[self._goal] = 0.0
        for _ in self.cells:
            nearer = torch.minimum(steps, steps[self._next].amin(-1) + 1)
            if nearer.equal(steps):
                break
            steps = nearer
        return steps

    def steps_to_goal(self, observation: Tensor) -> Tensor:
        """How many steps ``[*]`` the shortest way to the goal is from what is seen ``[*, D]``."""
        return self._steps.to(observation.device)[self.cell_of(observation)]

    def every_step(self) -> TensorDict:
        """Each way from each cell but the goal, where none slips, as rows ``[cells - 1, ways]``.

        Beside what a rollout has there are ``cell`` and ``("next", "cell")``, indices in
        :attr:`cells`.
        """
        here = torch.arange(len(self.cells), device=self.device)
        here = here[here != self._goal]
        there = self._next[here]
        shape, ways = there.shape, there.shape[1]
        here = here[:, None].expand(shape)
        over = (there == self._goal)[..., None]
        return TensorDict(
            {
                "cell": here,
                "observation": self._view[here],
                "action": torch.arange(ways, device=self.device).expand(shape),
                "next": {
                    "cell": there,
                    "observation": self._view[there],
                    "reward": over.float(),
                    "terminated": over,
                    "truncated": torch.zeros_like(over),
                    "done": over,
                },
            },
            batch_size=shape,
        )

    def start(self) -> Fields:
        """At the start."""
        return {"cell": torch.full_like(self._account, self._start)}

    def observe(self, fields: Fields) -> Tensor:
        """Where an account is."""
        return self._view[fields["cell"]]

    def advance(self, fields: Fields, action: Tensor) -> tuple[Fields, Tensor, Tensor]:
        """One step of the walk."""
        if self.slip:
            moves = self._next.shape[1]
            chance = self.uniform() / self.slip
            # Below one it slips, and where it lies there says which other way.
            turn = 1 + (chance * (moves - 1)).long().clamp(max=moves - 2)
            action = torch.where(chance < 1, (action + turn) % moves, action)
        cell = self._next[fields["cell"], action]
        arrived = cell == self._goal
        return {"cell": cell}, arrived.double(), arrived
