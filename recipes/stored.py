"""Replays that runs leave, and runs that learn from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checks import check_kinds
from composing import SAVED, composed, key_of, leave_open_to, load_config
from learning import Replaying
from omegaconf import DictConfig, OmegaConf
from tasks import Task
from tensordict import TensorDict
from torchrl.data import ReplayBuffer

from trading_torchrl.replay import load_replay, save_replay, spec_of
from trading_torchrl.state_file import CheckpointError, checksum

REPLAY = "replay.pt"
BOUND = ("market", "env", "window")
"""Settings without which stored rows mean something else."""

SCALED = ("mean", "std")
"""What two scalers must have in common."""


@dataclass(frozen=True, kw_only=True)
class OfflineRun(Replaying):
    """A run that learns from stored rows, then perhaps from its own; its clock is updates."""

    clock = "updates"
    lengths = ("updates", "fine_tune_frames")

    updates: int
    fine_tune_frames: int

    @property
    def length(self) -> int:
        """Updates, those of fine-tuning among them."""
        return self.updates + math.ceil(self.fine_tune_frames * self.updates_per_frame)

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.fine_tune_frames < 0:
            raise SystemExit(
                "fine_tune_frames must be a whole number, 0 for none, got"
                f" {self.fine_tune_frames!r}"
            )
        if self.fine_tune_frames and not self.updates_per_frame > 0:
            raise SystemExit(
                "fine_tune_frames needs updates_per_frame above 0, got"
                f" {self.updates_per_frame}; set it, or fine_tune_frames=0"
            )
        super().__post_init__()


def keep_replay(
    folder: Path, replay: ReplayBuffer, frames: int, settings: Mapping[str, Any], task: Task
) -> None:
    """Leaves the rows in the run's folder, with what tells whether a task can read them."""
    about = {"settings": dict(settings), "task": task.state_dict()}
    try:
        save_replay(folder / REPLAY, replay, frames, about)
    except CheckpointError as error:
        raise SystemExit(
            f"{error}. The checkpoints are all there: resume={folder} writes the replay again"
        ) from None


def with_data(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """Settings, what they leave open as the run has it whose data are learned from.

    Args:
        config: as Hydra hands it over.
        overrides: what was given on the command line, which goes before all else.
    """
    if config.resume is None and OmegaConf.is_missing(config, "data"):
        raise SystemExit(
            f"data=... names what to learn from: the folder of a run with a {REPLAY}, which"
            " python recipes/offpolicy.py replay.save=true leaves"
        )
    theirs = load_config(Path(config.resume or config.data))
    choices: dict[str, str] = {}
    if config.resume is None:
        config, choices = composed("offline", overrides)
    given = [name for name in BOUND if name in config and name != "market"]
    given += [key for key in map(key_of, overrides) if key.partition(".")[0] == "market"]
    given = [name for name in given if name != "market.report_split"]
    if given:
        raise SystemExit(
            f"{given[0]} is as the data have it: leave it out, or collect with it by python"
            f" recipes/offpolicy.py {given[0]}=... replay.save=true"
        )
    OmegaConf.set_struct(config, False)
    split = config.market.report_split or theirs.market.report_split
    for name in BOUND:
        config[name] = theirs[name]
    config.market.report_split = split
    if "network" in config and "_target_" not in config.network:  # settings of the data's network
        config.network = OmegaConf.merge(theirs.network, config.network)
    leave_open_to(theirs, config)
    if config.resume is not None:
        config.data = theirs.data
    config.choices = choices
    return config


def read_replay(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Stored rows that were collected with these settings, and a checksum of them."""
    path = folder / REPLAY
    if not path.exists():
        raise SystemExit(
            f"{folder} has no {REPLAY}: collect with replay.save=true, to be given when that run"
            " begins"
        )
    try:
        saved = load_replay(path) | {"checksum": checksum(path)}
    except CheckpointError as error:
        raise SystemExit(str(error)) from None
    for name in BOUND:
        here, there = (_without_split(each[name]) for each in (settings, saved["settings"]))
        if here != there:
            raise SystemExit(
                f"{path} was collected with {name} {there}, and {folder / SAVED} has {here}: bring"
                " the file back as it was, or collect anew"
            )
    return saved


def rows_for(
    task: Task, keys: Sequence[Any], stored: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """What is stored, its rows cut down to these keys; refused where a task cannot read them."""
    task.load_state_dict(stored["task"])
    expected = task.env.fake_tensordict().select(*keys)
    transform = task.replay_transform()
    if transform is not None:
        expected = transform.inv(expected.clone())
    for name, wanted in spec_of(expected).items():
        held = stored["spec"].get(name)
        if held is None:
            raise SystemExit(
                f"{folder / REPLAY} lacks {name}, which this loss or its networks read:"
                " collect with them"
            )
        if held != wanted:
            raise SystemExit(
                f"{folder / REPLAY} holds {name} as {held}, and here it is {wanted}: collect anew"
            )
    rows = TensorDict(stored["rows"]).select(*expected.keys(include_nested=True, leaves_only=True))
    return {**stored, "rows": rows.to_dict()}


def check_sight(earlier: Mapping[str, Any] | None, stored: Mapping[str, Any]) -> None:
    """Refuses networks that were trained to see the market otherwise than it is seen here."""
    scalers = [(each or stored)["task"].get("scaler", {}) for each in (earlier, stored)]
    if any(not one.equal(scalers[1][name]) for name, one in scalers[0].items() if name in SCALED):
        raise SystemExit(
            f"init={(earlier or {})['folder']}: that run saw the market through another scaler than"
            " the data were collected with; begin with a run on the same prices, or collect data"
            " with init= of it"
        )


def _without_split(setting: Any) -> Any:
    """Which split is reported on says nothing of the rows."""
    if not isinstance(setting, dict):
        return setting
    return {name: value for name, value in setting.items() if name != "report_split"}
