"""What a step looks up of the market beside the features, a row a bar, nothing from later bars."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
import torch
from torch import Tensor

from trading_torchrl.data.market import Market

RANGE_BARS = 20
MOMENTUM_BARS = 10
VOLATILITY_DECAY = 0.94


def columns_for(market: Market, margin: bool) -> tuple[str, ...]:
    """Names of the price columns that a step looks up.

    Args:
        market: what is traded; where every bar has volume, none is looked up.
        margin: whether accounts can be liquidated within a bar.
    """
    columns = ["open", "close"]
    if margin:
        columns += ["high", "low"]
    if not bool((market.volume > 0).all()):
        columns += ["fill_volume", "volume"] if margin else ["fill_volume"]
    return tuple(columns)


def measures_for(wanted: Collection[str]) -> tuple[str, ...]:
    """Names of the measures that these emitted values look up.

    They stand beside the features, float32, in the row that is read for the observation anyway.
    """
    measures = []
    asked = set(wanted)
    if asked & {"volatility", "var95", "objectives"}:
        measures.append("volatility")
    if asked & {"entry_quality", "exit_quality", "objectives"}:
        measures.append("cheapness")
    if asked & {"momentum", "objectives"}:
        measures.append("momentum")
    return tuple(measures)


def column(market: Market, name: str, fill: str) -> Tensor:
    """One column, float64 ``[T, S]``.

    - the bars themselves: ``open``, ``high``, ``low``, ``close``, ``volume``;
    - ``fill_volume``: of the bar an order fills in, which is the bar itself for fills at its open
      and the one before for fills at that one's close;
    - ``volatility``: exponentially weighted deviation of a bar's log return, this bar included;
    - ``cheapness``: where the fill price lies in the range of the 20 bars before the fill, 1 at
      their low and -1 at their high;
    - ``momentum``: 10-bar log return known before the fill, in units of its volatility, in [-1, 1].
    """
    if name == "fill_volume":
        volume = market.volume.double()
        return volume if fill == "next_open" else _previous(volume)
    if name == "volatility":
        return _volatility(market)
    if name == "cheapness":
        price = market.open if fill == "next_open" else _previous(market.close)
        high, low = _previous(_highest(market.high)), -_previous(_highest(-market.low))
        return 1 - 2 * ((price - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)
    if name == "momentum":
        log = market.close.log()
        change = log - torch.cat([log[:1].expand(MOMENTUM_BARS, -1), log])[: len(market)]
        usual = _volatility(market) * MOMENTUM_BARS**0.5
        return _previous((change / usual.clamp(min=1e-12)).clamp(-1, 1))
    return getattr(market, name).double()


def _previous(values: Tensor) -> Tensor:
    return torch.cat([values[:1], values[:-1]])


def _highest(values: Tensor) -> Tensor:
    """Maximum of the last 20 bars, fewer at the start."""
    padded = torch.cat([values[:1].expand(RANGE_BARS - 1, -1), values])
    return padded.unfold(0, RANGE_BARS, 1).amax(-1)


def _volatility(market: Market) -> Tensor:
    returns = market.close.log().diff(dim=0, prepend=market.close[:1].log())
    frame = pd.DataFrame(returns.cpu().numpy() ** 2)
    variance = frame.ewm(alpha=1 - VOLATILITY_DECAY).mean().to_numpy(copy=True)
    return torch.from_numpy(variance).to(market.close).sqrt()
