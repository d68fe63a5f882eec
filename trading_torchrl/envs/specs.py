"""What a trading environment promises: the specs of its actions and of all it shows."""

from __future__ import annotations

from typing import Any

import torch
from torchrl.data import Binary, Bounded, Categorical, Composite, MultiCategorical, Unbounded

from trading_torchrl.envs import emission, terms
from trading_torchrl.envs.accounts import Rules
from trading_torchrl.envs.actions import DISCRETE, NAMES


def observation_names(
    rules: Rules, feature_names: tuple[str, ...], windowed: bool
) -> tuple[str, ...]:
    """Names of the observation's values, in order; several assets are numbered."""
    suffixes = [""] if rules.assets == 1 else [f".{i}" for i in range(rules.assets)]
    own = ["position", "unrealised", "since_trade"]
    if rules.actions != "target":
        own.append("smoothed_action")
    seen = [] if windowed else [name + suffix for suffix in suffixes for name in feature_names]
    return (*seen, *[name + suffix for name in own for suffix in suffixes], "cash", "drawdown")


def action_spec(rules: Rules, num_envs: int, device: torch.device) -> Any:
    """``[N, A]`` numbers in [-1, 1], or names: ``[N]`` for one asset, ``[N, A]`` for several.

    Hybrid accounts have both, the names as ``action_name``.
    """
    n, a = num_envs, rules.assets
    numbers = Bounded(-1, 1, shape=(n, a), dtype=torch.float32, device=device)
    if not rules.named:
        return numbers
    names: Any = (
        Categorical(len(NAMES), shape=(n,), dtype=torch.int64, device=device)
        if a == 1
        else MultiCategorical([len(NAMES)] * a, shape=(n, a), dtype=torch.int64, device=device)
    )
    if rules.actions == "discrete":
        return names
    return Composite({"action": numbers, "action_name": names}, shape=(n,), device=device)


def reward_spec(rules: Rules, num_envs: int, device: torch.device) -> Unbounded:
    """One number, or one for each objective."""
    width = len(terms.OBJECTIVES) if rules.reward == "objectives" else 1
    return Unbounded((num_envs, width), dtype=torch.float32, device=device)


def done_spec(num_envs: int, device: torch.device) -> Composite:
    """``done``, ``terminated``, ``truncated``."""
    flags = {
        name: Binary(n=1, shape=(num_envs, 1), dtype=torch.bool, device=device)
        for name in ("done", "terminated", "truncated")
    }
    return Composite(flags, shape=(num_envs,), device=device)


def observation_spec(
    rules: Rules,
    num_envs: int,
    width: int,
    symbols: int,
    packs: emission.Layout,
    device: torch.device,
) -> Composite:
    """The observation of ``width`` values, the mask of discrete names, the emitted values."""
    n, a = num_envs, rules.assets
    spec = Composite(shape=(n,), device=device)
    spec["observation"] = Unbounded((n, width), dtype=torch.float32, device=device)
    if rules.named:
        names = len(NAMES) * a
        spec["action_mask"] = Binary(n=names, shape=(n, names), dtype=torch.bool, device=device)
    if rules.actions == "hybrid":
        mode = Bounded(0, DISCRETE, shape=(n, 1), dtype=torch.int64, device=device)
        spec["account", "mode"] = mode
    for name in rules.emit:
        if name == "index":
            whole: dict[str, Any] = {"dtype": torch.int64, "device": device}
            spec["market", "symbol"] = Bounded(0, symbols - 1, shape=(n, a), **whole)
            spec["market", "bar"] = Bounded(0, rules.bars - 1, shape=(n, 1), **whole)
            continue
        shape = (n, terms.width_of(terms.EMITTED[name][0], a))
        for key in () if packs else terms.EMITTED[name]:
            spec[key] = Unbounded(shape, dtype=terms.dtype_of(key[1]), device=device)
    for label, keys in packs.items():
        dtype, one = terms.dtype_of(keys[0][1]), terms.width_of(keys[0], a)
        spec["emitted", label] = Unbounded((n, len(keys), one), dtype=dtype, device=device)
    return spec
