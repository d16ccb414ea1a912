"""Aff2Lin: Lemma 9 on random subspaces, exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hull_membership import in_hull

from dpmodel.numerics.fields.aff2lin import aff2lin


def points_in_a_subspace(rng: np.random.Generator, q: int, k: int) -> np.ndarray:
    """(20, q) whole-number points whose affine span has dimension k - 1."""
    base, ways = rng.integers(-5, 6, size=q), rng.integers(-3, 4, size=(k - 1, q))
    return base + rng.integers(-4, 5, size=(20, k - 1)) @ ways if k > 1 else np.tile(base, (20, 1))


def lifted_basis(points: np.ndarray) -> list[list[int]]:
    """Rows (u, 1) of affinely independent points."""
    chosen: list[list[int]] = []
    for point in points.tolist():
        if np.linalg.matrix_rank(np.array([*chosen, [*point, 1]])) > len(chosen):
            chosen.append([*point, 1])
    return chosen


@pytest.mark.parametrize("q", [1, 2, 3, 5])
def test_there_and_back(q: int) -> None:
    rng = np.random.default_rng(q)
    for k in range(1, q + 2):
        points = points_in_a_subspace(rng, q, k)
        lifted = lifted_basis(points)
        # any basis of the same span will do, such as sums of rows times numbers
        mixed = [[3 * a + b for a, b in zip(row, lifted[0], strict=True)] for row in lifted]
        for rows in (lifted, mixed):
            down = aff2lin(rows)
            assert down.dimension == len(lifted) - 1
            assert down.holds(points).all()
            for point, low in zip(points, down.project(points), strict=True):
                assert down.go_up([Fraction(int(v)) for v in low]) == tuple(point)


def test_lemma_9() -> None:
    """A rational point in the hull of the projections goes up into the hull, one outside stays outside."""
    rng = np.random.default_rng(9)
    for _ in range(15):
        q, k = 4, int(rng.integers(2, 4))
        points = points_in_a_subspace(rng, q, k)
        down = aff2lin(lifted_basis(points))
        low = down.project(points)
        weights = rng.integers(0, 5, size=len(points))
        weights[0] += 1
        inside = [Fraction(int(v), int(weights.sum())) for v in weights @ low]
        assert in_hull(points, down.go_up(inside))
        outside = [Fraction(int(v)) for v in low.max(axis=0) + 1]
        assert not in_hull(points, down.go_up(outside))


def test_points_off_the_subspace_are_seen() -> None:
    down = aff2lin([[1, 2, 1], [2, 4, 1]])  # the line y = 2 x
    points = np.array([[3, 6], [3, 7], [-1, -2], [10**9, 2 * 10**9], [10**9, 2 * 10**9 + 1]])
    assert down.holds(points).tolist() == [True, False, True, True, False]


def test_large_numbers_stay_exact() -> None:
    big = 2**40
    down = aff2lin([[big, 3 * big, 1], [0, 1, 1]])
    points = np.array([[big, 3 * big], [0, 1], [big, 3 * big + 1]])
    assert down.holds(points).tolist() == [True, True, False]


def test_what_is_no_affine_span() -> None:
    with pytest.raises(ValueError, match="no \\(x, 1\\)"):
        aff2lin([[1, 0, 0]])
    with pytest.raises(ValueError, match="dependent"):
        aff2lin([[1, 0, 1], [2, 0, 2]])
