"""Our `TradingEnv` as a contestant; run by `environment.py`, see `server.py` for the protocol.

    python benchmarks/ours.py --market FILE --batch 4096 --loop collector --emit everything

* `--loop step`: the environment stepped directly; `--loop collector`: through a Collector.
* `--emit minimum`: market features, account values, reward and equity; `--emit everything`: every
  value the environment can emit besides; `--emit packed`: the same, packed (`packed=True`) and, in
  what a Collector brings, named again.
* `--window`: bars in one observation, rebuilt at every step; 1 is no window.
* `--assets`: symbols an account holds.
"""

from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from market import MarketArrays, read_market
from server import argument_parser, serve
from tensordict import TensorDictBase
from torchrl.collectors import Collector
from torchrl.envs import EnvBase, TransformedEnv

from trading_torchrl.data import Market
from trading_torchrl.envs import MarketWindow, TradingEnv

HOUR = 3_600_000_000_000
DRAWN = 16


class Drawn:
    """A policy whose random actions were drawn in advance."""

    def __init__(self, env: EnvBase) -> None:
        self.actions = [2 * torch.rand(env.action_spec.shape) - 1 for _ in range(DRAWN)]
        self.turn = 0

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Writes the next of them."""
        self.turn = (self.turn + 1) % DRAWN
        return tensordict.set("action", self.actions[self.turn])


def market_of(arrays: MarketArrays) -> Market:
    """The benchmark's arrays as a market, their features taken as they are."""

    def tensor(array: Any) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array.swapaxes(0, 1)))

    features = tensor(arrays.features)
    return Market(
        symbols=tuple(f"S{symbol}" for symbol in range(len(arrays.close))),
        timestamps=torch.arange(features.shape[0]) * HOUR,
        open=tensor(arrays.open),
        high=tensor(arrays.high),
        low=tensor(arrays.low),
        close=tensor(arrays.close),
        volume=tensor(arrays.volume),
        bars_per_year=1638.0,
        features=features,
        feature_names=tuple(f"f{k}" for k in range(features.shape[-1])),
    )


def main() -> None:
    """Builds the environment and serves measurements."""
    parser = argument_parser(__doc__)
    parser.add_argument("--loop", choices=("step", "collector"), default="step")
    parser.add_argument("--emit", choices=("minimum", "everything", "packed"), default="minimum")
    parser.add_argument("--assets", type=int, default=1)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)

    symbols = max(arguments.symbols, arguments.assets)
    market = market_of(read_market(arguments.market).first(symbols))
    env: EnvBase
    env = base = TradingEnv(
        market,
        arguments.batch,
        assets=arguments.assets,
        emit=("equity",) if arguments.emit == "minimum" else "all",
        packed=arguments.emit == "packed",
        window=arguments.window if arguments.window > 1 else None,
        seed=arguments.seed,
    )
    if arguments.window > 1:
        env = TransformedEnv(base, MarketWindow.of(base))
    policy = Drawn(env)
    seen = env.rollout(2, policy)["next"][:, 0]
    batch = arguments.batch

    if arguments.loop == "collector":
        length = max(8, min(64, 65_536 // batch))
        batch *= length
        collector = Collector(
            env,
            policy,
            frames_per_batch=batch,
            total_frames=-1,
            device="cpu",
            trust_policy=True,
            track_traj_ids=False,
            auto_register_policy_transforms=False,
            use_buffers=True,
            compact_obs=arguments.batch >= 4_096,
        )
        batches = iter(collector)

        def run(iterations: int) -> None:
            for _ in range(iterations):
                base.give_names(next(batches))

    else:
        following = env.reset()

        def run(iterations: int) -> None:
            nonlocal following
            for _ in range(iterations):
                _, following = env.step_and_maybe_reset(policy(following))

    serve(
        run,
        peer="ours",
        variant=f"{arguments.loop}, {arguments.emit}, {arguments.assets} asset(s)",
        version=version("trading-torchrl"),
        batch=batch,
        window=arguments.window,
        features=arguments.features,
        bytes_per_frame=seen.bytes() // arguments.batch,
        account_bytes=base.account_bytes,
        compiled=base.compiled,
    )


if __name__ == "__main__":
    main()
