"""A generation that tries on a Ray cluster: the same returns, little that is sent, deaths."""

import os
import re
import signal

import pytest
import torch
from making_evolution import EPISODES, PAIRS, die, fail, parts

from trading_torchrl.actors import ActorError

pytest.importorskip("ray", reason="Ray is an extra: pip install 'trading-torchrl[ray]'")
from trading_torchrl.evolution.on_ray import OnRay


def test_the_same_returns_by_seeds_alone_and_again_after_a_kill():
    strategy, here = parts()
    told = []
    apart = OnRay(parts, 2, PAIRS, tell=told.append)
    try:
        for generation in range(4):
            one = here.earned(strategy, generation)
            other = apart.earned(strategy, generation)
            assert torch.allclose(one.returns, other.returns, atol=1e-6)
            assert other.frames == one.frames == 2 * PAIRS * EPISODES * 20
            strategy.tell(other.returns.mean(-1))
        assert apart.sent == 2  # once each, at the start: they had drawn another centre
        assert told == []

        where = apart.ray.get(apart.parts[1].where)
        os.kill(int(re.search(r"process (\d+)", where)[1]), signal.SIGKILL)
        assert torch.allclose(
            here.earned(strategy, 9).returns, apart.earned(strategy, 9).returns, atol=1e-6
        )
        assert (apart.replaced, apart.sent) == (1, 3)
        assert re.match(r"actor 1 \(process \d+ on node [\d.]+\) ended: ", told[0])
        assert re.fullmatch(r"actor 1 answers again, [\d.]+ seconds later", told[1])

        strategy.centre.add_(1.0)  # moved by something else than returns
        assert torch.allclose(
            here.earned(strategy, 5).returns, apart.earned(strategy, 5).returns, atol=1e-6
        )
        assert apart.sent == 5
    finally:
        apart.close()


@pytest.mark.parametrize(
    ("made", "said"),
    [(fail, "actor 0 failed:(?s:.*)no pairs from 0 to 5"), (die, r"for the 3\. time")],
    ids=["a mistake", "never gets anywhere"],
)
def test_what_cannot_go_on_is_said(made, said):
    strategy, _ = parts()
    apart = OnRay(made, 1, PAIRS, tell=lambda _: None)
    try:
        with pytest.raises(ActorError, match=said):
            apart.earned(strategy, 0)
    finally:
        apart.close()


def test_no_more_actors_than_pairs():
    with pytest.raises(ValueError, match="at least 1 and at most 5 pairs, got 6"):
        OnRay(parts, 6, PAIRS)
