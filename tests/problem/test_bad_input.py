"""Bad input: each gets its own clear error, before anything is spent, without a digit of a private value."""

from __future__ import annotations

import math
import sqlite3
import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from bad_input import SECRET, assert_clean, private, scalar_problem

import dpmodel as dpm
from dpmodel.errors import InfeasibleError, MissingValueError, SpecificationError, UnsupportedModelError


def refused(build, kind, *words, **options):
    """``build()`` or its solve raises ``kind``, says ``words``, and spends nothing."""
    budget = dpm.Budget(1e9, 0.9)
    options = {"epsilon": 1, "rng": 0, "budget": budget, **options}
    with pytest.raises(kind) as caught:
        built = build()
        built.solve(**options)
    error = caught.value
    assert budget.history == ()
    assert tuple(budget.spent) == (0, 0)
    assert isinstance(error, dpm.DPModelError)
    assert_clean(error)
    text = str(error)
    for word in words:
        assert word in text, text
    assert "why: " in text or "try: " in text
    assert error.remedy, "what to try"
    return error


# ------------------------------------------------------------------ declarations
def whole(*rows, goal=None):
    """A problem of two variables with ``rows`` (x) beside an objective (x), by default their sum."""
    x = cp.Variable(2, name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)) if goal is None else goal(x), [row for make in rows for row in make(x)])


def assigned(value):
    b = private(shape=2, value=None, unit="entry", linf=1)
    try:
        b.value = value
    finally:
        assert not b.has_value


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity(bad):
    error = refused(lambda: private([SECRET[0], bad]), SpecificationError, "'b'", "NaN or infinite")
    assert "impute" in error.remedy


def test_nan_in_a_sparse_value():
    value = sp.coo_array(([math.nan, SECRET[0]], ([0, 1], [0, 1])), shape=(2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(lambda: private(value, unit="row", linf=1), SpecificationError, "NaN or infinite")


@pytest.mark.parametrize("value", [SECRET[:1], np.tile(SECRET, 2), SECRET[None], SECRET[0]])
def test_wrong_shape(value):
    refused(lambda: assigned(value), SpecificationError, "shape", "(2,)")


@pytest.mark.parametrize("value", ["7321.4375", [["7321"]], [[7321.4375], [1, 2]], object(), None.__class__, [None]])
def test_not_numbers(value):
    refused(lambda: private(value), SpecificationError, "not a real numeric array")


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"unit": "all"}, "unit='all' without a bound"),
        ({"l1": -1}, "l1"),
        ({"linf": 0}, "linf"),
        ({"l2": math.inf}, "l2"),
        ({"l2": math.nan}, "l2"),
        ({"linf": "1"}, "linf"),
        ({"l1": 1, "linf": 2}, "linf"),
        ({"unit": "person"}, "unit"),
        ({"unit": "column", "linf": 1}, "column"),
        ({"row_l1": 1}, "row_l1"),
        ({"linf": 1, "records": "people"}, "records"),
        ({"linf": 1, "nonneg": True}, "nonneg"),
        ({"linf": 1, "bounds": [2, 1]}, "b"),
        ({"linf": 1, "complex": True}, "complex"),
        ({"linf": 1, "no_such_attribute": True}, "no_such_attribute"),
        *[({"value": None, "shape": shape, "linf": 1}, "empty") for shape in (0, (0,), (3, 0))],
    ],
)
def test_contradicting_annotations(declared, words):
    with pytest.raises(SpecificationError, match=words) as caught:
        private(**declared)
    assert_clean(caught.value)
    assert "linf=" in caught.value.remedy or declared != {"unit": "all"}


@pytest.mark.parametrize("neighbors", ["replace", None, 3])
def test_unknown_neighbor_relation(neighbors):
    refused(lambda: dpm.Records(neighbors=neighbors), SpecificationError, "neighbor")


# ------------------------------------------------------------------ models
def not_dpp():
    b, scale = private(), dpm.Private(3.25, name="scale", linf=1)
    return whole(lambda x: [(x >= scale * b + 1).set_label("need")])


def not_convex():
    b = private()
    return whole(lambda x: [x <= 1], goal=lambda x: cp.Maximize(cp.sum_squares(x) + b @ x))


MODELS = {
    "no value": (
        lambda: scalar_problem(None, private(None, shape=2, unit="entry", linf=1)),
        MissingValueError,
        "b",
        "without a value",
    ),
    "not DPP": (
        not_dpp,
        UnsupportedModelError,
        "need",
        "scale",
        "not affine in its parameters (not DPP)",
        "one Private",
    ),
    "not convex": (not_convex, UnsupportedModelError, "the objective", "not convex"),
    "no variable": (lambda: dpm.Problem(cp.Minimize(cp.sum(private()))), UnsupportedModelError, "without variables"),
    "no variable in a row": (
        lambda: dpm.Problem(cp.Minimize(0), [private() >= 0]),
        UnsupportedModelError,
        "without variables",
    ),
    "NaN in a constant": (
        lambda: whole(lambda x: [x >= private(), x <= np.array([math.nan, 1.0])]),
        SpecificationError,
        "NaN or infinite",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    build, kind, *words = MODELS[name]
    refused(build, kind, *words)


@pytest.mark.parametrize("function", [cp.square, cp.exp, cp.abs, cp.pos])
def test_not_dpp_functions_of_private_parameters(function):
    b = private(np.abs(SECRET))
    problem = whole(lambda x: [x <= function(b)], goal=lambda x: cp.Maximize(cp.sum(x)))
    refused(lambda: problem, UnsupportedModelError, "constraint 0", "DPP")


@pytest.mark.parametrize("mechanism", ["auto", "laplace-once", "gaussian-once"])
def test_unbounded_variable_where_a_bound_is_needed(mechanism):
    words = ("laplace-once", "gaussian-once") if mechanism == "auto" else (mechanism,)
    asked = {"mechanism": mechanism, "delta": 1e-6, "feasibility": "relaxed"}
    words += ("no public bound on x", "bounds=[lo, hi]")
    refused(lambda: whole(lambda x: [private() @ x >= 1]), UnsupportedModelError, *words, **asked)


@pytest.mark.parametrize(
    "public",
    [
        pytest.param(lambda x: [x[0] <= 0, x[0] >= 1], id="box"),
        pytest.param(lambda x: [cp.sum(x) <= 0, cp.sum(x) >= 1], id="rows"),
        pytest.param(lambda x: [cp.norm(x) <= 1, cp.sum(x) >= 3], id="cone"),
        pytest.param(lambda x: [x[0] == 1, x[0] == 2], id="equalities"),
    ],
)
def test_infeasible_public_part(public):
    problem = whole(lambda x: [x >= private()], public)
    refused(lambda: problem, InfeasibleError, "public constraints have no common point")


@pytest.mark.parametrize("mechanism", ["auto", "public-only", "laplace-once", "point-exponential"])
@pytest.mark.parametrize("public", [lambda y: [cp.norm(y) <= y[0] - 1], lambda y: [y <= -1, y[0] >= 1 - y[1]]])
def test_infeasible_public_part_beside_a_free_variable(public, mechanism):
    """What else stands against a mechanism is told of sets that have a point."""
    t, y = cp.Variable(1, name="t"), cp.Variable(2, name="y")
    costs = dpm.Private([0.5], name="c", unit="entry", linf=0.1, bounds=[-1, 1])
    problem = dpm.Problem(cp.Minimize(costs @ t + cp.sum(y)), public(y))
    with pytest.raises(InfeasibleError, match="public constraints have no common point"):
        problem.plan(epsilon=1.0, mechanism=mechanism)


@pytest.mark.parametrize("broken", ["missing", "nan", "inf"])
@pytest.mark.parametrize("beside", [True, False])
def test_public_parameter_without_a_usable_value(broken, beside):
    cap = cp.Parameter(2, name="cap")
    if broken != "missing":
        cap.save_value(np.array([math.nan if broken == "nan" else math.inf, 1.0]))
    kind = MissingValueError if broken == "missing" else SpecificationError
    refused(lambda: whole(lambda x: [x >= private() if beside else x >= 0, x <= cap]), kind, "cap")


# ------------------------------------------------------------------ what is asked of a solve
ASKED = {
    "epsilon": ([-1, 0, math.inf, math.nan, "1", True, 1 + 0j, [1]], "epsilon"),
    "delta": ([-1e-9, 1, 1.5, math.nan, math.inf, "0", True, None], "delta"),
    "beta": ([0, 1, -0.1, 1.5, math.nan, math.inf, "0.05", True, None], "beta"),
    "rng": (["seed", 1.5, True, -3, [1], np.random.RandomState(0)], ""),
    "progress": (["yes", 3, [print], lambda: None, lambda stage: None, lambda a, b, c: None, [].append], "progress="),
    "solver": (["GUROBI-9", "", 3], "no solver of this name"),
}


@pytest.mark.parametrize(("option", "value"), [(option, value) for option in ASKED for value in ASKED[option][0]])
def test_values_out_of_range_or_of_a_wrong_type(option, value):
    error = refused(scalar_problem, SpecificationError, ASKED[option][1], **{option: value})
    assert option != "solver" or "CLARABEL" in error.remedy
    if option == "epsilon":
        with pytest.raises(SpecificationError, match="epsilon"):
            scalar_problem().plan(epsilon=value)


@pytest.mark.parametrize(
    ("asked", "kind", "words", "remedy"),
    [
        ({"epsilon": None}, SpecificationError, ["without epsilon"], ["epsilon="]),
        ({"mechanism": "gaussian-once"}, UnsupportedModelError, ["gaussian-once", "delta > 0"], ["laplace-once"]),
        ({"feasibility": "strict"}, UnsupportedModelError, ["delta > 0"], []),
        (
            {"feasibility": "strict", "delta": 1e-6},
            InfeasibleError,
            ["strict", "b has no public bounds"],
            ["bounds=[lo, hi]"],
        ),
        (
            {"solver": "CLARABEL", "solver_options": {"nonsense": 1}},
            SpecificationError,
            ["nonsense"],
            [],
        ),
        *[
            (
                {"mechanism": name},
                SpecificationError,
                ["mechanism="],
                ["'auto'", "'laplace-once'", "'vertex-exponential'"],
            )
            for name in ("laplace", "", None, 3, "Laplace-Once", ["laplace-once"])
        ],
        *[
            ({"feasibility": mode}, SpecificationError, ["feasibility="], ["'relaxed'", "'strict'"])
            for mode in ("strickt", "Relaxed", None, True, ["strict"])
        ],
        *[
            ({"mechanism": name, "delta": 1e-6}, UnsupportedModelError, [name, why], ["laplace-once"])
            for name, why in (
                ("theorem-34", "only the objective is private"),
                ("vertex-exponential", "only the objective is private"),
                ("strict-truncated-laplace", 'serves feasibility="strict"'),
            )
        ],
    ],
)
def test_requests_that_cannot_be_served_say_what_would_do(asked, kind, words, remedy):
    error = refused(scalar_problem, kind, *words, **asked)
    assert all(word in error.remedy for word in remedy), error.remedy


def test_solver_that_cannot_solve_this_kind():
    build = lambda: whole(lambda x: [x >= private()], goal=lambda x: cp.Minimize(cp.sum(cp.exp(x / 1e4))))  # noqa: E731
    refused(build, SpecificationError, "OSQP", "cannot solve this kind", solver="OSQP")


@pytest.mark.parametrize(
    ("vertices", "words"),
    [
        (3, "vertices=int"),
        ([], "0 points"),
        ("ab", "not an array of numbers"),
        ([[0.0, 2.0]], "violates a public constraint"),
        ([[0.0]], "sizes [1]"),
        ([[0.0, math.nan]], "NaN"),
        ([{}], "no value for x"),
        ([[0.0, 1.0], [1.0]], "sizes [1, 2]"),
    ],
)
def test_bad_vertices(vertices, words):
    b = private()
    problem = whole(lambda x: [x >= 0, x <= 1], goal=lambda x: cp.Minimize(b @ x))
    mechanism = dpm.mechanisms.VertexExponential(vertices=vertices)
    refused(lambda: problem, SpecificationError, words, mechanism=mechanism)


def test_wrong_keyword_and_cvxpys_habit_of_a_positional_solver():
    budget = dpm.Budget(1)
    for wrong in ("eps", "max_iters", "gp"):
        with pytest.raises(SpecificationError, match=wrong):
            scalar_problem().solve(epsilon=1, budget=budget, **{wrong: 1})
    assert budget.history == ()
    with pytest.raises(SpecificationError, match="solver='CLARABEL'"):
        scalar_problem().solve(cp.CLARABEL)


# ------------------------------------------------------------------ budgets
def test_budget_too_small():
    budget = dpm.Budget(0.5, 1e-7)
    problem = scalar_problem()
    for options in ({"epsilon": 0.6}, {"epsilon": 0.49, "delta": 1e-6, "mechanism": "gaussian-once"}):
        with pytest.raises(dpm.errors.BudgetExceededError, match="is left for one more") as caught:
            problem.solve(budget=budget, rng=0, **options)
        assert_clean(caught.value)
        assert budget.history == ()


@pytest.mark.parametrize("budget", [1.0, (1, 0), "budget.db", dpm.Budget])
def test_budget_of_a_wrong_type(budget):
    with pytest.raises(SpecificationError, match="budget="):
        scalar_problem().solve(epsilon=1, rng=0, budget=budget)


def test_a_ledger_that_cannot_be_written(tmp_path):
    with pytest.raises(dpm.DPModelError) as caught:
        dpm.Budget(1, ledger=tmp_path / "missing" / "folder" / "b.db").charge(0.1)
    assert not isinstance(caught.value, sqlite3.Error)
