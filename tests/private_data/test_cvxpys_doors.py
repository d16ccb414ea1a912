"""CVXPY's own ways in and out (plain solving, problem data, expressions, copies, arithmetic, pickles) fail closed."""

from __future__ import annotations

import copy
import pickle

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.error import ParameterError, SolverError
from private_programs import DIGITS, OTHERS, SECRETS, objective, scalar
from walking import assert_no_trace, numbers_in

import dpmodel as dpm
from dpmodel.errors import SpecificationError


def solve(problem, mechanism="laplace-once"):
    return problem.solve(epsilon=1, delta=1e-6, mechanism=mechanism, rng=7)


@pytest.fixture(scope="module")
def solved():
    problem = scalar(SECRETS)
    solve(problem)
    return problem


@pytest.fixture(params=[False, True], ids=["fresh", "solved"])
def problem(request, solved):
    return solved if request.param else scalar(SECRETS)


def test_plain_solving_fails(problem):
    with pytest.raises(SpecificationError, match=r"dpm\.Problem") as caught:
        cp.Problem.solve(problem)
    assert not DIGITS.search(str(caught.value))
    parts = [(problem.objective, problem.constraints), (cp.Minimize(0), problem.constraints[:1])]
    for goal, rows in parts:
        with pytest.raises(SpecificationError):
            cp.Problem(goal, rows).solve()


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS", "OSQP", "HIGHS"])
def test_problem_data_holds_no_values(solved, solver):
    try:
        data, _, inverse = solved.get_problem_data(solver)
    except (ParameterError, SolverError, ValueError):
        return
    assert_no_trace([data, inverse, solved], [SECRETS])
    assert any(np.isnan(numbers).any() for _, numbers in numbers_in([data])), "the private part reads as NaN"


def test_expressions_fail_closed(solved):
    need, cap = solved.constraints
    assert need.residual is None
    for call in (need.violation, need.value):
        with pytest.raises(ValueError) as caught:
            call()
        assert not DIGITS.search(str(caught.value))
    (b,) = solved.parameters()
    for expression in (b, b + 1, cp.sum(b), b[0], -b, b.T, cp.hstack([b, b]), need.expr):
        assert expression.value is None
    assert b.sign == "UNKNOWN"
    assert not DIGITS.search(str(b) + repr(b) + str(need) + repr(solved) + solved.format_labeled())
    for call in (solved.backward, solved.derivative):
        with pytest.raises(Exception) as caught:
            call()
        assert not DIGITS.search(str(caught.value))
    assert cap.violation() == 0 and cap.expr.value is not None, "public constraints keep their values"


def test_objective_with_private_data_has_no_value():
    problem = objective(SECRETS)
    value = solve(problem)
    assert problem.objective.value is None
    assert problem.objective.expr.value is None
    assert problem.value == value == problem.release.value
    problem = objective(SECRETS)
    assert solve(problem, "vertex-exponential") is None
    assert problem.value is None


# ------------------------------------------------------------------ copies and arithmetic
def _other():
    return dpm.Problem(cp.Minimize(cp.norm1(cp.Variable(2, name="y") - 3)))


def _plain():
    return cp.Problem(cp.Minimize(cp.Variable(name="z", nonneg=True)))


ARITHMETIC = {
    "copy": lambda p: p.copy(),
    "copy.copy": copy.copy,
    "tree_copy": lambda p: p.tree_copy(),
    "negated twice": lambda p: (-p).__neg__(),
    "plus": lambda p: p + _other(),
    "plus plain": lambda p: p + _plain(),
    "plain plus": lambda p: _plain() + p,
    "minus": lambda p: p - (-_other()),
    "plain minus": lambda p: _plain() - (-p),
    "times": lambda p: 2 * p,
    "times from the right": lambda p: p * 2,
    "over": lambda p: p / 4,
    "sum": lambda p: sum([p, _other(), _other()]),
}


@pytest.mark.parametrize("operation", ARITHMETIC.values(), ids=ARITHMETIC.keys())
def test_copies_and_arithmetic_keep_class_and_protection(operation, problem):
    result = operation(problem)
    assert type(result) is dpm.Problem
    assert result.release is None
    assert [type(p) for p in result.parameters()] == [dpm.Private]
    assert_no_trace([result, *result.constraints, *result.variables()], [SECRETS])
    with pytest.raises(SpecificationError):
        cp.Problem.solve(result)
    result.solve(epsilon=1, rng=7)
    assert result.release.status == "optimal"
    assert result.classify().cells[0].parameter == "b"


def test_values_of_scaled_problems():
    one, three = scalar(SECRETS), 3 * scalar(SECRETS)
    assert three.solve(epsilon=1, rng=7) == pytest.approx(3 * one.solve(epsilon=1, rng=7))
    assert (-one).solve(epsilon=1, rng=7) == pytest.approx(-one.value)


def test_a_deep_copy_carries_the_sealed_value_and_the_release():
    problem = scalar(SECRETS)
    value = solve(problem)
    twin = copy.deepcopy(copy.deepcopy(problem))
    (mine,), (theirs,) = problem.parameters(), twin.parameters()
    assert type(twin) is dpm.Problem and theirs is not mine
    assert theirs.has_value and theirs.value is None
    assert twin.release.to_dict() == problem.release.to_dict()
    assert_no_trace([twin, *twin.constraints, *twin.variables()], [SECRETS])
    mine.value = OTHERS[:3]
    assert solve(problem) != value
    assert solve(twin) == value


def test_a_pickle_carries_no_value(problem):
    dumped = pickle.dumps(problem)
    for secret in SECRETS[:3]:
        assert np.float64(secret).tobytes() not in dumped
        assert np.float64(secret).byteswap().tobytes() not in dumped
        assert str(secret).encode() not in dumped
    twin = pickle.loads(dumped)
    assert type(twin) is dpm.Problem
    assert not twin.parameters()[0].has_value
    assert twin.is_dp()
    if problem.release is not None:
        assert twin.release.to_dict() == problem.release.to_dict()
    with pytest.raises(dpm.errors.MissingValueError):
        twin.solve(epsilon=1, rng=7)
    twin.parameters()[0].value = SECRETS[:3]
    assert solve(twin) == solve(scalar(SECRETS))


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_releases_and_plans_can_be_copied(solved, how):
    twin = how(solved.release)
    assert twin.to_dict() == solved.release.to_dict()
    with pytest.raises(ValueError):
        twin.variables["x"][0, 0] = 1.0
