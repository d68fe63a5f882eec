"""What an agent is paid for in a sampled batch, by the parts that are switched on."""

from __future__ import annotations

from collections.abc import Mapping

from curious import Curious
from objectives import Objectives
from shaping import Shaped
from tensordict import TensorDictBase


def rewarded(
    sample: TensorDictBase,
    curious: Curious | None,
    shaping: Shaped | None,
    objectives: Objectives | None,
    count: Mapping[str, int],
    pace: float,
) -> tuple[TensorDictBase, list[str]]:
    """The batch with its rewards, and what is not finite; what pays them learns as well.

    Args:
        sample: rewards as the environment has them, scaled.
        curious: pays for surprises.
        shaping: pays in advance for getting somewhere.
        objectives: pay for several things instead.
        count: frames and updates so far.
        pace: the agent's learning rate, as a share of its first.
    """
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
