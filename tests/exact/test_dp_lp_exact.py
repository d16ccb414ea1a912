"""Integer rows and rational flats behind dp-lp."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel.exact.dp_lp_forecast import box
from dpmodel.exact.flats import exact_product, flat_of, fractions, nearest, primitive, region_of, satisfied, slack_rows


def test_products_never_overflow() -> None:
    draw = np.random.default_rng(0)
    rows = draw.integers(-(10**6), 10**6 + 1, (50, 7))
    right = np.array([[3**k * 10**j for j in range(3)] for k in range(7)], dtype=object)
    small, wide = exact_product(rows, right, 10**6), exact_product(rows, right * 10**20, 10**6)
    assert small.dtype == np.int64 and wide.dtype == object
    expected = [[sum(int(a) * b for a, b in zip(row, column, strict=True)) for column in right.T] for row in rows]
    assert small.tolist() == expected and (wide == small.astype(object) * 10**20).all()


def test_satisfied_is_exact_at_the_boundary() -> None:
    x = (Fraction(1, 3), Fraction(10**15 + 1, 10**15))
    rows = slack_rows([[3, 0], [3, 0], [0, 1], [-3, 0]], [1, 0, 1, -1], 3)
    assert satisfied(rows, x, 3).tolist() == [True, False, False, True]


def test_slack_rows_take_sparse_and_float_matrices() -> None:
    A, b = np.array([[1, 0], [-2, 3]]), np.array([4, 5])
    expected = [[4, -1, 0], [5, 2, -3]]
    for form in (A, A.astype(float), sp.csr_array(A)):
        assert slack_rows(form, b, 5).tolist() == expected


def test_primitive_rows() -> None:
    assert primitive(np.array([[2, 4], [0, 0], [-3, 6]])).tolist() == [[1, 2], [0, 0], [-1, 2]]
    big = np.array([[6 * 10**30, 10**31]], dtype=object)
    assert primitive(big).tolist() == [[3, 5]]
    assert primitive(np.zeros((0, 3), dtype=np.int64)).shape == (0, 3)


def test_flats_satisfy_their_equations_exactly() -> None:
    draw = np.random.default_rng(1)
    for d, t in [(3, 1), (5, 2), (5, 5), (4, 0)]:
        equations = fractions(draw.integers(-9, 10, (t, d + 1)))
        flat = flat_of(equations, d)
        assert flat is not None and flat.dimension == d - t
        z = tuple(Fraction(int(v), 7) for v in draw.integers(-9, 10, d - t))
        x = (Fraction(1), *flat.point(z))
        assert all(sum(a * v for a, v in zip(row, x, strict=True)) == 0 for row in equations)
        assert tuple(x[j] for j in flat.free) == z
    assert flat_of(fractions([[1, 1, 0], [2, 1, 0]]), 2) is None


def test_regions() -> None:
    public = box(2, 0, 1)
    none = public[:0]
    square = region_of(none, public, 2)
    assert square is not None and square.flat.dimension == 2 and square.radius == pytest.approx(np.sqrt(0.5))
    # x1 + x2 = 2 touches the square in a point, x1 + x2 = 3 not at all; x1 = x2 crosses it.
    point = region_of(fractions([[2, -1, -1]]), public, 2)
    assert point is not None and point.flat.dimension == 0 and point.flat.point(()) == (1, 1)
    assert region_of(fractions([[3, -1, -1]]), public, 2) is None
    line = region_of(fractions([[0, 1, -1]]), public, 2)
    assert line is not None and line.flat.dimension == 1 and line.radius == pytest.approx(np.sqrt(0.5))
    # A pair of public rows that is an equality.
    thin = np.vstack([public, fractions([[1, -2, 0], [-1, 2, 0]])])
    halved = region_of(none, thin, 2)
    assert halved is not None and halved.flat.dimension == 1
    assert halved.flat.point(halved.centre)[0] == Fraction(1, 2)
    assert region_of(none, np.vstack([public, fractions([[-1, -1, 0]])]), 2) is None


def test_rounded_points_stay_inside_exactly() -> None:
    draw = np.random.default_rng(2)
    public = np.vstack([box(3, 0, 1), fractions([[1, -1, -1, -1]])])
    region = region_of(fractions([[0, 3, -7, 0]]), public, 3)
    assert region is not None
    for _ in range(50):
        z = draw.normal(size=2) * 2
        x = region.flat.point(region.rounded(z, 40))
        assert 3 * x[0] == 7 * x[1] and all(0 <= v <= 1 for v in x) and sum(x) <= 1


def test_nearest_point_meets_the_conditions() -> None:
    draw = np.random.default_rng(3)
    for _ in range(30):
        normals = draw.normal(size=(6, 3))
        normals /= np.linalg.norm(normals, axis=1)[:, None]
        rows = np.hstack([np.ones((6, 1)), normals])
        v = draw.normal(size=3) * 5
        w = nearest(rows, v)
        depth = rows[:, 0] + normals @ w
        assert depth.min() >= -1e-8
        # v - w is a combination with signs of the active normals only.
        active = normals[depth < 1e-7]
        if active.size:
            weights = np.linalg.lstsq(active.T, w - v, rcond=None)[0]
            assert np.allclose(active.T @ weights, w - v, atol=1e-6) and weights.min() >= -1e-6
        else:
            assert np.allclose(w, v)


def test_flats_beyond_doubles_are_no_regions() -> None:
    """x_j = x_(j+1) / K: after some steps no double holds the square of what is left."""
    K, d = 2**53, 9
    chain = np.full((d - 1, d + 1), Fraction(0), dtype=object)
    for j in range(d - 1):  # the last variables are pivots, the first is free
        chain[j, d - j], chain[j, d - j - 1] = Fraction(K), Fraction(-1)
    flipped = chain[:, [0, *range(d, 0, -1)]]
    for rows in (chain, flipped):
        assert region_of(rows, box(d, -10, 10), d) is None
