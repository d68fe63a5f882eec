"""Keyed draws: uniform, independent in every part of the key, and always the same."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
import torch

from trading_torchrl.envs.draws import draw, draw_subset

COUNT = 20_000
GOLDEN_ACCOUNTS = [388, 251, 449, 102, 635, 732, 254, 77]
GOLDEN_EPISODES = [849, 343, 428, 365, 879, 374, 342, 886]
GOLDEN_SUBSETS = [[4, 0, 5], [1, 5, 9], [4, 1, 5], [6, 7, 9]]
WORD = (1 << 64) - 1


def accounts(count: int = COUNT) -> torch.Tensor:
    return torch.arange(count)


def chi_square(drawn: torch.Tensor, kinds: int) -> float:
    """Distance from uniform in standard deviations of the statistic."""
    counts = torch.bincount(drawn.flatten(), minlength=kinds).double()
    expected = drawn.numel() / kinds
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return (statistic - (kinds - 1)) / (2 * (kinds - 1)) ** 0.5


def split_mix(state: int) -> int:
    """Steele, Lea & Flood 2014, in whole numbers of Python."""
    state = (state + 0x9E3779B97F4A7C15) & WORD
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & WORD
    return state ^ (state >> 31)


def reference(below: int, seed: int, account: int, episode: int, stream: int) -> int:
    key = split_mix(seed & WORD)
    for part in (account, episode, stream):
        key = split_mix(key ^ (part & WORD))
    return (key >> 1) % below


def test_reference_is_split_mix() -> None:
    assert split_mix(0) == 0xE220A8397B1DCDAF  # the published first output for seed 0


@pytest.mark.parametrize("seed", [0, 1, 12_345, -1, 2**63 - 1, 2**64 - 1])
def test_draws_are_split_mix_of_the_key(seed: int) -> None:
    account, episode = torch.tensor([0, 1, 2, 77, 10**6]), torch.tensor([0, 5, 1, 0, 10**9])
    for below in (2, 7, 1_000, 2**31 + 11):
        drawn = draw(below, seed, account, episode, stream=3).tolist()
        expected = [
            reference(below, seed, a, e, 3)
            for a, e in zip(account.tolist(), episode.tolist(), strict=True)
        ]
        assert drawn == expected


def test_draws_never_change() -> None:
    assert draw(1_000, 0, torch.arange(8), torch.zeros(8).long(), 0).tolist() == GOLDEN_ACCOUNTS
    assert draw(1_000, 7, torch.zeros(8).long(), torch.arange(8), 1).tolist() == GOLDEN_EPISODES
    subsets = draw_subset(3, 10, 7, torch.arange(4), torch.full((4,), 2), 1)
    assert subsets.tolist() == GOLDEN_SUBSETS


@pytest.mark.parametrize("below", [2, 3, 10, 97, 500])
@pytest.mark.parametrize("stream", [0, 1])
def test_uniform_over_accounts_and_over_episodes(below: int, stream: int) -> None:
    fixed = torch.zeros(COUNT).long()
    for drawn in (
        draw(below, 3, accounts(), fixed, stream),
        draw(below, 3, fixed, accounts(), stream),
    ):
        assert drawn.dtype == torch.int64
        assert drawn.min() >= 0
        assert drawn.max() < below
        assert abs(chi_square(drawn, below)) < 4.5


def test_uniform_over_seeds() -> None:
    one = torch.ones(1).long()
    drawn = torch.cat([draw(10, seed, one, one, 0) for seed in range(4_000)])
    assert abs(chi_square(drawn, 10)) < 4.5


def neighbours() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of draws whose keys differ in one part by one."""
    episode = torch.full((COUNT,), 4)
    here = draw(16, 5, accounts(), episode, 0)
    return {
        "account": (here, draw(16, 5, accounts() + 1, episode, 0)),
        "episode": (here, draw(16, 5, accounts(), episode + 1, 0)),
        "seed": (here, draw(16, 6, accounts(), episode, 0)),
        "stream": (here, draw(16, 5, accounts(), episode, 1)),
        "account for episode": (here, draw(16, 5, episode, accounts(), 0)),
    }


@pytest.mark.parametrize("part", ["account", "episode", "seed", "stream", "account for episode"])
def test_independent_in_each_part_of_the_key(part: str) -> None:
    one, two = neighbours()[part]
    assert abs(chi_square(16 * one + two, 256)) < 4.5
    assert abs(float((one == two).double().mean()) - 1 / 16) < 4.5 * (1 / 16 / COUNT) ** 0.5


def test_a_draw_depends_on_its_own_key_alone() -> None:
    account, episode = torch.arange(50), torch.arange(50) % 7
    together = draw(10_000, 2, account, episode, 0)
    for place in (0, 13, 49):
        single = draw(10_000, 2, account[place : place + 1], episode[place : place + 1], 0)
        assert single == together[place]


@pytest.mark.parametrize(("count", "of"), [(1, 4), (2, 5), (3, 6), (5, 6), (6, 6)])
def test_every_subset_is_equally_likely(count: int, of: int) -> None:
    drawn = draw_subset(count, of, 11, accounts(), torch.zeros(COUNT).long(), 1)
    assert drawn.shape == (COUNT, count)
    seen = Counter(tuple(sorted(row)) for row in drawn.tolist())
    possible = list(combinations(range(of), count))
    assert set(seen) == set(possible)
    if len(possible) > 1:
        expected = COUNT / len(possible)
        statistic = sum((number - expected) ** 2 / expected for number in seen.values())
        degrees = len(possible) - 1
        assert abs(statistic - degrees) < 4.5 * (2 * degrees) ** 0.5


def test_subsets_have_no_member_twice() -> None:
    drawn = draw_subset(30, 40, 0, accounts(500), torch.zeros(500).long(), 1).sort(-1).values
    assert (drawn.diff(dim=-1) > 0).all()
    assert drawn.min() == 0
    assert drawn.max() == 39


def test_a_bound_of_its_own_for_each_account() -> None:
    below = torch.tensor([1, 2, 1_000])
    drawn = draw(below, 0, torch.arange(3), torch.zeros(3).long(), 0)
    assert drawn[0] == 0
    assert (drawn < below).all()
