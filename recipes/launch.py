"""How a recipe starts: its settings checked, its folder, and going on with an earlier run."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch
from composing import SAVED, check_read, chosen, load_config
from going_back import go_back, reached
from hydra.core.hydra_config import HydraConfig
from learning import Learning
from omegaconf import DictConfig, OmegaConf, open_dict
from torch.utils.tensorboard import SummaryWriter
from torchrl import torchrl_logger

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.evaluation import write_json
from trading_torchrl.machine import processor, set_precision
from trading_torchrl.monitoring.mlflow_writer import MLflowWriter

SPLITS = ("validation", "test")


def _folder(resume: str | None, parent: str) -> str:
    if resume and not (Path(resume) / SAVED).exists():
        raise SystemExit(f"{resume} is not a run's folder: it has no {SAVED}")
    return resume or f"{parent}/{datetime.now():%Y-%m-%d_%H-%M-%S-%f}"


OmegaConf.register_new_resolver("folder", _folder, use_cache=True, replace=True)


R = TypeVar("R", bound=Learning)


def start(config: DictConfig, kind: type[R]) -> tuple[R, dict[str, Any], Path, bool]:
    """The run, its settings, its folder, and whether it is gone on with; refused before it begins.

    A run that is gone on with keeps its settings, all but ``stop_at`` and its lengths.
    """
    if "choices" not in config:
        with open_dict(config):
            config.choices = chosen(HydraConfig.get())
    settings = _plain(config)
    if settings["market"]["report_split"] not in SPLITS:
        raise SystemExit(
            f"market.report_split is {' or '.join(SPLITS)}, got"
            f" {settings['market']['report_split']!r}"
        )
    folder = Path(HydraConfig.get().runtime.output_dir)
    if settings["resume"] is not None:
        return *_gone_on_with(settings, folder, kind), folder, True
    if list((folder / "checkpoints").glob("*")):
        raise SystemExit(
            f"{folder} holds a run already: go on with it by resume={folder}, or choose"
            " another folder by hydra.run.dir=..."
        )
    if settings["checkpoint"] != "newest":
        raise SystemExit(
            f"checkpoint={settings['checkpoint']} is where a run is gone on with: give"
            " resume=<its folder> too, or init= to begin with another run's networks"
        )
    run = kind.of(settings)
    check_read(config, HydraConfig.get().overrides.task)
    OmegaConf.save(config, folder / SAVED, resolve=True)
    return run, settings, folder, False


def _gone_on_with(given: dict[str, Any], folder: Path, kind: type[R]) -> tuple[R, dict[str, Any]]:
    """An earlier run and its settings, with what may change of them.

    Going back to an earlier checkpoint is done here, once all this is accepted.
    """
    may_change = (*kind.lengths, *kind.elsewhere, "stop_at")
    changed = [each.lstrip("+~").split("=")[0] for each in HydraConfig.get().overrides.task]
    refused = [name for name in changed if name not in ("resume", "checkpoint", *may_change)]
    if refused:
        raise SystemExit(
            f"{refused[0]} cannot change in a run that is gone on with; only"
            f" {', '.join(may_change)} can. Start a new run for other settings"
        )
    longer = {name: given[name] for name in may_change if name in changed}
    alone = {name: given[name] for name in ("resume", "stop_at", "checkpoint")}
    settings = load_settings(folder) | alone | longer
    run = kind.of(settings)
    checkpoints, name = Checkpoints(folder / "checkpoints", run.keep), settings["checkpoint"]
    done = reached(checkpoints, name, kind.clock)
    if run.length < done:
        length = ", ".join(f"{each}={settings[each]}" for each in kind.lengths)
        raise SystemExit(
            f"{length} is less than the {done:,} {kind.clock} that this run has behind it: give at"
            " least as many, or go back to an earlier checkpoint by checkpoint=<its name>"
        )
    if name != "newest":
        go_back(checkpoints, name, kind.clock)
    return run, settings


def load_settings(folder: Path) -> dict[str, Any]:
    """Settings that an earlier run left in its folder."""
    return _plain(load_config(folder))


def _plain(config: DictConfig) -> dict[str, Any]:
    """Settings as they are, the number of accounts apart from those of the environment."""
    missing = sorted(OmegaConf.missing_keys(config))
    if missing:
        raise SystemExit(f"{missing[0]}=... is needed: nothing else says what it is")
    settings = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(settings, dict)
    plain = {str(name): value for name, value in settings.items()}
    plain["env"] = dict(plain["env"])
    return plain | {"num_envs": plain["env"].pop("num_envs")}


def versions() -> dict[str, str]:
    """Of what a run's bits depend on."""
    packages = ("trading-torchrl", "torch", "torchrl", "tensordict", "gymnasium")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def runtime(
    began: float, trained_for: float, first: Mapping[str, Any], count: Mapping[str, Any]
) -> dict[str, Any]:
    """What differs from machine to machine: seconds since ``began`` and of training, speed."""
    return {
        "seconds": time.perf_counter() - began,
        "training_seconds": trained_for,
        "frames_per_second": (count["frames"] - first["frames"]) / trained_for,
        "updates_per_second": (count["updates"] - first["updates"]) / trained_for,
        "threads": torch.get_num_threads(),
        "processor": processor(),
        "versions": versions(),
    }


def set_machine(threads: int, precision: str, seed: int) -> dict[str, Any]:
    """Threads, precision of products, seed; returns which precision it is, and what it rounds."""
    torchrl_logger.setLevel("WARNING")
    torch.set_num_threads(threads)
    chosen, rounding = set_precision(precision)
    torch.manual_seed(seed)
    return {"matmul_precision": chosen, "product_rounding": rounding}


def finish(folder: Path, metrics: Mapping[str, Any], writer: SummaryWriter) -> None:
    """Leaves ``metrics.json``, says what there is; exits with 1 where an alert stopped the run."""
    write_json(folder / "metrics.json", metrics)
    figures, stopped = metrics["figures"], metrics["stopped"]
    if isinstance(writer, MLflowWriter):
        saved = folder / "checkpoints"
        best = saved / "best.pt"
        kept = best if best.exists() else max(saved.glob("frames_*.pt"), default=best)
        names = ("report.html", "report.json", "metrics.json")
        files = [kept, *(folder / name for name in names)]
        writer.finish(files, "KILLED" if stopped else "FINISHED")
    said = "  ".join(f"{name} {value:.4g}" for name, value in figures.items() if "/" not in name)
    page = ", report.html" if figures else ""
    sys.stdout.write(f"\n{said}\n\n{folder}: metrics.json, checkpoints{page}\n")
    if stopped:
        sys.stdout.write(f"stopped: {stopped}; go on with resume={folder}\n")
        sys.exit(0 if stopped.startswith("SIG") else 1)
