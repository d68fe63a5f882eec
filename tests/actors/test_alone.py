"""The learner as its own actor, some updates behind."""

import pytest
import torch
from making import ACCOUNTS, STEPS, learner, policy

from trading_torchrl.actors import Alone
from trading_torchrl.envs.reference import GarleanuPedersen
from trading_torchrl.objectives.on_policy import policy_of


def alone(actor, lag=0):
    return Alone(GarleanuPedersen(ACCOUNTS, seed=3, steps=20), actor, STEPS, lag=lag)


def nudge(actor):
    with torch.no_grad():
        for each in actor.parameters():
            each.add_(0.1)


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_steps_are_those_of_the_policy_as_it_was(lag):
    actor, _ = learner()
    crew, past = alone(actor, lag), [policy()]
    past[0].load_state_dict(actor.state_dict())
    for update in range(6):
        rows, lags = crew.take(1)
        assert lags == [min(lag, update)]
        then = past[max(update - lag, 0)]
        likely = policy_of(then, rows).log_prob(rows["action"])
        assert torch.allclose(rows["action_log_prob"], likely)
        nudge(actor)
        past.append(policy())
        past[-1].load_state_dict(actor.state_dict())
        crew.publish()
    now = policy_of(actor, rows).log_prob(rows["action"])
    assert not torch.allclose(rows["action_log_prob"], now)


def test_several_deliveries_stand_below_each_other_and_follow_in_time():
    actor, _ = learner()
    rows, lags = alone(actor).take(3)
    assert rows.shape == (3 * ACCOUNTS, STEPS)
    assert lags == [0, 0, 0]
    first, second, _ = rows.split(ACCOUNTS)
    assert torch.equal(first["next", "observation"][:, -1], second["observation"][:, 0])


def test_it_goes_on_bit_for_bit_with_the_weights_that_it_is_behind():
    actor, _ = learner()
    crew = alone(actor, 2)
    for _ in range(3):
        crew.take(1)
        nudge(actor)
        crew.publish()
    state, weights, drawn = crew.state_dict(), actor.state_dict(), torch.get_rng_state()
    weights = {name: each.clone() for name, each in weights.items()}
    expected = crew.take(1).rows
    other, _ = learner()
    other.load_state_dict(weights)
    again = alone(other, 2)
    again.load_state_dict(state)
    torch.set_rng_state(drawn)
    found = again.take(1).rows
    for key in expected.keys(True, True):
        assert torch.equal(expected[key], found[key]), key


def test_a_lag_below_0_is_refused():
    with pytest.raises(ValueError, match="lag must not be negative"):
        alone(policy(), -1)
