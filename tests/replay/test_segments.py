"""Segments of options against a scalar reference, whatever cuts them."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from trading_torchrl.envs.running_option import ALLOWED, INDEX, LOG_PROB, STEPS
from trading_torchrl.replay.segments import DURATION, Segments


def may(seen, options=3):
    """Which options may start where, ``[*, K]``."""
    return (seen * torch.tensor([0.7, 1.3, 2.9])[:options] % 2) < 1.2


def may_of(rows):
    return may(rows["observation"])


def steps_of(seed, accounts=5, time=60, options=3, ends=0.1):
    """Steps at random, ``[N, T]``: options that last 1 to 6, and episodes that end in two ways."""
    draw = torch.Generator().manual_seed(seed)

    def rand(*shape):
        return torch.rand(*shape, generator=draw)

    ended = torch.zeros(accounts, time, dtype=torch.int64)
    terminated = rand(accounts, time) < ends
    truncated = (rand(accounts, time) < ends) & ~terminated
    steps = torch.zeros(accounts, time, dtype=torch.int64)
    index = torch.zeros(accounts, time, dtype=torch.int64)
    for n in range(accounts):
        for t in range(time):
            fresh = t == 0 or bool(terminated[n, t - 1] | truncated[n, t - 1])
            goes_on = not fresh and steps[n, t - 1] < 5 and bool(rand(1) < 0.7)
            steps[n, t] = steps[n, t - 1] + 1 if goes_on else 0
            index[n, t] = index[n, t - 1] if goes_on else int(rand(1) * options)
            ended[n, t] = 0 if fresh or goes_on else 1 + int(rand(1) * 2)
    seen = torch.arange(accounts * time).view(accounts, time, 1).float()
    return TensorDict(
        {
            "observation": seen,
            "option": {
                "index": index[..., None],
                "steps": steps[..., None],
                "ended": ended[..., None],
                "log_prob": -rand(accounts, time, 1),
                "allowed": may(seen),
            },
            "next": {
                "observation": seen + 0.5,
                "reward": rand(accounts, time, 1) - 0.5,
                "terminated": terminated[..., None],
                "truncated": truncated[..., None],
                "done": (terminated | truncated)[..., None],
            },
        },
        [accounts, time],
    )


def by_hand(rows, gamma):
    """One account after the other: what a segment's row says, in order of its end."""
    found = []
    for n, account in enumerate(rows.unbind(0)):
        start = None
        for t in range(len(account)):
            now, after = account[t], account[t]["next"]
            if int(now[STEPS]) == 0:
                if start is not None:
                    found.append((t, 0, n, finished(account, start, t, now, gamma)))
                start = t
            if bool(after["done"]):
                found.append((t, 1, n, finished(account, start, t + 1, None, gamma)))
                start = None
    return [row for *_, row in sorted(found, key=lambda each: each[:3])]


def finished(account, start, end, there, gamma):
    earned = sum(gamma**k * float(account[start + k]["next", "reward"]) for k in range(end - start))
    last = account[end - 1]["next"]
    over = there is None
    return {
        "from": float(account[start]["observation"]),
        "index": int(account[start][INDEX]),
        "log_prob": float(account[start][LOG_PROB]),
        "allowed": account[start][ALLOWED].tolist(),
        "to": float(last["observation"] if over else there["observation"]),
        "earned": earned,
        "terminated": over and bool(last["terminated"]),
        "bars": end - start,
        "allowed_there": may(last["observation"]).tolist() if over else there[ALLOWED].tolist(),
    }


def told(rows):
    return [
        {
            "from": float(row["observation"]),
            "index": int(row[INDEX]),
            "log_prob": float(row[LOG_PROB]),
            "allowed": row[ALLOWED].tolist(),
            "to": float(row["next", "observation"]),
            "earned": float(row["next", "reward"]),
            "terminated": bool(row["next", "terminated"]),
            "bars": int(row["next"][DURATION]),
            "allowed_there": row["next"][ALLOWED].tolist(),
        }
        for row in rows.unbind(0)
    ]


@given(
    seed=st.integers(0, 10_000), gamma=st.sampled_from([0.9, 1.0]),
    ends=st.sampled_from([0.0, 0.2]), cuts=st.lists(st.integers(1, 59), max_size=6, unique=True),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_segments_are_those_made_by_hand(seed, gamma, ends, cuts):
    rows = steps_of(seed, ends=ends)
    segments = Segments(may_of, gamma=gamma)
    edges = [0, *sorted(cuts), rows.shape[1]]
    found = []
    for low, high in pairwise(edges):
        found += told(segments(rows[:, low:high]))
        again = Segments(may_of, gamma=gamma)  # a run that is resumed at every cut
        again.set_extra_state(segments.get_extra_state())
        segments = again
    wanted = by_hand(rows, gamma)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.pop("earned") == pytest.approx(other.pop("earned"), abs=1e-5)
        assert one.pop("log_prob") == pytest.approx(other.pop("log_prob"))
        assert one == other


def test_segments_of_accounts_that_begin_anew_are_let_go():
    first, other = steps_of(0, ends=0.0), steps_of(1, ends=0.0)
    segments = Segments(may_of, gamma=0.9)
    found = told(segments(first)) + told(segments(other))
    assert found == told(Segments(may_of, gamma=0.9)(first)) + told(
        Segments(may_of, gamma=0.9)(other)
    )


def test_batches_of_workers_are_batches_of_accounts():
    rows = steps_of(0)[:4]
    wanted = told(Segments(may_of, gamma=0.9)(rows))
    assert told(Segments(may_of, gamma=0.9)(rows.reshape(2, 2, -1))) == wanted


def test_another_controller_cannot_go_on():
    segments = Segments(may_of, gamma=0.9)
    segments(steps_of(0))
    other = Segments(may_of, gamma=0.9, seen=["window"])
    with pytest.raises(ValueError, match="let the controller see the same"):
        other.set_extra_state(segments.get_extra_state())


def test_no_segment_has_the_keys_of_some():
    rows = steps_of(0, ends=0.0)
    segments = Segments(may_of, gamma=0.9)
    none, some = segments(rows[:, :1]), segments(rows[:, 1:])
    assert len(none) == 0 < len(some)
    assert set(none.keys(True, True)) == set(some.keys(True, True))


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (lambda: steps_of(0).reshape(-1), r"batches \[accounts, time\], got \[300\]"),
        (lambda: steps_of(0)[:, 1:], "must begin with choices"),
    ],
)
def test_batches_that_do_not_fit_are_refused(batch, said):
    rows = batch()
    if rows.ndim == 2:
        rows[:, 0][STEPS].fill_(1)
    with pytest.raises(ValueError, match=said):
        Segments(may_of, gamma=0.9)(rows)


def test_the_accounts_stay_the_same():
    segments = Segments(may_of, gamma=0.9)
    segments(steps_of(0))
    with pytest.raises(ValueError, match="of 5 accounts, a batch of 4 came"):
        segments(steps_of(0)[:4])
