"""The limit of one core: the smallest complete step as one compiled loop, without a framework.

One iteration is one call from Python that steps `--batch` accounts in place: action reading,
fill at the next open with costs, mark at its close, reward, restart of finished episodes and the
observation. Run by `environment.py` in a virtual environment with numba.
"""

from importlib.metadata import version
from itertools import cycle, islice

import numpy as np
from market import read_market
from numba import njit
from numpy.typing import NDArray
from server import argument_parser, serve

ACCOUNT_VALUES = 8
EPISODE_BARS = 500
INITIAL_CASH = 10_000.0
COST = 3e-4
CAP = 1.0
ALPHA = 0.5
HOLD_BELOW = 0.1
CLOSE_ABOVE = 0.95
SMALLEST_TRADE = 25.0
RISK_AVERSION = 10.0


@njit(cache=True)
def seed_restarts(seed: int) -> None:
    """Seeds the generator of the compiled code, which is not numpy's."""
    np.random.seed(seed)


@njit(cache=True, error_model="numpy", fastmath={"contract", "nsz", "reassoc", "arcp"})
def step(
    action: NDArray[np.float32],
    cash: NDArray[np.float64],
    units: NDArray[np.float64],
    smooth: NDArray[np.float64],
    equity: NDArray[np.float64],
    peak: NDArray[np.float64],
    row: NDArray[np.int64],
    age: NDArray[np.int64],
    bars: int,
    prices: NDArray[np.float64],
    table: NDArray[np.float32],
    growth: NDArray[np.float64],
    paid: NDArray[np.float64],
    observation: NDArray[np.float32],
    reward: NDArray[np.float32],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
) -> None:
    """Steps every account by one bar, restarts what is finished, writes all outputs in place.

    Three passes: one without branches, so that it vectorises and mispredicts nothing; one for
    the few accounts that ended; one that copies rows, whose cache misses overlap.
    """
    accounts = action.shape[0]
    rows, features = table.shape
    for i in range(accounts):
        row[i] += 1
        price = prices[row[i], 0]
        close = prices[row[i], 1]
        signal = ALPHA * action[i] + (1.0 - ALPHA) * smooth[i]
        smooth[i] = signal
        size = abs(signal)
        held = units[i] * price
        worth = cash[i] + held
        position = abs(held)
        added = min(size * CAP * max(0.0, worth - position), max(0.0, CAP * worth - position))
        reduced = size * position
        closes = (size >= CLOSE_ABOVE) | (position - reduced < SMALLEST_TRADE)
        reduced = position if closes else reduced
        # A closed position leaves a rounding error of either sign, which is no position.
        same_side = (held * signal >= 0.0) | (position < 1e-6)
        traded = added if same_side else reduced
        traded = traded if (size >= HOLD_BELOW) & (traded >= SMALLEST_TRADE) else 0.0
        traded = traded if worth > 0.0 else 0.0
        trade = traded if signal > 0.0 else -traded
        cost = COST * traded
        cash[i] -= trade + cost
        units[i] += trade / price
        after = cash[i] + units[i] * close
        change = after / equity[i] - 1.0
        equity[i] = after
        peak[i] = max(peak[i], after)
        growth[i] = change
        paid[i] = cost
        age[i] += 1

    for i in range(accounts):
        change = growth[i]
        ruined = equity[i] <= 0.0
        growth[i] = np.log1p(max(change, -0.999999))
        reward[i] = growth[i] - 0.5 * (RISK_AVERSION - 1.0) * change * change
        # An episode never starts so late that it meets the last bar of its symbol.
        ended = age[i] >= EPISODE_BARS
        terminated[i] = ruined
        truncated[i] = ended and not ruined
        if ruined or ended:
            start = np.random.randint(0, bars - EPISODE_BARS)
            row[i] = np.random.randint(0, rows // bars) * bars + start
            age[i] = 0
            cash[i] = INITIAL_CASH
            units[i] = 0.0
            smooth[i] = 0.0
            equity[i] = INITIAL_CASH
            peak[i] = INITIAL_CASH
            growth[i] = 0.0
            paid[i] = 0.0

    for i in range(accounts):
        seen = observation[i]
        bar = table[row[i]]
        for k in range(features):
            seen[k] = bar[k]
        cash_share = cash[i] / equity[i]
        seen[features] = 1.0 - cash_share
        seen[features + 1] = cash_share
        seen[features + 2] = equity[i] * (1.0 / INITIAL_CASH) - 1.0
        seen[features + 3] = equity[i] / peak[i] - 1.0
        seen[features + 4] = smooth[i]
        seen[features + 5] = growth[i]
        seen[features + 6] = paid[i] / equity[i]
        seen[features + 7] = age[i] * (1.0 / EPISODE_BARS)


def main() -> None:
    """Builds the accounts and serves measurements."""
    arguments = argument_parser(__doc__).parse_args()
    market = read_market(arguments.market).first(arguments.symbols)
    batch, features = arguments.batch, arguments.features
    symbols, bars = market.close.shape
    table = np.ascontiguousarray(market.features[..., :features].reshape(symbols * bars, -1))
    rng = np.random.default_rng(arguments.seed)
    actions = cycle(list(rng.uniform(-1.0, 1.0, (64, batch)).astype(np.float32)))
    prices = np.stack((market.open, market.close), axis=-1).reshape(symbols * bars, 2)
    # Ages are spread over the episode, so that restarts do not all fall on one step.
    age = rng.integers(0, EPISODE_BARS, batch)
    start = rng.integers(0, bars - EPISODE_BARS, batch)
    state = (
        np.full(batch, INITIAL_CASH),
        np.zeros(batch),
        np.zeros(batch),
        np.full(batch, INITIAL_CASH),
        np.full(batch, INITIAL_CASH),
        rng.integers(0, symbols, batch) * bars + start,
        age,
    )
    outputs = (
        np.empty(batch),
        np.empty(batch),
        np.empty((batch, features + ACCOUNT_VALUES), dtype=np.float32),
        np.empty(batch, dtype=np.float32),
        np.empty(batch, dtype=np.bool_),
        np.empty(batch, dtype=np.bool_),
    )
    seed_restarts(arguments.seed)

    def run(iterations: int) -> None:
        for action in islice(actions, iterations):
            step(action, *state, bars, prices, table, *outputs)

    serve(
        run,
        peer="numba core",
        variant=arguments.variant or "one core, no framework",
        version=version("numba"),
        batch=batch,
        window=1,
        features=features,
        bytes_per_frame=(features + ACCOUNT_VALUES) * 4 + 4 + 2,
        threads=1,
        symbols=symbols,
    )


if __name__ == "__main__":
    main()
