"""Turning one row of bits into another, rewarded only at the end (Andrychowicz et al. 2017)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torchrl.data import Unbounded

from trading_torchrl.envs.reference.problem import Fields, ReferenceProblem
from trading_torchrl.envs.settings import at_least


class SameBits:
    """The goal of :class:`BitFlip`, a :class:`~trading_torchrl.envs.goals.Goal`: all bits equal."""

    def reward(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """1 where they are."""
        return self.reached(achieved, desired).to(achieved.dtype)

    def reached(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """bool ``[*, 1]``."""
        return (achieved == desired).all(-1, keepdim=True)

    def seen(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """One behind the other, as the observation has them."""
        return torch.cat([achieved, desired], -1)


class BitFlip(ReferenceProblem):
    """An action flips one of n bits; the reward is 1 where they equal the goal, which ends it.

    Bits and goal are drawn anew in each episode and never equal at its start. An agent that only
    sees rewards finds none from about n = 15 on; hindsight makes it easy. The best policy flips
    the first bit that is wrong and always succeeds.

    Keys besides the usual: ``("goal", "achieved")`` and ``("goal", "desired")``, float32
    ``[N, n]``; the observation is both, one behind the other. Paper: Hindsight Experience Replay,
    arXiv 1707.01495 (there a step costs 1 and the goal nothing).

    Args:
        num_envs: number of accounts.
        bits: their number n.
        steps: length of an episode; ``None`` is n, the fewest that always suffice.
        seed: of bits and goals.
        first_account: number of the first account.
        device: where it runs.

    Example:
        >>> from trading_torchrl.envs.reference import BitFlip
        >>> BitFlip(num_envs=4, bits=15).reset()["goal", "desired"].shape
        torch.Size([4, 15])
    """

    continuing: ClassVar[bool] = False

    def __init__(
        self,
        num_envs: int = 1,
        *,
        bits: int = 15,
        steps: int | None = None,
        seed: int = 0,
        first_account: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        at_least("bits", bits, 1)
        if bits > 120:
            raise ValueError(f"bits must be at most 120, got {bits}")
        super().__init__(
            num_envs,
            observed=2 * bits,
            choices=bits,
            steps=bits if steps is None else steps,
            seed=seed,
            first_account=first_account,
            device=device,
        )
        self.bits = bits
        for name in ("achieved", "desired"):
            self.observation_spec["goal", name] = Unbounded(
                (num_envs, bits), dtype=torch.float32, device=self.device
            )

    @property
    def value(self) -> float:
        """The goal is always reached, if the episode is long enough for every bit."""
        if self.steps >= self.bits:
            return 1.0
        # How many bits are wrong is binomial, given that not all are right.
        wrong = torch.arange(self.bits + 1, dtype=torch.float64)
        size = torch.tensor(float(self.bits), dtype=torch.float64)
        ways = torch.lgamma(size + 1) - torch.lgamma(wrong + 1) - torch.lgamma(size - wrong + 1)
        chance = ways.exp() * 0.5**self.bits
        chance[1] += chance[0]  # equal rows get one bit changed
        return float(chance[1 : self.steps + 1].sum())

    def best_action(self, observation: Tensor) -> Tensor:
        """The first bit that is wrong."""
        bits, goal = observation.chunk(2, -1)
        return (bits != goal).long().argmax(-1)

    def start(self) -> Fields:
        """Bits and goal by the toss of a coin."""
        bits, goal = (
            torch.stack([self.uniform(first + k) < 0.5 for k in range(self.bits)], -1)
            for first in (0, self.bits)
        )
        equal = (bits == goal).all(-1)
        place = (self.uniform(2 * self.bits) * self.bits).long()
        one = torch.nn.functional.one_hot(place, self.bits).bool()
        return {"bits": bits, "goal": goal ^ (one & equal[:, None])}

    def observe(self, fields: Fields) -> Tensor:
        """Bits and goal."""
        return torch.cat([fields["bits"], fields["goal"]], -1).float()

    def shown(self, fields: Fields) -> dict[str, Any]:
        """The observation, and both goals apart."""
        goals = {"achieved": fields["bits"].float(), "desired": fields["goal"].float()}
        return {**super().shown(fields), "goal": goals}

    def advance(self, fields: Fields, action: Tensor) -> tuple[Fields, Tensor, Tensor]:
        """Flips one bit."""
        one = torch.nn.functional.one_hot(action, self.bits).bool()
        bits = fields["bits"] ^ one
        reached = (bits == fields["goal"]).all(-1)
        return {"bits": bits}, reached.double(), reached
