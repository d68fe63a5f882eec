"""FinRL's StockTradingEnv, with one stock or many."""

import importlib.util
import sys
import types
from importlib.metadata import version
from itertools import cycle, islice

import numpy as np
import pandas as pd
from market import MarketArrays, read_market
from server import argument_parser, serve


def stock_trading_env() -> type:
    """Imports the environment without the data downloaders its package imports first."""
    found = importlib.util.find_spec("finrl")
    if found is None or found.submodule_search_locations is None:
        raise ModuleNotFoundError("finrl is not installed")
    package = types.ModuleType("finrl")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["finrl"] = package
    from finrl.meta.env_stock_trading.env_stocktrading import StockTradingEnv

    return StockTradingEnv


def frame_of(market: MarketArrays, stocks: int, features: int, bars: int) -> pd.DataFrame:
    """The long form FinRL wants: a row for each day and stock, indexed by the day's number."""
    days = pd.date_range("2009-01-01", periods=bars, freq="D").strftime("%Y-%m-%d")
    columns: dict[str, object] = {
        "date": np.repeat(days.to_numpy(), stocks),
        "tic": np.tile([f"S{s:02d}" for s in range(stocks)], bars),
    }
    for name in ("open", "high", "low", "close", "volume"):
        columns[name] = getattr(market, name)[:stocks, :bars].T.reshape(-1)
    for k in range(features):
        columns[f"feature_{k}"] = market.features[:stocks, :bars, k].T.reshape(-1).astype(float)
    return pd.DataFrame(columns, index=np.repeat(np.arange(bars), stocks))


def main() -> None:
    """Builds the environment and serves measurements."""
    parser = argument_parser(__doc__)
    parser.add_argument("--stocks", type=int, default=1)
    # Its step looks for the distinct days of the whole frame, so it slows down with the bars.
    # Its own examples hold ten years of days; more bars would only make it look worse.
    parser.add_argument("--bars", type=int, default=2_520)
    arguments = parser.parse_args()
    stocks, features = arguments.stocks, arguments.features
    market = read_market(arguments.market)
    bars = min(arguments.bars, market.close.shape[1])
    state = 1 + 2 * stocks + features * stocks
    env = stock_trading_env()(
        df=frame_of(market, stocks, features, bars),
        stock_dim=stocks,
        hmax=100,
        initial_amount=1_000_000,
        num_stock_shares=[0] * stocks,
        buy_cost_pct=[3e-4] * stocks,
        sell_cost_pct=[3e-4] * stocks,
        reward_scaling=1e-4,
        state_space=state,
        action_space=stocks,
        tech_indicator_list=[f"feature_{k}" for k in range(features)],
        print_verbosity=10**9,
    )
    rng = np.random.default_rng(arguments.seed)
    actions = cycle(list(rng.uniform(-1.0, 1.0, (16_384, stocks)).astype(np.float32)))
    env.reset()

    def run(iterations: int) -> None:
        step = env.step
        for action in islice(actions, iterations):
            _, _, terminated, truncated, _ = step(action)
            if terminated or truncated:
                env.reset()

    serve(
        run,
        peer="FinRL",
        variant=arguments.variant or f"StockTradingEnv, {stocks} stock(s)",
        version=version("finrl"),
        batch=1,
        window=1,
        features=features,
        # The state is a list of Python floats; counted as the 8 bytes of their values.
        bytes_per_frame=state * 8 + 8 + 2,
        bars=bars,
    )


if __name__ == "__main__":
    main()
