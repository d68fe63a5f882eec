"""One continuous account per symbol over a whole market: how a policy is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from tensordict.nn import (
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
)
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type
from tqdm import tqdm

from trading_torchrl.data.market import Market
from trading_torchrl.envs.trading import TradingEnv

Policy = Callable[[TensorDictBase], TensorDictBase]

KEPT = {
    "equity": ("account", "equity"),
    "share": ("account", "share"),
    "fees": ("account", "fees"),
    "value": ("trade", "value"),
    "unrealised": ("account", "unrealised"),
}
FLOWS = ("fees", "value")
"""What a ruined account has no more of; the rest stays as it was."""


class Account(NamedTuple):
    """What became of the accounts: float64 ``[S, T']`` each, S symbols over T' - 1 bars.

    Column t is the close of bar t, with what led from the close before to it; column 0 is the
    start.
    """

    equity: Tensor
    share: Tensor
    """position / equity"""
    fees: Tensor
    """costs and interest"""
    value: Tensor
    """signed traded value"""
    unrealised: Tensor
    """profit of the open position, before costs"""
    action: Tensor
    """what the policy asked for: a number, or a name's number in a discrete environment; NaN in
    column 0 and after ruin"""

    @property
    def gross(self) -> Tensor:
        """Simple returns ``[S, T' - 1]`` before costs."""
        before, after = self.equity[:, :-1], self.equity[:, 1:] + self.fees[:, 1:]
        return torch.where(before > 0, after / before - 1, 0.0)

    @property
    def actions(self) -> Tensor:
        """All that the policy asked for, ``[K]``, symbol after symbol."""
        return self.action[self.action.isfinite()]


def whole_split(market: Market, **settings: Any) -> TradingEnv:
    """An environment for evaluation: account i trades symbol i from the first bar to the last."""
    emit = settings.pop("emit", ())
    if emit != "all":
        asked = [emit] if isinstance(emit, str) else emit
        named = ["raw_action"] if settings.get("actions") == "hybrid" else []
        emit = sorted({*KEPT, "index", *named, *asked})
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
def follow(
    env: TradingEnv,
    policy: Policy,
    progress: str | None = None,
    exploration: ExplorationType = ExplorationType.DETERMINISTIC,
) -> Account:
    """Steps every account of ``env`` through its one episode.

    A ruined account stays where it ended. Six values a bar are kept and no observations, so that
    long splits of many symbols fit.

    Args:
        env: from :func:`whole_split`, one asset an account.
        policy: reads what the environment emits, writes ``action``.
        progress: label of a progress bar, if one is wanted; ``TQDM_DISABLE=1`` hides it.
        exploration: TorchRL's; ``ExplorationType.RANDOM`` draws from a policy's distribution, with
            torch's global generator.
    """
    _check(env)
    tensordict = env.reset()
    accounts, bars = env.batch_size[0], env.rules.bars - env.first_start
    kept = {name: torch.empty(accounts, bars, dtype=torch.float64) for name in KEPT}
    action = torch.full((accounts, bars), torch.nan, dtype=torch.float64)
    ruined = torch.zeros(accounts, bars, dtype=torch.bool)
    hybrid = env.rules.actions == "hybrid"

    def note(bar: int, seen: TensorDictBase) -> None:
        for name, key in KEPT.items():
            kept[name][:, bar] = seen[key][:, 0]

    note(0, tensordict)
    steps: Iterable[int] = range(1, bars)
    if progress is not None:
        steps = tqdm(steps, desc=progress, leave=False)
    with set_exploration_type(exploration):
        for bar in steps:
            decided = policy(tensordict)
            after = env.step(decided)["next"]
            note(bar, after)
            # A hybrid account acts on one of two; the other means nothing.
            asked = after["trade", "raw_action"] if hybrid else decided["action"]
            action[:, bar] = asked.reshape(accounts)
            ruined[:, bar] = after["terminated"][:, 0]
            tensordict = after.exclude("reward")
    _hold(ruined, kept, action)
    return Account(**kept, action=action)


def _check(env: TradingEnv) -> None:
    if env.rules.assets > 1:
        raise ValueError(
            f"accounts of this environment hold {env.rules.assets} assets each; follow needs one"
            " an account: build it with whole_split(market, ...) and without assets"
        )
    shown = env.observation_spec.keys(True, True)
    missing = [name for name, key in KEPT.items() if key not in shown]
    if missing:
        raise KeyError(
            f"this environment does not show {', '.join(missing)} under their own keys; build it"
            " with whole_split(market, ...), which asks for them, and without packed"
        )


def _hold(ruined: Tensor, kept: dict[str, Tensor], action: Tensor) -> None:
    """Keeps accounts as they were in the first bar in which they were ``ruined`` [S, T']."""
    for account in ruined.any(1).nonzero()[:, 0].tolist():
        last = int(ruined[account].int().argmax())
        action[account, last + 1 :] = torch.nan
        for name, values in kept.items():
            values[account, last + 1 :] = 0.0 if name in FLOWS else values[account, last]


def tempered(
    policy: ProbabilisticTensorDictSequential, temperature: float
) -> ProbabilisticTensorDictSequential:
    """A policy that explores more (above 1) or less: for ``follow`` with random exploration.

    Multiplies the ``scale`` of its distribution, or divides its ``logits``; shares its weights.

    Args:
        policy: ends in the module that draws, as TorchRL's ``ProbabilisticActor`` does.
        temperature: above 0; 1 changes nothing.

    Example:
        >>> from trading_torchrl.modules import make_actor
        >>> calmer = tempered(make_actor(inputs=5, actions=1), 0.5)
    """
    *network, draw = policy.module
    if not isinstance(draw, ProbabilisticTensorDictModule) or temperature <= 0:
        raise ValueError(
            "tempered takes a policy whose last module draws from a distribution and a temperature"
            f" above 0, got one that ends in {type(draw).__name__} and {temperature}"
        )
    for name, factor in (("scale", temperature), ("logits", 1 / temperature)):
        if name in draw.in_keys:
            heat = TensorDictModule(lambda x: factor * x, in_keys=[name], out_keys=[name])  # noqa: B023
            return ProbabilisticTensorDictSequential(*network, heat, draw)
    raise ValueError(f"the distribution reads {draw.in_keys}; tempered needs a scale or logits")
