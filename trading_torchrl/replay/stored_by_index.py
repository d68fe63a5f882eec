"""Replay that stores where in the market a row was seen, not what was seen there."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import Transform

from trading_torchrl.envs.trading import TradingEnv
from trading_torchrl.envs.transforms import MarketWindow, refuse_without_index

SYMBOL, BAR = ("market", "symbol"), ("market", "bar")


class StoredByIndex(Transform):
    """Keeps the index of a bar instead of its features, and rebuilds them when sampled.

    Append it to the replay buffer of a :class:`~trading_torchrl.envs.TradingEnv` that emits
    ``index`` (one with ``window=W`` always does). Rows go in as the environment shows them. What is
    stored of an observation are the account's own values, the symbol as int16 and the bar as int32;
    what is sampled is the observation as it was, bit for bit, and ``window`` where there is one, in
    the root and in ``next``.

    Args:
        table: float32 ``[S * T, F]``, the environment's ``table``.
        bars: T, bars of each symbol.
        window: W, None for observations of one bar.
        observation_key: what the account values, and the features of one bar, are in.
        window_key: what the window is in.

    Example:
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> from trading_torchrl.data import synthetic_market
        >>> env = TradingEnv(synthetic_market(2, 2_000), 4, emit=["index"], compiled=False)
        >>> replay = TensorDictReplayBuffer(
        ...     storage=LazyTensorStorage(1_000), transform=StoredByIndex.of(env), batch_size=16
        ... )
        >>> rows = env.rollout(10).reshape(-1)
        >>> _ = replay.extend(rows)
        >>> replay.sample()["observation"].shape == rows[:16]["observation"].shape
        True
    """

    def __init__(
        self,
        table: Tensor,
        bars: int,
        window: int | None = None,
        observation_key: NestedKey = "observation",
        window_key: NestedKey = "window",
    ) -> None:
        super().__init__()
        if len(table) // bars > torch.iinfo(torch.int16).max:
            raise ValueError(f"at most 32,767 symbols can be indexed, got {len(table) // bars}")
        self.rows = MarketWindow(table, bars, window or 1)
        self.windowed = window is not None
        self.observation_key, self.window_key = observation_key, window_key

    @classmethod
    def of(cls, env: TradingEnv) -> StoredByIndex:
        """The transform that fits an environment."""
        refuse_without_index(env)
        return cls(env.table, env.rules.bars, env.window)

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        """What is stored."""
        for place in (tensordict, tensordict.get("next", None)):
            if place is None:
                continue
            symbol, bar = place.get(SYMBOL, None), place.get(BAR, None)
            if symbol is None or bar is None:
                raise KeyError(
                    "a row needs ('market', 'symbol') and ('market', 'bar'), in the root and in"
                    f" next, to be stored; one with {sorted(map(str, place.keys()))} came"
                )
            if self.windowed:
                place.pop(self.window_key, None)
            else:
                shown = symbol.shape[-1] * self.rows.features
                place.set(self.observation_key, place.get(self.observation_key)[..., shown:])
            # Views into a batch of the environment would be written to by its owner: new ones.
            index = place.empty()
            index.set("symbol", symbol.to(torch.int16)).set("bar", bar.to(torch.int32))
            place.set("market", index)
        return tensordict

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """What is sampled."""
        tensordict = tensordict.copy()  # it may be the storage itself
        for place in (tensordict, tensordict.get("next", None)):
            if place is None:
                continue
            symbol, bar = place.get(SYMBOL).long(), place.get(BAR).long()
            place.set(SYMBOL, symbol).set(BAR, bar)
            found = self.rows.rebuild(symbol, bar)
            if self.windowed:
                place.set(self.window_key, found.squeeze(symbol.ndim - 1))
            else:
                own = place.get(self.observation_key)
                seen = torch.cat([found.flatten(symbol.ndim - 1), own], -1)
                place.set(self.observation_key, seen)
        return tensordict
