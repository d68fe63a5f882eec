"""gym-anytrading's StocksEnv: the price and its difference in a window, buy or sell."""

from importlib.metadata import version
from itertools import cycle, islice

import numpy as np
import pandas as pd
from gym_anytrading.envs import StocksEnv
from market import read_market
from server import argument_parser, serve


def main() -> None:
    """Builds the environment and serves measurements."""
    parser = argument_parser(__doc__)
    arguments = parser.parse_args()
    market = read_market(arguments.market)
    frame = pd.DataFrame(
        {
            name.capitalize(): getattr(market, name)[0]
            for name in ("open", "high", "low", "close", "volume")
        }
    )
    env = StocksEnv(frame, arguments.window, (arguments.window, len(frame)))
    rng = np.random.default_rng(arguments.seed)
    actions = cycle(rng.integers(0, 2, 65_536).tolist())
    env.reset(seed=0)

    def run(iterations: int) -> None:
        step = env.step
        for action in islice(actions, iterations):
            _, _, terminated, truncated, _ = step(action)
            if terminated or truncated:
                env.reset()

    serve(
        run,
        peer="gym-anytrading",
        variant=arguments.variant or "StocksEnv",
        version=version("gym-anytrading"),
        batch=1,
        window=arguments.window,
        features=2,
        bytes_per_frame=2 * arguments.window * 4 + 4 + 2,
    )


if __name__ == "__main__":
    main()
