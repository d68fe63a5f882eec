"""Several objectives in place of one reward, as the recipes switch them on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents import discount
from checks import plainly
from learned_weights import make_learned
from learning import Collecting
from objectives import Objectives, entropy, told
from tasks import Task
from tasks.trading import Trading
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.objectives import LossModule

from trading_torchrl.envs.terms import TERMS
from trading_torchrl.modules import OptionPolicy
from trading_torchrl.modules.weights import START, fixed_weights, regime_weights
from trading_torchrl.replay import Novelty, VectorReward, WeighedObjectives
from trading_torchrl.replay.objectives import EXPLORATION

RULES = (None, "turbulence")


class Weighed(Objectives):
    """By weights that are given, as one reward."""

    def __init__(self, task: Trading, novelty: Novelty, weighed: WeighedObjectives) -> None:
        super().__init__(task, novelty)
        self.weighed = weighed

    def weigh(self, sample: TensorDictBase) -> TensorDictBase:
        """A batch with its objectives as the reward."""
        self.sample = self.weighed(self.novelty(sample))
        return self.sample

    def figures(self) -> dict[str, float]:
        """Of the last update: what each objective added, its weight, and its part of all."""
        if self.sample is None:
            return dict(self.known)
        parts, weights = (self.sample["objectives", name] for name in ("parts", "weights"))
        self.known = told(START, parts, weights)
        self.known["reward/weight_entropy"] = entropy(weights)
        return dict(self.known)


@plainly(ValueError, before="objectives: ")
def make_objectives(
    settings: Mapping[str, Any],
    task: Task,
    loss: LossModule,
    run: Collecting,
    policy: OptionPolicy | None = None,
) -> Objectives | None:
    """What ``conf/objectives`` describes; nothing where it is off, or where none is weighed yet.

    A goal's reward is added to the objectives, and what shaping added. Options act by ``policy``.
    """
    chosen = settings.get("objectives")
    if not chosen or chosen["kind"] == "pareto":
        return None
    assert isinstance(task, Trading)
    shaped = "shaping" if settings.get("shaping") else None
    adds = "reward" if task.goals is not None else shaped
    novelty = Novelty(task.places, **chosen["novelty"])
    if chosen["kind"] == "learned":
        return make_learned(
            chosen, task, loss, policy, novelty, VectorReward((TERMS, EXPLORATION), adds=adds),
            seed=run.seed, gamma=discount(settings), scale=run.reward_scale,
        )  # fmt: skip
    weights, rule = chosen["weights"], chosen["rule"]
    if set(weights) != set(START):
        raise SystemExit(
            f"objectives.weights has one for each of {', '.join(START)}; got {', '.join(weights)}"
        )
    weights = {name: weights[name] for name in START}
    if rule not in RULES:
        raise SystemExit(f"objectives.rule is null or turbulence, got {rule!r}")

    def by_regime(rows: TensorDictBase) -> Tensor:
        return regime_weights(task.turbulent(rows), weights)

    given = by_regime if rule else fixed_weights(weights)
    weighed = WeighedObjectives(given, (TERMS, EXPLORATION), adds=adds)
    return Weighed(task, novelty, weighed)
