"""Exact satisfaction through CVXPY: private rows of equalities and inequalities, from the model to the release."""

from __future__ import annotations

import re
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.programs.equations import LARGEST, exact_equations, exact_inequalities
from dpmodel.programs.rows import public_polyhedron

TRUTH = np.array([3, -1, 2, 0])


def equations(share=0.02, *, n=3000, rows=None, neighbors="replace-one", objective=0, extra=(), **variable):
    rng = np.random.default_rng(0)
    A = rng.integers(-5, 6, (n, 4)) if rows is None else rows
    b = A @ TRUTH
    bad = rng.random(len(A)) < share
    b[bad] += rng.integers(1, 9, int(bad.sum()))
    people = dpm.Records("people", neighbors)
    left = dpm.Private(A, name="A", unit="row", records=people, integer=True)
    right = dpm.Private(b, name="b", unit="entry", records=people, integer=True)
    x = cp.Variable(4, name="x", **variable)
    cost = objective(x) if callable(objective) else 0
    return dpm.Problem(cp.Minimize(cost), [left @ x == right, *(c(x) for c in extra)]), x, (A, b)


def inequalities(n=4000, *, neighbors="replace-one", integer=False, target=None, margin_row=0.3):
    rng = np.random.default_rng(1)
    G = rng.normal(size=(n, 3))
    G /= np.linalg.norm(G, axis=1)[:, None]
    h = G @ [0.2, -0.3, 0.1] + margin_row + rng.exponential(0.3, n)
    people = dpm.Records("people", neighbors)
    left = dpm.Private(G, name="G", unit="row", records=people)
    right = dpm.Private(h, name="h", unit="entry", records=people)
    x = cp.Variable(3, name="x")
    return dpm.Problem(cp.Minimize(0 if target is None else cp.sum(x)), [left @ x <= right, x <= 2, x >= -2]), x, (G, h)


# ------------------------------------------------------------------ equalities
@pytest.mark.parametrize("bounds", [{}, {"bounds": [-5, 5]}], ids=["free", "bounded"])
def test_equalities_are_routed_to_exact_equations(bounds) -> None:
    problem, x, (A, b) = equations(**bounds)
    plan = problem.plan(1.0, 1e-6)
    assert plan.chosen.mechanism == "exact-equations"
    assert "of the 3000 equations hold exactly" in plan.chosen.forecast.statement
    problem.solve(1.0, 1e-6, rng=1)
    assert (x.value == TRUTH).all()
    assert int((b != A @ TRUTH).sum()) <= problem.release.accuracy.slack_rows + 100
    assert any("exactly (3, -1, 2, 0)" in note for note in problem.release.notes)
    assert problem.release.guarantee.epsilon == 1.0 and problem.release.guarantee.delta == 1e-6


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("mechanism", ["auto", "exact-equations"])
@pytest.mark.parametrize("epsilon, delta", [(1.0, 1e-6), (0.1, 1e-9), (5.0, 1e-3)])
def test_too_few_equations_are_refused_before_the_charge(neighbors, mechanism, epsilon, delta) -> None:
    """As ``linalg.solve_equations`` does: the number told is the least with which the problem is served."""
    budget = dpm.Budget(epsilon=epsilon, delta=delta)
    problem, _, _ = equations(0.0, n=4, neighbors=neighbors)
    with pytest.raises(dpm.errors.UnsupportedModelError, match="at least") as refusal:
        problem.solve(epsilon, delta, mechanism=mechanism, budget=budget, rng=1)
    assert budget.spent == (0.0, 0.0) and problem.release is None
    needed = int(re.search(r"at least (\d+) records are needed", str(refusal.value)).group(1))
    with pytest.raises(dpm.errors.UnsupportedModelError, match=f"at least {needed}"):
        equations(0.0, n=needed - 1, neighbors=neighbors)[0].plan(epsilon, delta, mechanism=mechanism)
    assert not equations(0.0, n=needed + 1, neighbors=neighbors)[0].plan(epsilon, delta).chosen.forecast.vacuous


def test_what_was_asked_for_decides_otherwise() -> None:
    problem, _, _ = equations(bounds=[-5, 5])
    assert problem.plan(1.0, 1e-6, feasibility=dpm.AllBut(alpha=0.5)).chosen.forecast.error.violation <= 0.5
    exact = problem.plan(1.0, 1e-6, feasibility=dpm.Exact())
    assert [c.mechanism for c in exact.candidates if c.eligible] == ["exact-equations"]


def test_free_directions_go_to_the_objective_under_public_constraints() -> None:
    rows = np.random.default_rng(3).integers(-5, 6, (3000, 4))
    rows[:, 3] = rows[:, 2]
    problem, x, _ = equations(0.0, rows=rows, objective=lambda x: x[2] - 2 * x[3], extra=[lambda x: x[3] <= 5])
    value = problem.solve(1.0, 1e-6, rng=1, feasibility=dpm.Exact())
    np.testing.assert_allclose(x.value, [3, -1, -3, 5], atol=1e-6)
    assert value == pytest.approx(-13)


def test_contradicting_public_constraints_give_no_point() -> None:
    problem, x, _ = equations(0.0, extra=[lambda x: x[0] <= 2])
    problem.solve(1.0, 1e-6, rng=1, feasibility=dpm.Exact())
    assert x.value is None and problem.status == "nothing_found"
    assert any("contradict" in note for note in problem.release.notes)


def test_absent_records_are_zero_rows_and_cost_one() -> None:
    problem, x, _ = equations(neighbors="add-remove")
    model = problem._model(None)
    system = exact_equations(model)
    assert system.neighbors == "add-remove" and system.records is None
    added = problem.plan(1.0, 1e-6).chosen.forecast.error.slack_rows
    replaced = equations()[0].plan(1.0, 1e-6).chosen.forecast.error.slack_rows
    assert added < replaced
    problem.solve(1.0, 1e-6, rng=1)
    assert (x.value == TRUTH).all()


def rows_with_two_owners(kind):
    """Constraints in which a row holds numbers of two records that may be absent, each of which reaches it alone."""
    people, firms = dpm.Records("people", "add-remove"), dpm.Records("firms", "add-remove")
    x = cp.Variable(2, name="x")
    A = dpm.Private(np.arange(1, 21).reshape(10, 2), name="A", unit="row", records=people, integer=True)
    b = dpm.Private(np.arange(1, 11), name="b", unit="entry", records=firms, integer=True)
    return {
        "difference": lambda: (A[:5] - A[5:]) @ x == 7,
        "two kinds": lambda: A @ x == b,
        "inequality": lambda: A @ x <= b,
    }[kind]()


@pytest.mark.parametrize("kind", ["difference", "two kinds", "inequality"])
def test_a_row_of_two_records_is_replaced_when_one_of_them_is_absent(kind) -> None:
    """Not taken away: the numbers of the other one stay."""
    model = dpm.Problem(cp.Minimize(0), [rows_with_two_owners(kind)])._model(None)
    system = (
        exact_inequalities(model, public_polyhedron(model), 0.1) if kind == "inequality" else exact_equations(model)
    )
    assert system.neighbors == "replace-one"
    assert system.records == system.expected == (5 if kind == "difference" else 10)


def test_a_solution_beyond_floats_is_told_in_a_note() -> None:
    """x_0 = 1, x_(i+1) = 2^39 x_i: no float holds the last ones, and the budget is spent."""
    rows = np.eye(30, dtype=np.int64) - 2**39 * np.eye(30, k=-1, dtype=np.int64)
    people = dpm.Records("people")
    A = dpm.Private(np.tile(rows, (150, 1)), name="A", unit="row", records=people, integer=True)
    b = dpm.Private(np.tile(np.eye(30)[0], 150), name="b", unit="entry", records=people, integer=True)
    x = cp.Variable(30, name="x")
    problem = dpm.Problem(cp.Minimize(0), [A @ x == b])
    problem.solve(4.0, 1e-6, rng=1, feasibility=dpm.Exact())
    assert x.value is None and any("too large for floats" in note for note in problem.release.notes)


def test_rows_are_read_exactly() -> None:
    """Large integers, public coefficients and constants, a repeated parameter; a row without private numbers is
    zero where a record may be absent."""
    rng = np.random.default_rng(5)
    A = rng.integers(-(2**39), 2**39, (6, 2))
    A[2] = 0
    people = dpm.Records("people", "add-remove")
    private = dpm.Private(A, name="A", unit="row", records=people, integer=True)
    x = cp.Variable(2, name="x")
    problem = dpm.Problem(cp.Minimize(0), [3 * private @ x + private @ x[::-1] + x[0] == 7])
    system = exact_equations(problem._model(None))
    got = system.read_rows()
    for i, row in enumerate(A):
        want = [3 * int(row[0]) + int(row[1]) + 1, 3 * int(row[1]) + int(row[0]), -7] if row.any() else [0, 0, 0]
        sign = 1 if not row.any() or int(got[i][2]) == -7 else -1
        assert [sign * int(entry) for entry in got[i]] == want
    assert LARGEST == 2**40


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: dpm.Private(shape=(9, 2), name="A", unit="row"), "not declared whole"),
        (lambda: dpm.Private(shape=(9, 2), name="A", unit="row", integer=True, max_l2=3), "scaled"),
        (lambda: dpm.Private(shape=(9, 2), name="A", unit="all", l1=1, integer=True), "one record reaches 9"),
    ],
)
def test_why_equalities_are_not_exact(make, reason) -> None:
    x = cp.Variable(2, bounds=[0, 1])
    problem = dpm.Problem(cp.Minimize(0), [make() @ x == 1])
    plan = problem.plan(1.0, 1e-6, feasibility=dpm.AllBut(alpha=0.1))
    (candidate,) = (c for c in plan.candidates if c.mechanism == "exact-equations")
    assert not candidate.eligible and reason in candidate.reason


def test_fractions_in_public_coefficients_and_pure_budgets_are_refused() -> None:
    A = dpm.Private(shape=(9, 2), name="A", unit="row", integer=True)
    x = cp.Variable(2)
    with pytest.raises(dpm.errors.UnsupportedModelError, match="not whole"):
        dpm.Problem(cp.Minimize(0), [0.5 * A @ x == 1]).plan(1.0, 1e-6, feasibility=dpm.Exact())
    with pytest.raises(dpm.errors.UnsupportedModelError, match="delta > 0"):
        dpm.Problem(cp.Minimize(0), [A @ x == 1]).plan(1.0, feasibility=dpm.Exact())


# ------------------------------------------------------------------ inequalities
@pytest.mark.slow
def test_inequalities_with_a_margin_hold_exactly() -> None:
    problem, x, (G, h) = inequalities(2000)
    problem.solve(4.0, 1e-6, rng=1, feasibility=dpm.Exact(margin=0.2), mechanism="hinge-descent")
    release = problem.release
    assert release.mechanism == "hinge-descent" and release.status == "optimal"
    missed = int((x.value @ G.T > h).sum())
    assert missed <= release.accuracy.slack_rows
    assert (np.abs(x.value) <= 2 + 1e-9).all()
    assert release.guarantee.neighbors == "replace-one"


def test_a_target_becomes_a_public_constraint() -> None:
    problem, x, (G, h) = inequalities(target=True)
    with pytest.raises(dpm.errors.SpecificationError, match="Target"):
        problem.plan(2.0, 1e-6, feasibility=dpm.Exact(margin=0.1))
    problem.solve(2.0, 1e-6, rng=1, feasibility=dpm.Exact(0.1), goal=dpm.Target(0.05), mechanism="rescaling-perceptron")
    assert float(np.sum(x.value)) <= 0.05 + 1e-7
    assert int((x.value @ G.T > h).sum()) <= 200


def test_the_system_is_the_rows() -> None:
    problem, _, (G, h) = inequalities(50)
    model = problem._model(None)
    system = exact_inequalities(model, public_polyhedron(model), 0.2)
    A, b = system.read_rows()
    np.testing.assert_allclose(A.toarray(), G)
    np.testing.assert_allclose(b, h)
    assert system.public_rows.shape == (6, 3) and system.largest is None and system.records == 50
    unit = np.asarray(abs(system.lifted(A, b)).power(2).sum(axis=1)).ravel()
    np.testing.assert_allclose(unit, 1)


def test_whole_inequalities_know_their_bound() -> None:
    people = dpm.Records("people")
    A = dpm.Private(np.ones((5, 2)), name="A", unit="row", records=people, integer=True, bounds=[-3, 3])
    b = dpm.Private(np.full(5, 4.0), name="b", unit="entry", records=people, integer=True, bounds=[0, 9])
    x = cp.Variable(2, nonneg=True)
    model = dpm.Problem(cp.Minimize(0), [A @ x <= b])._model(None)
    system = exact_inequalities(model, public_polyhedron(model), None)
    assert system.largest == 9
    rows, sides = system.read_rows()
    assert rows.dtype == np.int64 and (sides == 4).all()


def wrong_requests():
    problem = inequalities(60)[0]
    yield problem, {"feasibility": "exact"}, dpm.errors.SpecificationError, "dpm.Exact"
    yield problem, {"feasibility": dpm.Exact(0.0)}, dpm.errors.SpecificationError, "margin is not"
    yield problem, {"feasibility": dpm.Exact(2.0)}, dpm.errors.SpecificationError, "margin is not"
    yield problem, {"feasibility": dpm.Exact(True)}, dpm.errors.SpecificationError, "margin is not"
    yield problem, {"feasibility": dpm.Exact(0.1), "goal": dpm.Penalty(1.0)}, dpm.errors.SpecificationError, "Penalty"
    yield problem, {"feasibility": dpm.Exact()}, dpm.errors.UnsupportedModelError, "margin"
    rows = equations(n=50)[0]
    yield (
        rows,
        {"feasibility": dpm.Exact(), "mechanism": "hinge-descent"},
        dpm.errors.UnsupportedModelError,
        "hinge-descent",
    )
    X = dpm.Private(shape=(9, 2), unit="row", bounds=[-1, 1])
    public = dpm.Problem(cp.Minimize(cp.sum_squares(X @ cp.Variable(2) - 1)))
    yield public, {"feasibility": dpm.Exact()}, dpm.errors.SpecificationError, "Exact"
    yield equations(n=50)[0], {"feasibility": dpm.Exact(0.1)}, dpm.errors.SpecificationError, "for private equal"
    shared = dpm.Private(shape=(9, 2), unit="all", l1=1)
    yield (
        dpm.Problem(cp.Minimize(0), [shared @ cp.Variable(2) <= 1]),
        {"feasibility": dpm.Exact()},
        dpm.errors.UnsupportedModelError,
        "9",
    )


@pytest.mark.parametrize(("problem", "asked", "error", "words"), list(wrong_requests()))
def test_wrong_requests_spend_nothing(problem, asked, error, words) -> None:
    budget = dpm.Budget(10.0, 1e-3)
    with pytest.raises(error, match=words):
        problem.solve(1.0, 1e-6, budget=budget, **asked)
    assert budget.spent == (0.0, 0.0)


@pytest.mark.slow
def test_too_few_public_records_are_refused_with_the_number_needed() -> None:
    problem, _, _ = inequalities(12)
    with pytest.raises(dpm.errors.UnsupportedModelError, match="too few records for any guarantee: 12"):
        problem.solve(0.1, 1e-6, feasibility=dpm.Exact(margin=0.01))


def test_fractions_of_an_exact_point_are_told() -> None:
    from dpmodel.exact.model import Found
    from dpmodel.programs.options import outcome_of

    model = inequalities(5)[0]._model(None)
    point = np.array([Fraction(1, 3), Fraction(2), Fraction(-1, 7)], dtype=object)
    outcome = outcome_of(model, Found("found", point, 2.5))
    assert any("1/3, 2, -1/7" in note for note in outcome.notes)
    nothing = outcome_of(model, Found("nothing", None))
    assert nothing.x is None and nothing.status == "nothing_found"


def test_exact_satisfaction_without_private_constraints_is_refused() -> None:
    x = cp.Variable(2, nonneg=True)
    value = dpm.Private([1.0, 2.0], name="value", unit="entry", linf=1)
    with pytest.raises(dpm.errors.SpecificationError, match="without private constraints"):
        dpm.Problem(cp.Maximize(value @ x), [cp.sum(x) == 1]).plan(1.0, feasibility=dpm.Exact())


def test_only_exact_mechanisms_say_why_not_when_exactness_was_asked_for() -> None:
    x = cp.Variable(2)
    A = dpm.Private(shape=(50, 2), name="A", unit="row", max_l2=1)
    with pytest.raises(dpm.errors.UnsupportedModelError) as caught:
        dpm.Problem(cp.Minimize(cp.norm1(x)), [A @ x == 1]).plan(1.0, 1e-6, feasibility=dpm.Exact())
    assert "not declared whole" in caught.value.why and "laplace-once" not in caught.value.why
