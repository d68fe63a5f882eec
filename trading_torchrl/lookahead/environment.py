"""Looks for environments that show, pay or fill by bars after their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import EnvBase

from trading_torchrl.data.market import Market
from trading_torchrl.lookahead.future import Leak, close_to, equal, time_of, visible, with_future

BAR, EQUITY, UNITS, TRADED = "market.bar", "account.equity", "account.units", "trade.value"

Fill = Literal["next_open", "close"]
Look = dict[str, Tensor]
"""What an environment shows at once, by key."""
Step = tuple[Look, Look]
"""Before (with the action) and after."""
Found = tuple[str, int, int, float, float]
"""Name, bar, account, before, after."""


def find_env_lookahead(
    make_env: Callable[[Market], EnvBase],
    market: Market,
    cuts: int = 4,
    steps: int = 80,
    seed: int = 0,
    *,
    fill: Fill | None = None,
    shortest: int | None = None,
    tolerance: float = 0.0,
) -> Leak | None:
    """Looks for anything an environment emits that depends on later bars.

    Two environments, one on the market and one on a market changed after some bar, start from the
    same seed and get the same actions. As long as an account has not gone past that bar, all it
    emits (observation, reward, fills, done...) must have the same bits.

    One bar on, the opposite is asked for, so that nobody trades at prices already seen: an account
    that holds something must be marked differently (``equity``), and an order filled at the next
    open must come out differently (``units`` or ``value``), while one filled at the close that its
    decision saw must not. This needs ``("account", "equity")``, ``("account", "units")`` and
    ``("trade", "value")``; an environment that does not emit them is spared it.

    Args:
        make_env: builds the environment from a market without features; it computes them itself
            (``with_features``), with a scaler that was fitted once, outside. The environment
            emits ``("market", "bar")``, one int64 an account: the last bar it has seen; its starts
            depend on the seed and the market's length alone.
        market: bars to try it on.
        cuts: number of bars after which the market is changed; chosen among those visited.
        steps: length of the rollouts.
        seed: of environment, actions, new paths and bars.
        fill: where orders are filled: ``next_open`` or ``close`` (of the bar the decision saw);
            None leaves fills unchecked beyond what every value is checked for.
        shortest: give it where starts do not depend on the market's length, as the fewest bars
            for which that holds: then the market is also cut off, one bar behind the changed ones
            or at this length, which shows what depends on how much data there is.
        tolerance: a change below this share of a value's largest in the rollout is no leak (in
            float32 at least 1e-5), for features whose last bits move; 0 compares bit for bit.

    Returns:
        The first value that moved, None where there is none.

    Raises:
        ValueError: if two runs on the same market differ, if no bar is emitted, or if no account
            moved: then nothing can be proven.
    """
    if cuts < 1:
        raise ValueError(f"cuts must be at least 1, got {cuts}")
    market, last = visible(market), len(market) - 1
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        expected = list(_roll(make_env(market), steps, seed))
    if BAR not in expected[0][1]:
        raise ValueError('the environment must emit ("market", "bar"): add emit="index"')
    scales = _scales(expected) if tolerance else {}
    again = _roll(make_env(market), steps, seed, expected)
    found = _first_moved(expected, again, last, None, scales, tolerance)
    if found is not None:
        raise ValueError(
            f"{found[0]!r} differs between two runs on the same market with the same seed and "
            "actions; every random number must come from env.set_seed"
        )
    reached = torch.stack([after[BAR].flatten() for _, after in expected]).cummax(0).values
    visited = reached[reached < last].unique()
    if not len(visited):
        raise ValueError(f"no account moved within {steps} steps before the market's last bar")
    chosen = visited[torch.randperm(len(visited), generator=generator)[:cuts]].sort().values
    for cut, variation, changed in _futures(market, chosen.tolist(), shortest, generator):
        changed_steps = _roll(make_env(changed), steps, seed, expected)
        # A market cut off brings no news: the bars that are left are the same.
        news = None if variation == "cut" else fill or "unknown"
        found = _first_moved(expected, changed_steps, cut, news, scales, tolerance)
        if found is not None:
            name, bar, account, before, after = found
            where = f"account {account}", time_of(market, bar)
            return Leak("environment", name, *where, bar, cut, variation, before, after)
    return None


def _futures(
    market: Market, cuts: Sequence[int], shortest: int | None, generator: torch.Generator
) -> Iterator[tuple[int, str, Market]]:
    """Last unaffected bar, variation, and market for each."""
    for cut in cuts:
        for variation in ("up", "down"):
            yield cut, variation, with_future(market, cut, variation, generator)
    if shortest is not None:
        # An episode may rightly end with the market's last bar: it lies one behind the cut.
        ends = {max(cut + 1, shortest - 1) for cut in cuts}
        for end in sorted(end for end in ends if end < len(market) - 1):
            yield end - 1, "cut", with_future(market, end, "cut", generator)


def _roll(
    env: EnvBase, steps: int, seed: int, actions: Sequence[Step] | None = None
) -> Iterator[Step]:
    """What an environment emits, step by step, under random actions or those of other steps."""
    env.set_seed(seed)
    state = env.reset()
    for step in range(steps):
        if actions is None:
            state = env.rand_action(state)
        else:
            for key in env.action_keys:
                state.set(key, actions[step][0][_name(key)])
        frame, state = env.step_and_maybe_reset(state)
        yield _look(frame.exclude("next")), _look(frame["next"])
    env.close()


def _look(tensordict: TensorDictBase) -> Look:
    leaves = {_name(key): value.clone() for key, value in tensordict.items(True, True)}
    # The bar first: where accounts start elsewhere, all else differs too.
    return {name: leaves[name] for name in sorted(leaves, key=lambda name: (name != BAR, name))}


def _name(key: NestedKey) -> str:
    return key if isinstance(key, str) else ".".join(key)


def _scales(steps: Iterable[Step]) -> dict[str, Tensor]:
    """Largest absolute value of every number in the rollout, over steps and accounts."""
    scales: dict[str, Tensor] = {}
    for _, after in steps:
        for name, value in after.items():
            finite = torch.where(value.isfinite(), value, 0).double().abs().amax(0)
            scales[name] = torch.maximum(scales.get(name, finite), finite)
    return scales


def _first_moved(
    before: Iterable[Step],
    after: Iterable[Step],
    cut: int,
    news: str | None,
    scales: Mapping[str, Tensor],
    tolerance: float,
) -> Found | None:
    """The first value that differs for an account that has not been past ``cut``.

    With ``news`` (where orders are filled) also what should have moved one bar on, and did not.
    """
    unaware: Tensor | None = None
    for old_step, new_step in zip(before, after, strict=False):
        for prefix, old, new in zip(("", "next."), old_step, new_step, strict=True):
            bars = old[BAR].flatten()
            unaware = torch.ones_like(bars, dtype=torch.bool) if unaware is None else unaware
            arrives = unaware & (bars == cut + 1)
            unaware = unaware & (bars <= cut)
            found = None
            if prefix and news is not None and arrives.any():
                found = _wrong_price(old, new, arrives, cut, news)
            for name, value in old.items():
                if found is None:
                    same = close_to(value, new[name], scales.get(name, 0.0), tolerance)
                    found = _first(name, old, new, ~same, unaware, bars)
            if found is not None:
                return prefix + found[0], *found[1:]
        if unaware is None or not unaware.any():
            break
    return None


def _wrong_price(old: Look, new: Look, arrives: Tensor, cut: int, fill: str) -> Found | None:
    """Accounts that traded, or were marked, at other prices than those they should have."""
    if not {EQUITY, UNITS, TRADED} <= old.keys():
        return None
    held = old[UNITS] != 0
    bars = torch.full_like(arrives, cut + 1, dtype=torch.int64)
    stale = equal(old[EQUITY], new[EQUITY]) & held.any(-1, keepdim=True)
    found = _first(EQUITY, old, new, stale, arrives, bars)
    if found is None and fill == "next_open":
        same = equal(old[UNITS], new[UNITS]) & equal(old[TRADED], new[TRADED])
        found = _first(TRADED, old, new, same & (old[TRADED] != 0), arrives, bars)
    if found is None and fill == "close":
        # A liquidation, which leaves no units, may happen within the new bar.
        settled = held & (new[UNITS] != 0)
        for name in (UNITS, TRADED):
            early = settled & ~equal(old[name], new[name])
            found = found or _first(name, old, new, early, arrives, bars - 1)
    return found


def _first(
    name: str, old: Look, new: Look, wrong: Tensor, accounts: Tensor, bars: Tensor
) -> Found | None:
    """The first wrong value of these accounts."""
    wrong = wrong.flatten(1) & accounts[:, None] if wrong.ndim > 1 else (wrong & accounts)[:, None]
    if not wrong.any():
        return None
    account, item = wrong.nonzero()[0].tolist()
    was, became = (float(look[name][account].flatten()[item]) for look in (old, new))
    return name, int(bars[account]), account, was, became
