"""Affine expressions are read exactly, whatever they are made of."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel.compile.affine_reader import AffineReader, flat


def affine_cases():
    g = np.random.default_rng(0)
    x, X, S = cp.Variable(6), cp.Variable((2, 3)), cp.Variable((3, 3))
    T, t = cp.Variable((2, 3, 2)), cp.Variable()
    M, p = g.normal(size=(3, 2)), cp.Parameter(3, value=[1.0, 2.0, 3.0])
    sparse = sp.csr_array(M)
    cases = [x, x - 1, 2 * x, x / 3, x / np.arange(1.0, 7), -x, 1 - x, x[2], x[1:4], x[::-1], x[[0, 0, 5]], x[-1], t]
    cases += [x[np.array([True] * 3 + [False] * 3)], M @ X, X @ np.ones(3), np.ones(2) @ X, X @ g.normal(size=(3, 4))]
    cases += [sparse @ X, X @ sparse, X.T, X.T + M, cp.sum(X, axis=0), cp.sum(X, axis=1, keepdims=True), cp.real(x)]
    cases += [
        cp.sum(T, axis=(0, 2)),
        cp.sum(T, axis=1),
        T[0],
        T[:, 1, :],
        T[..., 0] @ np.ones(3),
        T / 2,
        T + X[:, :, None],
    ]
    cases += [cp.reshape(T, (4, 3), order="C"), cp.vec(X, order="C"), cp.hstack([x, X[0], t]), cp.vstack([X, 2 * X])]
    cases += [cp.concatenate([X, X], axis=1), cp.bmat([[X, X], [X, M.T]]), cp.diag(x), cp.diag(S), cp.upper_tri(S)]
    cases += [
        cp.cumsum(x),
        cp.cumsum(X, axis=1),
        cp.trace(S),
        cp.diff(x),
        cp.kron(np.eye(2), X),
        cp.outer(x, np.ones(2)),
    ]
    cases += [cp.convolve(np.ones(2), x), cp.mean(X, axis=0), X + np.ones((1, 3)), X + np.ones((2, 1)) * t, x + t]
    cases += [
        t * np.ones(4),
        cp.multiply(p, X[0]),
        p @ X[1],
        p * t,
        cp.broadcast_to(X, (2, 2, 3)),
        cp.swapaxes(T, 0, 2),
    ]
    cases += [
        cp.einsum("ijk->kj", T),
        X[:, [0, 2]],
        X[[0, 1], [1, 2]],
        S + S.T,
        S @ np.eye(3) @ np.ones(3),
        x @ np.ones(6),
    ]
    cases += [cp.sum(x[:2]) + 3 * cp.sum(x[2:4]) - t, cp.stack([x, x], axis=1), cp.vec_to_upper_tri(x), x - x + 1]
    return [x, X, S, T, t], cases


def test_affine_expressions_are_read_exactly():
    variables, cases = affine_cases()
    starts = np.cumsum([0, *(v.size for v in variables)])
    columns = {v.id: int(a) for v, a in zip(variables, starts[:-1], strict=True)}
    point = np.random.default_rng(2).normal(size=starts[-1])
    for v, a in zip(variables, starts[:-1], strict=True):
        v.value = point[a : a + v.size].reshape(v.shape, order="F")
    reader = AffineReader(columns)
    assert len(cases) > 60
    for case in cases:
        rows = reader.read(case)
        assert rows.csr(point.size) @ point + rows.offset == pytest.approx(flat(case.value), abs=1e-12), str(case)
