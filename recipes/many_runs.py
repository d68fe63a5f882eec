"""Runs of a recipe over settings and seeds: several at a time, each once, none lost by a kill.

A run's folder is named by a fingerprint of its settings, its data and its code: what is finished is
found again, what was interrupted is gone on with, and changed code is run anew. What changes while
a run waits for its turn would give figures under another fingerprint: it is not run.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from math import nan
from pathlib import Path
from sysconfig import get_paths
from typing import Any, NamedTuple

import composing
from composing import check_read, leaves
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from tqdm import tqdm

import trading_torchrl

RECIPES = Path(__file__).resolve().parent
PACKAGE = Path(trading_torchrl.__file__).resolve().parent
"""What runs import, wherever it is installed."""
LIBRARIES = ("torch", "torchrl", "tensordict")
DATA = ("path", "init", "data")
"""Settings that name files a run reads."""
BESIDE = ("many_runs", "comparison", "comparison_tables", "comparison_page")
"""Modules beside the recipes that no run uses."""
LAST_LINES = 12
POLL = 0.2


@dataclass(frozen=True)
class Job:
    """One run: a setting and a seed."""

    name: str
    seed: int
    recipe: str
    overrides: tuple[str, ...]
    settings: Mapping[str, Any]
    """all of them, as the recipe will see them"""
    folder: Path
    made_of: Mapping[str, str] = field(default_factory=dict)
    """fingerprints of what its figures depend on, by what each is of"""

    @classmethod
    def of(
        cls, name: str, seed: int, recipe: str, overrides: Sequence[str], split: str, place: Path
    ) -> Job:
        """Its folder lies in ``place``, and it is judged on ``split`` at its end."""
        whole = (*overrides, f"seed={seed}", "threads=1", f"market.report_split={split}")
        settings = composed(recipe, whole)
        if settings.get("actors"):
            raise SystemExit(
                f"actors={settings['actors']}: what a run learns depends then on what runs beside"
                " it; runs that are compared collect in one process, actors=0"
            )
        made_of = traces(recipe, settings)
        folder = place.resolve() / f"{recipe}_{fingerprint(made_of)[:24]}"
        return cls(name, seed, recipe, whole, settings, folder, made_of)


class Done(NamedTuple):
    """What became of a run: its metrics, or what it last said."""

    job: Job
    metrics: dict[str, Any]
    failure: str = ""


def command(recipe: str, folder: Path, overrides: Sequence[str], resume: bool) -> list[str]:
    """Begins a run in a folder, or goes on with it."""
    begin = [*searched(), f"hydra.run.dir={folder}", *overrides]
    given = [f"resume={folder}"] if resume else begin
    return [sys.executable, str(RECIPES / f"{recipe}.py"), *given]


def run_all(jobs: Sequence[Job], at_once: int) -> Generator[Done, None, None]:
    """Results as they come in; who stops listening stops the runs, which then save and end.

    Each run has one thread, so what it learns does not depend on how many run beside it.
    """
    stop = threading.Event()
    pool = ThreadPoolExecutor(at_once)
    try:
        for each in as_completed([pool.submit(_run, job, stop) for job in jobs]):
            yield each.result()
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _run(job: Job, stop: threading.Event) -> Done:
    """Runs what is left to run of a job."""
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(job.folder, stop) as lock:
        if (found := _finished(job)) is not None or stop.is_set():
            return found or Done(job, {}, "interrupted")
        if others := changed(job):
            return Done(job, {}, f"not run: {' and '.join(others)} changed while it waited for its"
                        " turn; the same command runs it as it is now")  # fmt: skip
        started = any(job.folder.glob("checkpoints/frames_*.pt"))
        if not started:
            shutil.rmtree(job.folder, ignore_errors=True)
        log = job.folder.with_suffix(".log")
        with open(log, "w") as said:
            process = subprocess.Popen(
                command(job.recipe, job.folder, job.overrides, resume=started),
                stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
                pass_fds=[lock],  # held until the run has ended, whatever becomes of this process
                env=os.environ | {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"},
            )  # fmt: skip
            while process.poll() is None and not stop.wait(POLL):
                pass
            if process.poll() is None:
                process.terminate()
            process.wait()
        last = log.read_text(errors="replace").rstrip().splitlines()[-LAST_LINES:]
        return _finished(job) or Done(job, {}, "\n".join([*last, ended(process.returncode)]))


def ended(code: int) -> str:
    """How a process ended, by its return code, which is minus the number of a signal."""
    if code >= 0:
        return f"exit code {code}"
    said = f"killed by signal {-code} ({signal.strsignal(-code)})"
    return f"{said}: for want of memory, perhaps; try jobs=1" if code == -signal.SIGKILL else said


def _finished(job: Job) -> Done | None:
    """What an ended run left; one that a signal stopped has not ended."""
    path = job.folder / "metrics.json"
    if not path.exists():
        return None
    metrics = json.loads(path.read_text())
    if metrics["figures"]:
        told = {
            "figures": _numbers(metrics["figures"]),
            "evaluations": [_numbers(row) for row in metrics["evaluations"]],
            "folder": str(job.folder),
        }
        return Done(job, metrics | told)
    stopped = metrics["stopped"]
    return Done(job, {}, f"stopped: {stopped}") if not stopped.startswith("SIG") else None


def _numbers(figures: Mapping[str, float | None]) -> dict[str, float]:
    """JSON has no word for what is not a number."""
    return {name: nan if each is None else each for name, each in figures.items()}


@contextmanager
def _alone(folder: Path, stop: threading.Event) -> Iterator[int]:
    """Waits while another process, or a run that outlived its own, works in the folder."""
    with open(folder.with_suffix(".lock"), "w") as lock:
        told = False
        while not stop.is_set():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    tqdm.write(f"waiting for a run that an earlier call began: {folder}")
                told = True
                stop.wait(POLL)
        yield lock.fileno()


def searched() -> list[str]:
    """The option that names a user's own folder of settings, where this process was given one."""
    if not HydraConfig.initialized():
        return []
    sources = HydraConfig.get().runtime.config_sources
    own = [each.path for each in sources if each.provider == "command-line"]
    return ["--config-dir", own[0]] if own else []


def composed(recipe: str, overrides: Sequence[str]) -> dict[str, Any]:
    """All settings of a run; refused where one is not there, or its loss does not read it."""
    inside = GlobalHydra.instance().is_initialized()  # of a recipe that is configured there too
    conf = str(RECIPES / "conf")
    with nullcontext() if inside else initialize_config_dir(conf, version_base="1.3"):
        config, _ = composing.composed(recipe, overrides)
    check_read(config, overrides)
    found = OmegaConf.to_container(config, resolve=True)
    assert isinstance(found, dict)
    return {str(name): value for name, value in found.items()}


_one_at_a_time = threading.Lock()
"""Hydra, and what is remembered of files, are the whole process's."""


def changed(job: Job) -> list[str]:
    """What a run's figures depend on and is no longer as it was when the job was made."""
    with _one_at_a_time:
        _contents.cache_clear()
        try:
            now = traces(job.recipe, composed(job.recipe, job.overrides))
        except (Exception, SystemExit) as error:  # a file that is being written, say
            return [f"what {job.recipe}.py reads ({error})"]
    before = job.made_of
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def fingerprint(made_of: Mapping[str, str]) -> str:
    """One of all."""
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


def traces(recipe: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Fingerprints of all that a run's figures depend on, by what each is of."""
    named = list(leaves(settings))
    text = json.dumps([recipe, settings], sort_keys=True)
    found = {
        "the settings in recipes/conf": hashlib.sha256(text.encode()).hexdigest(),
        "the package trading_torchrl": _hashed(PACKAGE.rglob("*.py")),
        "the code of recipes/": _recipes(recipe),
        "the installed versions": " ".join(f"{each} {version(each)}" for each in LIBRARIES),
    }
    for name, value in named:
        if name.split(".")[-1] in DATA and isinstance(value, str) and Path(value).exists():
            found[f"{name}={value}"] = _contents(Path(value))
    roots = {str(value).split(".")[0] for name, value in named if name.endswith("_target_")}
    for root in sorted(roots - {"trading_torchrl"}):
        found[f"the code of {root}"] = _own_code(root)
    return found


def _recipes(recipe: str) -> str:
    """Of a recipe, and of what the recipes share."""
    others = {path.stem for path in (RECIPES / "conf").glob("*.yaml")} - {recipe} | {*BESIDE}
    files = RECIPES.rglob("*.py")
    return _hashed(each for each in files if each.parent != RECIPES or each.stem not in others)


def _own_code(name: str) -> str:
    """Of a user's own package, or of a module and those beside it; nothing of what is installed.

    A package need not have an ``__init__.py``, and then may lie in several folders.
    """
    spec = find_spec(name)
    if spec and spec.submodule_search_locations is not None:
        folders, which = list(spec.submodule_search_locations), "**/*.py"
    else:
        folders = [str(Path(spec.origin).parent)] if spec and spec.origin else []
        which = "*.py"
    installed = [Path(get_paths()[each]).resolve() for each in ("purelib", "platlib", "stdlib")]
    own = [
        folder
        for folder in (Path(each).resolve() for each in folders)
        if not any(folder.is_relative_to(each) for each in installed)
    ]
    return _hashed(file for folder in own for file in folder.glob(which))


@cache
def _contents(path: Path) -> str:
    """Of a file, of a folder, or of what other runs take of a run's folder; these may be large."""
    if (path / "config.yaml").exists():
        taken = [path / "config.yaml", path / "replay.pt", *path.glob("checkpoints/*.pt")]
        return _hashed(taken)
    return _hashed([path] if path.is_file() else path.rglob("*"))


def _hashed(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(each for each in files if each.is_file()):
        digest.update(file.name.encode() + b"\0")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
