"""gym-trading-env: one environment, or Stable-Baselines3's DummyVecEnv of `--batch` of them."""

import warnings
from collections.abc import Callable
from importlib.metadata import version
from itertools import cycle, islice

import gym_trading_env  # noqa: F401  (registers the environments)
import gymnasium
import numpy as np
import pandas as pd
from market import MarketArrays, read_market
from server import argument_parser, serve

# The package turns every warning of the process into an error when it is imported.
warnings.resetwarnings()
warnings.simplefilter("ignore")

POSITIONS = [-1, 0, 1]


def frame_of(market: MarketArrays, symbol: int, features: int) -> pd.DataFrame:
    """One symbol in the form the environment wants: dated rows, `feature_*` columns."""
    columns = {
        name: getattr(market, name)[symbol] for name in ("open", "high", "low", "close", "volume")
    }
    for k in range(features):
        columns[f"feature_{k}"] = market.features[symbol, :, k]
    dates = pd.date_range("2020-01-01", periods=market.close.shape[1], freq="h")
    return pd.DataFrame(columns, index=dates)


def single(make: Callable[[], gymnasium.Env], rng: np.random.Generator) -> Callable[[int], None]:
    """Steps one environment."""
    env = make().unwrapped
    actions = cycle(rng.integers(0, len(POSITIONS), 65_536).tolist())
    env.reset(seed=0)

    def run(iterations: int) -> None:
        step = env.step
        for action in islice(actions, iterations):
            _, _, terminated, truncated, _ = step(action)
            if terminated or truncated:
                env.reset()

    return run


def vectorised(
    make: Callable[[], gymnasium.Env], batch: int, rng: np.random.Generator
) -> Callable[[int], None]:
    """Steps `batch` environments through Stable-Baselines3, which resets them itself."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = DummyVecEnv([make] * batch)
    actions = cycle(list(rng.integers(0, len(POSITIONS), (4_096, batch))))
    env.reset()

    def run(iterations: int) -> None:
        step = env.step
        for action in islice(actions, iterations):
            step(action)

    return run


def main() -> None:
    """Builds the environment and serves measurements."""
    parser = argument_parser(__doc__)
    parser.add_argument("--episode", type=int, default=0, help="bars; 0 is the whole market")
    arguments = parser.parse_args()
    frame = frame_of(read_market(arguments.market), 0, arguments.features)

    def make() -> gymnasium.Env:
        return gymnasium.make(
            "TradingEnv",
            df=frame,
            positions=POSITIONS,
            trading_fees=3e-4,
            windows=arguments.window if arguments.window > 1 else None,
            max_episode_duration=arguments.episode or "max",
            verbose=0,
        )

    rng = np.random.default_rng(arguments.seed)
    if arguments.batch == 1:
        run, peer = single(make, rng), "gym-trading-env"
    else:
        run, peer = vectorised(make, arguments.batch, rng), "SB3 DummyVecEnv"
    serve(
        run,
        peer=peer,
        variant=arguments.variant or f"{arguments.batch} x gym-trading-env",
        version=version("gym-trading-env" if arguments.batch == 1 else "stable-baselines3"),
        batch=arguments.batch,
        window=arguments.window,
        features=arguments.features,
        bytes_per_frame=(arguments.features + 2) * arguments.window * 4 + 4 + 2,
    )


if __name__ == "__main__":
    main()
