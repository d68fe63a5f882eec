from collections.abc import Callable

import pytest
import torch

from trading_torchrl.data.market import Market

HOUR = 3_600_000_000_000
MONDAY = 946_857_600_000_000_000  # 2000-01-03 00:00 UTC


def random_market(
    bars: int = 200, symbols: int = 2, seed: int = 0, price: float = 100.0, volatility: float = 0.01
) -> Market:
    """Random walks with gaps, valid in every way."""
    generator = torch.Generator().manual_seed(seed)

    def noise(scale: float) -> torch.Tensor:
        drawn = torch.randn(bars, symbols, generator=generator, dtype=torch.float64)
        return drawn * scale

    close = price * noise(volatility).cumsum(0).exp()
    open_ = torch.cat([close[:1], close[:-1]]) * noise(volatility / 5).exp()
    return Market(
        symbols=tuple(f"S{symbol}" for symbol in range(symbols)),
        timestamps=MONDAY + torch.arange(bars) * HOUR,
        open=open_,
        high=torch.maximum(open_, close) * noise(volatility / 2).abs().exp(),
        low=torch.minimum(open_, close) / noise(volatility / 2).abs().exp(),
        close=close,
        volume=1_000 * noise(1.0).exp(),
        bars_per_year=252.0,
    )


@pytest.fixture
def make_market() -> Callable[..., Market]:
    return random_market
