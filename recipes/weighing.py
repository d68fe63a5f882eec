"""Several objectives in place of one reward, as the recipes switch them on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents import discount
from checks import plainly
from launch import Run
from learned_weights import LearnedWeights, make_learned
from tasks import Task
from tasks.trading import Trading
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule

from trading_torchrl.modules.weights import START, fixed_weights, regime_weights
from trading_torchrl.replay import Novelty, WeighedObjectives

RULES = (None, "turbulence")


@dataclass
class Objectives:
    """What is new, and all objectives weighed."""

    task: Task
    novelty: Novelty
    weighed: WeighedObjectives
    known: dict[str, float] = field(default_factory=dict)
    sample: TensorDictBase | None = None
    loss: LossModule | None = None
    """nothing is learned"""
    reads: tuple[NestedKey, ...] = (("next", "objectives"), ("next", "place"))
    """keys that rows must have"""

    def parts(self) -> dict[str, Any]:
        """What has a state."""
        return {"novelty": self.novelty, "objectives_seen": self}

    def state_dict(self) -> dict[str, float]:
        """The figures: where updates are rare, a run that goes on tells those from before."""
        return self.figures()

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        self.sample, self.known = None, dict(state)

    def learn(self, update: int) -> list[str]:
        """Nothing is learned."""
        return []

    def see(self, batch: TensorDictBase) -> None:
        """What was collected: each row gets the place where it arrived."""
        place = self.task.place_of(batch)
        self.novelty.see(place)
        batch.set(("next", "place"), place)

    def weigh(self, sample: TensorDictBase) -> TensorDictBase:
        """A batch with its objectives as the reward."""
        self.sample = self.weighed(self.novelty(sample))
        return self.sample

    def parts_and_weights(self) -> dict[str, float]:
        """What each objective added and its weight, for the report."""
        shown = ("_component", "_weight")
        return {name: value for name, value in self.figures().items() if name.endswith(shown)}

    def figures(self) -> dict[str, float]:
        """Of the last update: what each objective added, its weight, and its part of all."""
        if self.sample is None:
            return dict(self.known)
        parts, weights = (
            self.sample["objectives", name].flatten(0, -2) for name in ("parts", "weights")
        )
        sizes = parts.abs().mean(0)
        share = (sizes / sizes.sum().clamp(min=1e-12)).tolist()
        entropy = -(weights * weights.clamp(min=1e-12).log()).sum(-1).mean()
        said = zip(self.weighed.names, parts.mean(0), weights.mean(0), share, strict=True)
        self.known = {"reward/weight_entropy": float(entropy)}
        for name, part, weight, of_all in said:
            self.known[f"reward/{name}_component"] = float(part)
            self.known[f"reward/{name}_weight"] = float(weight)
            self.known[f"reward/{name}_share"] = of_all
        return dict(self.known)


@plainly(ValueError, before="objectives: ")
def make_objectives(
    settings: Mapping[str, Any], task: Task, loss: LossModule, run: Run
) -> Objectives | LearnedWeights | None:
    """What ``conf/objectives`` describes; nothing where it is off, or where none is weighed yet.

    A goal's reward is added to the objectives, and what shaping added.
    """
    chosen = settings.get("objectives")
    if not chosen or chosen.get("pareto"):
        return None
    shaped = "shaping" if settings.get("shaping") else None
    adds = "reward" if task.goals is not None else shaped
    if chosen.get("learned"):
        assert isinstance(task, Trading)
        return make_learned(
            chosen, task, loss, adds,
            seed=run.seed, gamma=discount(settings), scale=run.reward_scale,
        )  # fmt: skip
    weights, rule = chosen["weights"], chosen["rule"]
    if list(weights) != list(START):
        raise SystemExit(
            f"objectives.weights has one for each of {', '.join(START)}; got {', '.join(weights)}"
        )
    if rule not in RULES:
        raise SystemExit(f"objectives.rule is null or turbulence, got {rule!r}")

    def by_regime(rows: TensorDictBase) -> Tensor:
        return regime_weights(task.turbulent(rows), weights)

    given = by_regime if rule else fixed_weights(weights)
    weighed = WeighedObjectives(tuple(weights), given, adds=adds)
    return Objectives(task, Novelty(task.places, **chosen["novelty"]), weighed)
