"""The simulation of many actors against what can be said without it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from distributed import ACCOUNTS, AHEAD, STEPS, simulate

FRAMES = ACCOUNTS * STEPS


def test_few_actors_are_the_limit_themselves():
    found = simulate(3, collect=0.1, take=0.001, on_line=0.0)
    assert found.frames_per_second == pytest.approx(3 * FRAMES / 0.1, rel=0.01)
    assert found.learner == pytest.approx(0.03, rel=0.01)


def test_many_fill_the_learner_and_wait_in_turn():
    found = simulate(50, collect=0.1, take=0.01, on_line=0.0)
    assert found.frames_per_second == pytest.approx(FRAMES / 0.01, rel=0.01)
    assert found.learner == pytest.approx(1.0, rel=0.01)
    # All but those that are being collected stand in line, each as old as those before it.
    assert 50 * (AHEAD - 1) < found.lag <= 50 * AHEAD


def test_a_narrow_line_is_the_limit():
    found = simulate(50, collect=0.1, take=0.001, on_line=0.02)
    assert found.frames_per_second == pytest.approx(FRAMES / 0.02, rel=0.01)
    assert found.line == pytest.approx(1.0, rel=0.01)
    assert found.learner < 0.1


def test_one_actor_is_one_stretch_behind():
    assert simulate(1, collect=0.1, take=0.001, on_line=0.0).lag == pytest.approx(1.0, abs=0.01)
