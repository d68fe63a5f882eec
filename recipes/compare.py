"""Compares settings of a recipe over seeds: same data, same seeds, same budget for all.

    python recipes/compare.py sweep=actions reach=sharpe_ratio_mean:0.3 common=evaluate_every=25_600
    python recipes/compare.py settings='[loss=sac, loss=td3]' common='env=garleanu_pedersen' seeds=5
    python recipes/compare.py settings='{wide: hidden=[256,256], narrow: hidden=[32]}' seeds=3
    python recipes/compare.py sweep=losses common='env=garleanu_pedersen' out=outputs/losses

Prints a table with intervals and with the differences to the first setting, seed by seed, and
leaves comparison.json and comparison.html. A run that is there is not repeated, one that was
interrupted is gone on with. A run that fails is named; the others go on, and the exit code is 1.
"""

import hashlib
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import hydra
from comparison import Comparison
from comparison_page import page_of
from comparison_tables import as_text
from composing import key_of
from hydra.errors import HydraException
from launch import SPLITS
from many_runs import RECIPES, Done, Job, run_all
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from trading_torchrl.evaluation import write_json

OWN = {
    "seed": "all settings have the same seeds: give seeds=",
    "market.report_split": "all settings are judged on the same split: give split=",
    "threads": "each run has one thread, so that what it learns does not depend on jobs=",
    "resume": "runs are gone on with by themselves",
    "stop_at": "runs have to come to their end",
}
"""What settings cannot say, and why."""

SAME = ("market", "total_frames", "data", "updates", "fine_tune_frames")
"""What has to be the same for all: data and budget. So has ``env``, but for what follows."""

OF_AGENT = (
    "action", "actions", "choices", "smoothing", "reward", "risk_aversion", "num_envs",
    "episode_bars", "random_start", "random_symbols", "compiled",
)  # fmt: skip
"""Settings of ``env`` that belong to the agent, or to its training."""


@hydra.main(version_base="1.3", config_path="conf", config_name="compare")
def main(config: DictConfig) -> None:
    """Checks, runs, tells."""
    asked: Any = OmegaConf.to_container(config)
    settings = settings_of(asked)
    reach = level_of(asked["reach"])
    common = split_at(asked["common"] or "", " ")
    check(asked, settings, common)
    split, recipe = asked["split"], asked["recipe"]
    jobs = [
        job_of(name, seed, recipe, [*common, *overrides], split, Path(asked["runs"]))
        for seed in range(asked["seeds"])
        for name, overrides in settings.items()
    ]
    check_alike([job for job in jobs if job.seed == 0])

    table = Comparison(recipe, common, settings, split, asked["figures"], reach)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results: list[Done] = []
    try:
        with closing(run_all(jobs, asked["jobs"] or cores or 1)) as coming:
            for done in (bar := tqdm(coming, total=len(jobs), desc="runs")):
                results.append(done)
                table.add(done)
                if done.failure:
                    bar.write(f"failed: {done.job.name}, seed {done.job.seed}", file=sys.stderr)
    except KeyboardInterrupt:
        sys.stdout.write("\nstopped; the same command goes on\n")
        sys.exit(130)
    out = Path(asked["out"] or default_folder(asked, settings))
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "comparison.json", table.summary())
    (out / "comparison.html").write_text(page_of(table), encoding="utf-8")
    sys.stdout.write(f"\n{as_text(table)}\n\n{out}: comparison.html, comparison.json\n")
    sys.exit(any(done.failure for done in results))


def settings_of(asked: Mapping[str, Any]) -> dict[str, list[str]]:
    """Overrides of each setting by its name, from ``settings`` or from ``sweep``."""
    sweep, given = asked.get("sweep"), asked["settings"]
    if (sweep is None) == (given is None):
        raise SystemExit(
            "give either settings='[overrides, overrides, ...]' or sweep=, the name of a file in"
            " conf/sweep"
        )
    if sweep is not None:
        named = [(str(name), str(overrides or "")) for name, overrides in sweep.items()]
    else:
        named = written(str(given))
    if not named:
        raise SystemExit(f"there are no settings to compare in {given or 'sweep'!r}")
    names = [name for name, _ in named]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SystemExit(f"settings: {twice[0]!r} is there twice")
    return {name: split_at(overrides, " ") for name, overrides in named}


def written(text: str) -> list[tuple[str, str]]:
    """Names and overrides of ``[overrides, ...]``, which are names too, or ``{name: overrides}``.

    Example:
        >>> written("[loss=sac, loss=td3 hidden=[16, 16]]")
        [('loss=sac', 'loss=sac'), ('loss=td3 hidden=[16, 16]', 'loss=td3 hidden=[16, 16]')]
        >>> written("{wide: hidden=[256,256], as it is: ''}")
        [('wide', 'hidden=[256,256]'), ('as it is', '')]
    """
    text = text.strip()
    if text[:1] + text[-1:] not in ("[]", "{}"):
        raise SystemExit(
            "settings are written '[overrides, overrides, ...]' or '{name: overrides, ...}', got"
            f" {text!r}"
        )
    entries = split_at(text[1:-1], ",")
    if text[0] == "[":
        plain = [unquoted(entry) for entry in entries]
        return [(each or "as it is", each) for each in plain]
    pairs = [split_at(entry, ":") for entry in entries]
    for entry, pair in zip(entries, pairs, strict=True):
        if len(pair) < 2 or not pair[0]:
            raise SystemExit(f"settings: {entry!r} is not written 'name: overrides'")
    return [(unquoted(name), unquoted(":".join(rest))) for name, *rest in pairs]


def split_at(text: str, sign: str) -> list[str]:
    """Parts between a sign that stands outside brackets and quotes.

    Example:
        >>> split_at("loss=sac market.path='my prices' hidden=[16, 16]", " ")
        ['loss=sac', "market.path='my prices'", 'hidden=[16, 16]']
    """
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in "]})":
            depth -= 1
        if letter == sign and not quote and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if quote or depth:
        raise SystemExit(f"brackets or quotes do not close in {text!r}")
    stripped = [part.strip() for part in parts]
    return [part for part in stripped if part]


def unquoted(text: str) -> str:
    """Without quotes around the whole."""
    whole = re.fullmatch(r"""(['"])((?!\1).)*\1""", text)
    return text[1:-1] if whole else text


def level_of(reach: str | None) -> tuple[str, float] | None:
    """Figure and level of ``figure:level``."""
    if reach is None:
        return None
    figure, _, level = str(reach).partition(":")
    try:
        return figure, float(level)
    except ValueError:
        raise SystemExit(
            f"reach is figure:level, as sharpe_ratio_mean:0.3; got {reach!r}"
        ) from None


def check(
    asked: Mapping[str, Any], settings: Mapping[str, Sequence[str]], common: Sequence[str]
) -> None:
    """Refuses what cannot be compared."""
    for name in ("seeds", "jobs"):
        value = asked[name]
        if not (isinstance(value, int) and value >= 1) and (name, value) != ("jobs", None):
            raise SystemExit(f"{name} must be a whole number of at least 1, got {value!r}")
    if asked["split"] not in SPLITS:
        raise SystemExit(f"split is {' or '.join(SPLITS)}, got {asked['split']!r}")
    if not (RECIPES / f"{asked['recipe']}.py").exists():
        raise SystemExit(f"there is no recipes/{asked['recipe']}.py")
    for name, overrides in settings.items():
        keys = [key_of(each) for each in (*common, *overrides)]
        for key in keys:
            if key in OWN or key.startswith("hydra"):
                raise SystemExit(f"{name!r} sets {key}: {OWN.get(key, 'compare.py sets it')}")
            if keys.count(key) > 1:
                raise SystemExit(f"{name!r} sets {key} twice, common='...' counted in")


def job_of(
    name: str, seed: int, recipe: str, overrides: Sequence[str], split: str, place: Path
) -> Job:
    """A run, refused where there is no such setting, or its loss does not read it."""
    try:
        return Job.of(name, seed, recipe, overrides, split, place)
    except HydraException as error:
        raise SystemExit(f"{name!r} is not a setting of {recipe}: {error}") from None
    except SystemExit as error:
        raise SystemExit(f"{name!r}: {error}") from None


def check_alike(jobs: Sequence[Job]) -> None:
    """Refuses settings that differ in data or budget, and those that do not differ at all."""
    first = jobs[0]
    for i, job in enumerate(jobs):
        one, other = (same_for_all(each.settings) for each in (first, job))
        for key in {**one, **other}:
            if one.get(key) != other.get(key):
                raise SystemExit(
                    f"{first.name!r} and {job.name!r} differ in {key}: all settings learn from the"
                    f" same data with the same budget; give {key} in common='...'"
                )
        for earlier in jobs[:i]:
            if earlier.folder == job.folder:
                raise SystemExit(f"{earlier.name!r} and {job.name!r} are the same setting")


def same_for_all(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of a run's settings those that have to be the same for all."""
    env = settings.get("env") or {}
    world = {f"env.{name}": value for name, value in env.items() if name not in OF_AGENT}
    return {name: settings.get(name) for name in SAME} | world


def default_folder(asked: Mapping[str, Any], settings: Mapping[str, Sequence[str]]) -> Path:
    """The same for the same question."""
    question = json.dumps([asked["recipe"], asked["common"], settings, asked["split"]])
    return Path("outputs/compare") / hashlib.sha256(question.encode()).hexdigest()[:12]


def for_hydra(argument: str) -> str:
    """Quotes what Hydra has no grammar for: overrides inside overrides."""
    name, sign, text = argument.partition("=")
    if name not in ("settings", "common") or not sign:
        return argument
    escaped = re.sub(r"(\\*)('|$)", lambda m: 2 * m[1] + ("\\'" if m[2] else ""), text)
    return f"{name}='{escaped}'"


if __name__ == "__main__":
    sys.argv[1:] = [for_hydra(each) for each in sys.argv[1:]]
    main()
