"""Solves whose end public facts tell: refused exactly where some allowed data leave the objective without a bound."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.errors import SpecificationError, UnsupportedModelError

RANGES: dict[str, dict[str, Any]] = {
    "undeclared": {},
    "nonneg": {"nonneg": True},
    "nonpos": {"nonpos": True},
    "small": {"bounds": [-0.5, 0.5]},
    "wide": {"bounds": [-3, 3]},
}


def written(c: Any, b: Any) -> dict[str, cp.Problem]:
    """Models with an unbounded variable, by name; c (2,) and b (2,) are the private or plain numbers."""
    x, y = cp.Variable(2, name="x"), cp.Variable(2, nonneg=True, name="y")
    whole = cp.Variable(2, integer=True, name="z")
    rows = np.array([[1.0, 2.0], [-1.0, 1.0]])
    return {
        "orthant": cp.Problem(cp.Minimize(c @ y)),
        "orthant with rows": cp.Problem(cp.Minimize(c @ y), [rows @ y >= b]),
        "packing": cp.Problem(cp.Maximize(c @ y), [cp.sum(y) <= b[0] + 10]),
        "free": cp.Problem(cp.Minimize(c @ x)),
        "free in one direction": cp.Problem(cp.Minimize(c @ x), [x[0] + x[1] == b[0], x >= -4]),
        "norm": cp.Problem(cp.Minimize(c @ x + cp.norm(x))),
        "entropy": cp.Problem(cp.Minimize(c @ x - cp.sum(cp.entr(x)))),
        "exponential": cp.Problem(cp.Minimize(c @ x + cp.sum(cp.exp(x)))),
        "log": cp.Problem(cp.Minimize(c @ x - cp.sum(cp.log(x)))),
        "squares": cp.Problem(cp.Minimize(c @ x + cp.sum_squares(x))),
        "wrong way": cp.Problem(cp.Minimize(cp.sum(x)), [x <= b]),
        "right way": cp.Problem(cp.Minimize(cp.sum(x)), [x >= b]),
        "wrong way in cones": cp.Problem(cp.Minimize(cp.sum(x)), [cp.norm(y) <= x[0] - b[0], x[1] <= b[1]]),
        "integers": cp.Problem(cp.Minimize(cp.sum(whole)), [whole <= b]),
    }


def unbounded_for_some_data(name: str, declared: dict[str, Any]) -> bool:
    """Whether CVXPY calls it unbounded at a corner of the declared range (9 for no bound)."""
    low, high = declared.get("bounds", [0 if "nonneg" in declared else -9, 0 if "nonpos" in declared else 9])
    corners = np.array(np.meshgrid([low, high], [low, high])).reshape(2, -1).T
    statuses = []
    for corner in corners:
        problem = written(cp.Constant(corner, name="c"), cp.Constant([1.0, 1.0], name="b"))[name]
        problem.solve()
        statuses.append(str(problem.status))
    return any("unbounded" in status for status in statuses)


CASES = [
    pytest.param(name, declared, marks=pytest.mark.slow if declared in ("small", "nonpos") else ())
    for number, name in enumerate(written(np.zeros(2), np.zeros(2)))
    for declared in (RANGES if number < 10 else ["undeclared"])  # the last ones have no c
]


@pytest.mark.parametrize(("name", "declared"), CASES)
def test_refused_where_some_allowed_data_have_no_optimum(name: str, declared: str) -> None:
    value = {"nonneg": [0.25, 0.25], "nonpos": [-0.25, -0.25]}.get(declared, [0.25, -0.25])
    c = dpm.Private(value, name="c", unit="entry", linf=0.1, records=dpm.Records("some"), **RANGES[declared])
    b = dpm.Private([1.0, 1.0], name="b", unit="entry", linf=0.1, records=dpm.Records("others"))
    users = written(c, b)[name]
    problem, budget = dpm.Problem(users.objective, users.constraints), dpm.Budget(2, 1e-5)
    if unbounded_for_some_data(name, RANGES[declared]):
        with pytest.raises(UnsupportedModelError, match="bound") as caught:
            problem.solve(epsilon=1, delta=1e-6, rng=0, budget=budget)
        assert "nonneg=True" in caught.value.remedy and "bounds" in caught.value.remedy
        assert budget.spent.epsilon == 0 and problem.release is None
    else:
        problem.solve(epsilon=1, delta=1e-6, rng=0, budget=budget)
        assert "unbounded" not in problem.status and budget.spent.epsilon == 1


def test_a_row_of_small_coefficients_is_a_bound_all_the_same() -> None:
    y = cp.Variable(2, nonneg=True, name="y")
    c = dpm.Private([0.25, 0.25], name="c", unit="entry", linf=0.1, nonneg=True)
    problem = dpm.Problem(cp.Minimize(c @ y - y[0]), [1e-7 * cp.sum(y) <= 5])
    problem.solve(epsilon=10, rng=0)
    assert problem.release.spent == (10, 0)


def test_a_declared_sign_survives_every_noise() -> None:
    """Sums of private numbers under Gaussian noise, which is not clipped number by number: c stays in its range."""
    c = dpm.Private([0.01, 0.02, 0.0], name="c", unit="all", l2=1, nonneg=True)
    y = cp.Variable(2, nonneg=True, name="y")
    weights = cp.hstack([c[0] + c[1], c[1] + c[2]])
    problem = dpm.Problem(cp.Minimize(weights @ y), [cp.sum(y) >= 1])
    for seed in range(20):
        problem.solve(epsilon=1, delta=1e-6, rng=seed, mechanism="gaussian-once")
        assert problem.release.status == "optimal"


LARGE = {
    "noise on b": lambda size: ({"linf": size}, lambda x, b: (cp.sum(x), [x >= b])),
    "noise on c": lambda size: ({"linf": size}, lambda x, b: (b @ x, [x >= 0, x <= 1])),
    "coefficients": lambda size: ({}, lambda x, b: (cp.sum(x), [size * x >= b])),
    "objective": lambda size: ({}, lambda x, b: (size * cp.sum(x), [x >= b])),
    "sides": lambda size: ({}, lambda x, b: (cp.sum(x), [x >= b, x[0] + x[1] <= size])),
}


@pytest.mark.parametrize("what", LARGE)
@pytest.mark.parametrize("exponent", [3, 16, 80])
def test_numbers_on_which_solvers_fail_are_refused_before_the_charge(what: str, exponent: int) -> None:
    declared, write = LARGE[what](10.0**exponent)
    b = dpm.Private([1.0, 2.0], name="b", unit="entry", **{"linf": 1.0, **declared})
    x, budget = cp.Variable(2, name="x"), dpm.Budget(1)
    objective, constraints = write(x, b)
    problem = dpm.Problem(cp.Minimize(objective), constraints)
    if exponent == 3:
        problem.solve(epsilon=1, rng=0, budget=budget)
        assert problem.status == "optimal"
        return
    with pytest.raises(SpecificationError, match="solvers fail") as caught:
        problem.solve(epsilon=1, rng=0, budget=budget)
    assert "units" in caught.value.remedy and budget.spent.epsilon == 0


def test_a_huge_bound_on_a_variable_stands_for_none() -> None:
    x = cp.Variable(2, name="x")
    b = dpm.Private([1.0, 2.0], name="b", unit="entry", linf=1.0)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b, x <= 1e20])
    problem.solve(epsilon=1, rng=0)
    assert problem.status == "optimal"
