"""kill -9 at random moments of a training run: what is left must always be gone on with.

    python results/kills.py                 # 200 kills, a quarter of an hour
    python results/kills.py --kills 20

Two runs are killed again and again and gone on with after each kill. After each kill a checkpoint
must load, at most one interval older than what the run last reported. In the end their parameters
must equal those of runs that nobody killed.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rows import Row, hand_over
from runs import command
from tqdm import tqdm

from trading_torchrl.checkpoint import Checkpoints

EVERY, BATCH = 640, 8
FRAMES = 4_000_000
SETTINGS = [
    "env=garleanu_pedersen", "threads=1", "hidden=[16]", "batch_size=32", f"env.num_envs={BATCH}",
    "updates_per_frame=0.0625", "warmup_frames=64", f"checkpoint_every={EVERY}",
    "evaluate_every=1_000_000_000", "log_every=64", f"total_frames={FRAMES}",
]  # fmt: skip


def killed(folder: Path, resume: bool, draw: random.Random) -> tuple[int, bool]:
    """Starts the run and kills it: the frames it last reported, and whether it was in mid-write.

    One kill in five falls into the start, the others within a second after a new checkpoint.
    """
    progress = folder.with_suffix(".progress")
    before = newest_frames(folder)
    early = resume and draw.random() < 0.2
    with open(progress, "w") as said:
        process = subprocess.Popen(
            command("offpolicy", folder, SETTINGS, resume), stdout=subprocess.DEVNULL,
            stderr=said, start_new_session=True,
            env=os.environ | {"TQDM_MININTERVAL": "0"},  # all that was done is reported
        )  # fmt: skip
        until = time.monotonic() + 120
        while not early and newest_frames(folder) <= before and process.poll() is None:
            if time.monotonic() > until:
                raise SystemExit("the run wrote no checkpoint within two minutes")
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 5) if early else draw.random())
        if process.poll() is not None:
            raise SystemExit(f"the run ended by itself:\n{progress.read_text()[-2000:]}")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    reported = re.findall(rf"(\d+)/{FRAMES}", progress.read_text())
    writing = any(not path.name.endswith(".pt") for path in (folder / "checkpoints").iterdir())
    return int(reported[-1]) if reported else 0, writing


def newest_frames(folder: Path) -> int:
    """Frames that the names of the checkpoints speak of."""
    names = [path.stem for path in (folder / "checkpoints").glob("frames_*.pt")]
    return max((int(name.split("_")[1]) for name in names), default=-1)


def chain(place: Path, kills: int, seed: int, bar: tqdm) -> dict[str, int]:
    """Kills one run again and again; what was found, and whether it ended as if never killed."""
    draw, folder = random.Random(seed), place / f"run{seed}"
    found = dict.fromkeys(("loaded", "behind", "in_write", "fell_back"), 0)
    for kill in range(kills):
        reached, writing = killed(folder, kill > 0, draw)
        checkpoints = Checkpoints(folder / "checkpoints")
        path, state = checkpoints.newest()
        found["loaded"] += 1
        found["in_write"] += writing
        found["fell_back"] += path != checkpoints.paths()[0]
        found["behind"] += reached - state["count"]["frames"] > EVERY + BATCH
        bar.update()
    # Straight through to the same frames, by somebody who was never killed.
    last, whole = f"stop_at={newest_frames(folder) + EVERY}", place / f"whole{seed}"
    for each, resume in ((folder, True), (whole, False)):
        subprocess.run(
            [*command("offpolicy", each, SETTINGS, resume), last], check=True, capture_output=True
        )
    ended = [json.loads((each / "metrics.json").read_text()) for each in (folder, whole)]
    found["equal"] = ended[0]["parameters_sha256"] == ended[1]["parameters_sha256"]
    return found


def main() -> None:
    """Kills, looks, goes on; two runs beside each other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    each, seeds = arguments.kills // 2, (arguments.seed, arguments.seed + 1)
    bar = tqdm(total=2 * each, desc="kills")
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(2) as pool, bar:
        chains = [pool.submit(chain, Path(place), each, seed, bar) for seed in seeds]
        found = [one.result() for one in chains]
    total = {name: sum(one[name] for one in found) for name in found[0]}
    n = 2 * each
    rows = [
        Row("kills after which a checkpoint loads", f"{total['loaded']} of {n}", f"{n} of {n}",
            total["loaded"] == n),
        Row("kills that lost more than one interval", str(total["behind"]), "0",
            total["behind"] == 0),
        Row("kills that hit a checkpoint being written", str(total["in_write"])),
        Row("kills after which a damaged file was passed over", str(total["fell_back"])),
        Row("runs that ended with the parameters of one never killed", f"{total['equal']} of 2",
            "2 of 2", total["equal"] == 2),
    ]  # fmt: skip
    hand_over("kill -9 in mid-training", f"Two runs, checkpoints every {EVERY} frames.", rows)


if __name__ == "__main__":
    main()
