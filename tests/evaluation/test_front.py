"""Fronts: areas by hand and by counting, and what beats what."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from trading_torchrl.evaluation import best_of, even_preferences, hypervolume

POINTS = st.lists(st.tuples(st.integers(-3, 9), st.integers(-3, 9)), min_size=1, max_size=8)


def test_areas_by_hand():
    points = torch.tensor([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])
    assert hypervolume(points, torch.zeros(2)) == 6.0
    assert hypervolume(points, torch.tensor([1.0, 1.0])) == 1.0
    assert hypervolume(points[:1], torch.tensor([1.0, 0.0])) == 0.0
    assert hypervolume(-points, torch.zeros(2)) == 0.0


@given(POINTS)
def test_it_is_the_number_of_cells_below(points):
    cells = {(x, y) for one, other in points for x in range(max(one, 0)) for y in range(other)}
    assert hypervolume(torch.tensor(points), torch.zeros(2)) == len(cells)


@given(POINTS)
def test_what_is_beaten_adds_nothing(points):
    points = torch.tensor(points)
    best = best_of(points)
    assert best.any()
    zero = torch.zeros(2)
    assert hypervolume(points[best], zero) == hypervolume(points, zero)
    for i, point in enumerate(points.tolist()):
        beaten = any(
            other[0] >= point[0] and other[1] >= point[1] and other != point
            for other in points.tolist()
        )
        assert bool(best[i]) is not beaten


def test_preferences_from_end_to_end():
    weights = even_preferences(5, least=0.1)
    torch.testing.assert_close(weights.sum(-1), torch.ones(5))
    torch.testing.assert_close(weights[0], weights[-1].flip(0))
    torch.testing.assert_close(weights.min(), torch.tensor(0.1))
