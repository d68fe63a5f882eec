"""What pays an agent on newest steps: the same as on sampled ones."""

import sys
from pathlib import Path

import torch
from tensordict import TensorDict

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes"))

from rewarding import Paying
from shaping import Shaped

from trading_torchrl.replay import PotentialShaping

ROWS, STEPS, GAMMA, WEIGHT = 3, 4, 0.9, 0.5


def potential(seen):
    return seen.square()


def test_newest_steps_are_paid_what_shaping_says_step_by_step():
    torch.manual_seed(0)
    observation = torch.randn(ROWS, STEPS + 1, 1)
    terminated = torch.zeros(ROWS, STEPS, 1, dtype=torch.bool)
    terminated[1, 2] = True
    reward = torch.randn(ROWS, STEPS, 1)
    after = {"observation": observation[:, 1:], "reward": reward, "terminated": terminated}
    rows = TensorDict({"observation": observation[:, :-1], "next": after}, [ROWS, STEPS])
    shaping = PotentialShaping(potential, gamma=GAMMA, weight=WEIGHT)
    paid = Paying(None, Shaped(shaping, None, {}), None).paid(rows, frames=1)
    assert paid.shape == rows.shape
    for n in range(ROWS):
        for t in range(STEPS):
            there = 0.0 if terminated[n, t] else float(observation[n, t + 1]) ** 2
            added = WEIGHT * (GAMMA * there - float(observation[n, t]) ** 2)
            expected = float(reward[n, t]) + added
            assert abs(float(paid["next", "reward"][n, t]) - expected) < 1e-5
    assert torch.equal(rows["next", "reward"], reward)  # as the environment had it


def test_where_nothing_pays_rows_stay_what_they_are():
    rows = TensorDict({"next": {"reward": torch.ones(2, 3, 1)}}, [2, 3])
    nothing = Paying(None, None, None)
    assert nothing.paid(rows, 1) is rows
    assert not nothing.learns
    assert nothing.parts() == {} == nothing.figures()
