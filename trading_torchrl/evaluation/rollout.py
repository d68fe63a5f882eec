"""One continuous account per symbol over a whole market: how a policy is judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor
from tqdm import tqdm

from trading_torchrl.data.market import Market
from trading_torchrl.envs.trading import TradingEnv

Policy = Callable[[TensorDictBase], TensorDictBase]


class Account(NamedTuple):
    """What became of the accounts: ``[S, T']`` each, S symbols over T' - 1 bars."""

    equity: Tensor
    share: Tensor
    fees: Tensor

    @property
    def gross(self) -> Tensor:
        """Simple returns ``[S, T' - 1]`` before costs."""
        return (self.equity[:, 1:] + self.fees[:, 1:]) / self.equity[:, :-1] - 1


def whole_split(market: Market, **settings: Any) -> TradingEnv:
    """An environment for evaluation: account i trades symbol i from the first bar to the last."""
    emit = settings.pop("emit", ())
    if emit != "all":
        emit = sorted(
            {"equity", "share", "fees", "index", *([emit] if isinstance(emit, str) else emit)}
        )
    return TradingEnv(
        market,
        num_envs=len(market.symbols),
        episode_bars=None,
        random_start=False,
        random_symbols=False,
        emit=emit,
        **settings,
    )


@torch.no_grad()
def follow(env: TradingEnv, policy: Policy, progress: str | None = None) -> Account:
    """Steps every account of ``env`` through its one episode.

    A ruined account stays where it ended. Only three values a bar are kept, so that long splits of
    many symbols fit.

    Args:
        env: from :func:`whole_split`.
        policy: reads what the environment emits, writes ``action``.
        progress: label of a progress bar, if one is wanted.
    """
    tensordict = env.reset()
    bars = env.rules.bars - env.first_start
    keep = {
        name: torch.empty(env.batch_size[0], bars, dtype=torch.float64) for name in Account._fields
    }

    def note(bar: int, seen: TensorDictBase) -> None:
        for name, values in keep.items():
            values[:, bar] = seen["account", name][:, 0]

    note(0, tensordict)
    ruined = torch.zeros(env.batch_size[0], dtype=torch.bool)
    for bar in tqdm(range(1, bars), desc=progress, disable=progress is None, leave=False):
        after = env.step(policy(tensordict))["next"]
        note(bar, after)
        for name, values in keep.items():
            values[ruined, bar] = 0.0 if name == "fees" else values[ruined, bar - 1]
        ruined |= after["terminated"][:, 0].cpu()
        tensordict = after.exclude("reward")
    return Account(**keep)
