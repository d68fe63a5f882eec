"""The measuring end of a contestant: a small server over stdin and stdout.

Every contestant runs in a process of its own, in its own virtual environment, so threads and
memory are measured alike. This module therefore needs nothing but the standard library and runs
in every one of those environments.

Protocol, one JSON object a line:

1. after set-up and warm-up the server prints `{"ready": true, "peer": ..., "variant": ...,
   "version": ..., "batch": n, "window": w, "features": f, "bytes_per_frame": b, "rss_mb": m}`;
2. for each line `{"seconds": s}` on stdin it steps for about that long and answers
   `{"steps": n, "seconds": s}`, where a step is one step of one account;
3. it ends when stdin closes.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

WARM_UP_SECONDS = 0.5
CHUNK_SECONDS = 0.01


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """The options every contestant understands."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--market", type=Path, required=True, help="file of `market.write_market`")
    parser.add_argument("--variant", default="")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--window", type=int, default=1)
    parser.add_argument("--features", type=int, default=23)
    parser.add_argument("--symbols", type=int, default=4, help="symbols of a multi-symbol market")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def resident_megabytes() -> float:
    """Memory this process holds now, or its peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _warm_up(run: Callable[[int], object]) -> int:
    """Runs for a while and returns how many iterations make one chunk between looks at a clock."""
    iterations = 1
    began = time.perf_counter()
    while True:
        before = time.perf_counter()
        run(iterations)
        now = time.perf_counter()
        if now - before < CHUNK_SECONDS:
            iterations *= 2
        elif now - began > WARM_UP_SECONDS:
            return iterations


def serve(
    run: Callable[[int], object],
    *,
    peer: str,
    variant: str,
    version: str,
    batch: int,
    window: int,
    features: int,
    bytes_per_frame: int,
    **more: object,
) -> None:
    """Warms up, says that it is ready and answers measurements until stdin closes.

    Args:
        run: makes this many batched steps, resets at the end of an episode included.
        peer: the library.
        variant: which of its environments, and how it is stepped.
        version: of the library.
        batch: accounts that one iteration of `run` steps.
        window: bars in one observation.
        features: market features of a bar in one observation.
        bytes_per_frame: observation, reward and flags of one step of one account.
        more: anything else a reader of the results should know.
    """
    # Peers print of their own accord; only the protocol may reach the driver.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message: dict[str, object]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    chunk = _warm_up(run)
    answer(
        {
            "ready": True,
            "peer": peer,
            "variant": variant,
            "version": version,
            "batch": batch,
            "window": window,
            "features": features,
            "bytes_per_frame": bytes_per_frame,
            "rss_mb": round(resident_megabytes(), 1),
            **more,
        }
    )
    for line in sys.stdin:
        if not line.strip():
            continue
        seconds = float(json.loads(line)["seconds"])
        iterations = 0
        elapsed = 0.0
        began = time.perf_counter()
        while elapsed < seconds:
            run(chunk)
            iterations += chunk
            elapsed = time.perf_counter() - began
        answer({"steps": iterations * batch, "seconds": elapsed})
    answers.close()
