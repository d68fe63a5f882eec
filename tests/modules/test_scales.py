"""Running scales: as over all rows at once, shared by networks, saved."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trading_torchrl.modules import RewardScale, RunningScale, Scaled, scaled_by
from trading_torchrl.modules.scales import FURTHEST


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    offset=st.sampled_from([0.0, 1e6, -3.0]),
    seed=st.integers(0, 1_000),
)
def test_pieces_come_to_the_same_as_the_whole(sizes, offset, seed):
    torch.manual_seed(seed)
    rows = torch.randn(sum(sizes), 3, dtype=torch.float64) * torch.tensor([1.0, 100.0, 1e-3])
    rows = rows + offset
    scale = RunningScale(3)
    for piece in rows.split(sizes):
        scale.see(piece)
    torch.testing.assert_close(scale.mean, rows.mean(0), rtol=1e-9, atol=1e-9)
    spread = rows.std(0, correction=0)
    known = spread > 1e-6
    torch.testing.assert_close(scale.deviation[known], spread[known], rtol=1e-6, atol=1e-7)


def test_what_never_changes_and_what_was_never_seen_stay_as_they_are():
    scale = RunningScale(2)
    rows = torch.tensor([[3.0, -1.0]])
    torch.testing.assert_close(scale(rows), rows)
    for _ in range(3):
        scale.see(rows)
    torch.testing.assert_close(scale(rows), torch.zeros(1, 2))
    far = scale(torch.tensor([[1e9, -1e9]]))
    assert far.tolist() == [[FURTHEST, -FURTHEST]]


def test_networks_share_one_scale_which_is_saved_with_them():
    torch.manual_seed(0)
    scale = RunningScale(5)
    build = scaled_by(scale)
    one, other = build(5, [8], 2), build(5, [8], 1)
    assert isinstance(one, Scaled)
    scale.see(torch.randn(100, 5) * 4 + 2)
    seen = torch.randn(7, 2), torch.randn(7, 3)
    whole = torch.cat(seen, -1)
    torch.testing.assert_close(one(*seen), one.network(scale(whole)))
    assert one.scale is other.scale is scale
    fresh = scaled_by(RunningScale(5))(5, [8], 2)
    fresh.load_state_dict(one.state_dict())
    torch.testing.assert_close(fresh(*seen), one(*seen))
    assert not any(each.requires_grad for each in scale.buffers())


def by_hand(reward, done, gamma):
    """The discounted sums that accounts have at each step."""
    found, earned = [], [0.0] * len(reward)
    for at in range(reward.shape[1]):
        for n in range(len(reward)):
            earned[n] = gamma * earned[n] + float(reward[n, at])
            found.append(earned[n])
            earned[n] = 0.0 if done[n, at] else earned[n]
    return torch.tensor(found, dtype=torch.float64)


def test_rewards_by_what_accounts_earned():
    torch.manual_seed(0)
    reward = 50 * torch.randn(4, 60, 1)
    done = torch.rand(4, 60, 1) < 0.1
    scale = RewardScale(4, gamma=0.9)
    pieces = [scale(r, d) for r, d in zip(reward.split(20, 1), done.split(20, 1), strict=True)]
    earned = by_hand(reward, done, 0.9)
    wanted = reward[:, 40:] / earned.std(correction=0).float()
    torch.testing.assert_close(pieces[-1], wanted.clamp(-FURTHEST, FURTHEST))


def test_a_reward_scale_goes_on_where_it_was():
    torch.manual_seed(0)
    reward, done = torch.randn(2, 30, 1), torch.rand(2, 30, 1) < 0.2
    whole, half = RewardScale(2, 0.9), RewardScale(2, 0.9)
    for each in (whole, half):
        each(reward[:, :15], done[:, :15])
    later = RewardScale(2, 0.9)
    later.load_state_dict(half.state_dict())
    assert torch.equal(later(reward[:, 15:], done[:, 15:]), whole(reward[:, 15:], done[:, 15:]))


def test_an_actor_may_explore_as_far_everywhere():
    from trading_torchrl.modules import make_actor

    torch.manual_seed(0)
    actor = make_actor(3, 2, [8], std=0.3)
    loc, width = actor[0].module(torch.randn(5, 3))
    torch.testing.assert_close(width, torch.full((5, 2), 0.3))
    assert loc.shape == (5, 2)
    assert sum(each.numel() == 2 and each.requires_grad for each in actor.parameters()) >= 1
    with pytest.raises(ValueError, match="std must be above 0"):
        make_actor(3, 2, [8], std=0.0)
