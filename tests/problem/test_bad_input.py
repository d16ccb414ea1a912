"""Bad input: each gets its own clear error, before anything is spent, without a digit of a private value."""

from __future__ import annotations

import math
import re
import sqlite3
import traceback
import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel import problem as problem_module
from dpmodel.execute.progress import reporter
from dpmodel.mechanisms.lp.noise_once import mechanism as noise_once
from dpmodel.numerics import cone_program

SECRET = np.array([7321.4375, -5128.8125])
DIGITS = re.compile("7321|5128|4375|8125")
# Where times and forecasts stand beside: four digits in the middle of another number say nothing.
NUMBERS = re.compile(r"(?<![\d.])(7321|5128|4375|8125)(?!\d)")


def private(value=SECRET, **declared):
    declared = declared or {"unit": "entry", "linf": 1}
    return dpm.Private(value, name="b", **declared)


@pytest.fixture
def x():
    return cp.Variable(2, name="x")


def scalar_problem(x, parameter=None):
    parameter = private() if parameter is None else parameter
    return dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= parameter).set_label("need")])


def objective_problem(x, parameter=None):
    parameter = private() if parameter is None else parameter
    return dpm.Problem(cp.Minimize(parameter @ x), [x >= 0, x <= 1])


def chain_of(error):
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return seen


def assert_clean(error):
    """No private digit in the error, what it is chained to, or the locals of the frames it would carry."""
    for link in chain_of(error):
        assert not DIGITS.search(str(link)), type(link)
        assert not DIGITS.search(repr(link.__dict__)), type(link)
        assert not DIGITS.search("".join(traceback.format_exception_only(link)))


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


# ------------------------------------------------------------------ the list of the issue
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity(bad):
    error = refused(lambda: private([SECRET[0], bad]), dpm.SpecificationError, "'b'", "NaN or infinite")
    assert "impute" in error.remedy


def test_nan_in_a_sparse_value(x):
    value = sp.coo_array(([math.nan, SECRET[0]], ([0, 1], [0, 1])), shape=(2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(lambda: private(value, unit="row", linf=1), dpm.SpecificationError, "NaN or infinite")


@pytest.mark.parametrize("value", [SECRET[:1], np.tile(SECRET, 2), SECRET[None], SECRET[0]])
def test_wrong_shape(x, value):
    b = private(shape=2, value=None, unit="entry", linf=1)

    def assign():
        b.value = value

    refused(assign, dpm.SpecificationError, "shape", "(2,)")
    assert not b.has_value


@pytest.mark.parametrize("value", ["7321.4375", [["7321"]], [[7321.4375], [1, 2]], object(), None.__class__, [None]])
def test_not_numbers(value):
    refused(lambda: private(value), dpm.SpecificationError, "not a real numeric array")


def test_value_missing_at_solve(x):
    b = private(None, shape=2, unit="entry", linf=1)
    problem = scalar_problem(x, b)
    problem.plan(epsilon=1)  # planning needs none
    refused(lambda: problem, dpm.MissingValueError, "b", "without a value")


def test_no_bounds_on_unit_all():
    error = refused(lambda: private(unit="all"), dpm.SpecificationError, "unit='all' without a bound")
    assert "linf=" in error.remedy


@pytest.mark.parametrize("epsilon", [-1, 0, math.inf, math.nan, "1", True, None, 1 + 0j, [1]])
@pytest.mark.parametrize("call", ["plan", "solve"])
def test_bad_epsilon(x, epsilon, call):
    problem = scalar_problem(x)
    if call == "solve":
        refused(lambda: problem, dpm.SpecificationError, "epsilon", epsilon=epsilon)
    else:
        with pytest.raises(dpm.SpecificationError, match="epsilon"):
            problem.plan(epsilon=epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1, 1.5, math.nan, math.inf, "0", True, None])
def test_bad_delta(x, delta):
    refused(lambda: scalar_problem(x), dpm.SpecificationError, "delta", delta=delta)


@pytest.mark.parametrize("beta", [0, 1, -0.1, 1.5, math.nan, math.inf, "0.05", True, None])
def test_bad_beta(x, beta):
    refused(lambda: scalar_problem(x), dpm.SpecificationError, "beta", beta=beta)


def test_pure_budget_with_gaussian_forced(x):
    error = refused(
        lambda: scalar_problem(x), dpm.UnsupportedModelError, "gaussian-once", "delta > 0", mechanism="gaussian-once"
    )
    assert "laplace-once" in error.remedy


def test_private_data_beside_a_private_of_the_same_shape_is_warned_of(x):
    with pytest.warns(dpm.PossibleLeakWarning, match="shape") as caught:
        dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private(), x >= SECRET]).classify()
    for warning in caught:
        assert not DIGITS.search(str(warning.message))


def test_not_dpp(x):
    b, scale = private(), dpm.Private(3.25, name="scale", linf=1)

    def build():
        return dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= scale * b + 1).set_label("need")])

    error = refused(build, dpm.UnsupportedModelError, "need", "scale", "not affine in its parameters (not DPP)")
    assert "one Private" in error.remedy


@pytest.mark.parametrize("function", [cp.square, cp.exp, cp.abs, cp.pos])
def test_not_dpp_functions_of_private_parameters(x, function):
    def build():
        b = private(np.abs(SECRET), unit="entry", linf=1)
        return dpm.Problem(cp.Maximize(cp.sum(x)), [x <= function(b)])

    refused(build, dpm.UnsupportedModelError, "constraint 0", "DPP")


def test_not_convex(x):
    def build():
        return dpm.Problem(cp.Maximize(cp.sum_squares(x) + private() @ x), [x <= 1])

    refused(build, dpm.UnsupportedModelError, "the objective", "not convex")


def test_no_private_parameter_is_solved_and_says_so(x):
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= 1])
    assert problem.solve() == pytest.approx(2)
    assert "nothing is private" in str(problem.release)
    with pytest.raises(dpm.SpecificationError, match="nothing to plan"):
        problem.plan(epsilon=1)


@pytest.mark.parametrize("mechanism", ["laplace-once", "gaussian-once"])
def test_unbounded_variable_where_a_bound_is_needed(x, mechanism):
    def build():
        return dpm.Problem(cp.Minimize(cp.sum(x)), [private() @ x >= 1])

    refused(build, dpm.UnsupportedModelError, mechanism, "no public bound on x", "bounds=[lo, hi]", delta=1e-6)
    refused(build, dpm.UnsupportedModelError, mechanism, "no public bound on x", mechanism=mechanism, delta=1e-6)


def test_budget_too_small(x):
    budget = dpm.Budget(0.5, 1e-7)
    problem = scalar_problem(x)
    for options in ({"epsilon": 0.6}, {"epsilon": 0.1, "delta": 1e-6, "mechanism": "gaussian-once"}):
        with pytest.raises(dpm.BudgetExceededError, match="remaining") as caught:
            problem.solve(budget=budget, rng=0, **options)
        assert_clean(caught.value)
        assert budget.history == ()


@pytest.mark.parametrize("mechanism", ["laplace", "", None, 3, "Laplace-Once", ["laplace-once"]])
def test_unknown_mechanism_names_those_that_would_do(x, mechanism):
    error = refused(lambda: scalar_problem(x), dpm.SpecificationError, "mechanism=", mechanism=mechanism)
    for name in ("auto", "laplace-once", "gaussian-once", "vertex-exponential"):
        assert repr(name) in error.remedy


@pytest.mark.parametrize(
    "public",
    [
        pytest.param(lambda x: [x[0] <= 0, x[0] >= 1], id="box"),
        pytest.param(lambda x: [cp.sum(x) <= 0, cp.sum(x) >= 1], id="rows"),
        pytest.param(lambda x: [cp.norm(x) <= 1, cp.sum(x) >= 3], id="cone"),
        pytest.param(lambda x: [x[0] == 1, x[0] == 2], id="equalities"),
    ],
)
def test_infeasible_public_part(x, public):
    def build():
        return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private(), *public(x)])

    refused(build, dpm.InfeasibleError, "public constraints have no common point")


# ------------------------------------------------------------------ more
def test_wrong_keyword(x):
    budget = dpm.Budget(1)
    for wrong in ("eps", "max_iters", "gp"):
        with pytest.raises(dpm.SpecificationError, match=wrong):
            scalar_problem(x).solve(epsilon=1, budget=budget, **{wrong: 1})
    assert budget.history == ()


def test_cvxpys_habit_of_a_positional_solver(x):
    with pytest.raises(dpm.SpecificationError, match="solver='CLARABEL'"):
        scalar_problem(x).solve(cp.CLARABEL)


def test_solve_without_epsilon(x):
    error = refused(lambda: scalar_problem(x), dpm.SpecificationError, "without epsilon", epsilon=None)
    assert "epsilon=" in error.remedy


@pytest.mark.parametrize("rng", ["seed", 1.5, True, -3, [1], np.random.RandomState(0)])
def test_rng_of_a_wrong_type(x, rng):
    refused(lambda: scalar_problem(x), dpm.SpecificationError, rng=rng)


@pytest.mark.parametrize("budget", [1.0, (1, 0), "budget.db", dpm.Budget])
def test_budget_of_a_wrong_type(x, budget):
    with pytest.raises(dpm.SpecificationError, match="budget="):
        scalar_problem(x).solve(epsilon=1, rng=0, budget=budget)


@pytest.mark.parametrize("progress", ["yes", 3, [print]])
def test_progress_of_a_wrong_type(x, progress):
    refused(lambda: scalar_problem(x), dpm.SpecificationError, "progress=", progress=progress)


@pytest.mark.parametrize("solver", ["GUROBI-9", "", 3])
def test_solver_not_installed(x, solver):
    error = refused(lambda: scalar_problem(x), dpm.SpecificationError, "not installed", solver=solver)
    assert "CLARABEL" in error.remedy


def test_solver_that_cannot_solve_this_kind(x):
    def build():
        return dpm.Problem(cp.Minimize(cp.sum(cp.exp(x / 1e4))), [x >= private()])

    refused(build, dpm.SpecificationError, "OSQP", "cannot solve this kind", solver="OSQP")


def test_solver_options_that_the_solver_does_not_know(x):
    refused(
        lambda: scalar_problem(x), dpm.SpecificationError, "nonsense", solver="CLARABEL", solver_options={"nonsense": 1}
    )


@pytest.mark.parametrize("feasibility", ["strickt", "Relaxed", None, True, ["strict"]])
def test_feasibility_typo(x, feasibility):
    error = refused(lambda: scalar_problem(x), dpm.SpecificationError, "feasibility=", feasibility=feasibility)
    assert "'relaxed'" in error.remedy
    assert "'strict'" in error.remedy


def test_strict_without_public_bounds(x):
    options = {"feasibility": "strict", "delta": 1e-6}
    error = refused(lambda: scalar_problem(x), dpm.InfeasibleError, "strict", "b has no public bounds", **options)
    assert "bounds=[lo, hi]" in error.remedy


def test_strict_without_delta(x):
    refused(lambda: scalar_problem(x), dpm.UnsupportedModelError, "delta > 0", feasibility="strict")


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
def test_bad_vertices(x, vertices, words):
    refused(
        lambda: objective_problem(x),
        dpm.SpecificationError,
        words,
        mechanism=dpm.mechanisms.VertexExponential(vertices=vertices),
    )


@pytest.mark.parametrize(
    ("mechanism", "why"),
    [
        ("theorem-34", "only the objective is private"),
        ("vertex-exponential", "only the objective is private"),
        ("strict-truncated-laplace", 'serves feasibility="strict"'),
    ],
)
def test_forced_mechanism_that_is_not_eligible(x, mechanism, why):
    error = refused(
        lambda: scalar_problem(x), dpm.UnsupportedModelError, mechanism, why, mechanism=mechanism, delta=1e-6
    )
    assert "laplace-once" in error.remedy


@pytest.mark.parametrize("broken", ["missing", "nan", "inf"])
@pytest.mark.parametrize("beside", [True, False])
def test_public_parameter_without_a_usable_value(x, broken, beside):
    cap = cp.Parameter(2, name="cap")
    if broken != "missing":
        cap.save_value(np.array([math.nan if broken == "nan" else math.inf, 1.0]))
    rows = [x >= private()] if beside else [x >= 0]
    kind = dpm.MissingValueError if broken == "missing" else dpm.SpecificationError
    refused(lambda: dpm.Problem(cp.Minimize(cp.sum(x)), [*rows, x <= cap]), kind, "cap")


def test_nan_in_a_constant(x):
    refused(
        lambda: dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private(), x <= np.array([math.nan, 1.0])]),
        dpm.SpecificationError,
        "NaN or infinite",
    )


@pytest.mark.parametrize(
    ("declared", "words"),
    [
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
    ],
)
def test_contradicting_annotations(declared, words):
    with pytest.raises(dpm.SpecificationError, match=words) as caught:
        private(**declared)
    assert_clean(caught.value)


@pytest.mark.parametrize("neighbors", ["replace", None, 3])
def test_unknown_neighbor_relation(neighbors):
    refused(lambda: dpm.Records(neighbors=neighbors), dpm.SpecificationError, "neighbor")


@pytest.mark.parametrize("shape", [0, (0,), (3, 0)])
def test_empty_parameters(shape):
    refused(lambda: private(None, shape=shape, linf=1), dpm.SpecificationError, "empty")


def test_a_private_parameter_and_no_variable():
    refused(lambda: dpm.Problem(cp.Minimize(cp.sum(private()))), dpm.UnsupportedModelError, "without variables")
    refused(lambda: dpm.Problem(cp.Minimize(0), [private() >= 0]), dpm.UnsupportedModelError, "without variables")


def test_a_ledger_that_cannot_be_written(x, tmp_path):
    with pytest.raises(dpm.DPModelError) as caught:
        dpm.Budget(1, ledger=tmp_path / "missing" / "folder" / "b.db").charge(0.1)
    assert not isinstance(caught.value, sqlite3.Error)


# ------------------------------------------------------------------ strange, but no error
def test_an_unbounded_objective_is_refused_before_the_charge(x):
    budget = dpm.Budget(10)
    for problem in (
        dpm.Problem(cp.Minimize(private() @ x), [x <= 4]),
        dpm.Problem(cp.Minimize(private() @ x)),
        dpm.Problem(cp.Maximize(private() @ x)),
        dpm.Problem(cp.Minimize(cp.sum(x)), [x <= private()]),
    ):
        with pytest.raises(dpm.DPModelError, match="bound") as caught:
            problem.solve(epsilon=1, rng=0, budget=budget)
        assert "bounds=" in caught.value.remedy
        assert_clean(caught.value)
        assert problem.release is None
    assert budget.spent.epsilon == 0


def test_infeasible_on_released_data_is_a_status(x):
    b = private([-50.25, -60.5], unit="entry", linf=1)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x <= b, x >= 0])
    value = problem.solve(epsilon=1, rng=0)
    assert problem.release.status == "least_violation"
    assert problem.status == "optimal_inaccurate"
    assert value == pytest.approx(0, abs=1e-5)
    assert "further" in str(problem.release)
    assert problem.release.accuracy.violation_alpha > 40


def test_no_constraints(x):
    box = cp.Variable(2, bounds=[-1, 1], name="box")
    problem = dpm.Problem(cp.Minimize(private() @ box))
    assert problem.solve(epsilon=1, rng=0) is not None
    assert box.value == pytest.approx([-1, 1])


def test_a_feasibility_problem(x):
    problem = dpm.Problem(cp.Minimize(0), [x >= private(), x <= 1e5])
    assert problem.solve(epsilon=1, rng=0) == pytest.approx(0)
    assert (x.value > SECRET - 20).all()


def test_a_feasibility_problem_without_parameters(x):
    problem = dpm.Problem(cp.Minimize(0), [x >= 3, x <= 4])
    assert problem.solve() == pytest.approx(0)
    assert problem.release.status == "optimal"


@pytest.mark.parametrize(
    ("objective", "rows", "value"),
    [
        pytest.param(lambda x, b: cp.Minimize(cp.sum(x)), lambda x, b: [x >= 0 * b + 1], 2, id="times zero"),
        pytest.param(lambda x, b: cp.Minimize(cp.sum(x) + cp.sum(b)), lambda x, b: [x >= 1], None, id="constant term"),
        pytest.param(lambda x, b: cp.Maximize(-cp.sum(x)), lambda x, b: [x >= 1 + 0 * b], -2, id="maximise"),
    ],
)
def test_private_parameters_that_no_solution_depends_on_cost_nothing(x, objective, rows, value):
    budget, b = dpm.Budget(1), private()
    problem = dpm.Problem(objective(x, b), rows(x, b))
    assert problem.is_dp()
    assert problem.solve(epsilon=1, budget=budget, rng=0) == (None if value is None else pytest.approx(value))
    assert x.value == pytest.approx([1, 1])
    assert budget.history == ()
    assert problem.release.guarantee.epsilon == 0
    assert any("does not depend on private data" in note for note in problem.release.notes)
    assert problem.value == problem.release.value
    assert problem.objective.value is None or value is not None
    with pytest.raises(dpm.SpecificationError, match="nothing to plan"):
        problem.plan(epsilon=1)


def test_a_private_constant_term_takes_the_objective_value_away(x):
    problem = dpm.Problem(cp.Minimize(cp.sum(x) + cp.sum(private())), [x >= private([1.5, 2.5], unit="entry", linf=1)])
    assert problem.solve(epsilon=1, rng=0) is None
    assert problem.value is None
    assert x.value is not None
    assert any("constant term" in note for note in problem.release.notes)


# ------------------------------------------------------------------ failure after the budget was spent
def assert_released_without_a_point(problem, status):
    """After a charge there is always a release: what was spent, and that nothing came of it."""
    release = problem.release
    assert (release.status, problem.status) == (status, status)
    assert release.spent == (1, 0) and not release.variables and release.value is None
    assert "no point" in release.accuracy.statement
    assert any("spent" in note for note in release.notes)
    assert str(release) and not NUMBERS.search(str(release))


def _breaking(monkeypatch, error):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr(noise_once, "solve_released", fail)


@pytest.mark.parametrize(
    "inner",
    [
        RuntimeError("wrong at 7321.4375"),
        ValueError(SECRET),
        FloatingPointError(7321.4375),
        AssertionError("5128"),
        RecursionError("8125"),
    ],
)
def test_a_crash_after_spending_shows_nothing_private(x, monkeypatch, inner):
    inner.private = SECRET
    _breaking(monkeypatch, inner)
    problem, budget = scalar_problem(x), dpm.Budget(3)
    with pytest.raises(dpm.DPModelError) as caught:
        problem.solve(epsilon=1, rng=0, budget=budget)
    error = caught.value
    assert type(inner).__name__ in str(error)
    assert "spent" in str(error)
    assert_clean(error)
    assert chain_of(error) == [error]
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.startswith(problem_module.__file__.rsplit("/", 1)[0]):
            assert not NUMBERS.search(repr(frame.f_locals)), frame.f_code.co_name
            assert not any(v is inner for v in frame.f_locals.values()), frame.f_code.co_name
    assert budget.spent.epsilon == 1, "read data is paid for"
    assert_released_without_a_point(problem, "stopped")
    assert x.value is None
    assert problem.value is None


def test_a_solver_failure_after_spending(x, monkeypatch):
    problem, budget = scalar_problem(x), dpm.Budget(3)
    problem.plan(epsilon=1)

    def fail(*args, **options):
        raise cone_program.SolverFailure("solver X failed", why="it stopped", remedy="another solver")

    monkeypatch.setattr(noise_once, "solve_released", fail)
    assert problem.solve(epsilon=1, rng=0, budget=budget) is None
    assert_released_without_a_point(problem, "solver_error")
    assert any("solver X failed" in note for note in problem.release.notes)
    assert budget.spent.epsilon == 1


def test_a_solver_that_stops_early_is_no_proof(x):
    problem = dpm.Problem(cp.Minimize(cp.sum_squares(x)), [x >= private()])
    problem.solve(epsilon=1, rng=0, solver="CLARABEL", solver_options={"max_iter": 1})
    assert problem.release.status not in ("optimal", "least_violation")
    assert not problem.release.accuracy.proved
    assert "stopped early" in problem.release.accuracy.statement


def test_the_callers_own_error_in_progress_is_passed_on_without_frames(x):
    class Cancelled(Exception):
        pass

    def cancel(stage, done):
        raise Cancelled("enough")

    problem, budget = scalar_problem(x), dpm.Budget(3)
    with pytest.raises(Cancelled, match="enough") as caught:
        problem.solve(epsilon=1, rng=0, budget=budget, progress=cancel)
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert "released_parts" not in names
    assert_released_without_a_point(problem, "stopped")


@pytest.mark.parametrize("progress", [lambda: None, lambda stage: None, lambda a, b, c: None, [].append, "print", 3])
def test_a_progress_that_cannot_be_called_is_refused_before_the_charge(x, progress):
    problem, budget = scalar_problem(x), dpm.Budget(3)
    with pytest.raises(dpm.DPModelError, match="progress"):
        problem.solve(epsilon=1, rng=0, budget=budget, progress=progress)
    assert budget.spent.epsilon == 0


@pytest.mark.parametrize("progress", [lambda *said: None, lambda stage, share=0: None, dict, print])
def test_a_progress_that_can_be_called_is_not_refused(progress):
    assert reporter(progress, False) is progress


def test_interrupts_pass(x):
    def interrupt(stage, done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scalar_problem(x).solve(epsilon=1, rng=0, progress=interrupt)


def test_a_problem_can_be_solved_after_every_refusal(x):
    problem = scalar_problem(x)
    for options in ({"epsilon": 0}, {"epsilon": 1, "beta": 2}, {"epsilon": 1, "mechanism": "?"}):
        with pytest.raises(dpm.DPModelError):
            problem.solve(**options, rng=0)
    assert problem.solve(epsilon=1, rng=0) is not None
