"""A reward of one's own: a pure function of a bar, checked before anything is traded by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trading_torchrl.envs.terms import Bar

OwnReward = Callable[[Bar], Tensor]
"""What a bar was worth to each account: from a :class:`Bar` of N accounts, ``[N]``."""

CASES = 6
"""Accounts that a reward is tried on: idle, winning, losing, closing, turning, in debt."""


def name_of(reward: str | OwnReward) -> str:
    """One name for one reward, with its settings where it is a dataclass or a partial function."""
    if isinstance(reward, str):
        return reward
    if isinstance(reward, partial):
        settings = ", ".join(f"{key}={value!r}" for key, value in reward.keywords.items())
        return f"{name_of(reward.func)}({settings})"
    if is_dataclass(reward):
        return f"{type(reward).__module__}.{reward!r}"
    kind = reward if hasattr(reward, "__qualname__") else type(reward)
    return f"{kind.__module__}.{kind.__qualname__}"


def check(reward: Any, assets: int, columns: Sequence[str], cash: float, cap: float) -> None:
    """Refuses what is no pure function of a bar, account by account, that stays finite."""
    if not callable(reward):
        raise ValueError(f"reward must be a name or a function of a bar, got {reward!r}")
    name = name_of(reward)
    try:
        hash(reward)
    except TypeError as error:
        raise ValueError(
            f"reward {name} cannot be hashed, so that no compiled step could be kept for it: give"
            " it by a function, or by a class with @dataclass(frozen=True)"
        ) from error
    bar = example(assets, columns, cash, cap)
    worth = reward(bar)
    if not isinstance(worth, Tensor) or worth.shape != (CASES,):
        got = list(worth.shape) if isinstance(worth, Tensor) else type(worth).__name__
        raise ValueError(
            f"reward {name} must return one number for each of {CASES} accounts, [{CASES}], got"
            f" {got}; values of assets [{CASES}, {assets}] are summed over the last dimension"
        )
    strange = ~worth.isfinite()
    if strange.any():
        case = int(strange.nonzero()[0, 0])
        raise ValueError(
            f"reward {name} is {float(worth[case])} for an account whose equity went from"
            f" {float(bar.equity_before[case]):g} to {float(bar.equity[case]):g}: divide by and"
            " take the logarithm of nothing that may be 0 or less, .clamp(min=bar.floor)"
        )
    if not all(map(torch.equal, _tensors(bar), _tensors(example(assets, columns, cash, cap)))):
        raise ValueError(f"reward {name} changes the bar it is given; make new tensors instead")
    if not torch.equal(worth, reward(bar)):
        raise ValueError(f"reward {name} says something else of the same bar when asked again")
    some = torch.tensor([4, 1])
    if not torch.allclose(worth[some], reward(_of(bar, some))):
        raise ValueError(
            f"reward {name} mixes accounts: what one is paid may depend on its own row alone"
        )


def traceable(reward: OwnReward, assets: int, columns: Sequence[str]) -> str:
    """Why a reward cannot be compiled, in a line; nothing where it can."""
    traced = torch.compile(reward, backend="eager", fullgraph=True, dynamic=False)
    try:
        traced(example(assets, columns, 1e4, 1.0))
    except Exception as error:
        return str(error).strip().splitlines()[0]
    return ""


def refuse_not_finite(reward: OwnReward, worth: Tensor, bars: Tensor, counts: Tensor) -> None:
    """Names the reward, the account and the bar where ``worth`` [N, 1] is no number.

    Only accounts whose step ``counts`` [N] are looked at.
    """
    strange = ~worth[:, 0].isfinite() & counts
    if strange.any():
        account = int(strange.nonzero()[0, 0])
        raise ValueError(
            f"reward {name_of(reward)} is {float(worth[account])} for account {account} after bar"
            f" {int(bars[account])}; it must be a number at every bar"
        )


def example(assets: int, columns: Sequence[str], cash: float, cap: float) -> Bar:
    """A bar of six accounts, none like another."""

    def assetwise(*values: float) -> Tensor:
        spread = 1 + 0.1 * torch.arange(assets, dtype=torch.float64)
        return torch.tensor(values, dtype=torch.float64)[:, None] * spread / assets

    def accountwise(*values: float) -> Tensor:
        return cash * torch.tensor(values, dtype=torch.float64)

    close, opened = assetwise(100, 101, 97, 100, 103, 10), assetwise(100, 100, 99, 100, 102, 50)
    prices = {"open": opened, "close": close, "high": opened.maximum(close)}
    prices |= {"low": opened.minimum(close), "volatility": close * 1e-4}
    share = 0.5 * cap * cash / 100
    return Bar(
        action=assetwise(0, 0.6, -0.3, 0.0, -1.0, 0.9),
        smoothed=assetwise(0, 0.5, -0.2, 0.0, -1.0, 0.8),
        name=torch.tensor([0, 3, 1, 5, 4, 2])[:, None].expand(CASES, assets),
        traded=share * assetwise(0, 50, 0, -100, -200, 0),
        realised=share * assetwise(0, 0, 0, 5, -2, 0),
        fees=accountwise(0, 1e-4, 0, 2e-4, 4e-4, 0),
        units_before=share * assetwise(0, 0.5, -1, 1, 1, 2),
        units=share * assetwise(0, 1, -1, 0, -1, 2),
        entry_before=assetwise(100, 99, 98, 95, 104, 90),
        entry=assetwise(100, 99.5, 98, 95, 102, 90),
        price_before=assetwise(100, 100, 99, 100, 102, 50),
        fill_price=opened,
        price={name: prices.get(name, torch.ones_like(close)) for name in columns},
        equity_before=accountwise(1, 1.02, 0.9, 1, 1.1, 0.5),
        equity=accountwise(1, 1.03, 0.91, 1.01, 1.08, -0.1),
        peak=accountwise(1, 1.03, 1.2, 1.01, 1.1, 1.3),
        floor=1e-6 * cash,
        cap=cap,
    )


def _tensors(bar: Bar) -> list[Tensor]:
    fields = bar._asdict()
    return [each for each in (*fields.values(), *bar.price.values()) if isinstance(each, Tensor)]


def _of(bar: Bar, accounts: Tensor) -> Bar:
    fields: dict[str, Any] = bar._asdict()
    fields = {k: v[accounts] for k, v in fields.items() if isinstance(v, Tensor)}
    return bar._replace(**fields | {"price": {k: v[accounts] for k, v in bar.price.items()}})
