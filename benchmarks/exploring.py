"""What hindsight, curiosity, objectives and all parts together cost; with and without.

    python benchmarks/exploring.py                      # twenty-five minutes
    python benchmarks/exploring.py --quick              # a look

Hindsight: batches of 256 from 200,000 rows of a market with goals, sampled as they are and with
goals replaced, by turns. Training: `recipes/offpolicy.py` on the synthetic market, with `icm=on`,
with all parts, and plain with the settings of either, by turns, one thread each; frames a second of
training, and the largest memory of the process. Objectives: steps of 256 and of 16,384 accounts
with random actions, compiled where a compiler is found, with the five terms shown and without; of
the environment as the recipe trains in it, and of one that shows nothing besides. Nothing else
should run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from environment import UNSTEADY, busy, markdown, quartiles_of
from torchrl import torchrl_logger
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import TransformedEnv
from tqdm import tqdm

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import LONG_SHORT, DesiredGoal, ReachReturn, TradingEnv
from trading_torchrl.machine import processor
from trading_torchrl.replay import Hindsight

ROOT = Path(__file__).resolve().parent.parent
ACCOUNTS, ROWS, BATCH = 64, 200_000, 256
RELABELS_MS, RELABELS_TIMES, SLOWER, LARGER = 10.0, 5.0, 0.2, 0.2
STEPPED, DEARER, HALF = (256, 16_384), 0.2, 0.5
SHOWN: dict[str, list[str]] = {
    "as the recipe trains": ["equity", "share", "value", "index"],
    "nothing else shown": [],
}
"""What an environment emits, by name; the first is ``Trading.emitted`` of the recipes."""

PLAIN, CURIOUS = "nothing", "curiosity"
ALIKE, FULL = "nothing, settings of the full stack", "the full stack"
SMALL = [
    "total_frames=2_304_000", "env.num_envs=64", "++env.episode_bars=100",
    "updates_per_frame=0.015625", "batch_size=256", "hidden=[128,128]", "critics=2",
    "buffer_size=256_000", "log_every=25_600",
]  # fmt: skip
"""What hindsight trains with, conf/learn_with/her/on_long_short.yaml."""
TRAINED: dict[str, list[str]] = {
    PLAIN: [],
    CURIOUS: ["icm=on"],
    ALIKE: SMALL,
    FULL: [*SMALL, "icm=on", "her=on", "shaping=learned", "objectives=learned"],
}
"""Overrides by name."""


def buffers() -> dict[str, ReplayBuffer]:
    """One storage of rows with goals; sampled as they are, and with each strategy."""
    goal = ReachReturn()
    market = synthetic_market(symbols=8, bars=4_000, seed=0)
    env = TransformedEnv(
        TradingEnv(
            market, ACCOUNTS, emit=["achieved", "index"], episode_bars=100, compiled=False,
            **LONG_SHORT,
        ),
        DesiredGoal(ACCOUNTS, goal, low=-0.02, high=0.04),
    )  # fmt: skip
    storage = LazyTensorStorage(ROWS, ndim=2)
    transforms = {
        name: Hindsight(storage, goal, strategy=name)
        for name in ("future", "final", "episode", "random")
    }
    first = transforms["future"]
    replay = ReplayBuffer(storage=storage, batch_size=BATCH, transform=first)
    steps = -(ROWS // -ACCOUNTS)
    tensordict = env.reset()
    for _ in tqdm(range(0, steps, 50), desc="rows"):
        batch = env.rollout(50, auto_reset=False, tensordict=tensordict, break_when_any_done=False)
        tensordict = env.step_mdp(batch[:, -1])
        replay.extend(batch)
    for each in transforms.values():
        each.set_extra_state(first.get_extra_state())
    plain = {"as they are": ReplayBuffer(storage=storage, batch_size=BATCH)}
    return plain | {
        name: ReplayBuffer(storage=storage, batch_size=BATCH, transform=each)
        for name, each in transforms.items()
    }


def milliseconds(do: Callable[[], object], seconds: float) -> float:
    """Of one call, on average over so many seconds."""
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        do()
        calls += 1
    return 1e3 * (time.perf_counter() - began) / calls


def relabelling(rounds: int, seconds: float) -> tuple[list[list[str]], list[list[str]], list[Any]]:
    """Table, bars, and the figures they are of."""
    torch.set_num_threads(1)
    replays = buffers()
    found: dict[str, list[float]] = {name: [] for name in replays}
    for _ in tqdm(range(rounds), desc="sampling"):
        for name, replay in replays.items():
            found[name].append(milliseconds(replay.sample, seconds))
    plain = median(found["as they are"])
    rows = [["goals", "ms a batch", "quartiles", "x as they are"]]
    for name, times in found.items():
        low, high = quartiles_of(times)
        unsteady = " (unsteady)" if high - low > UNSTEADY * median(times) else ""
        middle = median(times)
        rows.append([name, f"{middle:.2f}", f"{low:.2f} to {high:.2f}{unsteady}",
                     f"{middle / plain:.2f}"])  # fmt: skip
    slowest = max(median(found[name]) for name in found if name != "as they are")
    bars = [
        bar("256 of 200,000 relabelled, ms, slowest strategy", slowest, RELABELS_MS, "{:.2f}"),
        bar("the same, times plain sampling", slowest / plain, RELABELS_TIMES, "{:.2f}"),
    ]
    return rows, bars, [found]


def bar(name: str, measured: float, most: float, form: str) -> list[str]:
    """A row of the table of bars: what has to stay below."""
    verdict = "reached" if measured <= most else "missed"
    return [name, form.format(most), form.format(measured), verdict]


def trained(settings: Sequence[str], frames: int) -> tuple[float, float]:
    """Frames a second and megabytes of one run of the recipe."""
    with tempfile.TemporaryDirectory() as folder:
        given = [
            f"hydra.run.dir={folder}", *settings, f"stop_at={frames}", "threads=1",
            "evaluate_every=1_000_000_000", "checkpoint_every=1_000_000_000",
        ]  # fmt: skip
        command = [sys.executable, str(ROOT / "recipes" / "offpolicy.py"), *given]
        with open(Path(folder) / "said", "w") as said:
            process = subprocess.Popen(
                command, stdout=said, stderr=said, env=os.environ | {"TQDM_DISABLE": "1"}
            )
            _, code, used = os.wait4(process.pid, 0)
        if code:
            raise SystemExit((Path(folder) / "said").read_text()[-2_000:])
        metrics = json.loads((Path(folder) / "metrics.json").read_text())
    return metrics["runtime"]["frames_per_second"], used.ru_maxrss / 1024


def training(rounds: int, frames: int) -> tuple[list[list[str]], list[list[str]], list[Any]]:
    """Table, bars, and the figures they are of."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in TRAINED}
    for _ in tqdm(range(rounds), desc="training"):
        for name, settings in TRAINED.items():
            found[name].append(trained(settings, frames))
    speed = {name: median(one for one, _ in each) for name, each in found.items()}
    memory = {name: median(one for _, one in each) for name, each in found.items()}
    rows = [["trained with", "frames/s", "quartiles", "MB, largest"]]
    for name, each in found.items():
        low, high = quartiles_of([one for one, _ in each])
        rows.append([name, f"{speed[name]:,.0f}", f"{low:,.0f} to {high:,.0f}",
                     f"{memory[name]:.0f}"])  # fmt: skip
    bars = [
        bar("slower with curiosity", 1 - speed[CURIOUS] / speed[PLAIN], SLOWER, "{:.1%}"),
        bar("larger with curiosity", memory[CURIOUS] / memory[PLAIN] - 1, LARGER, "{:.1%}"),
        bar("slower with the full stack", 1 - speed[FULL] / speed[ALIKE], HALF, "{:.1%}"),
    ]
    return rows, bars, [found]


def stepping(rounds: int, seconds: float) -> tuple[list[list[str]], list[list[str]], list[Any]]:
    """Table, bars, and the figures they are of."""
    torch.set_num_threads(1)
    market = synthetic_market(symbols=8, bars=4_000, seed=0)
    judged: dict[str, list[str]] = {"none": [], "all five": ["objectives"]}

    def stepper(env: TradingEnv) -> Callable[[], object]:
        actions = torch.rand(64, *env.batch_size, 1).mul_(2).sub_(1)
        at = [env.reset(), 0]

        def step() -> None:
            tensordict, turn = at
            tensordict.set("action", actions[turn % 64])
            at[:] = env.step_and_maybe_reset(tensordict)[1], turn + 1

        return step

    steps = {
        (size, kind, name): stepper(TradingEnv(market, size, emit=emit + more, **LONG_SHORT))
        for size in STEPPED
        for kind, emit in SHOWN.items()
        for name, more in judged.items()
    }
    for step in steps.values():  # compiling is not counted
        milliseconds(step, seconds)
    found: dict[tuple[int, str, str], list[float]] = {each: [] for each in steps}
    for _ in tqdm(range(rounds), desc="stepping"):
        for each, step in steps.items():
            found[each].append(milliseconds(step, seconds))
    rows = [["accounts", "environment", "objectives", "ms a step", "quartiles"]]
    for (size, kind, name), times in found.items():
        low, high = quartiles_of(times)
        rows.append([f"{size:,}", kind, name, f"{median(times):.3f}", f"{low:.3f} to {high:.3f}"])
    bars = []
    for size in STEPPED:
        for kind in SHOWN:
            part = 1 - median(found[size, kind, "none"]) / median(found[size, kind, "all five"])
            said = f"objectives, part of a step of {size:,} accounts, {kind}"
            bars.append(bar(said, part, DEARER, "{:.1%}"))
    named = {", ".join(map(str, each)): times for each, times in found.items()}
    return rows, bars, [named]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables, writes them as markdown and JSON; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=384_000, help="of a training run")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args(argv)
    rounds = 1 if arguments.quick else arguments.rounds
    frames = arguments.frames // 10 if arguments.quick else arguments.frames
    torchrl_logger.setLevel("WARNING")
    before = busy()
    goals, goal_bars, sampled = relabelling(2 * rounds, 0.2 if arguments.quick else 1.0)
    terms, term_bars, steps = stepping(2 * rounds, 0.2 if arguments.quick else 1.0)
    models, model_bars, runs = training(rounds, frames)
    bars = [["bar", "at most", "measured", ""], *goal_bars, *term_bars, *model_bars]
    note = (
        f"{rounds} rounds, one thread, {processor()}, {os.cpu_count()} cores, torch"
        f" {torch.__version__}; {before} processes wanted a core in the minute before."
    )
    tables = [markdown(each) for each in (goals, terms, models, bars)]
    text = "\n\n".join([*tables, note])
    print(f"\n{text}")
    arguments.output.with_suffix(".md").write_text(text + "\n")
    figures: dict[str, Any] = {"sampling": sampled, "stepping": steps, "training": runs}
    figures |= {"bars": bars, "note": note}
    arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
    return int(any(each[-1] == "missed" for each in bars))


if __name__ == "__main__":
    sys.exit(main())
