"""Trading with five objectives side by side, each with critics of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchrl.envs import Compose, EnvBase, Transform

from tasks.trading import Trading
from trading_torchrl.data import Market
from trading_torchrl.envs import TradingEnv
from trading_torchrl.envs.terms import OBJECTIVES
from trading_torchrl.replay import StoredByIndex, VectorReward


class VectorTrading(Trading):
    """An agent whose reward is a vector; judged as ever."""

    name = "trading by several objectives"
    rewards = len(OBJECTIVES)

    def __init__(
        self,
        market: Mapping[str, Any],
        env: Mapping[str, Any],
        num_envs: int,
        window: int | None,
        seed: int,
        earlier: Mapping[str, Any],
    ) -> None:
        super().__init__(market, env, num_envs, window, seed, earlier, ("objectives",))
        self.stored = (*self.stored, ("next", "objectives"))

    def replay_transform(self) -> Transform:
        """Rows by their place in the market, rewards apart."""
        return Compose(super().replay_transform(), VectorReward(OBJECTIVES))

    def meta(self, accounts: int, seed: int) -> tuple[EnvBase, StoredByIndex]:
        """The environment on bars that no agent learns from, and how its rows are stored."""
        market: Market | None = self.parts.meta
        if market is None:
            raise ValueError(
                "weights are learned on bars of their own: set some aside by market.meta=0.1"
            )
        env = TradingEnv(market, accounts, emit=("index",), seed=seed, **self.seen, **self.settings)
        return self._windowed(env), StoredByIndex.of(env)
