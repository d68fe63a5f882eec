"""What an agent is paid for besides, by the parts that are switched on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agents import discount
from curious import Curious, make_curious
from learning import Collecting
from objectives import Objectives
from shaping import Shaped, make_shaping
from tasks import Task
from tensordict import TensorDictBase
from torchrl.objectives import LossModule
from weighing import make_objectives

from trading_torchrl.modules import OptionPolicy


class Paying(NamedTuple):
    """Curiosity, shaping, several objectives: each is there or not; what they learn is theirs."""

    curious: Curious | None
    """pays for surprises"""
    shaping: Shaped | None
    """pays in advance for getting somewhere"""
    objectives: Objectives | None
    """pay for several things instead"""

    def rewarded(
        self, sample: TensorDictBase, count: Mapping[str, int], pace: float
    ) -> tuple[TensorDictBase, list[str]]:
        """A sampled batch with its rewards, and what is not finite; what pays learns as well.

        Args:
            sample: rewards as the environment has them, scaled.
            count: frames and updates so far.
            pace: the agent's learning rate, as a share of its first.
        """
        curious, shaping, objectives = self
        wrong: list[str] = []
        if shaping:  # its potential learns from rewards as they came
            wrong = shaping.learn(sample, count["updates"])
        if curious:  # what its models did not expect is worth something; they learn it
            curious.reward.count(count["frames"])
            sample = curious.reward(sample)
            wrong = wrong or curious.learn(sample, count["updates"])
        if shaping:  # getting somewhere is paid in advance
            sample = shaping.shape(sample, count["frames"])
        if objectives:  # they take the reward's place; a goal's they are added to
            wrong = wrong or objectives.learn(count["updates"], pace)
            sample = objectives.weigh(sample)
        return sample, wrong

    def paid(self, rows: TensorDictBase, frames: int) -> TensorDictBase:
        """Newest steps ``[N, T]`` with their rewards; nothing learns, see :meth:`learn`."""
        if not any(self):
            return rows
        sample = rows.reshape(-1)
        if self.curious:
            self.curious.reward.count(frames)
            sample = self.curious.reward(sample)
        if self.shaping:
            sample = self.shaping.shape(sample, frames)
        if self.objectives:
            sample = self.objectives.weigh(sample)
        return sample.reshape(rows.shape)

    @property
    def learns(self) -> bool:
        """Whether any of it does, by :meth:`learn`."""
        return bool(self.curious or (self.shaping and self.shaping.learned))

    def learn(self, before: TensorDictBase, after: TensorDictBase, update: int) -> list[str]:
        """A step of what pays, if it is its turn, from rows ``[*]``; what is not finite.

        Args:
            before: rewards as the environment has them, scaled.
            after: the same rows, :meth:`paid`.
            update: number of the agent's.
        """
        wrong = self.shaping.learn(before.reshape(-1), update) if self.shaping else []
        if self.curious:
            wrong = wrong or self.curious.learn(after.reshape(-1), update)
        return wrong

    def parts(self) -> dict[str, Any]:
        """What has a state."""
        return {name: each for one in self if one for name, each in one.parts().items()}

    def figures(self) -> dict[str, float]:
        """Of the last update."""
        return {name: value for one in self if one for name, value in one.figures().items()}

    @property
    def losses(self) -> list[LossModule]:
        """Of what learns to pay."""
        return [each.loss for each in self if each and each.loss]

    def told(self) -> dict[str, Any]:
        """What a run says of them at its end."""
        return {
            "curiosity": self.curious.told() if self.curious else None,
            "shaping": self.shaping.figures() if self.shaping else None,
            "objectives": self.objectives.figures() if self.objectives else None,
        }


def make_paying(
    settings: Mapping[str, Any],
    task: Task,
    loss: LossModule,
    run: Collecting,
    policy: OptionPolicy | None = None,
) -> Paying:
    """What ``conf/icm``, ``conf/shaping`` and ``conf/objectives`` describe.

    Options act by ``policy``, where there are any.
    """
    objectives = make_objectives(settings, task, loss, run, policy)
    curious = make_curious(settings.get("icm"), task, mixes=objectives is None)
    shaping = make_shaping(settings.get("shaping"), task, discount(settings))
    return Paying(curious, shaping, objectives)
