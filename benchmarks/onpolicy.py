"""PPO's frames a second, collecting and learning: ours, TorchRL's and Stable-Baselines3's.

    python benchmarks/onpolicy.py                  # ten minutes
    python benchmarks/onpolicy.py --quick          # short rounds, for a look

All train on the same environment, long and short on the synthetic market, with networks, rollout,
epochs, minibatch, precision and threads alike: a rollout of 4,096 frames, four epochs, minibatches
of 1,024. Stable-Baselines3 runs as its users have it, on 16 single accounts in a vector of its own,
one stepped after the other; and beside that with accounts stepped by our environment as one batch,
16 by 256 steps and 256 by 16, through an adapter (`accounts.py`) that neither library has. Ours is
the loop of `recipes/onpolicy.py` with its checks for broken numbers; TorchRL's is its `Collector`,
`GAE` and `ClipPPOLoss`. Then ours with more accounts, and minibatches as many times as large.

A round measures each of them once, in shuffled order, every time in a new process. The table shows
medians over the rounds; building, compiling and the first rollouts are not counted.
"""

import argparse
import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import isfinite, isnan
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
from accounts import Accounts
from environment import busy, markdown, quartiles_of
from tensordict.nn import TensorDictModule
from torchrl import torchrl_logger
from torchrl.collectors import Collector
from tqdm import tqdm

from trading_torchrl.data import synthetic_market
from trading_torchrl.descent import Adam, differentiate, norm_of
from trading_torchrl.envs import LONG_SHORT, TradingEnv
from trading_torchrl.envs.gym import GymView, VectorGymView
from trading_torchrl.machine import processor, set_precision
from trading_torchrl.modules import follow_slowly, make_actor, make_value, moving
from trading_torchrl.monitoring import broken
from trading_torchrl.objectives import PPOLoss

HIDDEN, EPOCHS, GAMMA, LAMBDA, CLIP, RATE, LONGEST = [64, 64], 4, 0.95, 0.95, 0.2, 3e-4, 0.5
WARM_UP = 3
"""Rollouts that are not counted."""

Run = Callable[[], int]
"""One rollout and all that is learned from it; how many frames it had."""


@dataclass(frozen=True)
class Shape:
    """Of a rollout."""

    accounts: int
    steps: int
    minibatch: int


def environment(accounts: int, **settings: Any) -> TradingEnv:
    """Long and short, episodes as the recipe has them."""
    market = synthetic_market(symbols=8, bars=8_000, seed=0)
    return TradingEnv(market, accounts, **LONG_SHORT, **settings)


def account(number: int) -> GymView:
    """A single one."""
    return GymView(environment(1, first_account=number))


def networks(width: int) -> tuple[TensorDictModule, TensorDictModule]:
    """Actor and critic."""
    return make_actor(width, 1, HIDDEN, std=0.5), make_value(width, 1, HIDDEN)


def collector_of(env: TradingEnv, actor: TensorDictModule, shape: Shape) -> Collector:
    """As the recipe has it."""
    return Collector(
        env, actor, frames_per_batch=shape.accounts * shape.steps, total_frames=-1,
        trust_policy=True, track_traj_ids=False, auto_register_policy_transforms=False,
    )  # fmt: skip


def ours(shape: Shape) -> Run:
    """The loop of `recipes/onpolicy.py`."""
    env = environment(shape.accounts)
    actor, critic = networks(len(env.observation_names))
    loss = PPOLoss(actor, critic, gamma=GAMMA, lmbda=LAMBDA, clip=CLIP)
    averaged, _ = networks(len(env.observation_names))
    both = moving(averaged.requires_grad_(False)), moving(actor)
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = Adam(trained, lr=RATE, eps=1e-5)
    batches = iter(collector_of(env, actor, shape))

    def run() -> int:
        rows = next(batches).copy()
        wrong = broken({"reward": rows["next", "reward"]})
        rows = loss.estimate(rows).select(*loss.in_keys).reshape(-1)
        for _ in range(EPOCHS):
            for some in torch.randperm(len(rows)).split(shape.minibatch):
                losses = loss(rows[some])
                total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                if wrong or isnan(differentiate(total, trained, LONGEST)):
                    raise ArithmeticError("a loss, its gradient or a reward is not finite")
                optimizer.step()
                follow_slowly(*both, 1.0)
        if not isfinite(norm_of(trained)):
            raise ArithmeticError("a parameter is not finite")
        return len(rows)

    gc.freeze()
    return run


def torchrl_ppo(shape: Shape) -> Run:
    """TorchRL's estimator and loss on our environment and networks."""
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    env = environment(shape.accounts)
    actor, critic = networks(len(env.observation_names))
    loss = ClipPPOLoss(
        actor, critic, clip_epsilon=CLIP, entropy_coeff=0.0, critic_coeff=0.5,
        loss_critic_type="l2", normalize_advantage=True,
    )  # fmt: skip
    estimate = GAE(gamma=GAMMA, lmbda=LAMBDA, value_network=critic)
    optimizer = torch.optim.Adam(loss.parameters(), lr=RATE, eps=1e-5, fused=True)
    batches = iter(collector_of(env, actor, shape))
    trained = [each for group in optimizer.param_groups for each in group["params"]]

    def run() -> int:
        rows = next(batches)
        with torch.no_grad():
            policy = actor.get_dist(rows.select(*actor.in_keys))
            rows["action_log_prob"] = policy.log_prob(rows["action"])
            estimate(rows)
        rows = rows.reshape(-1)
        for _ in range(EPOCHS):
            for some in torch.randperm(len(rows)).split(shape.minibatch):
                losses = loss(rows[some])
                total = losses["loss_objective"] + losses["loss_critic"]
                optimizer.zero_grad()
                total.backward()
                torch.nn.utils.clip_grad_norm_(trained, LONGEST)
                optimizer.step()
        return len(rows)

    return run


def sb3(shape: Shape, *, single: bool = False) -> Run:
    """Stable-Baselines3's rollout and `train`, on single accounts or on one batch of them."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import CallbackList
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

    accounts: VecEnv = (
        DummyVecEnv([partial(account, number) for number in range(shape.accounts)])
        if single
        else Accounts(VectorGymView(environment(shape.accounts)), 1.0)
    )
    model = PPO(
        "MlpPolicy", accounts, n_steps=shape.steps, batch_size=shape.minibatch, n_epochs=EPOCHS,
        gamma=GAMMA, gae_lambda=LAMBDA, clip_range=CLIP, learning_rate=RATE, device="cpu",
        max_grad_norm=LONGEST,
        policy_kwargs={"net_arch": HIDDEN, "activation_fn": torch.nn.ReLU},
    )  # fmt: skip
    model.set_logger(Logger(folder=None, output_formats=[]))
    _, callback = model._setup_learn(10**9, CallbackList([]))
    model._current_progress_remaining = 1.0

    def run() -> int:
        collected = model.collect_rollouts(
            accounts, callback, model.rollout_buffer, n_rollout_steps=shape.steps
        )
        assert collected
        model.train()
        return shape.accounts * shape.steps

    return run


MATCHED, USUAL = Shape(256, 16, 1_024), Shape(16, 256, 1_024)
OURS, TORCHRL = "ours", "TorchRL"
SB3, SB3_16, SB3_256 = "SB3", "SB3 on our batch of 16", "SB3 on our batch of 256"
CONTESTANTS: dict[str, Callable[[], Run]] = {
    SB3: partial(sb3, USUAL, single=True),
    SB3_16: partial(sb3, USUAL),
    SB3_256: partial(sb3, MATCHED),
    TORCHRL: partial(torchrl_ppo, MATCHED),
    OURS: partial(ours, MATCHED),
    "ours, 1,024 accounts": partial(ours, Shape(1_024, 16, 4_096)),
    "ours, 4,096 accounts": partial(ours, Shape(4_096, 16, 16_384)),
    "ours, 16,384 accounts": partial(ours, Shape(16_384, 16, 65_536)),
}
BEST = [name for name in CONTESTANTS if name.startswith(OURS)]
AT_MATCHED, AT_BEST = 2.5, 4.0


def measure(name: str, threads: int, precision: str, seconds: float) -> float:
    """Frames a second."""
    torchrl_logger.setLevel("WARNING")
    torch.set_num_threads(threads)
    set_precision(precision)
    torch.manual_seed(0)
    run = CONTESTANTS[name]()
    for _ in range(WARM_UP):
        run()
    frames, began = 0, time.perf_counter()
    while (taken := time.perf_counter() - began) < seconds:
        frames += run()
    return frames / taken


def race(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Frames a second of all, in interleaved rounds, every time in a new process."""
    # Read when a process starts, so before there is one.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(arguments.threads)
    shuffle, found = random.Random(0).shuffle, {name: list[float]() for name in CONTESTANTS}
    given = arguments.threads, arguments.precision, arguments.seconds
    with tqdm(total=arguments.rounds * len(found), desc="measurements") as progress:
        for _ in range(arguments.rounds):
            order = list(found)
            shuffle(order)
            for name in order:
                progress.set_postfix_str(name)
                with ProcessPoolExecutor(1, get_context("spawn")) as process:
                    found[name].append(process.submit(measure, name, *given).result())
                progress.update()
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Prints both tables, writes them as markdown and JSON; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2, help="of each contestant")
    parser.add_argument("--precision", default="auto", help="of products, see docs/training.md")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--quick", action="store_true", help="1 round of 1 second")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.rounds, arguments.seconds = 1, 1.0
    before = busy()
    found = race(arguments)
    speed = {name: median(rates) for name, rates in found.items()}
    rows = [["PPO", "frames/s", "quartiles", f"x {SB3}"]]
    for name, rates in found.items():
        low, high = quartiles_of(rates)
        rows.append([name, f"{speed[name]:,.0f}", f"{low:,.0f} to {high:,.0f}",
                     f"{speed[name] / speed[SB3]:.2f}"])  # fmt: skip
    best = max(speed[name] for name in BEST)
    bars = [["bar", "at least", "measured", ""]]
    for peer in (SB3, SB3_16, SB3_256):
        for said, rate, bar in (
            (OURS, speed[OURS], AT_MATCHED),
            ("ours at its best", best, AT_BEST),
        ):
            verdict = "reached" if rate / speed[peer] >= bar else "MISSED"
            bars.append([f"{said} over {peer}", f"{bar:g}", f"{rate / speed[peer]:.2f}", verdict])
    note = (
        f"{arguments.rounds} rounds of {arguments.seconds:g} s, {arguments.threads} thread(s),"
        f" {processor()}, {os.cpu_count()} cores, torch {torch.__version__}; {before} processes"
        " wanted a core in the minute before."
    )
    text = "\n\n".join([markdown(rows), markdown(bars), note])
    print(f"\n{text}")
    arguments.output.with_suffix(".md").write_text(text + "\n")
    told: dict[str, Any] = {"frames_per_second": found, "bars": bars, "note": note}
    arguments.output.write_text(json.dumps(told, indent=1) + "\n")
    return int(any(row[-1] == "MISSED" for row in bars))


if __name__ == "__main__":
    sys.exit(main())
