"""Actions that options carry out: values by hand, and losses that learn through them."""

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.envs.utils import ExplorationType, set_exploration_type

from trading_torchrl.modules import (
    SquashedNormal,
    carried_out,
    make_actor,
    make_deterministic_actor,
)
from trading_torchrl.modules.carried_out import FACTOR, OFFSET, CarriedOut
from trading_torchrl.objectives import SACLoss, TD3Loss


def seen(count=64):
    return TensorDict(
        {
            "observation": torch.randn(count, 4),
            "option": {"offset": torch.rand(count, 1) - 0.5, "factor": 0.5 * torch.rand(count, 1)},
        },
        [count],
    )


@pytest.mark.parametrize("make", [make_actor, make_deterministic_actor])
def test_what_is_done_is_offset_and_factor_of_what_is_wanted(make):
    torch.manual_seed(0)
    actor, rows = make(4, 1, [8]), seen()
    both = carried_out(actor)
    assert set(both.in_keys) == {"observation", OFFSET, FACTOR}
    for kind in (ExplorationType.DETERMINISTIC, ExplorationType.RANDOM):
        with set_exploration_type(kind):
            torch.manual_seed(1)
            wanted = actor(rows.clone())["action"]
            torch.manual_seed(1)
            done = both(rows.clone())["action"]
        torch.testing.assert_close(done, rows[OFFSET] + rows[FACTOR] * wanted)


def test_densities_are_those_of_what_is_wanted_also_where_nothing_is_done():
    loc, scale = torch.randn(8, 1), torch.rand(8, 1) + 0.1
    nothing = torch.zeros(8, 1)
    dist = CarriedOut(nothing, nothing, of=SquashedNormal, loc=loc, scale=scale)
    torch.manual_seed(0)
    done, density = dist.rsample_with_log_prob()
    torch.manual_seed(0)
    _, wanted = SquashedNormal(loc, scale).rsample_with_log_prob()
    assert (done == 0).all()
    assert torch.equal(density, wanted)


def test_smoothed_targets_stay_within_what_an_option_does():
    torch.manual_seed(0)
    asked = []

    class Asks(torch.nn.Module):
        def forward(self, action):
            asked.append(action)
            return torch.zeros(*action.shape[:-1], 2, 1)

    actor = carried_out(make_deterministic_actor(4, 1, [8]))
    critics = TensorDictModule(Asks(), in_keys=["action"], out_keys=["state_action_value"])
    rows = seen()
    rows["action"], rows["next"] = torch.zeros(64, 1), seen()
    rows["next", "reward"] = torch.zeros(64, 1)
    rows["next", "terminated"] = torch.zeros(64, 1, dtype=torch.bool)
    TD3Loss(actor, critics)(rows)
    offset, factor = rows["next", *OFFSET], rows["next", *FACTOR]
    assert ((asked[0] - offset).abs() <= factor + 1e-6).all()
    assert ((asked[0] - offset).abs() > 0).any()


def test_there_is_no_density_of_what_was_done():
    one = torch.ones(3, 1)
    with pytest.raises(ValueError, match="how likely an action was cannot be said"):
        CarriedOut(one, one, of=SquashedNormal, loc=one, scale=one).log_prob(one)


class Known(torch.nn.Module):
    """Critics that know already: 0.2 is the best to do."""

    def forward(self, action):
        return -(action - 0.2).square().unsqueeze(-2).expand(-1, 2, 1)


@pytest.mark.parametrize(
    ("kind", "make", "settings"),
    [
        (SACLoss, make_actor, {"alpha_init": 1e-4}),
        (TD3Loss, make_deterministic_actor, {"actor_every": 1}),
    ],
)
def test_an_agent_learns_through_it(kind, make, settings):
    """To want (0.2 - offset) / factor, where it can."""
    torch.manual_seed(0)
    actor = carried_out(make(6, 1, [32], ["observation", OFFSET, FACTOR]))
    critics = TensorDictModule(Known(), in_keys=["action"], out_keys=["state_action_value"])
    loss = kind(actor, critics, gamma=0.0, **settings)
    optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)
    rows = seen(256)
    rows[FACTOR] += 0.3
    rows["action"] = torch.zeros(256, 1)
    rows["next"] = rows.clone().exclude("action")
    rows["next", "reward"] = torch.zeros(256, 1)
    rows["next", "terminated"] = torch.zeros(256, 1, dtype=torch.bool)
    for _ in range(300):
        optimizer.zero_grad()
        loss(rows)["loss_actor"].backward()
        optimizer.step()
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        done = actor(rows.clone())["action"]
    could = (0.2 - rows[OFFSET]).abs() < 0.9 * rows[FACTOR]
    assert could.sum() > 50
    assert (done - 0.2)[could].abs().mean() < 0.04
