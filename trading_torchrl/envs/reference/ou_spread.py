"""Trading a spread that reverts to its mean, with proportional costs."""

from __future__ import annotations

import math
from functools import cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from trading_torchrl.envs.oracles import transition
from trading_torchrl.envs.reference.problem import Fields, ReferenceProblem, above
from trading_torchrl.envs.settings import at_least, one_of


class Solution(NamedTuple):
    """The best positions of the long run."""

    grid: Tensor
    """[G] spreads"""
    move: Tensor
    """[G, G] probabilities of a step"""
    positions: Tensor
    """[P]"""
    best: Tensor
    """[G, P] index of the next position, for each spread and position"""
    rate: float
    """reward of a step in the long run"""


PATIENCE = 1e-6
"""The future is discounted by so little that the best positions are those of the long run.

Without it, positions that are never left are worlds of their own, and what one is worth beside the
other is not defined."""


@cache
def solve(keep: float, deviation: float, half_cost: float, short: bool, points: int) -> Solution:
    """Policy iteration for the mean reward (Howard 1960).

    Args:
        keep: share of the spread that is left after a step.
        deviation: of the spread in the long run.
        half_cost: of a change of position by one.
        short: whether positions are -1, 0, 1, else 0, 1.
        points: of the grid over five deviations either side.
    """
    grid = deviation * torch.linspace(-5, 5, points, dtype=torch.float64)
    move = transition(grid, keep, deviation * math.sqrt(1 - keep**2))
    positions = torch.tensor([-1.0, 0.0, 1.0] if short else [0.0, 1.0], dtype=torch.float64)
    count = len(positions)
    gains = positions * ((keep - 1) * grid)[:, None]
    trade = half_cost * (positions[:, None] - positions).abs()
    spread, held = torch.meshgrid(torch.arange(points), torch.arange(count), indexing="ij")

    def judged(best: Tensor, impatience: float) -> tuple[float, Tensor]:
        """Mean reward, and what each state is worth beside the first."""
        reward = gains[spread, best] - trade[held, best]
        system = torch.zeros(points, count, points, count, dtype=torch.float64)
        system[spread, held, :, best] = (impatience - 1) * move[spread]
        system = system.view(points * count, -1) + torch.eye(points * count, dtype=torch.float64)
        # The worth of the first state is 0; its column holds the mean reward instead.
        system[:, 0] = 1
        solved = torch.linalg.solve(system, reward.flatten())
        rate, worth = float(solved[0]), solved.clone().view(points, count)
        worth[0, 0] = 0
        return rate, worth

    best = torch.full_like(held, int((positions == 0).nonzero()[0, 0]))  # flat for ever
    # Only what is better by more than rounding is changed, or equals would swap for ever.
    least = 1e-8 * max(deviation, half_cost)
    while True:
        _, worth = judged(best, PATIENCE)
        options = (gains + (1 - PATIENCE) * move @ worth)[:, None] - trade
        kept = options.gather(-1, best[..., None])[..., 0]
        better = options.amax(-1) > kept + least
        if not bool(better.any()):
            rate, _ = judged(best, 1e-6 * PATIENCE)
            return Solution(grid, move, positions, best, rate)
        best = torch.where(better, options.argmax(-1), best)


class OUSpread(ReferenceProblem):
    """Reward ``x (s' - s) - half_cost |x - x_prev|`` for a position x on a spread s.

    The spread is an Ornstein-Uhlenbeck process seen every ``dt``: it keeps ``exp(-speed dt)`` of
    its value in a step, its deviation in the long run is ``deviation``. The best policy enters
    beyond one threshold and leaves beyond another, found by dynamic programming; as ``dt`` goes to
    0 without shorts it tends to Bertram's rule (at the default settings enter at -0.9643, leave at
    +0.9643, 0.02506 per unit of time), and with shorts it earns twice that. Positions between the
    whole ones are allowed with continuous actions and never help: gains and costs are linear.

    The thresholds are those of the long run; where an episode is much longer than the reversion
    takes the best of its last steps hardly differ.
    Observation: spread in deviations, position. Paper: Bertram, Analytic solutions for optimal
    statistical arbitrage trading, Physica A 389(11), 2010.

    Args:
        num_envs: number of accounts.
        speed: of the reversion, alpha.
        deviation: of the spread in the long run.
        round_trip: cost of entering and leaving a position of one.
        dt: time between two steps.
        short: whether positions may be negative.
        action: ``discrete`` chooses among the positions, ``continuous`` sets any position.
        points: of the grid of the dynamic programme.
        steps: length of an episode.
        seed: of all noise.
        first_account: number of the first account.
        device: where it runs.

    Example:
        >>> from trading_torchrl.envs.reference import OUSpread
        >>> env = OUSpread(num_envs=4)
        >>> [round(edge, 2) for edge in env.thresholds]
        [-0.72, 0.7]
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        speed: float = 0.1,
        deviation: float = 1.0,
        round_trip: float = 0.5,
        dt: float = 1.0,
        short: bool = True,
        action: Literal["discrete", "continuous"] = "discrete",
        points: int = 401,
        steps: int = 500,
        seed: int = 0,
        first_account: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        for name, number in (("speed", speed), ("deviation", deviation), ("dt", dt)):
            above(name, number, 0)
        above("round_trip", round_trip, -1e-300)
        one_of("action", action, ("discrete", "continuous"))
        at_least("points", points, 101)
        keep = math.exp(-speed * dt)
        needed = math.ceil(20 / math.sqrt(1 - keep**2)) + 1 if keep < 1 else math.inf
        if points < needed:
            raise ValueError(
                f"a grid of {points} points is too coarse for steps as small as speed x dt ="
                f" {speed * dt:g}; it takes points={needed}"
            )
        choices = 3 if short else 2
        super().__init__(
            num_envs,
            observed=2,
            choices=choices if action == "discrete" else None,
            steps=steps,
            seed=seed,
            first_account=first_account,
            device=device,
        )
        self.keep, self.deviation = keep, deviation
        self.half_cost, self.short, self.dt = round_trip / 2, short, dt
        solved = solve(self.keep, deviation, self.half_cost, short, points)
        self._grid, self._move, self._best = solved.grid, solved.move, solved.best
        self._positions = solved.positions.to(self.device)
        self.rate = solved.rate / dt

    @property
    def thresholds(self) -> tuple[float, float]:
        """The spread at which a flat account goes long, and at which a long one leaves.

        -inf and inf where trades cost more than the spread ever pays.
        """
        flat = int((self._positions == 0).nonzero()[0, 0])
        long = len(self._positions) - 1
        enters = self._grid[self._best[:, flat] == long]
        stays = self._grid[self._best[:, long] == long]
        never = -math.inf
        return (
            float(enters.max()) if len(enters) else never,
            float(stays.max()) if len(enters) else math.inf,
        )

    @property
    def value(self) -> float:
        """Mean reward over an episode that starts flat at a spread drawn from its long run."""
        start = torch.exp(-0.5 * (self._grid / self.deviation) ** 2)
        flat = (self._positions == 0).double()
        worth = self._worth(self.steps)
        return float((start / start.sum() * (worth * flat).sum(-1)).sum()) / self.steps

    def _worth(self, steps: int) -> Tensor:
        """Expected reward ``[G, P]`` of the best positions over this many steps."""
        held = self._positions.cpu()
        after = held[self._best]
        pays = after * ((self.keep - 1) * self._grid)[:, None]
        pays = pays - self.half_cost * (after - held).abs()
        worth = torch.zeros_like(pays)
        for _ in range(steps):
            worth = pays + (self._move @ worth).gather(1, self._best)
        return worth

    def best_action(self, observation: Tensor) -> Tensor:
        """The best position, as an index or as an action."""
        grid = self._grid.to(observation.device)
        spread = observation[..., 0].double() * self.deviation
        place = ((spread - grid[0]) / (grid[1] - grid[0])).round().long().clamp(0, len(grid) - 1)
        offset = 1 if self.short else 0
        position = (observation[..., 1].round().long() + offset).clamp(0, len(self._positions) - 1)
        best = self._best.to(observation.device)[place, position]
        return best if self._choices else self._positions[best].float()[..., None]

    def start(self) -> Fields:
        """Flat."""
        spread = self.deviation * self.normal()
        return {"spread": spread, "position": torch.zeros_like(spread)}

    def observe(self, fields: Fields) -> Tensor:
        """Spread in deviations, position."""
        return torch.stack([fields["spread"] / self.deviation, fields["position"]], -1)

    def advance(self, fields: Fields, action: Tensor) -> tuple[Fields, Tensor, Tensor]:
        """Trades at the spread that was seen, then the spread moves."""
        position = self._positions[action] if self._choices else action
        if not self.short:
            position = position.clamp(min=0)
        spread = fields["spread"]
        noise = self.deviation * math.sqrt(1 - self.keep**2) * self.normal()
        moved = self.keep * spread + noise
        trade = (position - fields["position"]).abs()
        reward = position * (moved - spread) - self.half_cost * trade
        ended = torch.zeros_like(spread, dtype=torch.bool)
        return {"spread": moved, "position": position}, reward, ended
