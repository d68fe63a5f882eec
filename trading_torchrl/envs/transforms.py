"""Transforms for trading environments and their replay buffers."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.data import TensorSpec, Unbounded
from torchrl.envs import Transform

from trading_torchrl.envs.trading import TradingEnv


def refuse_without_index(env: TradingEnv) -> None:
    """Refuses an environment that does not show which bar it is at."""
    if env.window is None and "index" not in env.rules.emit:
        raise ValueError(
            "this environment does not show which bar it is at; build it with"
            f" emit=[..., 'index'], its emit is {list(env.rules.emit)}"
        )


class OfTheBar(Transform):
    """Shows what ``_call`` finds by the index of a bar: at each step, or in what is sampled."""

    def _reset(
        self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        return self._call(tensordict_reset)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Of a sample, now and next."""
        tensordict = self._call(tensordict)
        following = tensordict.get("next", None)
        if following is not None and "market" in following:
            self._call(following)
        return tensordict


class MarketWindow(OfTheBar):
    """Rebuilds the last W bars' features from an index.

    An environment built with ``window=W`` offers ``("market", "symbol")`` and
    ``("market", "bar")``, sixteen bytes instead of W x F numbers. Appended to the environment, this
    writes ``window``, float32 ``[*batch, W, F]`` (``[*batch, A, W, F]`` for several assets), at
    each step; appended to a replay buffer instead, it does so for what is sampled, in the root and
    in ``next``, so that windows are never stored.

    Args:
        table: float32 ``[S * T, F]``, the environment's ``table``.
        bars: T, bars of each symbol.
        window: W.
        out_key: where to write.

    Example:
        >>> from torchrl.envs import TransformedEnv
        >>> from trading_torchrl.data import synthetic_market
        >>> from trading_torchrl.envs import TradingEnv
        >>> env = TradingEnv(synthetic_market(2, 2_000), num_envs=4, window=64, compiled=False)
        >>> env = TransformedEnv(env, MarketWindow.of(env))
        >>> env.rollout(3)["window"].shape
        torch.Size([4, 3, 64, 26])
    """

    def __init__(
        self, table: Tensor, bars: int, window: int, out_key: NestedKey = "window"
    ) -> None:
        super().__init__(in_keys=[("market", "symbol"), ("market", "bar")], out_keys=[out_key])
        if not 1 <= window <= bars:
            raise ValueError(f"window must lie in [1, {bars}] (bars of the market), got {window}")
        self.bars, self.window, self.features = bars, window, table.shape[-1]
        # Overlapping rows of one table: a view, whatever the window's length.
        self.register_buffer("_windows", _overlapping(table, window), persistent=False)

    @classmethod
    def of(cls, env: TradingEnv, out_key: NestedKey = "window") -> MarketWindow:
        """The transform that fits an environment built with ``window=W``."""
        if env.window is None:
            raise ValueError(
                "this environment has no window; build it with TradingEnv(..., window=64)"
            )
        return cls(env.table, env.rules.bars, env.window, out_key)

    def rebuild(self, symbol: Tensor, bar: Tensor) -> Tensor:
        """``[*batch, A, W, F]``: the bars up to ``bar`` [*batch, 1] of ``symbol`` [*batch, A]."""
        row = symbol * self.bars + bar - self.window + 1
        found = self._windows.index_select(0, row.flatten())
        return found.view(*row.shape, self.window, self.features)

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        symbol = next_tensordict.get(self.in_keys[0])
        window = self.rebuild(symbol, next_tensordict.get(self.in_keys[1]))
        return next_tensordict.set(self.out_keys[0], window.squeeze(symbol.ndim - 1))

    def transform_observation_spec(self, observation_spec: TensorSpec) -> TensorSpec:
        """Adds the window."""
        shape = list(observation_spec[self.in_keys[0]].shape)
        shape = [*(shape[:-1] if shape[-1] == 1 else shape), self.window, self.features]
        observation_spec[self.out_keys[0]] = Unbounded(
            torch.Size(shape), device=observation_spec.device, dtype=torch.float32
        )
        return observation_spec


def _overlapping(table: Tensor, window: int) -> Tensor:
    """``[rows - W + 1, W * F]``: row i is rows i to i + W - 1 of the table, end to end."""
    rows, features = table.shape
    size = (rows - window + 1, window * features)
    return table.contiguous().as_strided(size, (features, 1))
