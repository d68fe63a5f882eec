"""kill -9 of actors and of their learner: what goes on, how soon, what is lost, what is left.

    python results/kill_actors.py           # 40 kills of actors, 8 of learners, a quarter hour

Runs are `python recipes/impala.py actors=2`: Garleanu-Pedersen and the synthetic market, in
processes and on a Ray cluster that the recipe begins. An actor drawn at random
is killed; the time counts until its successor has delivered a stretch, two run again and the
learner has learned more. Then the learner is killed: the run's newest checkpoint is compared with
the frames it had reported, everything that it began has to end, nothing may be left in `/dev/shm`,
and the run must go on.
"""

import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rows import Row, hand_over
from runs import command
from tqdm import tqdm

FRAMES, EVERY, BATCH = 200_000_000, 20_480, 2_048
SETTINGS = [
    "threads=1", "hidden=[16]", "actors=2", f"checkpoint_every={EVERY}", "alerts=none",
    "evaluate_every=200_000_000", f"log_every={BATCH}", f"total_frames={FRAMES}",
]  # fmt: skip
GP, MARKET = "garleanu_pedersen", "long_short"
RUNS = {
    "in processes": ("processes", GP),
    "in processes, market": ("processes", MARKET),
    "on Ray": ("ray", GP),
    "on Ray, market": ("ray", MARKET),
}
KINDS = {"processes": "multiprocessing.spawn", "ray": "ray::Collects"}
"""By what the processes of actors are known."""
OF_RAY = ("ray::", "raylet/raylet", "gcs_server")
LOUD = {"TQDM_MININTERVAL": "0.05", "PYTHONUNBUFFERED": "1"}
KILLS, LEARNERS = 10, 2
RECOVERS, ENDS, OWN_ENDS = 15.0, 15.0, 120.0
"""Seconds; the last for what Ray itself began, which notices by itself."""


def running(names: tuple[str, ...]) -> dict[int, int]:
    """Processes that are called so, and their parents."""
    said = subprocess.run(["ps", "-eo", "pid,ppid,stat,args"], capture_output=True, text=True)
    rows = [line.split(None, 3) for line in said.stdout.splitlines()[1:]]
    return {
        int(pid): int(parent)
        for pid, parent, state, args in rows
        if not state.startswith("Z") and any(name in args for name in names)
    }


def until(what: Callable[[], bool], seconds: float, said: str) -> float:
    """Seconds until something is so; the run is over where it takes too long."""
    began = time.monotonic()
    while not what():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"{said} took more than {seconds:.0f} seconds")
        time.sleep(0.05)
    return time.monotonic() - began


class Watched:
    """A run, and what can be seen of it from outside."""

    def __init__(self, folder: Path, kind: str, env: str, resume: bool) -> None:
        self.folder, self.kind, self.progress = folder, kind, folder.with_suffix(".progress")
        self.before = set(running((KINDS[kind],)))
        given = [*SETTINGS, f"distributed={kind}", f"env={env}"]
        with open(self.progress, "w") as told:
            self.process = subprocess.Popen(
                command("impala", folder, given, resume), stdout=told, stderr=told,
                start_new_session=True, env=os.environ | LOUD,
            )  # fmt: skip

    def actors(self) -> set[int]:
        """Of this run."""
        found = running((KINDS[self.kind],))
        own = {pid for pid, parent in found.items() if parent == self.process.pid}
        return own if self.kind == "processes" else set(found) - self.before

    def frames(self) -> int:
        """That it last reported."""
        with open(self.progress, "rb") as told:
            told.seek(max(0, self.progress.stat().st_size - 4_000))
            found = re.findall(rf"(\d+)/{FRAMES}", told.read().decode(errors="replace"))
        return int(found[-1]) if found else 0

    def again(self) -> int:
        """How often an actor's successor delivered for the first time."""
        return self.progress.read_text(errors="replace").count(" delivers again, ")

    def saved(self) -> int:
        """Frames of its newest checkpoint."""
        names = [path.stem for path in (self.folder / "checkpoints").glob("frames_*.pt")]
        return max((int(name.split("_")[1]) for name in names), default=0)

    def learns(self, beyond: int) -> bool:
        """Whether it has reported more; a run that ended is no run."""
        if self.process.poll() is not None:
            raise SystemExit(f"the run ended by itself:\n{self.progress.read_text()[-2_000:]}")
        return self.frames() > beyond


def kill_actor(run: Watched, draw: random.Random) -> float:
    """Seconds until all is as before."""
    before, victim = run.again(), draw.choice(sorted(run.actors()))
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    until(lambda: run.again() > before, 120, "another actor's delivery")
    until(lambda: len(run.actors()) == 2 and victim not in run.actors(), 120, "another actor")
    beyond = run.frames()
    until(partial(run.learns, beyond), 60, "more frames")
    return time.monotonic() - began


def kill_learner(run: Watched, before: set[int], shared: set[str]) -> dict[str, Any]:
    """What is lost, and how soon all has ended."""
    frames = run.frames()
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    ended = until(lambda: not run.actors(), 120, "the end of the actors")
    rest = until(lambda: not set(running(OF_RAY)) - before, 300, "the end of what Ray began")
    patience = time.monotonic() + ENDS
    while (left := set(os.listdir("/dev/shm")) - shared) and time.monotonic() < patience:
        time.sleep(0.1)
    lost = frames - run.saved()
    return {"lost": lost, "actors": ended, "rest": ended + rest, "left": sorted(left)}


def main() -> None:
    """Kills, and tells."""
    rows = []
    bar = tqdm(total=len(RUNS) * (KILLS + LEARNERS), desc="kills")
    for where, (kind, env) in RUNS.items():
        draw, waits, losses = random.Random(0), list[float](), list[dict[str, Any]]()
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "run"
            for turn in range(LEARNERS):
                before, shared = set(running(OF_RAY)), set(os.listdir("/dev/shm"))
                run = Watched(folder, kind, env, resume=turn > 0)
                try:
                    until(partial(run.learns, run.saved() + 2 * EVERY), 120, "a start")
                    for _ in range(KILLS // LEARNERS):
                        waits.append(kill_actor(run, draw))
                        bar.update()
                    losses.append(kill_learner(run, before, shared))
                    bar.update()
                finally:
                    run.process.kill()
            stop = f"stop_at={run.saved() + EVERY}"
            again = subprocess.run(
                [*command("impala", folder, [], resume=True), stop],
                capture_output=True, text=True,
            )  # fmt: skip
            if again.returncode:
                raise SystemExit(again.stderr[-2_000:])
            replaced = json.loads((folder / "metrics.json").read_text())["runtime"]["replaced"]
        lost = max(each["lost"] for each in losses)
        left = sorted({name for each in losses for name in each["left"]})
        ends = max(each["actors"] for each in losses)
        rows += [
            Row(f"actors {where}: seconds until the count recovers, worst of {len(waits)}",
                f"{max(waits):.1f}, mean {sum(waits) / len(waits):.1f}", f"<= {RECOVERS:.0f}",
                max(waits) <= RECOVERS),
            Row(f"actors {where}: a killed learner's frames that are lost, worst of {LEARNERS}",
                f"{lost:,}", f"<= one interval, {EVERY:,}", lost <= EVERY),
            Row(f"actors {where}: seconds until its actors have ended", f"{ends:.1f}",
                f"<= {ENDS:.0f}", ends <= ENDS),
            Row(f"actors {where}: left in /dev/shm", ", ".join(left) or "nothing", "nothing",
                not left),
            Row(f"actors {where}: replaced, as the resumed run remembers", f"{replaced}"),
        ]  # fmt: skip
        if kind == "ray":
            rest = max(each["rest"] for each in losses)
            rows.append(
                Row("Ray: seconds until all that it began has ended", f"{rest:.1f}",
                    f"<= {OWN_ENDS:.0f}", rest <= OWN_ENDS)
            )  # fmt: skip
    note = (
        f"Two actors, a checkpoint every {EVERY:,} frames. Frames that a learner reported and that"
        " no checkpoint has are lost."
    )
    hand_over("kill -9 of actors, and of their learner", note, rows)


if __name__ == "__main__":
    main()
