"""Prices that tell all, and prices that tell nothing: a planted leak and a martingale."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trading_torchrl.envs.reference.problem import STREAMS, Fields, ReferenceProblem, above
from trading_torchrl.envs.settings import at_least, within


class PlantedLeak(ReferenceProblem):
    """Reward ``x r`` for a position x in [-1, 1], where the next return r is seen in advance.

    The clairvoyant policy takes the sign of the return and earns ``volatility sqrt(2 / pi)`` a
    step. An agent that cannot learn this has a fault; one that does as well on real data has found
    a leak. Observation: the next return in units of its volatility, then ``distractors`` that say
    nothing.

    Args:
        num_envs: number of accounts.
        volatility: deviation of a return.
        distractors: further observations, pure noise.
        steps: length of an episode.
        seed: of all noise.
        first_account: number of the first account.
        device: where it runs.

    Example:
        >>> from trading_torchrl.envs.reference import PlantedLeak
        >>> round(PlantedLeak(num_envs=4).value, 4)
        0.7979
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        volatility: float = 1.0,
        distractors: int = 3,
        steps: int = 200,
        seed: int = 0,
        first_account: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        above("volatility", volatility, 0)
        at_least("distractors", distractors, 0)
        if distractors >= STREAMS:
            raise ValueError(f"distractors must be fewer than {STREAMS}, got {distractors}")
        super().__init__(
            num_envs,
            observed=1 + distractors,
            choices=None,
            steps=steps,
            seed=seed,
            first_account=first_account,
            device=device,
        )
        self.volatility, self.distractors = volatility, distractors

    @property
    def value(self) -> float:
        """Mean of the absolute return."""
        return self.volatility * math.sqrt(2 / math.pi)

    def best_action(self, observation: Tensor) -> Tensor:
        """All in on the side of the next return."""
        return observation[..., :1].sign()

    def start(self) -> Fields:
        """The first return to come, and noise."""
        return {"seen": self._drawn()}

    def _drawn(self) -> Tensor:
        return torch.stack([self.normal(k) for k in range(1 + self.distractors)], -1)

    def observe(self, fields: Fields) -> Tensor:
        """The next return and the distractors."""
        return fields["seen"]

    def advance(self, fields: Fields, action: Tensor) -> tuple[Fields, Tensor, Tensor]:
        """Pays the return that was seen and shows the next."""
        reward = self.volatility * action * fields["seen"][:, 0]
        return {"seen": self._drawn()}, reward, torch.zeros_like(reward, dtype=torch.bool)


class Martingale(ReferenceProblem):
    """Reward ``x r - cost |x - x_prev|`` for a position x in [-1, 1] on returns nobody can foresee.

    The best policy stays flat and earns nothing; whoever trades pays. An agent with a profit here
    has seen the future. Observation: the last ``memory`` returns in units of their volatility, and
    the position.

    Args:
        num_envs: number of accounts.
        volatility: deviation of a return.
        cost: of a trade, as a share of what is traded.
        memory: past returns to be seen.
        steps: length of an episode.
        seed: of all noise.
        first_account: number of the first account.
        device: where it runs.

    Example:
        >>> from trading_torchrl.envs.reference import Martingale
        >>> Martingale(num_envs=4).value
        0.0
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        volatility: float = 1.0,
        cost: float = 0.03,
        memory: int = 4,
        steps: int = 200,
        seed: int = 0,
        first_account: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        above("volatility", volatility, 0)
        within("cost", cost, 0, 1, "share of the traded value")
        at_least("memory", memory, 1)
        if memory > STREAMS:
            raise ValueError(f"memory must be at most {STREAMS}, got {memory}")
        super().__init__(
            num_envs,
            observed=memory + 1,
            choices=None,
            steps=steps,
            seed=seed,
            first_account=first_account,
            device=device,
        )
        self.volatility, self.cost, self.memory = volatility, cost, memory

    @property
    def value(self) -> float:
        """Nothing."""
        return 0.0

    def best_action(self, observation: Tensor) -> Tensor:
        """Flat."""
        return torch.zeros_like(observation[..., :1])

    def start(self) -> Fields:
        """Flat, after ``memory`` returns."""
        past = torch.stack([self.normal(k) for k in range(self.memory)], -1)
        return {"past": past, "position": torch.zeros_like(past[:, 0])}

    def observe(self, fields: Fields) -> Tensor:
        """Past returns, the latest first, and the position."""
        return torch.cat([fields["past"], fields["position"][:, None]], -1)

    def advance(self, fields: Fields, action: Tensor) -> tuple[Fields, Tensor, Tensor]:
        """Trades, then draws the return."""
        latest = self.normal()
        trade = (action - fields["position"]).abs()
        reward = self.volatility * action * latest - self.cost * trade
        past = torch.cat([latest[:, None], fields["past"][:, :-1]], -1)
        ended = torch.zeros_like(latest, dtype=torch.bool)
        return {"past": past, "position": action}, reward, ended
