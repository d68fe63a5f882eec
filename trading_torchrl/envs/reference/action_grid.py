"""Problems with numbers for actions, acted in by choosing among a few of them."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import Tensor
from torchrl.data import Categorical, Composite
from torchrl.data.tensor_specs import TensorSpec
from torchrl.envs import Transform

from trading_torchrl.envs.oracles import transition
from trading_torchrl.envs.reference.garleanu_pedersen import GarleanuPedersen
from trading_torchrl.envs.reference.merton import Merton
from trading_torchrl.envs.reference.problem import ReferenceProblem
from trading_torchrl.envs.settings import at_least


def levels_of(choices: int) -> Tensor:
    """So many evenly spaced actions from -1 to 1, 0 among them."""
    at_least("choices", choices, 3)
    if choices % 2 == 0:
        raise ValueError(f"choices must be odd, so that 0 is one of them; got {choices}")
    half = choices // 2
    return torch.arange(-half, half + 1) / half


class ActionGrid(Transform):
    """Makes an action in [-1, 1] a choice among evenly spaced ones.

    Policies write ``action`` int64 ``[N]``, 0 for -1 and ``choices - 1`` for 1; the environment
    gets the number. Append it to an environment whose action is ``[N, 1]``.

    Args:
        choices: how many, an odd number.

    Example:
        >>> from torchrl.envs import TransformedEnv
        >>> from trading_torchrl.envs.reference import GarleanuPedersen
        >>> env = TransformedEnv(GarleanuPedersen(num_envs=4), ActionGrid(21))
        >>> env.rollout(3)["action"].shape, env.action_spec.n
        (torch.Size([4, 3]), 21)
    """

    levels: Tensor

    def __init__(self, choices: int) -> None:
        super().__init__(in_keys_inv=["action"], out_keys_inv=["action"])
        self.choices = choices
        self.register_buffer("levels", levels_of(choices), persistent=False)

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        chosen = tensordict.get("action")
        return tensordict.set("action", self.levels[chosen][..., None])

    def transform_input_spec(self, input_spec: TensorSpec) -> TensorSpec:
        """Choices in place of numbers."""
        numbers = input_spec["full_action_spec", "action"]
        spec = Categorical(
            self.choices, shape=numbers.shape[:-1], dtype=torch.int64, device=numbers.device
        )
        assert isinstance(input_spec, Composite)
        input_spec["full_action_spec", "action"] = spec
        return input_spec


class Solved(NamedTuple):
    """The best choices of the long run in Garleanu-Pedersen."""

    grid: Tensor
    """[G] signals"""
    move: Tensor
    """[G, G] probabilities of a step"""
    worth: Tensor
    """[G, n] of being at a position when a signal is seen, less the mean, up to the choice"""
    reward: Tensor
    """[G, n] of holding a position, without the trade"""
    trade: Tensor
    """[n, n] cost from a position to another"""
    best: Tensor
    """[G, n] choice for each signal and position"""


@cache
def solve(
    risk: float, cost: float, decay: float, limit: float, choices: int, points: int
) -> Solved:
    """Relative value iteration over (signal, position).

    Args:
        risk: see :class:`GarleanuPedersen`; likewise cost, decay, limit.
        cost: likewise.
        decay: likewise.
        limit: likewise.
        choices: positions.
        points: of the signal's grid, over five deviations either side.
    """
    grid = torch.linspace(-5, 5, points, dtype=torch.float64)
    move = transition(grid, 1 - decay, math.sqrt(1 - (1 - decay) ** 2))
    held = limit * levels_of(choices).double()
    reward = grid[:, None] * held - risk * held**2
    trade = cost * (held[:, None] - held) ** 2
    value = torch.zeros(points, choices, dtype=torch.float64)
    while True:
        worth = reward + move @ value
        new = torch.stack([(worth - costs).amax(-1) for costs in trade], -1)
        change = new - value
        # Choices follow differences of the value, which settle while its level grows.
        value = new - new[points // 2, choices // 2]
        if float(change.amax() - change.amin()) < 1e-10:
            break
    best = torch.stack([(worth - costs).argmax(-1) for costs in trade], -1)
    return Solved(grid, move, worth, reward, trade, best)


class BestOnGrid:
    """The best a policy can do that chooses among ``choices`` evenly spaced actions.

    In Garleanu-Pedersen it comes from dynamic programming over a fine grid of signals; in Merton it
    is the choice next to the best share, as what is lost grows with the square of the distance. In
    the others the best policy itself takes no actions but -1, 0 and 1, which are among the choices.

    Args:
        problem: with an action in [-1, 1]; of Garleanu-Pedersen's, positions.
        choices: how many, an odd number.
        points: of the grid of signals.

    Example:
        >>> problem = GarleanuPedersen(num_envs=4)
        >>> [round(BestOnGrid(problem, n).value / problem.value, 3) for n in (5, 21, 81)]
        [0.099, 0.9, 0.994]
    """

    def __init__(self, problem: ReferenceProblem, choices: int, points: int = 801) -> None:
        if not problem.action_spec.dtype.is_floating_point:
            raise ValueError(f"{type(problem).__name__} has choices of its own")
        if isinstance(problem, GarleanuPedersen) and problem.action_is != "target":
            raise ValueError(
                "the best choices among trades are not known; take action='target', got"
                f" {problem.action_is!r}"
            )
        self.problem, self.choices = problem, choices
        self.levels = levels_of(choices)
        self._solved: Solved | None = None
        if isinstance(problem, GarleanuPedersen):
            self._solved = solve(
                problem.risk, problem.cost, problem.decay, problem.limit, choices, points
            )

    def best_action(self, observation: Tensor) -> Tensor:
        """The best choice ``[*]``, int64, for observations ``[*, D]``."""
        solved = self._solved
        if solved is None:
            return self._nearest(self.problem.best_action(observation)[..., 0])
        assert isinstance(self.problem, GarleanuPedersen)
        signal = observation[..., 0].double().clamp(solved.grid[0], solved.grid[-1])
        held = self._nearest(observation[..., 1] / self.problem.limit)
        place = (signal - solved.grid[0]) / (solved.grid[1] - solved.grid[0])
        left = place.long().clamp(max=len(solved.grid) - 2)
        weight = (place - left)[..., None]
        worth = torch.lerp(solved.worth[left], solved.worth[left + 1], weight)
        return (worth - solved.trade[held]).argmax(-1)

    @property
    def signals(self) -> Tensor:
        """Of Garleanu-Pedersen's grid, ``[G]``."""
        assert self._solved is not None
        return self._solved.grid

    def policy(self) -> TensorDictModule:
        """:meth:`best_action` as a policy."""
        return TensorDictModule(self.best_action, in_keys=["observation"], out_keys=["action"])

    @property
    def value(self) -> float:
        """Expected score of an episode under :meth:`best_action`."""
        if self._solved is not None:
            return self.mean_reward(self._solved.best)
        if isinstance(self.problem, Merton):
            share = self.problem.best_action(torch.ones(1, 1))[..., 0]
            chosen = float(self.levels[self._nearest(share)])
            return self.problem.mean_reward(self.problem.limit * chosen)
        return self.problem.value

    def mean_reward(self, chosen: Tensor) -> float:
        """Of an episode of Garleanu-Pedersen that starts flat.

        Args:
            chosen: int64 ``[G, n]``, for every signal of the grid and every position.
        """
        solved = self._solved
        assert solved is not None
        paid = solved.trade.gather(1, chosen.T).T
        worth = torch.zeros_like(solved.reward)
        for _ in range(self.problem.steps):
            worth = (solved.reward + solved.move @ worth).gather(1, chosen) - paid
        start = torch.exp(-0.5 * solved.grid**2)
        flat = worth[:, self.choices // 2]
        return float((start / start.sum() * flat).sum()) / self.problem.steps

    def _nearest(self, action: Tensor) -> Tensor:
        half = self.choices // 2
        return (action * half).round().long().clamp(-half, half) + half
