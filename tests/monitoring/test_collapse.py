"""Figures of collapse against numbers worked out by hand; a watch against the pure functions."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trading_torchrl import state_file
from trading_torchrl.monitoring import (
    ALLOWED,
    ActionWatch,
    coverage,
    entropy,
    largest_share,
    longest_repeat,
    names_of,
    position_spread,
    trade_rate,
)

some_names = st.lists(st.integers(0, 6), min_size=1, max_size=60).map(torch.tensor)


def actions_of(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows)


def not_done(accounts: int, steps: int) -> torch.Tensor:
    return torch.zeros(accounts, steps, 1, dtype=torch.bool)


def test_names_of_every_kind() -> None:
    numbers = actions_of([-1.0, -0.5, 0.0, 0.2, 0.5, 0.9])
    assert names_of(numbers, "continuous").tolist() == [[5, 4, 0, 1, 2, 3]]
    # Bins of width 2 / 7: -1 begins the first, -0.5 lies in the second, 0 in the middle of seven.
    assert names_of(numbers, "target").tolist() == [[0, 1, 3, 4, 5, 6]]
    assert names_of(torch.tensor([[6, 0]]), "discrete").tolist() == [[6, 0]]
    for kind, actions in (("continuous", numbers), ("discrete", torch.tensor([[1]]).int())):
        assert names_of(actions, kind).dtype == torch.int64


@pytest.mark.parametrize("call", [lambda: names_of(torch.zeros(1), "hybrid"),
                                  lambda: ActionWatch("hybrid")])  # fmt: skip
def test_an_unknown_kind_is_refused(call: Any) -> None:
    with pytest.raises(
        ValueError, match="continuous, target, discrete, or a number of choices, got"
    ):
        call()


def test_entropy_by_hand() -> None:
    assert entropy(torch.arange(7)) == pytest.approx(math.log(7))
    assert entropy(torch.full((5, 4), 3)) == 0
    assert math.copysign(1, entropy(torch.tensor([3]))) == 1
    # Three quarters and one quarter.
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert entropy(torch.tensor([[2, 2], [2, 5]])) == pytest.approx(expected)
    assert entropy(torch.arange(12), 12) == pytest.approx(math.log(12))


def test_coverage_and_largest_share_by_hand() -> None:
    names = torch.tensor([[0, 0, 0], [1, 4, 4]])
    assert coverage(names, 6) == 3 / 6
    assert coverage(names, 7) == 3 / 7
    assert coverage(torch.arange(6), 6) == 1
    assert largest_share(names) == 3 / 6
    assert largest_share(torch.tensor([6])) == 1


@pytest.mark.parametrize("figure", [entropy, largest_share, lambda names: coverage(names, 7)])
def test_names_that_cannot_be_are_refused(figure: Any) -> None:
    with pytest.raises(ValueError, match=r"0 \.\.\. 6, got 7"):
        figure(torch.tensor([0, 7]))
    with pytest.raises(ValueError, match=r"empty, their shape is \[0, 3\]"):
        figure(torch.zeros(0, 3, dtype=torch.int64))


@given(names=some_names)
@settings(max_examples=200, deadline=None)
def test_figures_of_any_names(names: torch.Tensor) -> None:
    counts = Counter(names.tolist())
    shares = [count / len(names) for count in counts.values()]
    assert entropy(names) == pytest.approx(-sum(p * math.log(p) for p in shares), abs=1e-12)
    assert 0 <= entropy(names) <= math.log(7) + 1e-12
    assert largest_share(names) == max(shares)
    assert coverage(names, 7) == len(counts) / 7
    # A largest share p allows no less than -log p, and no more than k equal names.
    assert -math.log(max(shares)) - 1e-12 <= entropy(names) <= math.log(len(counts)) + 1e-12


def test_longest_repeat_by_hand() -> None:
    assert longest_repeat(actions_of([0.1, 0.2, 0.3])) == 0
    assert longest_repeat(actions_of([0.1])) == 0
    assert longest_repeat(actions_of([0.5, 0.5, 0.1, 0.1, 0.1, 0.2])) == 2
    assert longest_repeat(actions_of([0.0, 0.0, 0.0, 0.0])) == 3
    # Runs of two accounts are not one run, and near is not exact.
    assert longest_repeat(actions_of([0.1, 0.5], [0.5, 0.5])) == 1
    assert longest_repeat(actions_of([0.5, 0.5 + 1e-6])) == 0
    assert longest_repeat(torch.tensor([[3, 3, 3, 1]])) == 2


def test_a_repeat_takes_all_assets() -> None:
    both = torch.tensor([[[0.1, 0.2], [0.1, 0.2], [0.1, 0.3]]])
    assert longest_repeat(both) == 1
    assert longest_repeat(both[..., 0]) == 2


def test_actions_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[N, T\] or \[N, T, A\], got \[3\]"):
        longest_repeat(torch.zeros(3))


def test_trade_rate_by_hand() -> None:
    traded = torch.tensor([[0.0, -30.0, 0.0, 40.0], [0.0, 0.0, 0.0, 1e-9]])
    assert trade_rate(traded) == 3 / 8
    assert trade_rate(torch.zeros(2, 2)) == 0
    assert trade_rate(torch.tensor([[torch.nan, 1.0]])) == 1 / 2
    # Two assets traded in one frame are one frame with a fill.
    assert trade_rate(torch.stack([traded, traded], -1)) == 3 / 8
    with pytest.raises(ValueError, match="no frames"):
        trade_rate(torch.zeros(2, 0))


def test_position_spread_by_hand() -> None:
    assert position_spread(actions_of([1.0, -1.0], [1.0, -1.0])) == 1
    assert position_spread(actions_of([0.4, 0.4])) == pytest.approx(0)
    assert position_spread(actions_of([0.5])) == 0
    assert position_spread(actions_of([0.0, 0.3])) == pytest.approx(0.15)


def random_frames(
    kind: str, accounts: int, steps: int, assets: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Actions of few values, so that they repeat, fills, and no end."""
    generator = torch.Generator().manual_seed(seed)
    shape = (accounts, steps, assets)
    names = torch.randint(0, 3, shape, generator=generator)
    actions = names if kind == "discrete" else names / 2 - 0.5
    traded = torch.where(torch.rand(shape, generator=generator) < 0.2, 50.0, 0.0)
    return actions, traded, not_done(accounts, steps)


def slices(steps: int, cuts: list[int]) -> list[slice]:
    edges = sorted({0, steps, *(cut for cut in cuts if cut < steps)})
    return [slice(start, stop) for start, stop in pairwise(edges)]


@given(kind=st.sampled_from(sorted(ALLOWED)), accounts=st.integers(1, 5), steps=st.integers(1, 40),
       assets=st.integers(1, 2), cuts=st.lists(st.integers(1, 39), max_size=6),
       seed=st.integers(0, 10_000))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_a_watch_over_chunks_is_the_pure_functions_over_all(
    kind: str, accounts: int, steps: int, assets: int, cuts: list[int], seed: int
) -> None:
    actions, traded, done = random_frames(kind, accounts, steps, assets, seed)
    watch = ActionWatch(kind)
    for part in slices(steps, cuts):
        watch.see(actions[:, part], traded[:, part], done[:, part])
    names = names_of(actions, kind)
    assert watch.figures() == {
        "action_entropy_continuous": entropy(names),
        "action_coverage_histogram": coverage(names, ALLOWED[kind]),
        "largest_name_share": largest_share(names),
        "exact_repeats": longest_repeat(actions),
        "trade_execution_rate": trade_rate(traded),
    }


@given(steps=st.integers(1, 30), cuts=st.lists(st.integers(1, 29), max_size=5),
       seed=st.integers(0, 10_000))  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_an_end_breaks_a_run_wherever_it_falls(steps: int, cuts: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    actions = torch.randint(0, 2, (3, steps), generator=generator)
    done = torch.rand(3, steps, 1, generator=generator) < 0.2
    watch = ActionWatch("discrete")
    for part in slices(steps, cuts):
        watch.see(actions[:, part], None, done[:, part])
    longest = 0
    for account in range(3):
        run = 0
        for step in range(1, steps):
            repeated = actions[account, step] == actions[account, step - 1]
            run = run + 1 if repeated and not done[account, step - 1] else 0
            longest = max(longest, run)
    assert watch.figures()["exact_repeats"] == longest


def test_an_end_between_calls_breaks_a_run() -> None:
    for ended, repeats in ((False, 3), (True, 1)):
        watch = ActionWatch("continuous")
        for _ in range(2):
            done = not_done(1, 2)
            done[:, -1] = ended
            watch.see(torch.full((1, 2), 0.5), None, done)
        assert watch.figures()["exact_repeats"] == repeats


def test_coverage_counts_the_names_that_the_kind_allows() -> None:
    every = torch.tensor([[0.0, 0.2, 0.5, 0.8, -0.5, -1.0]])
    watch = ActionWatch("continuous")
    watch.see(every, None, not_done(1, 6))
    assert watch.figures()["action_coverage_histogram"] == 1
    watch = ActionWatch("discrete")
    watch.see(torch.arange(6)[None], None, not_done(1, 6))
    assert watch.figures()["action_coverage_histogram"] == 6 / 7


def test_figures_are_of_the_window() -> None:
    """After a window of varied actions an old collapse is forgotten; before, it is not."""
    watch = ActionWatch("discrete", window=40)
    watch.see(torch.zeros(2, 20, dtype=torch.int64), torch.zeros(2, 20, 1), not_done(2, 20))
    assert watch.figures()["largest_name_share"] == 1
    assert watch.figures()["exact_repeats"] == 19
    varied = torch.arange(1, 21).remainder(7).expand(2, 20)
    watch.see(varied[:, :10], torch.ones(2, 10, 1), not_done(2, 10))
    # 60 frames are more than the window, but the newest call alone is less.
    assert watch.figures()["largest_name_share"] == pytest.approx((40 + 2) / 60)
    assert watch.figures()["trade_execution_rate"] == pytest.approx(20 / 60)
    watch.see(varied[:, 10:], torch.ones(2, 10, 1), not_done(2, 10))
    figures = watch.figures()
    assert figures["largest_name_share"] == pytest.approx(6 / 40)
    assert figures["exact_repeats"] == 0
    assert figures["trade_execution_rate"] == 1


def test_a_run_that_goes_on_keeps_its_length_beyond_the_window() -> None:
    watch = ActionWatch("target", window=8)
    for _ in range(10):
        watch.see(torch.full((2, 4), 0.3), None, not_done(2, 4))
    assert watch.figures()["exact_repeats"] == 39


def test_nothing_seen_is_no_figure() -> None:
    watch = ActionWatch("target")
    assert watch.figures() == {}
    watch.see(torch.zeros(1, 3), None, not_done(1, 3))
    assert "trade_execution_rate" not in watch.figures()
    watch.see(torch.zeros(1, 3), torch.tensor([[[9.0], [0.0], [0.0]]]), not_done(1, 3))
    assert watch.figures()["trade_execution_rate"] == 1 / 3


def test_memory_that_is_written_again_changes_nothing() -> None:
    """Collectors write every batch into the same tensors."""
    actions, done = torch.tensor([[0.1, 0.5]]), not_done(1, 2)
    watch = ActionWatch("continuous")
    watch.see(actions, None, done)
    actions[:], done[:] = 0.9, True
    watch.see(torch.tensor([[0.5, 0.2]]), None, not_done(1, 2))
    assert watch.figures()["exact_repeats"] == 1


@pytest.mark.parametrize("kind", sorted(ALLOWED))
@pytest.mark.parametrize("at", [0, 3, 7])
def test_resumed_is_uninterrupted(kind: str, at: int, tmp_path: Any) -> None:
    actions, traded, done = random_frames(kind, 4, 64, 2, seed=at)
    done[:, 13::17] = True
    parts = slices(64, list(range(8, 64, 8)))
    whole, first, second = (ActionWatch(kind, window=120) for _ in range(3))
    for number, part in enumerate(parts):
        if number == at:
            state_file.save(tmp_path / "watch.pt", first.state_dict())
            second.load_state_dict(state_file.load(tmp_path / "watch.pt"))
        whole.see(actions[:, part], traded[:, part], done[:, part])
        (first if number < at else second).see(actions[:, part], traded[:, part], done[:, part])
        if number >= at:
            assert second.figures() == whole.figures()
    ours, theirs = second.state_dict(), whole.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_state_is_a_copy() -> None:
    watch = ActionWatch("target")
    watch.see(torch.full((1, 2), 0.5), None, not_done(1, 2))
    state = watch.state_dict()
    for value in state.values():
        value.zero_()
    watch.see(torch.full((1, 2), 0.5), None, not_done(1, 2))
    assert watch.figures()["exact_repeats"] == 3


def test_other_accounts_are_refused() -> None:
    watch = ActionWatch("target")
    watch.see(torch.zeros(2, 3), None, not_done(2, 3))
    with pytest.raises(ValueError, match=r"\[4, 1\].*had \[2, 1\].*another ActionWatch"):
        watch.see(torch.zeros(4, 3), None, not_done(4, 3))


def test_a_window_without_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 frame, got 0"):
        ActionWatch("target", window=0)
