"""The numbers of a run that learns, checked: its lengths, rates, and who is told."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from checks import WRITTEN, check_kinds, plainly
from composing import SAVED, load_config
from omegaconf import OmegaConf
from torch.utils.tensorboard import SummaryWriter

from trading_torchrl.machine import PRECISIONS
from trading_torchrl.monitoring import (
    Alerts,
    Channel,
    alerts_from,
    file_channel,
    log_channel,
    tensorboard_channel,
    webhook_channel,
)
from trading_torchrl.monitoring.mlflow_writer import MLflowWriter

DISTRIBUTED = ("processes", "ray")


@dataclass(frozen=True, kw_only=True)
class Learning(ABC):
    """The numbers of a run that learns, checked; what each is stands in its ``conf/*.yaml``."""

    clock: ClassVar[str]
    """what its length is counted in, and its checkpoints are named by"""
    lengths: ClassVar[tuple[str, ...]]
    """names of what says how long a run is; all else stays as it is where one is gone on with"""
    elsewhere: ClassVar[tuple[str, ...]] = ()
    """names of what says where it runs, which may be another place then"""

    seed: int
    stop_at: int | None
    hidden: list[int]
    window: int | None
    init: str | None
    lr: float
    lr_end: float
    actor_average: float
    evaluate_every: int
    checkpoint_every: int
    log_every: int
    keep: int
    watch_from: int
    alerts: Any
    webhook: str | None
    mlflow: str | None
    threads: int
    matmul_precision: str

    @property
    @abstractmethod
    def length(self) -> int:
        """At what the run ends, by its own clock."""

    @property
    def stride(self) -> int:
        """By how much its clock moves between two looks at what was learned."""
        return 1

    def __post_init__(self) -> None:
        check_kinds(self)
        self.check_counts(
            *self.lengths[:1], "evaluate_every", "checkpoint_every", "log_every", "keep", "threads"
        )
        if any(width < 1 for width in self.hidden):
            raise SystemExit(f"hidden must be widths of at least 1, got {self.hidden}")
        if not self.lr_end >= 0:
            raise SystemExit(f"lr_end must be at least 0, got {self.lr_end}")
        if not self.watch_from >= 0:
            raise SystemExit(f"watch_from must be at least 0, got {self.watch_from}")
        self.check_above_0("lr")
        check_part("actor_average", self.actor_average)
        if self.stop_at is not None and not 0 < self.stop_at <= self.length:
            raise SystemExit(
                f"stop_at must lie between 1 and {self.lengths[0]}={self.length}, got"
                f" {self.stop_at}"
            )
        if self.matmul_precision not in PRECISIONS:
            raise SystemExit(
                f"matmul_precision is {', '.join(PRECISIONS)}, got {self.matmul_precision!r}"
            )
        self.told_on([])

    def check_counts(self, *names: str) -> None:
        """Refuses settings that are no whole numbers of at least 1."""
        for name in names:
            value = getattr(self, name)
            if value < 1:
                said = WRITTEN.get(name, name)
                raise SystemExit(f"{said} must be a whole number of at least 1, got {value!r}")

    def check_above_0(self, *names: str) -> None:
        """Refuses settings that are not above 0."""
        for name in names:
            if not getattr(self, name) > 0:
                raise SystemExit(f"{name} must be above 0, got {getattr(self, name)}")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """From a recipe's settings."""
        return cls(**{field.name: settings[field.name] for field in fields(cls)})

    def learning_rate(self, at: int) -> float:
        """From ``lr`` to ``lr_end`` in a straight line, until the end."""
        return self.lr + (self.lr_end - self.lr) * min(at / self.length, 1.0)

    def keep_lengths(self, folder: Path) -> None:
        """What a run that is gone on with is told of its length stands in its settings."""
        kept = load_config(folder)
        longer = {name: getattr(self, name) for name in self.lengths}
        if any(kept[name] != value for name, value in longer.items()):
            OmegaConf.save(OmegaConf.merge(kept, longer), folder / f"{SAVED}.new")
            os.replace(folder / f"{SAVED}.new", folder / SAVED)

    def writer(self, folder: Path, purge_step: int | None) -> SummaryWriter:
        """Of TensorBoard, and of MLflow if asked for."""
        if self.mlflow is None:
            return SummaryWriter(str(folder), purge_step=purge_step)
        settings: Any = OmegaConf.to_container(OmegaConf.load(folder / SAVED))
        del settings["webhook"]  # may hold a token
        try:
            return MLflowWriter(folder, self.mlflow, settings, purge_step)
        except Exception as error:
            raise SystemExit(f"mlflow={self.mlflow}: {error}") from error

    @plainly(ValueError)
    def alerts_to(self, folder: Path, writer: SummaryWriter) -> Alerts:
        """The rules, and the channels they are told on."""
        told = [log_channel(), file_channel(folder / "alerts.jsonl"), tensorboard_channel(writer)]
        if self.webhook is not None:
            told.append(webhook_channel(self.webhook))
        return self.told_on(told)

    @plainly(ValueError)
    def told_on(self, channels: Sequence[Channel]) -> Alerts:
        """The rules, told on these channels."""
        alerts = alerts_from(self.alerts, channels=channels)
        if alerts.non_finite == "warn":
            raise SystemExit(
                "alerts.non_finite=warn: nothing can be learned from what is not finite; training"
                " can stop or roll_back"
            )
        return alerts


def check_part(name: str, value: float) -> None:
    """Refuses what is no rate."""
    if not 0 < value <= 1:
        raise SystemExit(f"{name} must be above 0 and at most 1, got {value}")


@dataclass(frozen=True, kw_only=True)
class Descending(Learning):
    """A run that follows gradients of a loss."""

    num_envs: int
    steps_per_batch: int
    batch_size: int
    max_grad_norm: float
    reward_scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_counts("num_envs", "steps_per_batch", "batch_size")
        self.check_above_0("max_grad_norm", "reward_scale")


@dataclass(frozen=True, kw_only=True)
class Replaying(Descending):
    """A run that learns from rows that are kept."""

    updates_per_frame: float
    tau: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.updates_per_frame >= 0:
            raise SystemExit(f"updates_per_frame must be at least 0, got {self.updates_per_frame}")
        check_part("tau", self.tau)


@dataclass(frozen=True, kw_only=True)
class Collecting(Descending):
    """A run that collects what it learns from; its clock is frames."""

    clock = "frames"
    lengths = ("total_frames",)

    total_frames: int
    count_places: bool

    @property
    def length(self) -> int:
        """Frames."""
        return self.total_frames

    @property
    def batch_frames(self) -> int:
        """Between two looks at what was learned."""
        return self.num_envs * self.steps_per_batch

    @property
    def stride(self) -> int:
        """A batch."""
        return self.batch_frames


@dataclass(frozen=True, kw_only=True)
class NewestRun(Collecting):
    """A run that learns from what it has just collected."""

    epochs: int
    max_kl: float | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs < 1:
            raise SystemExit(f"epochs must be a whole number of at least 1, got {self.epochs!r}")
        if self.max_kl is not None and not self.max_kl > 0:
            raise SystemExit(f"max_kl must be above 0, or null for no limit, got {self.max_kl}")


@dataclass(frozen=True, kw_only=True)
class ActorsRun(Collecting):
    """A run that learns from what actors collect, which need not be where it is."""

    elsewhere = ("actors", "distributed", "address")

    actors: int
    distributed: str
    address: str | None
    lag: int
    max_lag: int | None
    ahead: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("actors", "lag", "max_lag"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise SystemExit(f"{name} must not be negative, got {value}")
        if self.ahead < 1:
            raise SystemExit(f"ahead must be a whole number of at least 1, got {self.ahead}")
        if self.distributed not in DISTRIBUTED:
            raise SystemExit(f"distributed is {' or '.join(DISTRIBUTED)}, got {self.distributed!r}")
        if self.distributed == "ray" and not self.actors:
            raise SystemExit("distributed=ray needs actors=1 or more")
        if self.address is not None and self.distributed != "ray":
            raise SystemExit(f"address={self.address} is of a Ray cluster: distributed=ray")
        if self.max_lag is not None and not self.actors:
            raise SystemExit(
                f"max_lag={self.max_lag} is for actors=1 or more: with actors=0 lag says how old"
                " weights are"
            )
        if self.lag and self.actors:
            raise SystemExit(
                f"lag={self.lag} is for actors=0: how far {self.actors} actors are behind nobody"
                " sets; max_lag limits it"
            )
        if self.batch_size % self.num_envs:
            raise SystemExit(
                f"batch_size={self.batch_size} stretches must be a multiple of"
                f" env.num_envs={self.num_envs}, which is what an actor delivers at once"
            )

    @property
    def batch_frames(self) -> int:
        """Of one update."""
        return self.batch_size * self.steps_per_batch


@dataclass(frozen=True, kw_only=True)
class Run(Collecting, Replaying):
    """A run that keeps what it collects, and learns from all of that."""

    warmup_frames: int
    buffer_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_frames < 0:
            raise SystemExit(f"warmup_frames must be at least 0, got {self.warmup_frames}")
        if self.buffer_size < 1:
            raise SystemExit(
                f"buffer_size must be a whole number of at least 1, got {self.buffer_size!r}"
            )
        batch = self.num_envs * self.steps_per_batch
        learning = max(-(self.total_frames // -batch) - self.warmup_frames // batch, 0) * batch
        if self.updates_per_frame > 0 and learning * self.updates_per_frame < 1:
            raise SystemExit(
                f"warmup_frames={self.warmup_frames} of total_frames={self.total_frames} leaves no"
                f" updates at updates_per_frame={self.updates_per_frame}: shorten the one, lengthen"
                " the other, or collect alone by updates_per_frame=0"
            )
