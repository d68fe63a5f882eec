"""Options, as a recipe carries them out: who chooses among them, by what it learns, who acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Any

import torch
from checks import check_above_0, check_rate, check_whole, plainly, there
from tasks.trading import Trading
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import Transform

from trading_torchrl.descent import Adam, differentiate
from trading_torchrl.envs import signals_of
from trading_torchrl.modules import Controller, Levels, Option, OptionPolicy, trading_options
from trading_torchrl.modules.option_policy import END_LOGITS, LOGITS, VALUES
from trading_torchrl.modules.options import SHARES, check_options
from trading_torchrl.monitoring import broken
from trading_torchrl.objectives import OptionCriticLoss, OptionsLoss
from trading_torchrl.replay import OptionSteps, Segments
from trading_torchrl.resume import replay_state, restore_replay

CHOICES = {
    "action": ("rule", "scaled", "blend"),
    "controller": ("policy_gradient", "option_critic"),
    "levels": ("volatility", "shares"),
}

ENTROPY = {"policy_gradient": 0.75, "option_critic": 2.0}
"""Bonus for choices that are alike. Advantages are normalised: the noise that returns have makes
those of a policy gradient small beside it, and values at each bar have none."""


@plainly(ValueError, before="options: ")
def make_options(settings: Mapping[str, Any], task: Trading) -> list[Option]:
    """The six; what counts as a move is chosen on the training split."""
    for name, known in CHOICES.items():
        if there("options", settings, name) not in known:
            raise ValueError(f"{name} is {' or '.join(known)}, got {settings[name]!r}")
    check_whole(
        "options", settings, "time_out", *(["least"] if settings["least"] is not None else [])
    )
    levels = SHARES
    if settings["levels"] == "volatility":
        signals = signals_of(task.parts.train)
        levels = Levels.fit(signals["trend"], signals["volatility"], often=settings["often"])
    rules = task.base.rules
    options = trading_options(levels, short=rules.short, time_out=settings["time_out"])
    if settings["least"] is not None:
        for option in options:
            option.least = settings["least"]
        check_options(options)
    return options


@plainly(ValueError, before="options: ")
def make_option_policy(
    settings: Mapping[str, Any],
    task: Trading,
    options: Sequence[Option],
    actor: TensorDictModule | None,
) -> OptionPolicy:
    """As ``conf/options.yaml`` describes it: who chooses among options, and who acts."""
    rules = task.base.rules
    for name, wanted in (("actions", "continuous"), ("smoothing", 1)):
        if getattr(rules, name) != wanted:
            raise ValueError(
                f"they act on what an account holds: env.{name}={wanted}, got"
                f" {getattr(rules, name)!r}; env=by_trades has both"
            )
    ends = settings["ends"]
    if ends and settings["controller"] != "option_critic":
        raise ValueError("ends are learned by controller=option_critic alone: ends=false")
    network = Controller(
        task.inputs, len(options), settings["hidden"], dropout=settings["dropout"], ends=ends
    )
    keys = [LOGITS, VALUES, END_LOGITS] if ends else [LOGITS, VALUES]
    controller = TensorDictModule(network, in_keys=list(task.in_keys), out_keys=keys)
    return OptionPolicy(
        options, controller, cap=rules.cap, action=settings["action"], actor=actor,
        blend=settings["blend"], temperature=settings["temperature"]["start"],
        compiled=task.base.compiled,
    )  # fmt: skip


@dataclass
class Controlling:
    """A controller that learns, from the newest of what its options came to."""

    policy: OptionPolicy
    loss: OptionsLoss
    optimizer: Adam
    rows: Transform
    newest: ReplayBuffer
    settings: Mapping[str, Any]
    scale: float

    def __post_init__(self) -> None:
        self.summed = [key for key in self.loss.out_keys if key.startswith("loss_")]
        self.sums: dict[str, float] = {}
        self.count = 0
        self.known: dict[str, float] = {}
        self.course: list[dict[str, float]] = []

    def parts(self) -> dict[str, Any]:
        """What has a state."""
        return {"controlling": self, "controller_optimizer": self.optimizer}

    def learn(self, batch: TensorDictBase, frames: int) -> list[str]:
        """What a batch of steps teaches; what is not finite."""
        rows = self.rows(batch)
        if len(rows) > self.settings["keep"]:  # some of all accounts, not the last of them
            rows = rows[torch.randperm(len(rows))[: self.settings["keep"]]]
        if len(rows):
            rows = rows.select(*self.loss.in_keys)
            rows["next", "reward"] = self.scale * rows["next", "reward"]
            self.newest.extend(rows)
        if frames <= self.settings["after"] or not len(self.newest):
            return []
        for _ in range(self.settings["updates"]):
            losses = self.loss(self.newest.sample())
            total = sum(losses[name] for name in self.summed)
            longest = self.settings["max_grad_norm"]
            norm = differentiate(total, self.optimizer.parameters, longest)
            if isnan(norm):
                return broken(losses) or ["controller"]
            for name, each in {**losses.detach(), "grad_norm": norm}.items():
                self.sums[name] = self.sums.get(name, 0.0) + float(each)
            self.count += 1
            self.optimizer.step()
            self.loss.update_targets(self.settings["tau"])
            cools = self.settings["temperature"]
            self.policy.temperature.mul_(cools["decay"]).clamp_(min=cools["least"])
        return []

    def figures(self) -> dict[str, float]:
        """Means of the updates since :meth:`forget`; of those before it where there were none."""
        if self.count:
            self.known = {f"options/{name}": each / self.count for name, each in self.sums.items()}
        return {**self.known, "options/temperature": float(self.policy.temperature)}

    def forget(self, frames: int) -> None:
        """Means are taken from here on; those until here are kept in :attr:`course`."""
        self.course.append({"frames": float(frames), **self.figures()})
        self.sums, self.count = {}, 0

    def state_dict(self) -> dict[str, Any]:
        """Rows, what was cut off, and the figures, which a run that goes on tells from before."""
        rows = self.rows.get_extra_state() if isinstance(self.rows, Segments) else {}
        told = {"sums": self.sums, "count": self.count, "known": self.known, "course": self.course}
        return {"newest": replay_state(self.newest), "rows": rows, **deepcopy(told)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        restore_replay(self.newest, state["newest"])
        if isinstance(self.rows, Segments):
            self.rows.set_extra_state(state["rows"])
        for name in ("sums", "count", "known", "course"):
            setattr(self, name, deepcopy(state[name]))


@plainly(ValueError, before="options: ")
def make_controlling(
    settings: Mapping[str, Any], policy: OptionPolicy, *, gamma: float, scale: float
) -> Controlling:
    """What teaches the controller of a policy, as ``conf/options.yaml`` describes it."""
    check_whole("options", settings, "batch_size", "keep", "updates")
    check_above_0("options", settings, "lr", "max_grad_norm")
    check_rate("options", settings)
    if not settings["after"] >= 0:
        raise ValueError(f"after must be at least 0 frames, got {settings['after']}")
    cools = settings["temperature"]
    if not 0 < cools["least"] <= cools["start"] or not 0 < cools["decay"] <= 1:
        raise ValueError(
            "temperature falls from start to least, both above 0, by decay in (0, 1]; got"
            f" {', '.join(f'{name}={value}' for name, value in cools.items())}"
        )
    weighed = {name: settings[name] for name in ("entropy", "value", "normalise")}
    if weighed["entropy"] is None:
        weighed["entropy"] = ENTROPY[settings["controller"]]
    critic = settings["controller"] == "option_critic"
    kind = partial(OptionCriticLoss, margin=settings["margin"]) if critic else OptionsLoss
    controller = policy.controller
    loss = kind(controller, gamma=gamma, temperature=lambda: policy.temperature, **weighed)
    rows: Transform = (
        OptionSteps(policy.may, policy.bounds)
        if critic
        else Segments(policy.may, gamma=gamma, seen=controller.in_keys)
    )
    newest = ReplayBuffer(
        storage=LazyTensorStorage(settings["keep"]), batch_size=settings["batch_size"]
    )
    optimizer = Adam(controller.parameters(), lr=settings["lr"])
    return Controlling(policy, loss, optimizer, rows, newest, settings, scale)
