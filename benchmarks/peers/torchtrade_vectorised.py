"""TorchTrade's VectorizedSequentialTradingEnv, stepped directly."""

from importlib.metadata import version
from itertools import cycle, islice

import pandas as pd
import torch
from market import read_market
from server import argument_parser, serve
from tensordict import TensorDict
from torchtrade.envs.offline import (
    VectorizedSequentialTradingEnv,
    VectorizedSequentialTradingEnvConfig,
)

LEVELS = [0.0, 0.5, 1.0]


def main() -> None:
    """Builds the environment and serves measurements."""
    parser = argument_parser(__doc__)
    arguments = parser.parse_args()
    market = read_market(arguments.market)
    columns = {
        name: getattr(market, name)[0] for name in ("open", "high", "low", "close", "volume")
    }
    for k in range(arguments.features):
        columns[f"features_{k}"] = market.features[0, :, k]
    frame = pd.DataFrame(columns)
    frame["timestamp"] = pd.date_range("2020-01-01", periods=len(frame), freq="min")
    env = VectorizedSequentialTradingEnv(
        frame,
        VectorizedSequentialTradingEnvConfig(
            num_envs=arguments.batch,
            time_frames=["1min"],
            window_sizes=[arguments.window],
            execute_on="1min",
            action_levels=LEVELS,
            transaction_fee=3e-4,
            max_traj_length=500,
            seed=arguments.seed,
        ),
        feature_preprocessing_fn=lambda rows: rows.reset_index(),
    )
    generator = torch.Generator().manual_seed(arguments.seed)
    actions = cycle(
        torch.randint(len(LEVELS), (64, arguments.batch), generator=generator).unbind(0)
    )
    state = env.reset()

    @torch.no_grad()
    def run(iterations: int) -> None:
        nonlocal state
        for action in islice(actions, iterations):
            state["action"] = action
            state = env.step(state)["next"]
            done = state["done"]
            if done.any():
                state = env.reset(TensorDict({"_reset": done}, batch_size=[arguments.batch]))

    serve(
        run,
        peer="TorchTrade",
        variant=arguments.variant or f"vectorised, window {arguments.window}",
        version=version("torchtrade"),
        batch=arguments.batch,
        window=arguments.window,
        features=arguments.features,
        bytes_per_frame=arguments.window * arguments.features * 4 + 6 * 4 + 4 + 3,
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
