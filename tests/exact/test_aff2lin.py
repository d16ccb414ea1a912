"""Aff2Lin: Lemma 9 on random subspaces, exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hull_membership import in_hull

from dpmodel.exact.fields import QQ
from dpmodel.exact.flats import Flat, flat_through


def maps(lifted: Any) -> Flat:
    found = flat_through(QQ.echelon(np.asarray(lifted)))
    assert found is not None
    return found


def some_subspace(rng: np.random.Generator, q: int, k: int) -> tuple[np.ndarray, Flat]:
    """(20, q) integer points whose affine span has dimension k - 1 at most, and the maps of that span."""
    base, ways = rng.integers(-5, 6, size=q), rng.integers(-3, 4, size=(k - 1, q))
    points = base + rng.integers(-4, 5, size=(20, k - 1)) @ ways if k > 1 else np.tile(base, (20, 1))
    return points, maps(np.column_stack([points, np.ones(20, dtype=int)]))


@pytest.mark.parametrize("q", [1, 2, 3, 5])
def test_there_and_back(q: int) -> None:
    rng = np.random.default_rng(q)
    for k in range(1, q + 2):
        points, down = some_subspace(rng, q, k)
        assert len(down.free) == np.linalg.matrix_rank(points - points[0]) and down.holds(points).all()
        for point, low in zip(points, down.project(points), strict=True):
            assert down.point(tuple(Fraction(int(v)) for v in low)) == tuple(point)


def test_lemma_9() -> None:
    """A rational point in the hull of the projections goes up into the hull, one outside stays outside."""
    rng = np.random.default_rng(9)
    for _ in range(15):
        points, down = some_subspace(rng, 4, int(rng.integers(2, 4)))
        low = down.project(points)
        weights = rng.integers(0, 5, size=len(points))
        weights[0] += 1
        inside = tuple(Fraction(int(v), int(weights.sum())) for v in weights @ low)
        assert in_hull(points, down.point(inside))
        outside = tuple(Fraction(int(v)) for v in low.max(axis=0) + 1)
        assert not in_hull(points, down.point(outside))


def test_points_off_the_subspace_are_seen_whatever_their_size() -> None:
    down = maps([[1, 2, 1], [2, 4, 1]])  # the line y = 2 x
    points = np.array([[3, 6], [3, 7], [-1, -2], [10**9, 2 * 10**9], [10**9, 2 * 10**9 + 1]])
    assert down.holds(points).tolist() == [True, False, True, True, False]
    big = 2**40
    down = maps([[big, 3 * big, 1], [0, 1, 1]])
    assert down.holds(np.array([[big, 3 * big], [0, 1], [big, 3 * big + 1]])).tolist() == [True, True, False]


def test_what_is_no_affine_span() -> None:
    assert flat_through(QQ.echelon(np.array([[1, 0, 0]]))) is None
    assert flat_through(QQ.echelon(np.zeros((0, 3), dtype=int))) is None
