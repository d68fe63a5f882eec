"""One account in plain decimal arithmetic: what the batched environment must come to.

Scalar, slow and to be read next to the rules; it shares no code with the package. All money is
`Decimal` with 50 digits, so a comparison shows the environment's rounding and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext

DIGITS = 50
ZERO, ONE = Decimal(0), Decimal(1)
# Below this an unrealised profit is the rounding of the fiftieth digit.
NOTHING = Decimal("1e-30")

HOLD, BUY_SMALL, BUY_MEDIUM, BUY_LARGE, SELL_PARTIAL, SELL_ALL, ADD_TO_WINNER = range(7)
SIZES = [Decimal(size) for size in ("0", "0.25", "0.55", "0.85", "-0.5", "-1", "0.4")]


@dataclass(frozen=True)
class Rules:
    """What the environment's constructor takes; numbers may be given as floats."""

    mode: str
    short: bool
    fill: str
    cash: Decimal
    cap: Decimal
    commission: Decimal
    slippage: Decimal
    spread: Decimal
    borrow_rate: Decimal
    bars_per_year: Decimal
    leverage: Decimal
    maintenance: Decimal
    min_trade: Decimal
    smoothing: int
    exposure: Decimal | None = None
    drawdown: Decimal | None = None
    daily_loss: Decimal | None = None
    daily_trades: int | None = None
    repeats: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float):
                object.__setattr__(self, name, Decimal(value))

    @property
    def margin(self) -> bool:
        return self.short or self.leverage > 1

    @property
    def carries(self) -> Decimal:
        """Gross exposure a trade may lead to, as a multiple of equity."""
        return self.leverage if self.exposure is None else min(self.leverage, self.exposure)

    @property
    def cost(self) -> Decimal:
        return self.commission + self.slippage + self.spread / 2


@dataclass(frozen=True)
class Candle:
    """One bar of one asset."""

    open: Decimal
    high: Decimal
    low: Decimal
    close: Decimal
    volume: Decimal
    day: int


@dataclass
class Holding:
    """What an account has of one asset, and what it remembers about it."""

    units: Decimal = ZERO
    paid: Decimal = ZERO
    """for the units held, negative when short: units x average entry price"""
    smoothed: Decimal = ZERO
    last_name: int | None = None
    in_a_row: int = 0

    def gain(self, price: Decimal) -> Decimal:
        return self.units * price - self.paid


@dataclass
class Order:
    """Money at the fill price: a part that shrinks a position and a part that grows one."""

    name: int
    sign: int = 0
    shrink: Decimal = ZERO
    grow: Decimal = ZERO
    close: bool = False


@dataclass
class Result:
    """An account after a bar; `realised`, `traded`, `trades` and `fees` are of this bar."""

    equity: Decimal = ZERO
    cash: Decimal = ZERO
    fees: Decimal = ZERO
    units: list[Decimal] = field(default_factory=list)
    realised: list[Decimal] = field(default_factory=list)
    unrealised: list[Decimal] = field(default_factory=list)
    traded: list[Decimal] = field(default_factory=list)
    trades: list[int] = field(default_factory=list)
    terminated: bool = False


class Account:
    """Cash and positions in a few assets, stepped from close to close."""

    def __init__(self, rules: Rules, assets: int, day: int) -> None:
        self.rules = rules
        self.cash = self.equity = self.peak = self.day_equity = rules.cash
        self.holdings = [Holding() for _ in range(assets)]
        self.day, self.day_trades = day, 0
        self.stopped = False

    def step(
        self, actions: Sequence[float], before: Sequence[Candle], bar: Sequence[Candle]
    ) -> Result:
        """From the close of `before` to the close of `bar`; discrete actions are names."""
        with localcontext() as context:
            context.prec = DIGITS
            return self._step(actions, before, bar)

    def _step(
        self, actions: Sequence[float], before: Sequence[Candle], bar: Sequence[Candle]
    ) -> Result:
        rules, assets = self.rules, range(len(self.holdings))
        result = Result()
        result.realised, result.traded = [ZERO for _ in assets], [ZERO for _ in assets]
        result.trades = [0 for _ in assets]

        interest = self._owed(before) * rules.borrow_rate / rules.bars_per_year
        self.cash -= interest
        result.fees += interest

        if bar[0].day != self.day:
            self.day, self.day_trades, self.day_equity = bar[0].day, 0, self.equity

        at_open = rules.fill == "next_open"
        prices = [candle.open for candle in bar] if at_open else [c.close for c in before]
        tradable = [candle.volume > 0 for candle in (bar if at_open else before)]
        orders = [self._read(i, actions[i], prices, before[i].close) for i in assets]
        names = [order.name for order in orders]
        self._limit(orders)
        if rules.margin and self._excess_margin(prices) < 0:
            orders = [Order(name, close=True) for name in names]

        # From here on only what will be done, so that nothing is paid from a sale that fails.
        for i, order in enumerate(orders):
            held = abs(self.holdings[i].units * prices[i])
            order.close = order.close or (0 < held <= order.shrink and not order.grow)
            if order.close:
                order.shrink, order.grow = held, ZERO
            too_small = not order.close and not order.grow and order.shrink < rules.min_trade
            if not tradable[i] or too_small:
                orders[i] = Order(order.name)
        self._fund(orders, prices)
        for i, order in enumerate(orders):
            if order.shrink + order.grow < rules.min_trade and not order.close:
                continue
            change = order.sign * (order.shrink + order.grow) / prices[i]
            target = ZERO if order.close else self.holdings[i].units + change
            self._trade(i, target, prices[i], result)

        if rules.margin:
            self._liquidate(bar, result)

        for i, holding in enumerate(self.holdings):
            if result.trades[i]:
                self.day_trades += 1
                holding.in_a_row = holding.in_a_row + 1 if names[i] == holding.last_name else 1
                holding.last_name = names[i]
        closes = [candle.close for candle in bar]
        self.equity = self._worth(closes)
        self.peak = max(self.peak, self.equity)
        result.equity, result.cash = self.equity, self.cash
        result.units = [holding.units for holding in self.holdings]
        result.unrealised = [
            holding.gain(price) for holding, price in zip(self.holdings, closes, strict=True)
        ]
        floor = max(rules.min_trade, Decimal("1e-6") * rules.cash)
        result.terminated = self.equity <= floor
        return result

    def _owed(self, bar: Sequence[Candle]) -> Decimal:
        short = sum(
            (-h.units * c.close for h, c in zip(self.holdings, bar, strict=True) if h.units < 0),
            ZERO,
        )
        return short - min(self.cash, ZERO)

    def _worth(self, prices: Sequence[Decimal]) -> Decimal:
        held = (h.units * price for h, price in zip(self.holdings, prices, strict=True))
        return self.cash + sum(held, ZERO)

    def _gross(self, prices: Sequence[Decimal]) -> Decimal:
        held = (abs(h.units) * price for h, price in zip(self.holdings, prices, strict=True))
        return sum(held, ZERO)

    def _excess_margin(self, prices: Sequence[Decimal]) -> Decimal:
        return self._worth(prices) - self.rules.maintenance * self._gross(prices)

    def _read(
        self, asset: int, action: float, prices: Sequence[Decimal], last_close: Decimal
    ) -> Order:
        """The order an action stands for, before limits."""
        rules, holding = self.rules, self.holdings[asset]
        value, equity = holding.units * prices[asset], self._worth(prices)
        if rules.mode == "discrete":
            name = int(action)
            wish = SIZES[name]
            if name == ADD_TO_WINNER:
                winner = holding.gain(last_close) > NOTHING
                wish = wish * _sign(holding.units) if winner else ZERO
            return self._continuous(Order(name), wish, value, equity, self._gross(prices))
        wish = min(ONE, max(-ONE, Decimal(action)))
        if rules.mode == "target":
            name = min(6, int((wish + 1) * 7 / 2))
            return self._target(Order(name), wish, value, equity)
        holding.smoothed += (wish - holding.smoothed) * 2 / (rules.smoothing + 1)
        wish = holding.smoothed
        return self._continuous(Order(_bin(wish)), wish, value, equity, self._gross(prices))

    def _continuous(
        self, order: Order, wish: Decimal, value: Decimal, equity: Decimal, gross: Decimal
    ) -> Order:
        rules, size, held = self.rules, abs(wish), abs(value)
        if size < Decimal("0.1"):
            return order
        order.sign = _sign(wish)
        if value and order.sign != _sign(value):
            everything = size >= Decimal("0.95") or held - size * held < rules.min_trade
            order.close, order.shrink = everything, size * held
        elif order.sign > 0 or rules.short:
            available = max(ZERO, rules.carries * equity - gross)
            room = max(ZERO, rules.cap * equity - held)
            order.grow = min(size * rules.cap * available, room)
        return order

    def _target(self, order: Order, wish: Decimal, value: Decimal, equity: Decimal) -> Order:
        rules = self.rules
        wanted = wish * rules.cap * equity
        if abs(wanted) < rules.min_trade or (wanted < 0 and not rules.short):
            wanted = ZERO
        order.sign = _sign(wanted - value)
        if not wanted:
            order.close = value != 0
        elif wanted * value >= 0:
            larger = abs(wanted) - abs(value)
            order.grow, order.shrink = max(larger, ZERO), max(-larger, ZERO)
        else:
            order.grow, order.shrink = abs(wanted), abs(value)
        return order

    def _limit(self, orders: list[Order]) -> None:
        rules = self.rules
        if rules.drawdown is not None and self.equity < (1 - rules.drawdown) * self.peak:
            self.stopped = True
        blocked = self.stopped
        if rules.daily_loss is not None:
            blocked = blocked or self.equity < (1 - rules.daily_loss) * self.day_equity
        if rules.daily_trades is not None:
            blocked = blocked or self.day_trades >= rules.daily_trades
        for order, holding in zip(orders, self.holdings, strict=True):
            again = order.name == holding.last_name
            tired = rules.repeats is not None and again and holding.in_a_row >= rules.repeats
            if blocked or tired:
                order.grow = ZERO
            order.close = order.close or self.stopped

    def _fund(self, orders: list[Order], prices: Sequence[Decimal]) -> None:
        """Scales the growing parts to what the account can carry after every cost."""
        rules = self.rules

        def room(share: Decimal) -> Decimal:
            shrunk = sum((order.shrink for order in orders), ZERO)
            grown = share * sum((order.grow for order in orders), ZERO)
            equity = self._worth(prices) - rules.cost * (shrunk + grown)
            return rules.carries * equity - (self._gross(prices) - shrunk + grown)

        share = _crossing(room)
        for order in orders:
            flip = order.shrink > 0 and order.grow > 0
            order.grow *= share
            if flip and (not order.grow or order.grow < rules.min_trade):
                order.grow, order.close = ZERO, True

    def _liquidate(self, bar: Sequence[Candle], result: Result) -> None:
        def prices(pace: Decimal) -> list[Decimal]:
            worst = [
                candle.low if holding.units > 0 else candle.high
                for candle, holding in zip(bar, self.holdings, strict=True)
            ]
            return [c.open + pace * (w - c.open) for c, w in zip(bar, worst, strict=True)]

        def excess(pace: Decimal) -> Decimal:
            return self._excess_margin(prices(pace))

        if excess(ONE) >= 0:
            return
        reached = prices(_crossing(excess))
        for i, candle in enumerate(bar):
            if candle.volume > 0:
                self._trade(i, ZERO, reached[i], result)

    def _trade(self, asset: int, units: Decimal, price: Decimal, result: Result) -> None:
        holding = self.holdings[asset]
        change = units - holding.units
        result.trades[asset] += change != 0
        cost = self.rules.cost * abs(change * price)
        self.cash -= change * price + cost
        result.fees += cost
        result.traded[asset] += change * price
        closing = ZERO
        if holding.units * change < 0:
            closing = max(-abs(holding.units), -abs(change)) * _sign(holding.units)
            share = -closing / holding.units
            result.realised[asset] += share * holding.gain(price)
            holding.paid -= share * holding.paid
        holding.paid += (change - closing) * price
        holding.units = units
        if not units:
            holding.paid = ZERO


def _sign(number: Decimal) -> int:
    return (number > 0) - (number < 0)


def _bin(action: Decimal) -> int:
    """The name a continuous action counts as."""
    if abs(action) < Decimal("0.1"):
        return HOLD
    if action < 0:
        return SELL_ALL if action <= Decimal("-0.95") else SELL_PARTIAL
    if action < Decimal("0.4"):
        return BUY_SMALL
    return BUY_MEDIUM if action < Decimal("0.7") else BUY_LARGE


def _crossing(line: Callable[[Decimal], Decimal]) -> Decimal:
    """How far along [0, 1] a falling straight line stays at or above zero."""
    start, end = line(ZERO), line(ONE)
    if end >= 0:
        return ONE
    return ZERO if start < 0 else start / (start - end)
