"""Rows that a budget implies: those that go are never reached, those that bite stay."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from dpmodel.numerics.polyhedron import without_implied


@pytest.mark.parametrize("seed", range(40))
def test_what_goes_follows_from_what_stays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, n = int(rng.integers(2, 7)), int(rng.integers(1, 6))
    A = rng.uniform(-1, 2, (rows, n)).round(1)
    A[: rows // 2] = rng.integers(1, 4, (rows // 2, n))
    A[A == 0] = 1.0
    b, lower = rng.uniform(0, 9, rows).round(1), rng.uniform(0, 0.5, n)
    stays = without_implied(sp.csr_array(A), b, lower)
    for i in np.flatnonzero(~stays):
        most = linprog(-A[i], A[stays], b[stays], bounds=list(zip(lower, np.full(n, 50.0), strict=True)))
        assert most.status == 2 or -most.fun <= b[i] + 1e-9


def kept(A: list[list[float]], b: list[float], lower: float = 0.0) -> list[bool]:
    stays: list[bool] = without_implied(sp.csr_array(np.array(A)), np.array(b), np.full(len(A[0]), lower)).tolist()
    return stays


def test_by_hand() -> None:
    assert kept([[1, 1], [2, 1], [2, 1]], [60, 120, 119]) == [True, False, True]  # the last one bites where x = (60, 0)
    assert kept([[1, 1], [1, 1]], [5, 5]) == [True, False]  # of two that are the same one stays
    assert kept([[1, 1], [2, 1]], [60, 120], lower=-1.0) == [True, True]
    assert kept([[1, 0], [2, 1]], [60, 121]) == [True, True] and kept([[1, 0], [2, 1]], [60, 120]) == [False, True]
    assert kept([[1, 0], [1, 1]], [1, 9]) == [True, True]  # what says nothing of a column is no budget
    assert kept([[1, 1], [-1, -1]], [5, -2]) == [True, True]
    assert kept([[1, 1], [-1, -1]], [5, 0]) == [True, False]
