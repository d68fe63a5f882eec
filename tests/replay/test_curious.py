"""What a surprise is worth: the formula, its limits, when it counts, and that it is never stale."""

import pytest
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer

from trading_torchrl.modules import Curiosity
from trading_torchrl.replay import CuriosityReward
from trading_torchrl.state_file import load, save


class Known(Curiosity):
    """Its surprise is the first number of the next observation."""

    def surprise(self, seen, action, following):
        return following[0][..., 0]


def models():
    return Known(2, 1, features=4, encoder=[4], change=[4], between=[4])


def batch(errors, rewards=None):
    errors = torch.as_tensor(errors, dtype=torch.float32)
    rewards = torch.zeros_like(errors) if rewards is None else torch.as_tensor(rewards)
    seen = torch.stack([errors, torch.zeros_like(errors)], -1)
    return TensorDict(
        {
            "observation": torch.zeros_like(seen),
            "action": torch.zeros(*errors.shape, 1),
            "next": {"observation": seen, "reward": rewards.float()[..., None]},
        },
        list(errors.shape),
    )


def at_once(**changed):
    return CuriosityReward(models(), **{"warmup_frames": 0, "warmup_batches": 1} | changed)


def test_the_formula_by_hand():
    reward = at_once(eta=0.5, share=0.2, cap=10.0, momentum=0.25)
    first, second = [1.0, 3.0], [2.0, 6.0]
    reward(batch(first))
    # running figures begin with the first batch: mean 2, mean square 5
    mean, square = 2 + 0.25 * (4 - 2), 5 + 0.25 * (20 - 5)
    deviation = (square - mean**2) ** 0.5
    got = reward(batch(second, [1.0, -1.0]))
    intrinsic = torch.tensor(second) * 0.5 / deviation
    torch.testing.assert_close(got["next", "intrinsic"][:, 0], intrinsic)
    mixed = 0.8 * torch.tensor([1.0, -1.0]) + 0.2 * intrinsic
    torch.testing.assert_close(got["next", "reward"][:, 0], mixed)
    torch.testing.assert_close(got["next", "added"][:, 0], 0.2 * intrinsic)
    assert reward.running.tolist() == pytest.approx([mean, square, 0.25])


def test_it_is_clipped_and_capped():
    reward = at_once(eta=100.0, share=0.5, most=5.0, cap=0.1)
    got = reward(batch([1.0, 2.0, 3.0]))
    assert got["next", "intrinsic"][:, 0].tolist() == [5.0] * 3
    # at most a tenth of one, as rewards are 0
    torch.testing.assert_close(got["next", "reward"][:, 0], torch.full((3,), 0.1))
    richer = at_once(eta=100.0, share=0.5, most=5.0, cap=0.1)
    got = richer(batch([1.0, 2.0, 3.0], [20.0, -20.0, 20.0]))
    torch.testing.assert_close(
        got["next", "reward"][:, 0], torch.tensor([10.0, -10.0, 10.0]) + 0.1 * 20
    )


def test_surprises_are_never_punished_and_nothing_is_centred():
    reward = at_once()
    for seed in range(5):
        errors = torch.rand(50, generator=torch.Generator().manual_seed(seed))
        got = reward(batch(errors))["next", "intrinsic"][:, 0]
        assert (got >= 0).all()
        torch.testing.assert_close(got / got.max(), errors / errors.max())


def test_it_counts_from_so_many_rows_and_batches_on():
    reward = CuriosityReward(models(), warmup_frames=100, warmup_batches=3)
    replay = ReplayBuffer(storage=LazyTensorStorage(200), transform=reward, batch_size=16)
    replay.extend(batch(torch.rand(60), torch.ones(60)))
    for _ in range(5):
        sample = replay.sample()
        assert not sample["next", "intrinsic"].any()
        assert (sample["next", "reward"] == 1).all()
    replay.extend(batch(torch.rand(60), torch.ones(60)))
    sample = replay.sample()
    assert reward.frames == 120
    assert (sample["next", "intrinsic"] > 0).all()
    by_hand = CuriosityReward(models(), warmup_frames=100, warmup_batches=1)
    given = batch(torch.rand(8))
    assert not by_hand(given)["next", "intrinsic"].any()
    by_hand.count(100)
    assert by_hand(given)["next", "intrinsic"].any()


def test_what_is_stored_stays_and_what_is_sampled_is_fresh():
    torch.manual_seed(0)
    curiosity = Curiosity(2, 1, features=4, encoder=[4], change=[4], between=[4])
    reward = CuriosityReward(curiosity, warmup_frames=0, warmup_batches=1)
    replay = ReplayBuffer(storage=LazyTensorStorage(32), transform=reward, batch_size=32)
    replay.extend(batch(torch.rand(32), torch.ones(32)))
    assert replay.storage[:].get(("next", "intrinsic"), None) is None
    given = replay.storage[:].clone()
    before = reward(given)["next", "intrinsic"]
    with torch.no_grad():
        for each in curiosity.parameters():
            each.mul_(2.0)
    after = reward(given)["next", "intrinsic"]
    assert not torch.allclose(before, after)
    assert (given["next", "reward"] == 1).all()


def test_without_a_share_rewards_stay_and_the_surprise_is_told():
    got = at_once(share=0.0)(batch([1.0, 2.0], [3.0, 4.0]))
    assert got["next", "reward"][:, 0].tolist() == [3.0, 4.0]
    assert (got["next", "intrinsic"] > 0).all()


def test_on_policy_batches_have_accounts_and_time():
    got = at_once()(batch(torch.rand(4, 6)))
    assert got["next", "reward"].shape == (4, 6, 1)


def test_it_goes_on_where_it_stood(tmp_path):
    first = at_once(warmup_batches=2)
    first(batch([1.0, 3.0]))
    save(tmp_path / "state.pt", first.state_dict())
    second = at_once(warmup_batches=2)
    second.load_state_dict(load(tmp_path / "state.pt"))
    given = batch([2.0, 7.0], [1.0, 2.0])
    assert (first(given) == second(given)).all()
    assert not any("encoder" in key for key in first.state_dict())  # the models are the loss's


@pytest.mark.parametrize(
    ("name", "value"), [("eta", -1), ("share", 1.1), ("momentum", -0.1), ("most", float("inf"))]
)
def test_what_does_not_fit_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must"):
        at_once(**{name: value})
