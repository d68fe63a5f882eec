"""Policies that learn nothing, to compare with. They read and write keys of ``TradingEnv``."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase

from trading_torchrl.envs.actions import NAMES, name_of
from trading_torchrl.envs.trading import TradingEnv


class ConstantPolicy(TensorDictModuleBase):
    """The same action always.

    0 stays out. As a target, 1 keeps the position at the cap (at a cap of 1 it buys once and
    holds); as a change of position, 1 buys again whenever there is room under the cap. With
    discrete names it is the name's number; hybrid environments also get the name that the action
    bins to.

    Args:
        env: the environment it acts in.
        action: in [-1, 1], or a name's number.
    """

    def __init__(self, env: TradingEnv, action: float = 1.0) -> None:
        super().__init__()
        spec = env.full_action_spec["action"]
        self.actions = {
            "action": torch.full(spec.shape, action, dtype=spec.dtype, device=env.device)
        }
        if env.rules.actions == "hybrid":
            shape = env.full_action_spec["action_name"].shape
            self.actions["action_name"] = name_of(self.actions["action"]).view(shape)
        self.in_keys, self.out_keys = ["observation"], list(self.actions)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Writes the action."""
        return tensordict.update(self.actions)


class BuyAndHold(TensorDictModuleBase):
    """Buys as much as the cap allows while it has nothing, and then holds: one trade.

    The cap binds at trades, so that the position drifts with its price from there.

    Args:
        env: an environment with continuous actions that are not smoothed, one asset an account.
    """

    def __init__(self, env: TradingEnv) -> None:
        super().__init__()
        self.in_keys, self.out_keys = ["observation"], ["action"]
        rules = env.rules
        if rules.actions != "continuous" or rules.smoothing > 1 or rules.assets > 1:
            raise ValueError(
                "BuyAndHold buys one asset at once: actions='continuous', smoothing=1, assets=1;"
                f" got actions={rules.actions!r}, smoothing={rules.smoothing},"
                f" assets={rules.assets}"
            )
        self.position = env.observation_names.index("position")

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Writes 1 where nothing is held, else 0."""
        held = tensordict["observation"][..., self.position, None]
        return tensordict.set("action", (held == 0).to(held.dtype))


class RandomPolicy(TensorDictModuleBase):
    """Uniform actions from a generator of its own.

    Args:
        env: the environment it acts in.
        seed: of the generator.
    """

    def __init__(self, env: TradingEnv, seed: int = 0) -> None:
        super().__init__()
        specs = env.full_action_spec
        self.shapes = {key: (specs[key].shape, specs[key].dtype) for key, _ in specs.items()}
        self.in_keys, self.out_keys, self.device = ["observation"], list(self.shapes), env.device
        self.generator = torch.Generator().manual_seed(seed)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Writes a new action."""
        for key, (shape, dtype) in self.shapes.items():
            if dtype.is_floating_point:
                action = 2 * torch.rand(shape, generator=self.generator) - 1
            else:
                action = torch.randint(len(NAMES), shape, generator=self.generator)
            tensordict.set(key, action.to(self.device))
        return tensordict


class TrendPolicy(TensorDictModuleBase):
    """Long above the moving averages' crossing, short (or out) below: the classic trend rule.

    Follows ``sma_ratio`` (SMA 10 / SMA 20 - 1), full size, no position change while the ratio is
    within ``threshold`` of zero.

    Args:
        env: an environment with target actions, one asset an account, features unscaled.
        threshold: half width of the zone in which the last side is kept.
    """

    def __init__(self, env: TradingEnv, threshold: float = 0.002) -> None:
        super().__init__()
        self.in_keys, self.out_keys = ["observation"], ["action"]
        if env.rules.actions != "target" or env.rules.assets > 1 or env.window is not None:
            raise ValueError(
                "TrendPolicy sets targets for one asset and reads features off the observation;"
                f" this environment has actions={env.rules.actions!r}, assets={env.rules.assets},"
                f" window={env.window}"
            )
        names = env.observation_names
        self.ratio, self.position = names.index("sma_ratio"), names.index("position")
        self.threshold = threshold

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Writes 1, -1, or the side already held."""
        seen = tensordict["observation"]
        ratio, held = seen[..., self.ratio, None], seen[..., self.position, None]
        turned = ratio.abs() > self.threshold
        return tensordict.set("action", torch.where(turned, ratio.sign(), held.clamp(-1, 1)))
