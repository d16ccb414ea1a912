"""Models as people write them: constants, squares of private tables, quadratic forms, problems in problems."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.errors import UnsupportedModelError


def _demand(values: Any = (30.0, 40.0)) -> Any:
    return dpm.Private(list(values), name="d", unit="entry", linf=1, bounds=(0, 100))


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
@pytest.mark.parametrize("feasibility", ["centred", "safe", "relaxed"])
def test_a_constant_that_was_measured_is_part_of_the_value(sense: Any, feasibility: str) -> None:
    d, x = _demand(), cp.Variable(2, nonneg=True)
    sign = 1 if sense is cp.Minimize else -1
    problem = dpm.Problem(sense(sign * (2 * cp.sum(x) - 3 * d[0] + d[1] + 7)), [x >= d])
    problem.solve(epsilon=1e5, feasibility=feasibility)
    assert problem.release is not None
    assert problem.release.value == pytest.approx(sign * (140 - 90 + 40 + 7), abs=0.01)
    # Of released numbers alone: nothing that the noise did not pass.
    assert problem.value == problem.release.value


def test_the_constant_is_that_of_the_released_numbers() -> None:
    d, x = _demand(), cp.Variable(2, nonneg=True)
    problem = dpm.Problem(cp.Minimize(cp.sum(x) - cp.sum(d)), [x >= d])
    problem.solve(epsilon=0.1, feasibility="centred")  # noise of 10: the true value is 0, as of any demand released
    assert problem.release is not None and problem.release.value == pytest.approx(0, abs=1e-6)


def test_a_constant_that_nothing_measured_is_left_out() -> None:
    d, fixed, x = _demand(), dpm.Private(5.0, name="fixed", unit="all", l1=1), cp.Variable(2, nonneg=True)
    problem = dpm.Problem(cp.Minimize(cp.sum(x) + fixed + cp.sum(d)), [x >= d])
    problem.solve(epsilon=1)
    assert problem.release is not None and problem.release.value is None
    assert any("constant term" in note for note in problem.release.notes)


@pytest.mark.parametrize("seed", range(6))
def test_squares_of_a_private_table_are_programs(seed: int) -> None:
    """Tables of which a record owns a row, in squares whose entries are not one for each record."""
    rng = np.random.default_rng(seed)
    n, k, p = (int(v) for v in rng.integers(2, 5, 3))
    P = dpm.Private(rng.uniform(0, 1, (n, k)), name="P", unit="row", l2=1.0, bounds=(0, 1))
    x = cp.Variable(p)
    target = [
        lambda: cp.vec(P, order="F"),
        lambda: cp.vec(P.T, order="C"),
        lambda: cp.hstack([P[0], P[n - 1]]),
        lambda: cp.reshape(P, (n * k,), order="F") * 2,
        lambda: cp.hstack([cp.vec(P, order="F"), np.ones(3)]),
        lambda: P[:, 0] - P[:, 1],
    ][seed]()
    C = rng.uniform(0, 1, (target.size, p))
    objective = cp.sum_squares(C @ x - target) + [0, 0.1 * cp.sum_squares(x)][seed % 2]
    problem = dpm.Problem(cp.Minimize(objective), [x >= 0, x <= 1])
    assert {cell.part for cell in problem.classify().cells} <= {"scalar", "objective"}
    problem.solve(epsilon=1)
    assert x.value is not None and (x.value >= -1e-6).all() and (x.value <= 1 + 1e-6).all()


def test_a_table_that_multiplies_variables_is_still_refused_with_its_reason() -> None:
    X = dpm.Private(np.ones((4, 2)), name="X", unit="row", max_l2=2.0)
    w = cp.Variable(2)
    with pytest.raises(UnsupportedModelError, match="records"):
        dpm.Problem(cp.Minimize(cp.sum_squares(np.tri(4) @ (X @ w) - np.ones(4)))).classify()


def test_a_private_quadratic_form_names_the_one_with_a_root() -> None:
    Sigma = dpm.Private(np.eye(3), name="Sigma", unit="all", l2=0.1, PSD=True)
    w = cp.Variable(3, nonneg=True, name="w")
    with pytest.raises(UnsupportedModelError, match=r"Sigma = R\.T @ R.*cp\.sum_squares\(R @ w\)"):
        dpm.Problem(cp.Minimize(cp.quad_form(w, Sigma)), [cp.sum(w) == 1]).classify()
    R = dpm.Private(np.ones((50, 3)) / 2, name="R", unit="row", max_l2=1.0)
    assert dpm.Problem(cp.Minimize(cp.sum_squares(R @ w)), [cp.sum(w) == 1]).is_dp()
    # Of public points a quadratic form is affine in its matrix, and CVXPY takes it.
    v = cp.Variable(nonneg=True)
    assert dpm.Problem(cp.Minimize(v), [v >= cp.quad_form(np.ones(3), Sigma)]).is_dp()


def test_a_plain_problem_is_taken_apart() -> None:
    d, x = _demand(), cp.Variable(2, nonneg=True)
    plain = cp.Problem(cp.Minimize(cp.sum(x)), [x >= d])
    problem = dpm.Problem(plain)
    problem.solve(epsilon=1e5)
    assert np.allclose(x.value, [30, 40], atol=0.01)
