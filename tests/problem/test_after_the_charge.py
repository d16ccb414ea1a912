"""Strange problems that are no error, and failures after the budget was spent: a release, and nothing private."""

from __future__ import annotations

import re
import traceback

import cvxpy as cp
import pytest
from bad_input import SECRET, assert_clean, chain_of, private, scalar_problem

import dpmodel as dpm
from dpmodel import problem as problem_module
from dpmodel.numerics import cone_program
from dpmodel.programs import noise_once
from dpmodel.solve.progress import shown

# Where times and forecasts stand beside: four digits in the middle of another number say nothing.
NUMBERS = re.compile(r"(?<![\d.])(7321|5128|4375|8125)(?!\d)")


@pytest.fixture
def x():
    return cp.Variable(2, name="x")


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
    value = problem.solve(epsilon=1, rng=0, feasibility="centred")
    assert problem.release.status == "least_violation"
    assert problem.status == "optimal_inaccurate"
    assert value == pytest.approx(0, abs=1e-5)
    assert "further" in str(problem.release)
    assert problem.release.accuracy.violation_alpha > 40


def test_a_feasibility_problem(x):
    problem = dpm.Problem(cp.Minimize(0), [x >= private(), x <= 1e5])
    assert problem.solve(epsilon=1, rng=0) == pytest.approx(0)
    assert (x.value > SECRET - 20).all()


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
    with pytest.raises(dpm.errors.SpecificationError, match="nothing to plan"):
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


def breaking(monkeypatch, error):
    def fail(*args, **options):
        raise error

    for solve in ("solve_released", "solve_priced"):
        monkeypatch.setattr(noise_once, solve, fail)


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
    breaking(monkeypatch, inner)
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
    failure = cone_program.SolverFailure("solver X failed", why="it stopped", remedy="another solver")
    breaking(monkeypatch, failure)
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
        if "charged" in stage:
            raise Cancelled("enough")

    problem, budget = scalar_problem(x), dpm.Budget(3)
    with pytest.raises(Cancelled, match="enough") as caught:
        problem.solve(epsilon=1, rng=0, budget=budget, progress=cancel)
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert "released_parts" not in names
    assert_released_without_a_point(problem, "stopped")


@pytest.mark.parametrize("progress", [lambda *said: None, lambda stage, share=0: None, dict, print])
def test_a_progress_that_can_be_called_is_not_refused(progress):
    with shown(progress) as report:
        assert report is progress


def test_interrupts_pass(x):
    def interrupt(stage, done):
        raise KeyboardInterrupt

    budget = dpm.Budget(3)
    with pytest.raises(KeyboardInterrupt):
        scalar_problem(x).solve(epsilon=1, rng=0, budget=budget, progress=interrupt)
    assert budget.spent.epsilon == 0  # while it was compiled


def test_interrupts_pass_while_it_runs(x):
    def interrupt(stage, done):
        if "charged" in stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scalar_problem(x).solve(epsilon=1, rng=0, progress=interrupt)
