"""Signals: what plans of several bars are decided by, shown by name."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import TensorSpec, Unbounded

from trading_torchrl.data.features import with_features
from trading_torchrl.data.market import Market
from trading_torchrl.envs.trading import TradingEnv
from trading_torchrl.envs.transforms import OfTheBar, refuse_without_index

RANK_BARS = 250
"""How far back volatility is compared."""

READS = ("sma_ratio", "volatility", "momentum")
"""Features that signals are made of."""

KNOWN = ("sentiment", "confidence")
"""Shown too where the market has features of these names, in [0, 1]."""


def signals_of(market: Market) -> dict[str, Tensor]:
    """Of a market's features as they are, before any scaler: ``[T, S]`` by name.

    - ``trend``: SMA 10 / SMA 20 - 1;
    - ``volatility``: of one bar, root mean square of the last 20 returns;
    - ``volatility_rank``: share of the 249 bars before with a lower one, 0 to 1; of fewer at the
      start, 0.5 at the first bar;
    - ``momentum``: log return over 10 bars in units of its volatility;
    - ``sentiment`` and ``confidence``, where the market has them.

    Example:
        >>> from trading_torchrl.data import synthetic_market
        >>> sorted(signals_of(synthetic_market(symbols=2, bars=300)))
        ['confidence', 'momentum', 'sentiment', 'trend', 'volatility', 'volatility_rank']
    """
    market = market if market.features is not None else with_features(market)
    assert market.features is not None
    lacking = [name for name in READS if name not in market.feature_names]
    if lacking:
        raise ValueError(
            f"signals are made of the standard features, and this market has no {lacking[0]}:"
            f" with_features adds them; it has {', '.join(market.feature_names)}"
        )
    column = dict(zip(market.feature_names, market.features.double().unbind(-1), strict=True))
    return {
        "trend": column["sma_ratio"],
        "volatility": column["volatility"],
        "volatility_rank": _rank(column["volatility"]),
        "momentum": column["momentum"],
        **{name: column[name] for name in KNOWN if name in column},
    }


def _rank(values: Tensor) -> Tensor:
    """Of each among itself and those before, in [0, 1]; ties stand in the middle."""
    rolling = pd.DataFrame(values.cpu().numpy()).rolling(RANK_BARS, min_periods=1)
    rank = torch.from_numpy(rolling.rank().to_numpy(copy=True))
    others = torch.arange(len(values)).clamp(max=RANK_BARS - 1)[:, None]
    return torch.where(others > 0, (rank - 1) / others.clamp(min=1), 0.5).to(values)


class Signals(OfTheBar):
    """Shows the signals of the bar an account is at.

    For environments that emit ``index``. Writes ``("signals", name)``, float32 ``[*batch, A]``, at
    each step; appended to a replay buffer, for what is sampled, now and in ``next``, so that they
    are never stored. One's own are any tensors ``[T, S]`` that were known at the bar's close.

    Args:
        signals: ``[T, S]`` each, by name.

    Example:
        >>> from torchrl.envs import TransformedEnv
        >>> from trading_torchrl.data import synthetic_market
        >>> env = TradingEnv(synthetic_market(2, 2_000), 4, emit=["index"], compiled=False)
        >>> env = TransformedEnv(env, Signals.of(env))
        >>> env.rollout(3)["signals", "trend"].shape
        torch.Size([4, 3, 1])
    """

    table: Tensor

    def __init__(self, signals: Mapping[str, Tensor]) -> None:
        if not signals:
            raise ValueError("signals has no signal: give at least one, by name")
        shapes = {name: list(each.shape) for name, each in signals.items()}
        first = next(iter(shapes.values()))
        for name, shape in shapes.items():
            if shape != first or len(shape) != 2:
                raise ValueError(
                    f"signals are [T, S] each, all of one shape; {name} is {shape}, the first"
                    f" {first}"
                )
            if not bool(signals[name].isfinite().all()):
                bad = (~signals[name].isfinite()).nonzero()[0].tolist()
                raise ValueError(f"signal {name} is not finite at bar {bad[0]}, symbol {bad[1]}")
        super().__init__(
            in_keys=[("market", "symbol"), ("market", "bar")],
            out_keys=[("signals", name) for name in signals],
        )
        self.bars, self.names = first[0], list(signals)
        table = torch.stack([each.T.flatten() for each in signals.values()], -1).float()
        self.register_buffer("table", table, persistent=False)

    @classmethod
    def of(cls, env: TradingEnv) -> Signals:
        """Those of an environment's market, see :func:`signals_of`."""
        refuse_without_index(env)
        return cls(signals_of(env.market))

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        symbol, bar = (next_tensordict.get(key) for key in self.in_keys)
        row = symbol.long() * self.bars + bar.long()
        found = self.table.index_select(0, row.flatten()).view(*row.shape, -1)
        named = dict(zip(self.names, found.unbind(-1), strict=True))
        # All at once: as many keys one after the other take longer than to look them up.
        whole = {"batch_size": next_tensordict.batch_size, "device": next_tensordict.device}
        return next_tensordict.set("signals", TensorDict._new_unsafe(named, **whole))

    def transform_observation_spec(self, observation_spec: TensorSpec) -> TensorSpec:
        """Adds the signals."""
        shape = observation_spec[self.in_keys[0]].shape
        for key in self.out_keys:
            observation_spec[key] = Unbounded(
                shape, device=observation_spec.device, dtype=torch.float32
            )
        return observation_spec
