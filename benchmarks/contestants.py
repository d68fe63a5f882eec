"""Contestants of a benchmark: servers in processes and virtual environments of their own.

A contestant is a script that speaks the protocol of `server.py`. Its virtual environment is made
on first use from `peers/<name>.txt` (and `peers/<name>.no_deps.txt`, for packages whose own
dependencies are broken or irrelevant) under `.venvs/<name>`.
"""

import contextlib
import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
ENVIRONMENTS = HERE / ".venvs"
CONSTRAINTS = PEERS / "constraints.txt"
STAMP = "installed.sha256"
READY_SECONDS = 600.0


class NotAvailable(Exception):
    """A contestant that cannot be installed, started or measured, with the reason."""


def _last_words(text: str, lines: int = 1) -> str:
    """The end of an error output, which is where the reason stands."""
    kept = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(kept[-lines:])[:500] or "no output"


def _pip(python: Path, *arguments: str) -> None:
    """Runs pip in a virtual environment."""
    command = [str(python), "-m", "pip", "install", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotAvailable(f"pip: {_last_words(done.stderr or done.stdout)}")


MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
"""Keeps freed memory for the next step, for every contestant alike: glibc else hands large arrays
back to the system and faults them in again, at some steps and not at others."""


def python_of(environment: str | None) -> Path:
    """The interpreter of a virtual environment, made and filled where it is missing or outdated.

    Args:
        environment: name of `peers/<name>.txt`; None is the interpreter that runs the benchmark.

    Raises:
        NotAvailable: if it cannot be installed.
    """
    if environment is None:
        return Path(sys.executable)
    requirements = PEERS / f"{environment}.txt"
    alone = PEERS / f"{environment}.no_deps.txt"
    wanted = requirements.read_bytes() + (alone.read_bytes() if alone.exists() else b"")
    digest = hashlib.sha256(wanted + CONSTRAINTS.read_bytes()).hexdigest()
    folder = ENVIRONMENTS / environment
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text() == digest and python.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotAvailable(f"venv: {error}") from error
    torch = [line for line in requirements.read_text().splitlines() if line.startswith("torch==")]
    if torch:
        # First and by itself, so that no other package decides which build is taken.
        _pip(python, *torch)
    _pip(python, "-r", str(requirements), "-c", str(CONSTRAINTS))
    if alone.exists():
        _pip(python, "--no-deps", "-r", str(alone))
    stamp.write_text(digest)
    return python


@dataclass
class Contestant:
    """One way of stepping one environment, measured in a process of its own.

    Args:
        name: unique; what tables and bars call it.
        script: relative to `benchmarks/`.
        options: command-line options of the script beside `--market` and `--symbols`.
        environment: which virtual environment; None is the benchmark's own interpreter.
        batch: accounts stepped at once.
    """

    name: str
    script: str
    options: dict[str, str | int] = field(default_factory=dict)
    environment: str | None = None
    batch: int = 1
    facts: dict[str, Any] = field(default_factory=dict, init=False)
    _process: "subprocess.Popen[str] | None" = field(default=None, init=False, repr=False)
    _errors: "IO[str] | None" = field(default=None, init=False, repr=False)
    _lines: "queue.Queue[str | None]" = field(default_factory=queue.Queue, init=False, repr=False)

    def start(self, market: Path, symbols: int, threads: int) -> None:
        """Starts the server and waits until it has warmed up.

        Raises:
            NotAvailable: if its environment or itself does not come up.
        """
        python = python_of(self.environment)
        options = {"market": str(market), "symbols": symbols, "batch": self.batch, **self.options}
        command = [str(python), str(HERE / self.script)]
        for option, value in options.items():
            command += [f"--{option}", str(value)]
        variables = {**os.environ, "PYTHONPATH": str(HERE), **MEMORY}
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            variables[name] = str(threads)
        self._lines = queue.Queue()
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed in `close`)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=variables,
                text=True,
            )
        except OSError as error:
            raise NotAvailable(str(error)) from error
        heard = (self._process, self._lines)
        threading.Thread(target=self._listen, args=heard, daemon=True).start()
        self.facts = self._answer("ready", READY_SECONDS)

    @staticmethod
    def _listen(process: "subprocess.Popen[str]", lines: "queue.Queue[str | None]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def _answer(self, key: str, patience: float) -> dict[str, Any]:
        """The next protocol line with this key; anything else a peer prints is passed over."""
        deadline = time.monotonic() + patience
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise NotAvailable(f"no answer within {patience:.0f} s") from None
            if line is None:
                assert self._errors is not None
                self._errors.seek(0)
                raise NotAvailable(_last_words(self._errors.read()))
            with contextlib.suppress(json.JSONDecodeError):
                message = json.loads(line)
                if isinstance(message, dict) and key in message:
                    return message

    def measure(self, seconds: float) -> float:
        """Steps of accounts per second, over about this many seconds.

        Raises:
            NotAvailable: if the server has died or does not answer.
        """
        if self._process is None or self._process.stdin is None:
            raise NotAvailable("not started")
        try:
            self._process.stdin.write(json.dumps({"seconds": seconds}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise NotAvailable(f"server is gone: {error}") from error
        answer = self._answer("steps", 60.0 + 10.0 * seconds)
        return float(answer["steps"]) / float(answer["seconds"])

    def close(self) -> None:
        """Ends the server: its stdin closes, and it is killed if that is not enough."""
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
            try:
                process.wait(timeout=10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._errors is not None:
            self._errors.close()
            self._errors = None


def peers() -> list[Contestant]:
    """Everybody else's environments, in the order of the table."""
    finrl, gym = "peers/finrl_stocks.py", "peers/gym_trading.py"
    contestants = [
        Contestant("FinRL, 1 stock", finrl, {"stocks": 1}, "finrl_stocks"),
        Contestant("FinRL, 30 stocks", finrl, {"stocks": 30}, "finrl_stocks"),
        Contestant("gym-trading-env", gym, environment="gym_trading"),
        Contestant("SB3 DummyVecEnv of 16", gym, environment="gym_trading", batch=16),
        Contestant("gym-anytrading", "peers/anytrading.py", {"window": 10}, "anytrading"),
    ]
    contestants += [
        Contestant(
            f"TorchRL FinancialRegimeEnv, {batch}",
            "peers/financial_regime.py",
            {"window": 50},
            batch=batch,
        )
        for batch in (64, 1_024, 4_096, 16_384)
    ]
    contestants += [
        Contestant(
            f"TorchTrade W{window}, {batch}",
            "peers/torchtrade_vectorised.py",
            {"window": window},
            "torchtrade_vectorised",
            batch=batch,
        )
        for window in (10, 64)
        for batch in (1_024, 4_096)
    ]
    return contestants


def limits() -> list[Contestant]:
    """What one core can do at most."""
    return [
        Contestant(f"numba core, {batch}", "numba_core.py", environment="numba", batch=batch)
        for batch in (1, 16, 256, 4_096, 16_384)
    ]
