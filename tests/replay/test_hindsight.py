"""Hindsight: whose goals rows take, over wraps and running episodes; what they are paid."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict
from torch import Tensor
from torchrl.data import LazyTensorStorage, ReplayBuffer

from trading_torchrl.envs import ReachReturn
from trading_torchrl.envs.reference import BitFlip, SameBits
from trading_torchrl.replay import Hindsight
from trading_torchrl.resume import replay_state, restore_replay
from trading_torchrl.state_file import load, save

BASE = 1_000


class Labels:
    """A goal that lets every row be recognised: what is achieved is account x 1,000 + time."""

    def reward(self, achieved: Tensor, desired: Tensor) -> Tensor:
        return 0.5 * achieved - desired

    def reached(self, achieved: Tensor, desired: Tensor) -> Tensor:
        return achieved == desired

    def seen(self, achieved: Tensor, desired: Tensor) -> Tensor:
        return torch.cat([achieved - desired, desired], -1)


class Past:
    """What went in: episodes by account and time, as plain lists."""

    def __init__(self, accounts: int) -> None:
        self.accounts, self.time = accounts, 0
        self.episode: list[list[int]] = [[] for _ in range(accounts)]
        self.ended = [True] * accounts

    def batch(self, done: list[list[bool]]) -> TensorDict:
        """The next steps ``[N, T]``, with these ends."""
        steps = len(done[0])
        for account, flags in enumerate(done):
            for flag in flags:
                last = self.episode[account][-1] if self.episode[account] else -1
                self.episode[account].append(last + self.ended[account])
                self.ended[account] = flag
        time = torch.arange(self.time, self.time + steps).expand(self.accounts, steps)
        label = (torch.arange(self.accounts)[:, None] * BASE + time).float()[..., None]
        self.time += steps
        desired = torch.full_like(label, -1)
        goal = {"achieved": label - 0.5, "desired": desired}
        following = {"achieved": label, "desired": desired}
        return TensorDict(
            {
                "goal": goal,
                "next": {
                    "goal": following,
                    "reward": torch.full_like(label, 10.0),
                    "terminated": torch.zeros_like(label, dtype=torch.bool),
                    "done": torch.tensor(done)[..., None],
                },
            },
            [self.accounts, steps],
        )


def buffer(size: int, goal=None, **changed) -> ReplayBuffer:
    storage = LazyTensorStorage(size, ndim=2)
    hindsight = Hindsight(storage, goal or Labels(), **changed)
    return ReplayBuffer(storage=storage, transform=hindsight, batch_size=256)


ends = st.sampled_from([False, False, False, True])


def batches(accounts, steps):
    one = st.lists(ends, min_size=steps, max_size=steps)
    return st.lists(one, min_size=accounts, max_size=accounts)


histories = st.integers(1, 4).flatmap(
    lambda accounts: st.lists(
        st.integers(1, 3).flatmap(lambda steps: batches(accounts, steps)), min_size=1, max_size=14
    )
)


@settings(max_examples=150, deadline=None)
@given(
    histories,
    st.integers(3, 12),
    st.sampled_from(["future", "final", "episode", "random"]),
    st.integers(0, 2**31),
)
def test_goals_come_from_where_they_may(history, rows, strategy, seed):
    torch.manual_seed(seed)
    accounts = len(history[0])
    past, replay = Past(accounts), buffer(rows * accounts, strategy=strategy)
    for done in history:
        replay.extend(past.batch(done))
        sample = replay.sample()
        account = sample["hindsight", "account"].tolist()
        time = sample["hindsight", "time"].tolist()
        label = sample["next", "goal", "achieved"][:, 0].tolist()
        desired = sample["goal", "desired"][:, 0].tolist()
        replaced = sample["hindsight", "relabeled"].tolist()
        oldest = max(past.time - rows, 0)
        for who, when, own, goal, new in zip(account, time, label, desired, replaced, strict=True):
            assert own == who * BASE + when  # the row is the one it says
            if not new:
                assert goal == -1
                continue
            whose, at = int(goal) // BASE, int(goal) % BASE
            assert oldest <= at < past.time  # still there
            if strategy == "random":
                continue
            assert whose == who
            episode = past.episode[who]
            assert episode[at] == episode[when]
            last = max(t for t in range(past.time) if episode[t] == episode[when])
            if strategy == "future":
                assert at >= when
            if strategy == "final":
                assert at == last


@pytest.mark.parametrize("strategy", ["future", "final", "episode", "random"])
def test_every_goal_that_may_come_does(strategy):
    """One account: an episode of 3 steps, one of 4, one that runs; the ring holds 7 of 9 steps."""
    torch.manual_seed(0)
    past, replay = Past(1), buffer(7, strategy=strategy, k=1e9)
    for end in [False, False, True, False, False, False, True, False, False]:
        replay.extend(past.batch([[end]]))
    found: dict[int, set[int]] = {}
    for _ in range(20):
        sample = replay.sample()
        for when, goal in zip(
            sample["hindsight", "time"].tolist(),
            sample["goal", "desired"][:, 0].tolist(),
            strict=True,
        ):
            found.setdefault(when, set()).add(int(goal))
    episodes = {when: every for every in ({2}, {3, 4, 5, 6}, {7, 8}) for when in every}
    expected = {
        "future": {when: {t for t in every if t >= when} for when, every in episodes.items()},
        "final": {when: {max(every)} for when, every in episodes.items()},
        "episode": episodes,
        "random": {when: set(range(2, 9)) for when in episodes},
    }
    assert found == expected[strategy]


def test_future_goals_are_drawn_evenly():
    torch.manual_seed(0)
    past, replay = Past(1), buffer(10, k=1e9)
    replay.extend(past.batch([[False] * 9 + [True]]))
    counts = torch.zeros(10, 10)
    for _ in range(200):
        sample = replay.sample()
        where = sample["hindsight", "time"] * 10 + sample["goal", "desired"][:, 0].long()
        counts += where.bincount(minlength=100).view(10, 10)
    share = counts / counts.sum(1, keepdim=True)
    for when in range(10):
        torch.testing.assert_close(
            share[when, when:], torch.full((10 - when,), 1 / (10 - when)), rtol=0, atol=0.04
        )


@pytest.mark.parametrize("k", [0, 1, 4])
def test_so_many_rows_get_another_goal(k):
    torch.manual_seed(0)
    past, replay = Past(4), buffer(400, k=k)
    replay.extend(past.batch([[False] * 99 + [True]] * 4))
    ratio = torch.stack(
        [replay.sample()["hindsight", "relabeled"].float().mean() for _ in range(40)]
    )
    assert ratio.mean() == pytest.approx(k / (k + 1), abs=0.02)


def test_all_that_depends_on_the_goal_is_made_anew_and_nothing_else():
    torch.manual_seed(0)
    past, replay = Past(3), buffer(60, weight=2.0)
    replay.extend(past.batch([[False] * 19 + [True]] * 3))
    before = replay.storage[:].clone()
    sample = replay.sample()
    for place in (sample, sample["next"]):
        achieved, desired = place["goal", "achieved"], place["goal", "desired"]
        assert torch.equal(desired, sample["goal", "desired"])
        assert torch.equal(place["goal", "seen"], torch.cat([achieved - desired, desired], -1))
    achieved, desired = sample["next", "goal", "achieved"], sample["goal", "desired"]
    assert torch.equal(sample["next", "reward"], 0.5 * achieved - desired + 2.0 * 10)
    assert torch.equal(sample["next", "goal", "reached"], achieved == desired)
    assert not sample["next", "terminated"].any()
    assert (replay.storage[:] == before).all()  # what is stored stays as it was


def test_reaching_a_goal_may_end_the_episode():
    torch.manual_seed(0)
    env = BitFlip(num_envs=8, bits=6)
    storage = LazyTensorStorage(8 * 40, ndim=2)
    hindsight = Hindsight(storage, SameBits(), seen_key="observation", terminates=True)
    replay = ReplayBuffer(storage=storage, transform=hindsight, batch_size=512)
    replay.extend(env.rollout(40, break_when_any_done=False))
    sample = replay.sample()
    following, new = sample["next"], sample["hindsight", "relabeled"]
    equal = (following["goal", "achieved"] == sample["goal", "desired"]).all(-1)
    assert torch.equal(following["reward"][:, 0], equal.float())
    assert torch.equal(following["terminated"][new][:, 0], equal[new])
    bits, goal = following["observation"].chunk(2, -1)
    assert torch.equal(bits, following["goal", "achieved"])
    assert torch.equal(goal, sample["goal", "desired"])
    assert equal[new].any()
    assert not equal[new].all()


def test_it_goes_on_where_it_stood(tmp_path):
    """Saved in mid-episode after the ring has wrapped, in a new buffer all is drawn as before."""
    past, straight = Past(2), buffer(14)
    for end in [False, False, True, False, False, False, True, False, False]:
        straight.extend(past.batch([[end], [False]]))
    save(tmp_path / "replay.pt", replay_state(straight))
    other = buffer(14)
    restore_replay(other, load(tmp_path / "replay.pt"))
    for end in [False, True, False, False]:
        batch = past.batch([[end], [end]])
        samples = []
        for replay in (straight, other):
            replay.extend(batch)
            torch.manual_seed(past.time)
            samples.append(replay.sample())
        one, other_sample = samples
        assert (one == other_sample).all()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="ndim=2"):
        Hindsight(LazyTensorStorage(10), Labels())
    with pytest.raises(ValueError, match="strategy must be one of future, final"):
        buffer(10, strategy="past")
    with pytest.raises(ValueError, match="k must not be negative"):
        buffer(10, k=-1)
    past, replay = Past(2), buffer(20)
    with pytest.raises(ValueError, match="do not flatten it"):
        replay.extend(past.batch([[False]] * 2).reshape(-1))
    replay.extend(past.batch([[False]] * 2))
    with pytest.raises(ValueError, match="rows of 2 accounts"):
        replay.extend(Past(3).batch([[False]] * 3))


def test_a_return_to_reach_pays_by_distance():
    goal = ReachReturn()
    desired = torch.tensor([[0.02]])
    achieved = torch.tensor([[0.02], [0.0209], [0.0195], [0.01], [0.0], [-0.03], [-0.2], [0.07]])
    expected = torch.tensor([[1.0], [1.0], [1.0], [0.8], [0.6], [0.0], [0.0], [0.0]])
    torch.testing.assert_close(goal.reward(achieved, desired), expected)
    sparse = ReachReturn(sparse=True).reward(achieved, desired)
    assert sparse[:, 0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="tolerance must be positive"):
        ReachReturn(tolerance=0.1)
