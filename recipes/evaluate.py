"""Judges a trained run on one split, and writes a report of it.

    python recipes/evaluate.py run=outputs/offpolicy/... split=test

Reads the run's settings and its newest checkpoint (`checkpoint=best` for the best on the
validation split), and leaves `evaluation_<split>.json` and `evaluation_<split>/report.html` in the
run's folder. Look at the test split once, when all choices are made.
"""

import sys
from pathlib import Path

import hydra
import torch
from launch import SPLITS, load_settings, set_machine
from omegaconf import DictConfig
from tasks import make_task

from trading_torchrl.checkpoint import CheckpointError, Checkpoints
from trading_torchrl.evaluation import write_json
from trading_torchrl.modules import make_actor
from trading_torchrl.resume import parameters_sha256


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(config: DictConfig) -> None:
    """Loads, judges, writes."""
    if config.split not in SPLITS:
        raise SystemExit(f"split is {' or '.join(SPLITS)}, got {config.split!r}")
    if config.checkpoint not in ("newest", "best"):
        raise SystemExit(f"checkpoint is newest or best, got {config.checkpoint!r}")
    folder = Path(config.run)
    settings = load_settings(folder)
    set_machine(settings["threads"], settings["matmul_precision"], settings["seed"])
    task = make_task(
        settings["market"], settings["env"], settings["num_envs"], settings["window"],
        settings["seed"],
    )  # fmt: skip
    try:
        path, saved = getattr(Checkpoints(folder / "checkpoints"), config.checkpoint)()
    except CheckpointError as error:
        raise SystemExit(str(error)) from None
    actor = make_actor(task.inputs, task.actions, settings["hidden"], task.in_keys)
    actor.load_state_dict(saved["averaged"])

    out = folder / f"evaluation_{config.split}"
    out.mkdir(exist_ok=True)
    torch.manual_seed(settings["seed"])
    frames = saved["count"]["frames"]
    facts = {
        "run": folder.name, "checkpoint": path.name, "frames": f"{frames:,}",
        "seed": str(settings["seed"]),
    }  # fmt: skip
    figures = task.report(actor, config.split, out, facts, saved["evaluations"])
    write_json(
        folder / f"evaluation_{config.split}.json",
        {
            "figures": figures,
            "split": config.split,
            "checkpoint": path.name,
            "frames": frames,
            "parameters_sha256": parameters_sha256(actor),
        },
    )
    shown = "\n".join(f"{name:32} {value:.4g}" for name, value in figures.items())
    sys.stdout.write(f"\n{shown}\n\n{out}/report.html\n")


if __name__ == "__main__":
    main()
