"""Policies that learn nothing, to compare with. They read and write keys of ``TradingEnv``."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase

from trading_torchrl.envs.trading import TradingEnv


class ConstantPolicy(TensorDictModuleBase):
    """The same action always: 1 buys and holds, 0 stays out.

    Args:
        env: the environment it acts in.
        action: in [-1, 1].
    """

    def __init__(self, env: TradingEnv, action: float = 1.0) -> None:
        super().__init__()
        self.in_keys, self.out_keys = ["observation"], ["action"]
        self.action = torch.full(env.action_spec.shape, action, device=env.device)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Writes the action."""
        return tensordict.set("action", self.action)


class RandomPolicy(TensorDictModuleBase):
    """Uniform actions from a generator of its own.

    Args:
        env: the environment it acts in.
        seed: of the generator.
    """

    def __init__(self, env: TradingEnv, seed: int = 0) -> None:
        super().__init__()
        self.in_keys, self.out_keys = ["observation"], ["action"]
        self.shape, self.device = env.action_spec.shape, env.device
        self.generator = torch.Generator().manual_seed(seed)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Writes a new action."""
        action = 2 * torch.rand(self.shape, generator=self.generator) - 1
        return tensordict.set("action", action.to(self.device))


class TrendPolicy(TensorDictModuleBase):
    """Long above the moving averages' crossing, short (or out) below: the classic trend rule.

    Follows ``sma_ratio`` (SMA 10 / SMA 20 - 1), full size, no position change while the ratio is
    within ``threshold`` of zero.

    Args:
        env: an environment that shows its features unscaled, one asset per account.
        threshold: half width of the zone in which the last side is kept.
    """

    def __init__(self, env: TradingEnv, threshold: float = 0.002) -> None:
        super().__init__()
        self.in_keys, self.out_keys = ["observation"], ["action"]
        names = env.observation_names
        self.ratio, self.position = names.index("sma_ratio"), names.index("position")
        self.threshold = threshold

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Writes 1, -1, or the side already held."""
        seen = tensordict["observation"]
        ratio, held = seen[..., self.ratio, None], seen[..., self.position, None]
        turned = ratio.abs() > self.threshold
        return tensordict.set("action", torch.where(turned, ratio.sign(), held.clamp(-1, 1)))
