"""What is between the atoms is read by numbers: spellings without a rule of their own, and traps on the way."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from regression_spellings import MIX, PUBLIC, ROOTS, SCALES, SHIFT, SIGNS, Leaves, N
from test_read import compare, minimise

from dpmodel.errors import UnsupportedModelError
from dpmodel.regressions.monomials import Monomials
from dpmodel.regressions.read import recognise

C = np.array([0.5, -1.0, 2.0])


def loop(write: Any, records: Any = range(N)) -> Any:
    return lambda m: sum(write(m, i) for i in records)


READ: dict[str, tuple[str, Any]] = {
    # ---- one expression for all
    "rows of some": ("squared", lambda m: cp.sum_squares(m.X[:3] @ m.w - m.y[:3])),
    "rows of some, and some columns": ("squared", lambda m: cp.sum_squares(m.X[1:, :2] @ m.v - m.y[1:])),
    "both turned round": ("absolute", lambda m: cp.norm1(m.X[::-1] @ m.w - m.y[::-1])),
    "entry by entry": ("squared", lambda m: cp.sum_squares(cp.sum(cp.multiply(m.X, np.ones((N, 1)) @ m.W.T), 1) - m.y)),
    "columns, one by one": ("squared", lambda m: cp.sum_squares(sum(m.X[:, j] * m.w[j] for j in range(3)) - m.y)),
    "columns and a rest": ("absolute", lambda m: cp.norm1(m.X[:, 0] * m.w[0] + m.X[:, 1:] @ m.w[1:] - m.y)),
    "labels into the rows": (
        "logistic",
        lambda m: cp.sum(cp.logistic(-cp.multiply(cp.reshape(m.y, (N, 1), order="F") @ np.ones((1, 3)), m.X) @ m.w)),
    ),
    "a private diagonal": ("hinge", lambda m: cp.sum(cp.pos(1 - cp.diag(m.y) @ (m.X @ m.w)))),
    "products of outputs": ("squared", lambda m: cp.sum_squares((m.X @ cp.Variable((3, 2))) @ np.ones(2) - m.y)),
    "a sum of two tables": ("squared", lambda m: cp.sum_squares((m.X[:, :2] + m.Z) @ m.v - m.y)),
    "weights by a product": ("squared", lambda m: cp.sum(cp.diag(ROOTS) @ cp.square(m.r))),
    "stacked predictions": (
        "squared",
        lambda m: cp.sum_squares(cp.hstack([m.X[:3] @ m.w - m.y[:3], m.X[3:] @ m.w - m.y[3:]])),
    ),
    "differences of stacks": (
        "squared",
        lambda m: cp.sum_squares(cp.hstack([m.X @ m.w, m.w[:2]]) - cp.hstack([m.y, np.ones(2)])),
    ),
    "kept dimensions": ("absolute", lambda m: cp.sum(cp.abs(cp.reshape(m.r, (1, N), order="F")))),
    "labels times public rows": ("logistic", lambda m: cp.sum(cp.logistic(-cp.multiply(m.y, PUBLIC @ m.v + m.b)))),
    "labels times public rows, alone": ("hinge", lambda m: cp.sum(cp.pos(1 - cp.multiply(m.y, PUBLIC @ m.v)))),
    "public coefficients beside": ("squared", lambda m: cp.sum_squares(m.X @ (m.w + C) - m.y)),
    "a minimum": ("quantile", lambda m: -cp.sum(cp.minimum(0.3 * m.r, -0.7 * m.r))),
    "weights of both kinds": (
        "binary_logistic",
        lambda m: cp.sum(cp.multiply(m.t, cp.logistic(-m.z)) + cp.logistic(m.z) - cp.multiply(m.t, cp.logistic(m.z))),
    ),
    "sum of a residual beside": ("quantile", lambda m: 0.5 * cp.norm1(m.r) + 0.2 * cp.sum(m.X @ m.w + m.b - m.y)),
    "sums of sums": ("squared", lambda m: cp.sum(cp.sum(cp.square(m.X @ m.W - m.Y), axis=1))),
    "mixed to one table": ("absolute", lambda m: cp.norm1((m.X @ MIX + m.Z) @ m.v - m.y)),
    "powers of one": ("squared", lambda m: cp.sum(cp.power(cp.square(m.r), 1))),
    "norm of a norm": ("squared", lambda m: cp.square(cp.norm(m.r)) / N),
    "public offsets of sums": ("squared", lambda m: cp.sum_squares(m.X @ m.w + np.tri(N) @ SHIFT - m.y)),
    "numbers of columns that are records": (
        "squared",
        lambda m: cp.sum_squares(m.XT[0, :] * m.s + m.XT[1] * m.b - m.y),
    ),
    "some columns that are records": ("squared", lambda m: cp.sum_squares(m.w @ m.XT[:, 1:4] - m.y[1:4])),
    "coefficients in a row": ("squared", lambda m: cp.sum_squares(cp.vec(m.W.T @ m.X.T, order="F") - m.y)),
    "a record twice": ("squared", lambda m: cp.sum_squares(m.X[[0, 0, 4]] @ m.w - m.y[[0, 0, 4]])),
    # ---- record by record
    "labels times rows": ("logistic", loop(lambda m, i: cp.logistic(-(m.y[i] * m.X[i]) @ m.w))),
    "numbers of a row": ("squared", loop(lambda m, i: cp.square(sum(m.X[i, j] * m.w[j] for j in range(3)) - m.y[i]))),
    "groups": ("squared", loop(lambda m, i: cp.square(m.X[i] @ m.w + m.v[i % 2] - m.y[i]))),
    "public signs": ("hinge", loop(lambda m, i: cp.pos(1 - SIGNS[i] * (m.X[i] @ m.w)))),
    "scaled rows": ("squared", loop(lambda m, i: cp.square(cp.multiply(m.X[i], SCALES) @ m.w - m.y[i]))),
    "stacked rows": (
        "squared",
        loop(lambda m, i: cp.square(cp.hstack([m.X[i], 1.0]) @ cp.hstack([m.w, m.b]) - m.y[i])),
    ),
    "entrywise and summed": ("squared", loop(lambda m, i: cp.square(cp.sum(cp.multiply(m.X[i], m.w)) - m.y[i]))),
    "likelihoods": ("binary_logistic", loop(lambda m, i: cp.logistic(m.X[i] @ m.w) - m.t[i] * (m.X[i] @ m.w))),
    "shorter tables": ("absolute", loop(lambda m, i: cp.norm1(m.X[i : i + 1, :2] @ m.v - m.y[i]))),
    "sums of two": (
        "squared",
        loop(lambda m, i: cp.sum_squares(m.X[i : i + 2] @ m.w - m.y[i : i + 2]), range(0, 6, 2)),
    ),
    "maxima": ("absolute", loop(lambda m, i: cp.max(cp.hstack([m.y[i] - m.X[i] @ m.w, m.X[i] @ m.w - m.y[i]])))),
    "columns as records": ("squared", loop(lambda m, i: cp.square(m.w @ m.XT[:, i] - m.y[i]))),
    "in a list": ("huber", lambda m: cp.sum(cp.hstack([cp.huber(m.X[i] @ m.w - m.y[i], 0.5) for i in range(N)]))),
    "weighted": ("absolute", loop(lambda m, i: ROOTS[i] * cp.abs(m.y[i] - m.X[i] @ m.w) / N)),
}


@pytest.mark.parametrize("name", READ)
def test_read(name: str) -> None:
    loss, write = READ[name]
    m = Leaves()
    found = compare(minimise(write(m)), m, 3, signs=loss in ("logistic", "hinge"))
    assert found.loss.name == loss


TRAPS: dict[str, tuple[Any, str]] = {
    "square of a sum of sizes": (lambda m: cp.norm1(m.r) ** 2, "squares are taken"),
    "a coefficient of its own for each": (lambda m: cp.sum_squares(cp.Variable(N) + m.X @ m.w - m.y), "of its own"),
    "a product of variables": (lambda m: cp.sum_squares(cp.multiply(m.X @ m.w, m.s) - m.y), "product of variables"),
    "three numbers": (lambda m: cp.norm1(cp.multiply(cp.multiply(m.x, m.t), m.y) * m.s - m.y), "multiplied"),
    "another record's label": (lambda m: cp.sum_squares(m.X @ m.w - cp.hstack([m.y[1:], m.y[:1]])), "one by one"),
    "another record's weight": (
        lambda m: cp.sum(cp.multiply(m.t[::-1], cp.logistic(m.z)) + cp.multiply(1 - m.t[::-1], cp.logistic(-m.z))),
        "shape",
    ),
    "sums of neighbours": (lambda m: cp.sum_squares(cp.cumsum(m.X @ m.w) - m.y), "shape"),
    "differences of neighbours": (lambda m: cp.norm1(cp.diff(m.r)), "shape"),
    "a variance": (lambda m: cp.var(m.r), "shape"),
    "nested atoms": (lambda m: cp.sum(cp.logistic(cp.abs(m.r))), "affine"),
    "a maximum within a square": (lambda m: cp.sum_squares(cp.abs(m.r) + 1), "squares are taken"),
    "another column for each": (lambda m: cp.norm1(m.X[np.arange(N), np.arange(N) % 3] * m.s - m.y), "weighted unlike"),
    "a curved prediction": (lambda m: cp.sum_squares(m.X @ cp.abs(m.w) - m.y), "affine"),
    "one prediction of the rows scaled": (
        lambda m: cp.sum_squares(m.X @ m.w + m.b - m.y) + cp.sum_squares(m.X @ (2 * m.w) + m.b - m.y),
        "another prediction",
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_trap(name: str) -> None:
    write, words = TRAPS[name]
    with pytest.raises(UnsupportedModelError, match=words):
        recognise(minimise(write(Leaves())))


def test_multiples_are_one_prediction_however_they_are_written() -> None:
    m = Leaves()
    loss = cp.sum(cp.pos(m.X @ m.w - m.y)) + cp.sum(cp.pos(m.y - (-2 * m.X) @ (-m.w / 2)))
    found = compare(minimise(loss), m, 1)
    assert found.loss.name == "absolute" and found.coefficients is m.w


def test_entries_that_cancel_are_gone() -> None:
    """Up to rounding: 0.1 + 0.2 - 0.3 is not zero."""
    m = Leaves()
    z = 0.1 * (m.X @ m.w) + 0.2 * (m.X @ m.w) - 0.3 * (m.X @ m.w)
    with pytest.raises(UnsupportedModelError, match="X has no part"):
        recognise(minimise(cp.sum_squares(m.Z @ m.v + z - m.y)))


def test_large_tables_are_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any) -> None:
        raise AssertionError("a private table was read entry by entry")

    monkeypatch.setattr(Monomials, "_place", forbidden)
    m = Leaves()
    for rows in (m.X, m.X @ MIX, (m.X - 0.5) / 2, cp.hstack([m.X, m.Z]), m.XT.T, m.X[:, [2, 0]], m.X[:4]):
        u = cp.Variable(rows.shape[1])
        assert recognise(minimise(cp.sum(cp.pos(1 - rows @ u)))) is not None
