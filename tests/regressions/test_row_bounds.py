"""Row bounds against brute force: random records inside the bounds, and the corners where bounds are attained."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpmodel.regressions.features import RowBounds, length
from dpmodel.regressions.rows import Rows

INF = math.inf
CASES = {
    "linf": lambda absent: RowBounds.of([-1] * 4, [1] * 4, absent=absent),
    "columns": lambda absent: RowBounds.of([0, -2, 0], [100, 1, 0.5], absent=absent),
    "l2": lambda absent: RowBounds.of([-INF] * 3, [INF] * 3, l2=1.5, absent=absent),
    "l1 and nonneg": lambda absent: RowBounds.of([0] * 3, [INF] * 3, l1=2.0, absent=absent),
    "intercept": lambda absent: RowBounds.of([-1, -1, 1], [1, 1, 1], [False, False, True], l2=1.0, absent=absent),
    "only an intercept": lambda absent: RowBounds.of([1.0], [1.0], [True], absent=absent),
}


def draw(row: RowBounds, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, p) rows allowed by the bounds, many of them at corners."""
    low, high = row.lower, row.upper
    a = rng.uniform(low, high, (count, row.size))
    corners = rng.random((count, row.size)) < 0.5
    a = np.where(corners, np.where(rng.random(a.shape) < 0.5, low, high), a)
    a[rng.random(a.shape) < 0.2] = 0.0
    a = np.clip(a, low, high)
    moving = ~row.constant
    for order, limit in ((1, row.l1), (2, row.l2)):
        size = np.linalg.norm(a[:, moving], ord=order, axis=1, keepdims=True)
        a[:, moving] *= np.minimum(1.0, limit / np.maximum(size, 1e-300))
    return a


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_no_pair_of_records_moves_the_sum_further(name, absent):
    row, rng = CASES[name](absent), np.random.default_rng(5)
    a, s = draw(row, 20_000, rng), 0.7 * rng.choice([-1, 1, 0.3], 20_000)
    if absent:
        b, t = np.where(row.constant, row.lower, 0.0) * np.ones((20_000, 1)), 0.7 * rng.choice([-1, 1], 20_000)
    else:
        b, t = draw(row, 20_000, rng), 0.7 * rng.choice([-1, 1], 20_000)
        b[:5000], t[:5000] = a[:5000], -s[:5000]
    for order in (1, 2, INF):
        moved = np.linalg.norm(s[:, None] * a - t[:, None] * b, ord=order, axis=1)
        assert moved.max() <= row.sensitivity(0.7, order) * (1 + 1e-12)
        assert np.linalg.norm(a, ord=order, axis=1).max() <= row.norm(order) * (1 + 1e-12)
    moved = np.linalg.norm(s[:, None] * a - t[:, None] * b, axis=1)
    if name != "intercept" or not absent:
        assert moved.max() >= 0.9 * row.sensitivity(0.7, 2)  # the bound has teeth


@pytest.mark.parametrize("name", CASES)
@given(seed=st.integers(0, 10**6))
def test_predictions_stay_within_their_bound(name, seed):
    row, rng = CASES[name](False), np.random.default_rng(seed)
    a, w = draw(row, 500, rng), rng.normal(0, 2, row.size) * rng.integers(0, 2, row.size)
    limit = row.largest_prediction(w)
    assert np.abs(a @ w).max() <= limit * (1 + 1e-12) + 1e-12
    norms = (np.linalg.norm(w, ord=order) for order in (1, 2, INF))
    assert limit <= row.prediction_bound(*norms) * (1 + 1e-9) + 1e-12


def test_norms_are_derived_both_ways():
    row = RowBounds.of([0, -2], [100, 1])
    assert (row.l1, row.linf) == (102, 100)
    assert row.l2 == pytest.approx(math.hypot(100, 2))
    row = RowBounds.of([-INF] * 4, [INF] * 4, l2=1.0)
    assert (row.l1, row.linf) == (2.0, 1.0)
    assert list(row.upper) == [1.0] * 4
    nothing = RowBounds.of([-INF], [INF])
    assert math.isinf(nothing.norm(2))


@pytest.mark.parametrize("size", [1e-310, 1e-170, 3.4e-162, 1.0, 1e170])
def test_norms_of_tiny_and_huge_columns_are_no_smaller_than_they_are(size):
    assert length(np.array([3.0, 4.0]) * size) == pytest.approx(5 * size, rel=1e-10 if size > 1e-300 else 1e-2)
    row = RowBounds.of(np.array([-3.0, -4.0, 2.0]) * size, np.array([3.0, 4.0, 2.0]) * size, np.array([0, 0, 1]) == 1)
    assert row.moving(2.0) >= 5 * size * (1 - 1e-2)
    assert row.fixed(2.0) >= 2 * size * (1 - 1e-2)


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_in_blocks_are_one_matrix(sparse):
    import scipy.sparse as sp

    rng = np.random.default_rng(1)
    X, weights, offset = rng.normal(size=(7, 3)) * rng.integers(0, 2, (7, 3)), rng.uniform(0, 2, 7), rng.normal(size=7)
    block = sp.csr_array(X) if sparse else X
    rows = Rows(((block, 0), (np.ones((7, 1)), 3), (X[:, :2], 4)), rng.normal(size=7), 6, offset, weights)
    whole, w, g = np.hstack([X, np.ones((7, 1)), X[:, :2]]), rng.normal(size=6), rng.normal(size=7)
    np.testing.assert_allclose(rows.predict(w), whole @ w + offset)
    np.testing.assert_allclose(rows.combine(g), whole.T @ (weights * g))
    np.testing.assert_allclose(rows.gram(), whole.T @ (whole * weights[:, None]))
