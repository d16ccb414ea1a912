"""The unbiased estimate behind intervals: every way to factorise it gives the pseudo-inverse's, and large ones fit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import splu

import dpmodel as dpm
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy.distributions import Laplace
from dpmodel.released.faces import errors
from dpmodel.released.faces.errors import _fill, _sparse
from dpmodel.released.form import LikelihoodForm


def drawn(seed):
    """Cells measured alone (or not), sums of them, known sums (also redundant) and fixed cells."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 12))
    alone = np.eye(n)[rng.random(n) < rng.choice([0.0, 0.5, 1.0])]
    sums = (rng.random((int(rng.integers(1, 6)), n)) < 0.5) * 1.0
    M = np.vstack([alone, sums[sums.sum(axis=1) > 0], np.ones((1, n))])
    A = (rng.random((int(rng.integers(0, 3)), n)) < 0.4) * 1.0
    A = np.vstack([A, A[:1]]) if A.size else A
    x = rng.uniform(1, 9, n)
    fixed = rng.random(n) < 0.15
    low, high = np.where(fixed, x, -np.inf), np.where(fixed, x, np.inf)
    form = LikelihoodForm.of(M, M @ x, absolute=1.0, equality=A, equality_value=A @ x, lower=low, upper=high)
    return form, rng.uniform(0.1, 4, M.shape[0]), np.vstack([A, np.eye(n)[fixed]]), rng


@pytest.mark.parametrize("low_rank", [False, True])
def test_the_estimate_is_that_of_dense_algebra(low_rank, monkeypatch):
    monkeypatch.setattr(errors, "_FEW", 10**6 if low_rank else -1)
    for seed in range(25):
        form, weight, A, rng = drawn(seed)
        estimate, undetermined = _sparse(form, weight, rng.standard_normal(form.size + 1))
        noise = rng.standard_normal((3, form.value.size))
        M = form.matrix.toarray()
        basis = np.eye(form.size)
        if A.shape[0]:
            _, size, right = np.linalg.svd(A)
            basis = right[(size > 1e-9).sum() :].T
        root = np.sqrt(weight)[:, None]
        reduced = root * (M @ basis)
        expected = (basis @ np.linalg.pinv(reduced, rcond=1e-9) @ (root * noise.T)).T
        rows = rng.standard_normal((4, form.size)) @ np.vstack([M, A])[: form.size].T @ np.vstack([M, A])[: form.size]
        found = estimate(noise, False)
        np.testing.assert_allclose(found @ rows.T, expected @ rows.T, atol=1e-5 * (1 + np.abs(rows).max()))
        # A direction that nothing measures is told from one that something does.
        free = np.eye(form.size) - np.linalg.pinv(np.vstack([M, A])) @ np.vstack([M, A])
        lost = np.abs(free).max(axis=1) > 1e-9
        np.testing.assert_array_equal(undetermined(None), lost)
        assert not undetermined(sp.csr_array(rows)).any()


def two_ways(rows, columns):
    """A table of cells with both margins measured."""
    domain = {"a": rows, "b": columns}
    shapes = {("a", "b"): (rows, columns), ("a",): (rows,), ("b",): (columns,)}
    measured = {m: Noisy(np.full(shape, 5.0), noise=Laplace(2.0)) for m, shape in shapes.items()}
    return dpm.released.consistent_table(measured, domain=domain, form="least-squares")


@pytest.mark.parametrize("rows", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_intervals_of_a_crossed_table_of_many_cells(rows):
    """Of 200 x 60 cells M' W M has nearly a million entries and its factors 144 million; the sums are 260."""
    fit = two_ways(rows, 60)
    fit.solve()
    found = dpm.released.intervals(fit, "a", repetitions=40, rng=1)
    exact = 2 * np.sqrt(2 / (1 + 1 / 60))  # the margin and the sum of its cells, were there no other margin
    half = (found.high - found.low) / 2
    assert 0.5 * exact <= np.median(half) <= 3 * exact


def test_what_takes_too_much_memory_is_refused_before(monkeypatch):
    fit = two_ways(20, 20)
    fit.solve()
    monkeypatch.setattr(errors, "_GIGABYTES", 1e-9)
    with pytest.raises(dpm.errors.UnsupportedModelError, match="GB") as error:
        dpm.released.intervals(fit, "a")
    assert "standard_errors" in str(error.value)
    monkeypatch.setattr(errors, "_factorised", lambda *_: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(dpm.errors.UnsupportedModelError, match="standard_errors"):
        dpm.released.intervals(fit, "a")


@pytest.mark.parametrize("seed", range(6))
def test_the_estimated_fill_bounds_that_of_a_symmetric_factorisation(seed):
    """Random graphs, with rows that meet all others or without."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(150, 300))
    pattern = sp.random_array((n, n), density=rng.choice([0.002, 0.01]), rng=rng).toarray()
    pattern[: int(rng.integers(0, 4))] = 1.0
    matrix = sp.csc_array(pattern + pattern.T + 3 * n * np.eye(n))
    factor = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    assert factor.L.nnz <= _fill(matrix) <= n * (n + 1) / 2 + 4 * n


def test_crossing_sums_of_single_cells_are_not_filled_up(monkeypatch):
    """What the sparse factorisation would fill is left to the dense one, which is small, or refused."""
    fit = three_ways(9)
    fit.solve()
    monkeypatch.setattr(errors, "_FEW", 0)
    monkeypatch.setattr(errors, "_GIGABYTES", 24 * (3 * 81) ** 2 / 1e9)
    monkeypatch.setattr(errors, "splu", lambda *_: pytest.fail("filled up"))
    found = dpm.released.intervals(fit, ("a", "b"), repetitions=20)
    assert np.isfinite(found.high).all()
    monkeypatch.setattr(errors, "_GIGABYTES", 23 * (3 * 81) ** 2 / 1e9)
    with pytest.raises(dpm.errors.UnsupportedModelError, match="standard_errors"):
        dpm.released.intervals(fit, ("a", "b"), repetitions=20)


def three_ways(size):
    pairs = [("a", "b"), ("b", "c"), ("a", "c")]
    measured = {pair: Noisy(np.full((size, size), 5.0), noise=Laplace(2.0)) for pair in pairs}
    return dpm.released.consistent_table(measured, domain=dict.fromkeys("abc", size), form="least-squares")
