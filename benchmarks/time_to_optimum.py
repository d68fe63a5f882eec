"""Training time until a policy earns 98 % of a known optimum: ours and Stable-Baselines3's SAC.

    python benchmarks/time_to_optimum.py                # up to a quarter of an hour
    python benchmarks/time_to_optimum.py --seeds 1 --limit 20

The problem is Garleanu-Pedersen's, trading a decaying signal under quadratic costs. Ours is the
agent, the settings and the loop of `recipes/offpolicy.py env=garleanu_pedersen`: collect, keep,
learn. Stable-Baselines3 runs with its defaults on one account of the Gymnasium view, and with our
settings on as many accounts as ours.

The rule is the same for all. A policy is evaluated after every half second of training, without
exploration, on episodes that nobody trains on, the same noise for each; the clock stands still
meanwhile. The time that counts is that of the third evaluation in a row whose mean, with the two
before it, is at least 98 %. Then the policy is scored once more on fresh episodes. Runs that do not
get there within the limit of training time are not reached, and ratios to them are at least so
much. Every run has a process of its own, one at a time. Building networks is not counted.
"""

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import torch
from accounts import Accounts
from environment import busy, markdown
from omegaconf import DictConfig, OmegaConf
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from tensordict.nn import TensorDictModule
from torchrl import torchrl_logger
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from tqdm import tqdm

from trading_torchrl.descent import Adam, differentiate
from trading_torchrl.envs.gym import VectorGymView
from trading_torchrl.envs.reference import GarleanuPedersen, optimum_share
from trading_torchrl.machine import processor, set_precision
from trading_torchrl.modules import follow_slowly, make_actor, make_critics
from trading_torchrl.objectives import SACLoss

CONF = Path(__file__).resolve().parents[1] / "recipes" / "conf"
GOAL = 0.98
IN_A_ROW = 3
EPISODES = 64
"""Of an evaluation; their noise is that of a seed of their own, see `optimum_share`."""

FRESH_EPISODES, FRESH_SEED = 256, 2_000_000
REQUIRED = 10.0
"""How many times as long Stable-Baselines3 takes at its defaults."""


def recipe_settings() -> dict[str, Any]:
    """What `recipes/offpolicy.py env=garleanu_pedersen` runs with."""
    main, loss, learn = (
        OmegaConf.load(CONF / name)
        for name in ("offpolicy.yaml", "loss/sac.yaml", "learn/garleanu_pedersen.yaml")
    )
    merged = OmegaConf.merge({"loss": loss}, main, learn)
    assert isinstance(merged, DictConfig)
    for name in ("hydra", "defaults"):
        del merged[name]
    settings = OmegaConf.to_container(merged, resolve=True)
    assert isinstance(settings, dict)
    for name in ("_target_", "actor_network", "qvalue_network"):  # built here as there
        del settings["loss"][name]
    return {str(name): value for name, value in settings.items()}


def rate_at(settings: Mapping[str, Any], frames: float) -> float:
    """The learning rate after so many frames: linear to its end, where it stays."""
    done = min(frames / settings["total_frames"], 1.0)
    return settings["lr"] + (settings["lr_end"] - settings["lr"]) * done


@dataclass
class Stopwatch:
    """Training time, which stands still while the policy is evaluated.

    Args:
        policy: deterministic where exploration is off; reads ``observation``, writes ``action``.
        every: seconds of training between evaluations.
        limit: seconds of training after which to give up.
        told: what hears of each evaluation.
    """

    policy: TensorDictModule
    every: float
    limit: float
    told: Callable[[dict[str, float]], None]
    evaluations: list[dict[str, float]] = field(default_factory=list)
    reached: bool = False
    _seconds: float = 0.0
    _cpu: float = 0.0
    _since: tuple[float, float] = (0.0, 0.0)

    def start(self) -> None:
        """Training goes on from here."""
        self._since = time.perf_counter(), time.process_time()

    def goes_on(self, frames: int, updates: int) -> bool:
        """Whether training does; called after every step, and evaluates where that is due."""
        seconds = self._seconds + time.perf_counter() - self._since[0]
        if seconds < self.every * (len(self.evaluations) + 1) and seconds < self.limit:
            return True
        self._seconds, self._cpu = seconds, self._cpu + time.process_time() - self._since[1]
        evaluation = {
            "seconds": seconds,
            "cpu_seconds": self._cpu,
            "frames": float(frames),
            "updates": float(updates),
            "share": score(self.policy, EPISODES),
        }
        self.evaluations.append(evaluation)
        self.told(evaluation)
        last = [each["share"] for each in self.evaluations[-IN_A_ROW:]]
        self.reached = len(last) == IN_A_ROW and sum(last) / IN_A_ROW >= GOAL
        self.start()
        return not self.reached and seconds < self.limit


def score(policy: TensorDictModule, episodes: int, seed: int = 1_000_000) -> float:
    """The share of the optimum, on common noise; leaves the draws of training as they are."""
    with torch.random.fork_rng(devices=[]):
        return optimum_share(policy, GarleanuPedersen(64), episodes=episodes, seed=seed).share


Train = Callable[[Stopwatch], None]
"""Trains until the stopwatch says that it is over."""


def ours(settings: Mapping[str, Any], seed: int) -> tuple[TensorDictModule, Train]:
    """The loop of `recipes/offpolicy.py`, without what it writes down; its averaged actor."""
    env = GarleanuPedersen(settings["env"]["num_envs"], seed=seed)
    actor = make_actor(2, 1, settings["hidden"])
    critics = make_critics(2, 1, settings["hidden"])
    loss = SACLoss(actor, critics, **settings["loss"])
    averaged = deepcopy(actor).requires_grad_(False)
    both = list(averaged.parameters()), list(actor.parameters())
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = Adam(trained, lr=settings["lr"])
    batch_frames = settings["env"]["num_envs"] * settings["steps_per_batch"]
    collector = Collector(
        env,
        actor,
        frames_per_batch=batch_frames,
        total_frames=-1,
        init_random_frames=settings["warmup_frames"],
        trust_policy=True,
        track_traj_ids=False,
        auto_register_policy_transforms=False,
    )
    replay = ReplayBuffer(
        storage=LazyTensorStorage(settings["buffer_size"]), batch_size=settings["batch_size"]
    )
    following = [("next", name) for name in ("observation", "reward", "terminated")]

    def train(stopwatch: Stopwatch) -> None:
        frames, updates, owed = 0, 0, 0.0
        batches = iter(collector)
        stopwatch.start()
        while stopwatch.goes_on(frames, updates):
            batch = next(batches)
            frames += batch_frames
            replay.extend(batch.select("observation", "action", *following).reshape(-1))
            optimizer.lr = rate_at(settings, frames)
            if frames > settings["warmup_frames"]:
                owed += batch_frames * settings["updates_per_frame"]
            while owed >= 1:
                sample = replay.sample()
                sample["next", "reward"].mul_(settings["reward_scale"])
                losses = loss(sample)
                total = losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]
                if math.isnan(differentiate(total, trained, settings["max_grad_norm"])):
                    raise ArithmeticError("a loss or its gradient is not finite")
                optimizer.step()
                loss.update_targets(settings["tau"])
                follow_slowly(*both, settings["actor_average"])
                updates, owed = updates + 1, owed - 1
        collector.shutdown()

    return averaged, train


class Watched(BaseCallback):
    """Ends the training where the stopwatch says so."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        super().__init__()
        self.stopwatch = stopwatch

    def _on_training_start(self) -> None:
        self.stopwatch.start()

    def _on_step(self) -> bool:
        return self.stopwatch.goes_on(self.num_timesteps, self.model._n_updates)


FOREVER = 10**9


def trained_by_sb3(model: SAC) -> tuple[TensorDictModule, Train]:
    """Its deterministic policy, and its training."""
    policy = TensorDictModule(
        lambda observation: model.policy(observation, deterministic=True),
        in_keys=["observation"],
        out_keys=["action"],
    )

    def train(stopwatch: Stopwatch) -> None:
        model.learn(FOREVER, Watched(stopwatch))

    return policy, train


def sb3_defaults(settings: Mapping[str, Any], seed: int) -> tuple[TensorDictModule, Train]:
    """Its defaults, on one account."""
    env = gymnasium.make("trading_torchrl/GarleanuPedersen-v0", disable_env_checker=True)
    return trained_by_sb3(SAC("MlpPolicy", env, seed=seed, device="cpu"))


def sb3_ours(settings: Mapping[str, Any], seed: int) -> tuple[TensorDictModule, Train]:
    """Our settings and as many accounts; it has no averaged actor, and clips no gradient."""
    view = VectorGymView(GarleanuPedersen(settings["env"]["num_envs"], seed=seed))
    loss, steps = settings["loss"], settings["steps_per_batch"]
    model = SAC(
        "MlpPolicy",
        Accounts(view, settings["reward_scale"]),
        learning_rate=lambda remaining: rate_at(settings, (1 - remaining) * FOREVER),
        buffer_size=settings["buffer_size"],
        learning_starts=settings["warmup_frames"],
        batch_size=settings["batch_size"],
        tau=settings["tau"],
        gamma=loss["gamma"],
        train_freq=steps,
        gradient_steps=round(settings["env"]["num_envs"] * steps * settings["updates_per_frame"]),
        ent_coef=f"auto_{loss['alpha_init']}",
        target_entropy=loss["target_entropy"],
        policy_kwargs={"net_arch": list(settings["hidden"])},
        seed=seed,
        device="cpu",
    )
    return trained_by_sb3(model)


OURS, DEFAULTS, TUNED = "ours", "Stable-Baselines3, defaults", "Stable-Baselines3, our settings"
CONTESTANTS: dict[str, Callable[[Mapping[str, Any], int], tuple[TensorDictModule, Train]]] = {
    OURS: ours,
    DEFAULTS: sb3_defaults,
    TUNED: sb3_ours,
}


@dataclass(frozen=True)
class Run:
    """What came of one contestant with one seed."""

    contestant: str
    seed: int
    reached: bool
    evaluations: list[dict[str, float]]
    fresh_share: float

    def took(self, what: str = "seconds") -> float:
        """Until it was reached; infinite where it was not."""
        return self.evaluations[-1][what] if self.reached else math.inf


def serve(pipe: Connection, name: str, seed: int, arguments: argparse.Namespace) -> None:
    """The process of a run: tells of each evaluation, and of the run as its last word."""
    torchrl_logger.setLevel("WARNING")
    settings = recipe_settings()
    torch.set_num_threads(arguments.threads)
    set_precision(settings["matmul_precision"])
    torch.manual_seed(seed)
    policy, train = CONTESTANTS[name](settings, seed)
    stopwatch = Stopwatch(policy, arguments.every, arguments.limit, pipe.send)
    train(stopwatch)
    fresh = score(policy, FRESH_EPISODES, FRESH_SEED)
    pipe.send(Run(name, seed, stopwatch.reached, stopwatch.evaluations, fresh))


def run(name: str, seed: int, arguments: argparse.Namespace, progress: "tqdm[None]") -> Run:
    """One run in a process of its own."""
    context = get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, name, seed, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        while True:
            told = pipe.recv()
            if isinstance(told, Run):
                return told
            shown = f"{name}, seed {seed}: {told['share']:.3f} after {told['seconds']:.1f} s"
            progress.set_postfix_str(shown)
    except EOFError:
        raise SystemExit(f"{name} died with seed {seed}") from None
    finally:
        process.join(10.0)
        if process.is_alive():
            process.kill()


def seconds_of(value: float, limit: float) -> str:
    """A time, or that there is none."""
    return f"{value:.1f}" if math.isfinite(value) else f"not reached in {limit:g}"


def results_table(runs: Sequence[Run], limit: float) -> list[list[str]]:
    """Rows of the main table, header first: medians over the seeds."""
    rows = [
        [
            "learner",
            f"s to {GOAL:.0%}",
            "each seed",
            "CPU s",
            "steps",
            "updates",
            "updates/s",
            "share on fresh episodes",
        ]
    ]
    for name in CONTESTANTS:
        own = [each for each in runs if each.contestant == name]
        last = [each.evaluations[-1] for each in own]
        took = median(each.took() for each in own)
        cpu = median(each.took("cpu_seconds") for each in own)
        rows.append(
            [
                name,
                seconds_of(took, limit),
                ", ".join(seconds_of(each.took(), limit) for each in own),
                f"{cpu:.1f}" if math.isfinite(cpu) else "",
                f"{median(each['frames'] for each in last):,.0f}",
                f"{median(each['updates'] for each in last):,.0f}",
                f"{median(each['updates'] / each['seconds'] for each in last):.0f}",
                ", ".join(f"{each.fresh_share:.3f}" for each in own),
            ]
        )
    return rows


def ratio(runs: Sequence[Run], name: str, limit: float) -> tuple[float, bool]:
    """A contestant's median time by ours, and whether it is at least that; NaN without ours."""
    mine, theirs = (
        median(each.took() for each in runs if each.contestant == who) for who in (OURS, name)
    )
    if not math.isfinite(mine):
        return math.nan, False
    return min(theirs, limit) / mine, not math.isfinite(theirs)


def bars_table(runs: Sequence[Run], limit: float) -> list[list[str]]:
    """Rows of the table of bars, header first; our settings elsewhere are no bar, but are shown."""
    rows = [["ours shorter than", "required", "measured", ""]]
    for name, required in ((DEFAULTS, REQUIRED), (TUNED, None)):
        times, at_least = ratio(runs, name, limit)
        shown = "not measured" if math.isnan(times) else f"{times:.1f}"
        verdict = "" if required is None else ("reached" if times >= required else "MISSED")
        rows.append(
            [
                name,
                "" if required is None else f"{required:g} times",
                f"at least {shown}" if at_least else shown,
                verdict,
            ]
        )
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Prints both tables, writes them as markdown and JSON; 1 where the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of each contestant")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of training of a run")
    parser.add_argument(
        "--every", type=float, default=0.5, help="seconds of training between evaluations"
    )
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).resolve().parent / "time_to_optimum.json"
    )
    arguments = parser.parse_args(argv)
    # Read when a process starts, so before there is one.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(arguments.threads)
    load = [busy()]
    runs = []
    with tqdm(total=arguments.seeds * len(CONTESTANTS), desc="runs") as progress:
        for seed in range(arguments.seeds):
            for name in CONTESTANTS:
                runs.append(run(name, seed, arguments, progress))
                progress.update()
    load.append(busy())
    versions = {name: version(name) for name in ("torch", "torchrl", "stable-baselines3")}
    limit = arguments.limit
    text = "\n\n".join(
        [
            markdown(results_table(runs, limit)),
            markdown(bars_table(runs, limit)),
            f"Garleanu-Pedersen, {arguments.seeds} seed(s), evaluated every {arguments.every:g} s "
            f"of training on {EPISODES} episodes, at most {limit:g} s. "
            f"{arguments.threads} thread(s), {processor()}, {os.cpu_count()} cores, "
            f"{', '.join(f'{name} {number}' for name, number in versions.items())}.",
        ]
    )
    print(f"\n{text}")
    times, at_least = ratio(runs, DEFAULTS, limit)
    report = {
        "settings": {
            **{name: getattr(arguments, name) for name in ("seeds", "threads", "limit", "every")},
            "goal": GOAL,
            "episodes": EPISODES,
            # Neighbours on the machine cost every contestant.
            "load": load,
            "ours": recipe_settings(),
        },
        "machine": {
            "platform": platform.platform(),
            "processor": processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            **versions,
        },
        "runs": [asdict(each) for each in runs],
        "bars": [
            {
                "name": f"shorter than {DEFAULTS}",
                "required": REQUIRED,
                "measured": None if math.isnan(times) else times,
                "at_least": at_least,
            }
        ],
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    arguments.output.with_suffix(".md").write_text(text + "\n")
    return int(not times >= REQUIRED)


if __name__ == "__main__":
    sys.exit(main())
