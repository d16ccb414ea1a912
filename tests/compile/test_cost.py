"""Large models: memory and the number of stored coefficients grow with the non-zeros (no clocks here)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel.compile.affine_map import AffineMap
from dpmodel.compile.bridge import lower
from dpmodel.compile.footprint import Footprint, footprint
from dpmodel.marks import Private

GIGABYTE = 1e9


def sparse_matrix(rows: int, columns: int, entries: int) -> sp.coo_array:
    """About ``entries`` distinct random positions with values in [0, 1)."""
    rng = np.random.default_rng(0)
    flat = np.unique(rng.integers(0, rows * columns, entries))
    return sp.coo_array((rng.random(flat.size), (flat // columns, flat % columns)), shape=(rows, columns))


def sparse_problem(matrix: sp.coo_array) -> cp.Problem:
    A = Private(matrix, unit="row", max_l1=1, sparsity=matrix.coords, name="A")
    x = cp.Variable(matrix.shape[1], nonneg=True)
    return cp.Problem(cp.Maximize(cp.sum(x)), [A @ x <= 1])


def dense_problem(matrix: np.ndarray) -> cp.Problem:
    A = Private(matrix, unit="row", max_l2=1, name="A")
    b = Private(matrix[:, 0], unit="entry", max_linf=1, name="b")
    x = cp.Variable(matrix.shape[1])
    return cp.Problem(cp.Minimize(cp.norm1(A @ x - b)))


def measured(build: Callable[[], cp.Problem]) -> tuple[AffineMap, Footprint, float]:
    """The map, its footprint and the peak of traced memory in bytes, the annotation included."""
    tracemalloc.start()
    try:
        affine = lower(build()).affine
        result = footprint(affine)
        return affine, result, float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def stored(affine: AffineMap) -> int:
    return sum(part.nnz for part in (affine.objective, affine.offset, affine.scalar, affine.matrix))


@pytest.mark.slow
def test_a_sparse_private_matrix_of_a_million_entries() -> None:
    matrix = sparse_matrix(100_000, 1_000, 1_000_000)
    affine, result, peak = measured(lambda: sparse_problem(matrix))
    assert affine.matrix.select(affine.private_columns[affine.matrix.column]).nnz == matrix.nnz
    assert stored(affine) <= matrix.nnz + 3 * (affine.rows + affine.variables)
    # Where a row has two free entries, replacing it moves max_l1 away from one and max_l1 to the other.
    assert result["matrix"].l1 == pytest.approx(2.0) and result["matrix"].linf == pytest.approx(2.0)
    assert peak < GIGABYTE


@pytest.mark.slow
def test_a_dense_private_matrix() -> None:
    matrix = np.random.default_rng(0).normal(size=(5_000, 200))
    affine, result, peak = measured(lambda: dense_problem(matrix))
    assert affine.matrix.select(affine.private_columns[affine.matrix.column]).nnz == 2 * matrix.size
    assert stored(affine) <= 2 * matrix.size + 10 * (affine.rows + affine.variables)
    assert result["matrix"].l2 == pytest.approx(2 * np.sqrt(2)) and result["scalar"].l1 == pytest.approx(4.0)
    assert peak < GIGABYTE


@pytest.mark.parametrize("build", ["sparse", "dense"])
def test_memory_grows_linearly(build: str) -> None:
    """Four times the data may take about four times the memory (and far from sixteen times)."""

    def problem(scale: int) -> Any:
        if build == "sparse":
            matrix = sparse_matrix(2_000 * scale, 100, 10_000 * scale)
            return lambda: sparse_problem(matrix)
        dense = np.random.default_rng(0).normal(size=(250 * scale, 40))
        return lambda: dense_problem(dense)

    measured(problem(1))  # imports and caches
    small, large = measured(problem(1)), measured(problem(4))
    assert stored(large[0]) <= 4.2 * stored(small[0])
    assert large[2] <= 6 * small[2]
