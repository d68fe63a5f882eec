"""How much of a risky asset to hold (Merton 1969), one period a step."""

from __future__ import annotations

import torch
from torch import Tensor

from trading_torchrl.envs.reference.problem import Fields, ReferenceProblem, above
from trading_torchrl.envs.settings import within


class Merton(ReferenceProblem):
    """Reward ``x e - risk_aversion / 2 x^2 volatility^2`` for the share x held at excess return e.

    In mean-variance form the best share is exactly Merton's, ``(drift - rate) / (risk_aversion
    volatility^2)``, 0.75 at the default settings, worth ``(drift - rate)^2 / (2 risk_aversion
    volatility^2)`` a step. Nothing is to be seen: the observation is a constant 1, and the noise of
    one step is several times what the decision is worth. Paper: Lifetime Portfolio Selection under
    Uncertainty, Review of Economics and Statistics 51(3).

    Args:
        num_envs: number of accounts.
        drift: mean return of a period, mu.
        rate: return without risk, r.
        volatility: deviation of the return, sigma.
        risk_aversion: gamma.
        limit: scale of the action; the share held is ``limit`` x action.
        steps: length of an episode.
        seed: of all noise.
        first_account: number of the first account.
        device: where it runs.

    Example:
        >>> from trading_torchrl.envs.reference import Merton
        >>> env = Merton(num_envs=64)
        >>> round(env.best_share, 4), round(env.value, 4)
        (0.75, 0.0225)
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        drift: float = 0.08,
        rate: float = 0.02,
        volatility: float = 0.2,
        risk_aversion: float = 2.0,
        limit: float = 2.0,
        steps: int = 200,
        seed: int = 0,
        first_account: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        within("drift", drift, -1e6, 1e6, "of a period")
        within("rate", rate, -1e6, 1e6, "of a period")
        above("volatility", volatility, 0)
        above("risk_aversion", risk_aversion, 0)
        above("limit", limit, 0)
        super().__init__(
            num_envs,
            observed=1,
            choices=None,
            steps=steps,
            seed=seed,
            first_account=first_account,
            device=device,
        )
        self.excess, self.volatility = drift - rate, volatility
        self.risk_aversion, self.limit = risk_aversion, limit
        if abs(self.best_share) > limit:
            raise ValueError(
                f"the best share is {self.best_share:g}, beyond limit {limit:g}; raise the limit"
            )

    @property
    def best_share(self) -> float:
        """Share of wealth the best policy holds."""
        return self.excess / (self.risk_aversion * self.volatility**2)

    @property
    def value(self) -> float:
        """Mean reward of the best share."""
        return self.mean_reward(self.best_share)

    def mean_reward(self, share: float) -> float:
        """Exact mean reward of a constant share."""
        return share * self.excess - self.risk_aversion / 2 * (share * self.volatility) ** 2

    def best_action(self, observation: Tensor) -> Tensor:
        """The same for all."""
        return torch.full_like(observation[..., :1], self.best_share / self.limit)

    def start(self) -> Fields:
        """Nothing but an account."""
        return {"nothing": torch.zeros_like(self.normal())}

    def observe(self, fields: Fields) -> Tensor:
        """A constant."""
        return torch.ones_like(fields["nothing"])[:, None]

    def advance(self, fields: Fields, action: Tensor) -> tuple[Fields, Tensor, Tensor]:
        """One period."""
        share = self.limit * action
        earned = self.excess + self.volatility * self.normal()
        risk = self.risk_aversion / 2 * (share * self.volatility) ** 2
        return {}, share * earned - risk, torch.zeros_like(earned, dtype=torch.bool)
