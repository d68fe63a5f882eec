"""Policies that act by name in environments of numbers, and the other way round.

Observations are laid out alike in continuous, discrete and hybrid environments, so only the action
has to be translated. Names become the numbers they stand for, numbers the names they bin to.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from tensordict.utils import NestedKey
from torch import Tensor

from trading_torchrl.envs import actions as read
from trading_torchrl.envs.trading import TradingEnv

Policy = Callable[[TensorDictBase], TensorDictBase]

EMIT = ("equity", "units", "unrealised", "index")
"""What a continuous or hybrid environment must emit for a policy that acts by name."""


class DiscreteInContinuous(TensorDictModuleBase):
    """A policy that acts by name, in an environment of numbers.

    The policy writes names to ``action``; they become the numbers they stand for, ADD_TO_WINNER on
    the side of the account's winner. They are float64, so that 0.55 is 0.55: where ``smoothing`` is
    1, accounts are bit for bit those of the discrete environment. A longer ``smoothing`` averages
    over the numbers, which a discrete environment does not. A hybrid environment gets the names as
    well, as ``action_name``.

    In a continuous environment this also writes ``action_mask``, for policies that read it.

    Args:
        policy: reads what the environment shows, writes ``action``.
        env: the continuous or hybrid environment it is to act in; emits :data:`EMIT`.

    Example:
        >>> from trading_torchrl.data import synthetic_market
        >>> from trading_torchrl.evaluation import RandomPolicy
        >>> market = synthetic_market(symbols=2, bars=1_000)
        >>> by_name = RandomPolicy(TradingEnv(market, 4, actions="discrete", compiled=False))
        >>> env = TradingEnv(market, 4, emit=EMIT, compiled=False)
        >>> env.rollout(10, DiscreteInContinuous(by_name, env))["action"].shape
        torch.Size([4, 10, 1])
    """

    def __init__(self, policy: Policy, env: TradingEnv) -> None:
        super().__init__()
        _only_in(self, env, "continuous", "hybrid")
        missing = [name for name in EMIT if name not in env.rules.emit]
        if missing:
            raise ValueError(
                f"{type(self).__name__} reads off the account what names mean there, and the"
                f" environment does not emit {', '.join(missing)}; build it with emit={EMIT}"
            )
        self.policy, self.rules = policy, env.rules
        self.in_keys = [
            *[key for key in _reads(policy) if key != "action_mask"],
            *[("account", name) for name in EMIT[:-1]],
            ("market", "symbol"),
            ("market", "bar"),
        ]
        mask, name = ("action_mask", "action"), ("action", "action_name")
        self.out_keys = list(name if self.rules.actions == "hybrid" else mask)
        self.close: Tensor
        self.register_buffer("close", env.market.close.double().to(env.device), persistent=False)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Lets the policy choose names, and writes the numbers they stand for."""
        symbol = tensordict["market", "symbol"]
        price = self.close[tensordict["market", "bar"].expand_as(symbol), symbol]
        value = tensordict["account", "units"] * price
        wins = tensordict["account", "unrealised"] > read.WINS_FROM * value.abs()
        if self.rules.actions == "continuous":
            mask = read.discrete_mask(
                value,
                tensordict["account", "equity"][:, 0],
                wins,
                cap=self.rules.cap,
                short=self.rules.short,
                min_trade=self.rules.min_trade,
            )
            tensordict.set("action_mask", mask.flatten(1))
        chosen = self.policy(tensordict)["action"]
        _, number = read.read_names(chosen.reshape(value.shape), value, wins)
        if self.rules.actions == "hybrid":
            tensordict.set("action_name", chosen)
        return tensordict.set("action", number)


class ContinuousInDiscrete(TensorDictModuleBase):
    """A policy that acts by numbers, in an environment of names.

    The policy writes numbers to ``action``; they become the names they bin to, and HOLD where the
    mask forbids the name. A name is one size for a whole bin, it is not smoothed, and it is never
    ADD_TO_WINNER: so accounts come out near those of a continuous environment, not the same. A
    hybrid environment keeps the number and gets the name as ``action_name``.

    Args:
        policy: reads what the environment shows, writes ``action``.
        env: the discrete or hybrid environment it is to act in.

    Example:
        >>> from trading_torchrl.data import synthetic_market
        >>> from trading_torchrl.evaluation import RandomPolicy
        >>> market = synthetic_market(symbols=2, bars=1_000)
        >>> by_number = RandomPolicy(TradingEnv(market, 4, compiled=False))
        >>> env = TradingEnv(market, 4, actions="discrete", compiled=False)
        >>> env.rollout(10, ContinuousInDiscrete(by_number, env))["action"].dtype
        torch.int64
    """

    def __init__(self, policy: Policy, env: TradingEnv) -> None:
        super().__init__()
        _only_in(self, env, "discrete", "hybrid")
        self.policy, self.assets = policy, env.rules.assets
        self.hybrid = env.rules.actions == "hybrid"
        self.in_keys = [*[key for key in _reads(policy) if key != "action_mask"], "action_mask"]
        self.out_keys = ["action", "action_name"] if self.hybrid else ["action"]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Lets the policy choose numbers, and writes their names."""
        number = self.policy(tensordict)["action"]
        mask = tensordict["action_mask"].unflatten(-1, (self.assets, len(read.NAMES)))
        name = read.name_of(number)
        allowed = mask.gather(-1, name[..., None])[..., 0]
        name = torch.where(allowed, name, read.HOLD)
        name = torch.where(number.isnan(), -1, name)  # for the environment to refuse
        name = name.squeeze(-1) if self.assets == 1 else name
        return tensordict.set("action_name" if self.hybrid else "action", name)


def _only_in(policy: TensorDictModuleBase, env: TradingEnv, *allowed: str) -> None:
    actions = env.rules.actions
    if actions not in allowed:
        raise ValueError(
            f"{type(policy).__name__} acts where actions are {' or '.join(allowed)}; this"
            f" environment has actions={actions!r}"
        )


def _reads(policy: Policy) -> list[NestedKey]:
    return list(getattr(policy, "in_keys", ["observation"]))
