"""Judges trained runs on one split, and writes a report of them.

    python recipes/evaluate.py run=outputs/offpolicy/... split=test
    python recipes/evaluate.py run='[outputs/seed0, outputs/seed1, outputs/seed2]' out=outputs/seeds

Reads a run's settings and its newest checkpoint (`checkpoint=best` for the best on the validation
split, or the name of one), and leaves `evaluation_<split>.json` and
`evaluation_<split>/report.html` in the run's folder, or in `out`. Several runs that differ in
their seeds alone become one report, with 95 % intervals. Look at the test split once, when all
choices are made.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra
import torch
from acting import make_agent_within
from agents import make_agent, scale_of
from checks import plainly
from controlling import make_option_policy, make_options
from launch import SPLITS, load_settings, set_machine
from omegaconf import DictConfig, OmegaConf
from tasks import Judged, Task, make_task, together
from tasks.trading import Trading
from tensordict.nn import TensorDictModuleBase
from tqdm import tqdm

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.evaluation import write_json
from trading_torchrl.evaluation.tables import interval_of, symbol_lines
from trading_torchrl.resume import parameters_sha256
from trading_torchrl.state_file import CheckpointError

MAY_DIFFER = ("seed", "data", "init", "resume", "checkpoint", "stop_at", "threads", "webhook")


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
@plainly(CheckpointError)
def main(config: DictConfig) -> None:
    """Loads, judges, writes."""
    if config.split not in SPLITS:
        raise SystemExit(f"split is {' or '.join(SPLITS)}, got {config.split!r}")
    if OmegaConf.is_missing(config, "run"):
        raise SystemExit("run=... names what to judge: a run's folder, or a list of folders")
    asked = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(asked, dict)
    given = asked["run"] if isinstance(asked["run"], list) else [asked["run"]]
    folders = [Path(each) for each in given]
    settings = [load_settings(folder) for folder in folders]
    check_alike(settings)
    if len(folders) > 1 and config.out is None:
        raise SystemExit("a report of several runs needs a folder of its own: give out=...")
    found: list[tuple[Judged, dict[str, Any]]] = []
    for each, folder in tqdm(list(zip(settings, folders, strict=True)), desc="runs"):
        judgement, which = judged(each, folder, config.checkpoint, config.split)
        for clock in ("frames", "updates"):
            if found and which[clock] != found[0][1][clock]:
                raise SystemExit(
                    f"{folder} has learned from {which[clock]:,} {clock} and {folders[0]} from"
                    f" {found[0][1][clock]:,}: finish both, or name a checkpoint that both have"
                )
        # Pictures are of the first run: what they need of the others would only take memory.
        found.append((judgement if not found else replace(judgement, pictured={}), which))
    whole = found[0][0] if len(found) == 1 else together([each for each, _ in found])

    name = f"evaluation_{config.split}"
    if config.checkpoint != "newest":
        name += f"_{Path(config.checkpoint).stem}"
    out = Path(config.out or folders[0])
    runs = [facts for _, facts in found]
    facts = {each: ", ".join(dict.fromkeys(str(run[each]) for run in runs)) for each in runs[0]}
    training = found[0][0].training if len(found) == 1 else None
    figures = replace(whole, training=training).write(out / name, facts)
    write_json(
        out / f"{name}.json",
        {"figures": figures, "symbols": whole.symbols, "split": config.split, "runs": runs},
    )
    known = {name: interval_of(figures, name) for name in figures if not name.endswith("_error")}
    shown = "\n".join(
        f"{name:32} {mean:.4g}" + (f" +- {half:.2g}" if math.isfinite(half) else "")
        for name, (mean, half) in known.items()
    )
    if whole.symbols:
        shown += f"\n\n{symbol_lines(whole.symbols)}"
    sys.stdout.write(f"\n{shown}\n\n{out / name}/report.html\n")


def check_alike(settings: list[dict[str, Any]]) -> None:
    """Refuses runs that do not differ in their seeds, or in more: their mean would mean nothing."""
    seeds = [each["seed"] for each in settings]
    if len(set(seeds)) < len(seeds):
        raise SystemExit(f"these runs have seeds {seeds}: one report is of different seeds")
    for other in settings[1:]:
        for name, value in settings[0].items():
            if name not in MAY_DIFFER and other.get(name) != value:
                raise SystemExit(
                    f"these runs differ in {name}: {value} and {other.get(name)}; one report is of"
                    " runs that differ in their seeds alone"
                )


def judged(
    settings: Mapping[str, Any], folder: Path, checkpoint: str, split: str
) -> tuple[Judged, dict[str, Any]]:
    """A run's policy on a split, and which it is."""
    set_machine(settings["threads"], settings["matmul_precision"], settings["seed"])
    path, saved = Checkpoints(folder / "checkpoints").named(checkpoint)
    task = make_task(settings, saved)
    task.load_state_dict(saved["task"])
    actor = policy_of(settings, task)
    actor.load_state_dict(saved["averaged"])
    torch.manual_seed(settings["seed"])
    facts = {
        "run": folder.name,
        "checkpoint": path.name,
        "frames": saved["count"]["frames"],
        "updates": saved["count"]["updates"],
        "seed": settings["seed"],
        "actor_sha256": parameters_sha256(actor),
    }
    return replace(task.judge(actor, split), training=saved["evaluations"]), facts


def policy_of(settings: Mapping[str, Any], task: Task) -> TensorDictModuleBase:
    """An untrained one, as the settings describe it."""
    if not settings.get("options"):
        actor, _ = make_agent(
            settings["loss"], settings["network"], task, settings["hidden"],
            scale=scale_of(settings, task),
        )  # fmt: skip
        return actor
    assert isinstance(task, Trading)
    options = make_options(settings["options"], task)
    actor, _ = make_agent_within(settings, task, settings["hidden"], len(options))
    return make_option_policy(settings["options"], task, options, actor)


if __name__ == "__main__":
    main()
