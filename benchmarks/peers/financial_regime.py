"""TorchRL's FinancialRegimeEnv, which draws its own prices and therefore reads no market."""

from importlib.metadata import version
from itertools import cycle, islice

import torch
from server import argument_parser, serve
from tensordict import TensorDict, TensorDictBase
from torchrl.envs import FinancialRegimeEnv


class BatchedFinancialRegimeEnv(FinancialRegimeEnv):
    """The same environment, with a reset that takes a batch.

    The original uses the batched parameter `window_size` as one number.
    """

    def _reset_random_data(
        self, shape: torch.Size, batch_size: torch.Size, params: TensorDictBase
    ) -> TensorDictBase:
        one = TensorDict(dict(params.items()))
        one["window_size"] = params["window_size"].reshape(-1)[0]
        drawn = super()._reset_random_data(shape, torch.Size([]), one)
        del drawn["params"]
        drawn.batch_size = batch_size
        drawn["params"] = params
        return drawn


def main() -> None:
    """Builds the environment and serves measurements."""
    parser = argument_parser(__doc__)
    arguments = parser.parse_args()
    env = BatchedFinancialRegimeEnv(seed=arguments.seed, window_size=arguments.window)
    generator = torch.Generator().manual_seed(arguments.seed)
    actions = cycle(torch.randint(3, (64, arguments.batch, 1), generator=generator).unbind(0))
    state = env.reset(env.gen_params(batch_size=[arguments.batch], window_size=arguments.window))

    @torch.no_grad()
    def run(iterations: int) -> None:
        nonlocal state
        for action in islice(actions, iterations):
            state["action"] = action
            _, state = env.step_and_maybe_reset(state)

    serve(
        run,
        peer="TorchRL",
        variant=arguments.variant or "FinancialRegimeEnv, reset patched",
        version=version("torchrl"),
        batch=arguments.batch,
        window=arguments.window,
        features=1,
        bytes_per_frame=arguments.window * 4 + 1 + 4 + 8 + 4 + 3,
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
