"""Evolution strategy: moves parameters towards what did better, without gradients of anything."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trading_torchrl.descent import Adam
from trading_torchrl.envs.draws import draw
from trading_torchrl.envs.settings import at_least, one_of

SHAPED = ("rank", "z")


def ranked(returns: Tensor) -> Tensor:
    """Ranks ``[P]`` from -1/2 to 1/2, those of equals the same: by how much does not count.

    Example:
        >>> ranked(torch.tensor([3.0, 100.0, 7.0, 3.0]))
        tensor([-0.3333,  0.5000,  0.1667, -0.3333])
    """
    _, which, counts = returns.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).to(returns.dtype)
    middle = last - (counts - 1).to(returns.dtype) / 2 - 1
    return middle[which] / (len(returns) - 1) - 0.5


def standardised(returns: Tensor) -> Tensor:
    """In deviations from their mean, ``[P]``; 0 where all are the same.

    Example:
        >>> standardised(torch.tensor([1.0, 2.0, 3.0]))
        tensor([-1.,  0.,  1.])
    """
    deviation = returns.std()
    away = returns - returns.mean()
    return torch.where(deviation > 0, away / deviation.clamp(min=1e-300), 0.0)


def least_for_lost(returns: Tensor) -> Tensor:
    """What is not finite counts as the least of what is; all 0 where nothing is."""
    finite = returns.isfinite()
    least = returns[finite].min() if finite.any() else torch.zeros((), dtype=returns.dtype)
    return torch.where(finite, returns, least)


class EvolutionStrategy:
    """Asks for returns of a population around a centre, and moves the centre by what it is told.

    The population are pairs ``centre +- sigma x noise``. Returns, shaped, weigh the noise, which
    estimates a gradient of the mean return around the centre; Adam climbs it. Noise is drawn anew
    from (seed, generation, pair) wherever it is needed, so that it is neither kept nor sent.

    Salimans et al., "Evolution Strategies as a Scalable Alternative to Reinforcement Learning",
    2017, https://arxiv.org/abs/1703.03864; elites as in Mania et al., "Simple Random Search
    Provides a Competitive Approach to Reinforcement Learning", 2018,
    https://arxiv.org/abs/1803.07055.

    Args:
        centre: parameters ``[D]`` to begin with.

    Keyword Args:
        population: members P, an even number.
        sigma: deviation of the noise.
        lr: learning rate of Adam; may be set anew before any :meth:`tell`.
        weight_decay: by which the centre shrinks, times ``lr``, at each step.
        shaped: ``rank`` for ranks, which no outlier moves, ``z`` for deviations from the mean.
        elite: share of the pairs that count, those whose better member did best.
        seed: of the noise.

    Example:
        >>> strategy = EvolutionStrategy(torch.ones(3), population=64, lr=0.05)
        >>> for _ in range(100):
        ...     moved = strategy.tell(-strategy.ask().square().sum(-1))
        >>> bool(strategy.centre.square().sum() < 1e-2)
        True
    """

    def __init__(
        self,
        centre: Tensor,
        *,
        population: int = 256,
        sigma: float = 0.02,
        lr: float = 0.01,
        weight_decay: float = 0.001,
        shaped: str = "rank",
        elite: float = 1.0,
        seed: int = 0,
    ) -> None:
        at_least("population", population, 2)
        if population % 2:
            raise ValueError(f"population must be even, as its members are pairs, got {population}")
        for name, value in (("sigma", sigma), ("lr", lr)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0, got {value}")
        if not 0 <= weight_decay < math.inf:
            raise ValueError(f"weight_decay must not be negative, got {weight_decay}")
        one_of("shaped", shaped, SHAPED)
        if not 0 < elite <= 1:
            raise ValueError(f"elite must be above 0 and at most 1, got {elite}")
        if centre.ndim != 1 or not len(centre) or not centre.dtype.is_floating_point:
            raise ValueError(f"centre must be a row of numbers, got {list(centre.shape)}")
        self.centre = centre.detach().clone()
        self.pairs, self.sigma, self.weight_decay = population // 2, sigma, weight_decay
        self.shaped, self.seed = shaped, seed
        self.elites = max(round(elite * self.pairs), 1)
        self.optimizer = Adam([self.centre], lr=lr)
        self.generation = 0
        self.told: tuple[int, float, Tensor] | None = None
        """before which generation, at which learning rate, by which returns it moved last"""

    @property
    def lr(self) -> float:
        """Of the next step."""
        return self.optimizer.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.optimizer.lr = value

    def noise(self, first: int = 0, last: int | None = None) -> Tensor:
        """Of this generation's pairs from ``first`` up to ``last``, ``[pairs, D]``."""
        pair = torch.arange(first, self.pairs if last is None else last)
        keys = draw(1 << 62, self.seed, pair, torch.full_like(pair, self.generation), 0)
        found = self.centre.new_empty(len(pair), len(self.centre))
        for row, key in zip(found, keys.tolist(), strict=True):
            row.normal_(generator=torch.Generator(found.device).manual_seed(key))
        return found

    def ask(self, first: int = 0, last: int | None = None) -> Tensor:
        """Parameters of both members of each of these pairs, one below the other, ``[P, D]``."""
        away = self.sigma * self.noise(first, last)
        return torch.stack([self.centre + away, self.centre - away], 1).flatten(0, 1)

    @torch.no_grad()
    def tell(self, returns: Tensor) -> float:
        """Moves the centre by the returns ``[P]`` of what :meth:`ask` gave; by how much it moved.

        More is better; those that are not finite count as the least of the others.
        """
        if returns.shape != (2 * self.pairs,):
            raise ValueError(
                f"returns must be one for each of {2 * self.pairs} members, got"
                f" {list(returns.shape)}"
            )
        self.told = self.generation, self.lr, returns.clone()
        before = self.centre.clone()
        self.centre.grad = -self.estimate(returns)
        self.centre.mul_(1 - self.lr * self.weight_decay)
        self.optimizer.step()
        self.generation += 1
        return float((self.centre - before).norm())

    @torch.no_grad()
    def estimate(self, returns: Tensor) -> Tensor:
        """Gradient ``[D]`` of the mean shaped return, at the centre, from the returns ``[P]``."""
        shape = ranked if self.shaped == "rank" else standardised
        weights = shape(least_for_lost(returns.double())).view(self.pairs, 2)
        away = weights[:, 0] - weights[:, 1]
        if self.elites < self.pairs:
            others = weights.amax(-1).argsort(descending=True, stable=True)[self.elites :]
            away[others] = 0.0
        total = away.to(self.centre.dtype) @ self.noise()
        return total / (2 * self.elites * self.sigma)

    def known_by(self) -> str:
        """What tells a strategy that asks for other members apart: its centre and generation."""
        numbers = self.centre.detach().cpu().numpy().tobytes()
        return hashlib.sha256(numbers + f"{self.seed} {self.generation}".encode()).hexdigest()

    def state_dict(self) -> dict[str, Any]:
        """Centre, means of Adam, generation."""
        return {
            "centre": self.centre,
            "optimizer": self.optimizer.state_dict(),
            "generation": self.generation,
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.centre.copy_(state["centre"])
        self.generation = state["generation"]
