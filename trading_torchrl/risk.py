"""Limits as pure rules. They stop an account from growing its risk, never from leaving it.

Shapes: ``[N]`` for an account, ``[N, A]`` for its assets.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from torch import Tensor


@dataclass(frozen=True)
class Limits:
    """What an account may not exceed; ``None`` is no limit.

    Args:
        exposure: gross exposure as a multiple of equity, checked at trades.
        drawdown: share of the peak; beyond it everything is closed at the next fill, and nothing
            opened until the episode ends.
        daily_loss: share of the equity at the day's start; beyond it positions may only shrink
            until the next trading day.
        daily_trades: fills a trading day; after them positions may only shrink.
        repeats: the same named trade in a row in one asset; after them it may only shrink.
    """

    exposure: float | None = None
    drawdown: float | None = None
    daily_loss: float | None = None
    daily_trades: int | None = None
    repeats: int | None = None

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            number = isinstance(limit, int | float) and not isinstance(limit, bool)
            if limit is not None and not (number and limit > 0):
                raise ValueError(f"limits: {name} must be a positive number or None, got {limit!r}")
        for name in ("drawdown", "daily_loss"):
            limit = getattr(self, name)
            if limit is not None and limit >= 1:
                raise ValueError(
                    f"limits: {name} is a share of equity below 1 (0.2 is 20 %), got {limit}"
                )

    @property
    def daily(self) -> bool:
        """Whether any limit starts anew each trading day."""
        return self.daily_loss is not None or self.daily_trades is not None


def drawdown(equity: Tensor, peak: Tensor) -> Tensor:
    """Loss from the peak, as a share of it."""
    return 1 - equity / peak


def may_grow(
    equity: Tensor, day_equity: Tensor | None, day_trades: Tensor | None, limits: Limits
) -> Tensor | None:
    """Accounts ``[N]`` whose daily limits leave room for larger positions."""
    allowed = None
    if limits.daily_loss is not None and day_equity is not None:
        allowed = equity >= (1 - limits.daily_loss) * day_equity
    if limits.daily_trades is not None and day_trades is not None:
        below = day_trades < limits.daily_trades
        allowed = below if allowed is None else allowed & below
    return allowed
