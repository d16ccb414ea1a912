"""Implied bounds against the true ends of every column, found by a solver; and cases that they settle."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodel as dpm
from dpmodel.compile.public_set import PublicSet, base_program
from dpmodel.numerics import cone_program
from dpmodel.numerics.implied_bounds import implied_bounds


def public_set(constraints: list) -> tuple[PublicSet, dict]:
    """The public set of constraints on one variable called x, and where its columns start."""
    c = dpm.Private(np.ones(1), name="c", unit="entry", linf=1)
    x = constraints[0].variables()[0]
    problem = dpm.Problem(cp.Minimize(c @ cp.reshape(cp.vec(x, order="F")[0], (1,), order="F")), constraints)
    model = problem._model(None)
    return model.public, model.affine.variable_columns


def constraints_of(seed: int, x: cp.Variable) -> list:
    rng = np.random.default_rng(seed)
    at = rng.normal(size=4)
    rows = [rng.normal(size=4) * (rng.random(4) < 0.6) for _ in range(5)]
    known = [rows[0] @ x <= rows[0] @ at + 0.3, rows[1] @ x == rows[1] @ at, cp.abs(x[0] - at[0]) <= 0.5]
    head, tail = rng.normal(size=4), rng.normal(size=(2, 4))
    side = rng.normal(size=(3, 3))
    square = np.outer(at[:3], at[:3]) + np.eye(3)
    more = [
        cp.norm(tail @ x - tail @ at) <= 2 + 0.1 * (head @ x - head @ at),
        cp.bmat([[x[0] - at[0] + 2, x[1] - at[1]], [x[1] - at[1], 3 - x[2] + at[2]]]) >> 0,
        cp.exp(x[1] - at[1]) <= x[3] - at[3] + 2,
        cp.geo_mean(x[2:] - at[2:] + 1.5) >= 0.5,
        cp.norm(x) <= 9 if side[0, 0] > 0 else x >= -9 - square[0, 0],
    ]
    return known + [each for each in more if rng.random() < 0.6]


@settings(max_examples=6, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_no_feasible_point_lies_outside(seed: int) -> None:
    x = cp.Variable(4, name="x")
    constraints = constraints_of(seed, x)
    public, first = public_set(constraints)
    lower, upper = (bound[first[x.id] : first[x.id] + 4] for bound in public._implied)
    assert (lower <= upper).all()
    for j in range(4):
        for sign, end in ((1.0, lower[j]), (-1.0, -upper[j])):
            if np.isfinite(end):
                problem = cp.Problem(cp.Minimize(sign * x[j]), constraints)
                problem.solve(solver=cp.CLARABEL)
                assert problem.status.startswith("optimal")
                assert problem.value >= end - 1e-5 * (1 + abs(end))


def test_diagonals_and_heads_bound_what_is_beside_them() -> None:
    X = cp.Variable((3, 3), symmetric=True, name="x")
    public, _ = public_set([cp.diag(X) == 2, X >> 0])
    assert np.allclose(public._implied[0], [2, -2, -2, 2, -2, 2]) and np.allclose(public._implied[1], 2)
    y = cp.Variable(3, name="x")
    public, _ = public_set([cp.norm(y[1:]) <= y[0], cp.sum(y[:1]) <= 4])
    assert np.allclose(public._implied[0][:3], [0, -4, -4]) and np.allclose(public._implied[1][:3], 4)


def test_an_open_end_stays_open() -> None:
    x = cp.Variable(2, name="x")
    public, _ = public_set([x[0] - x[1] <= 1, x[0] + x[1] >= 0])
    assert np.isinf(public._implied[0]).all() and np.isinf(public._implied[1]).all()


def test_a_weighted_norm_over_matrices_takes_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    X = cp.Variable((6, 6), symmetric=True, name="x")
    public, _ = public_set([cp.diag(X) == 1, X >> 0])
    asked = []
    real = cone_program.ask
    monkeypatch.setattr(cone_program, "ask", lambda *given: asked.append(given) or real(*given))
    bound = public.weighted_norm(np.ones(21))
    assert 21 * 0.95 <= bound <= 21 * 1.001 and not asked  # all ones is such a matrix


def test_bounds_may_cross_where_nothing_is_feasible() -> None:
    x = cp.Variable(2, nonneg=True, name="x")
    public, _ = public_set([x[0] + x[1] <= -1])
    lower, upper = implied_bounds(base_program(public.form))
    assert (lower > upper).any() and not public.feasible
