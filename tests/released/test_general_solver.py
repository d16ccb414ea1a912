"""The general solver against CVXPY's own solve of the user's problem."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.errors import InfeasibleError
from dpmodel.marks.noisy import Noisy
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.privacy.distributions import Gaussian, Laplace
from dpmodel.released import general_solver
from dpmodel.released.constraints import require_consistent
from dpmodel.released.general_solver import GENERAL_SOLVER
from dpmodel.released.likelihood import neg_log_likelihood
from dpmodel.released.read import recognise_postprocessing
from dpmodel.released.trees import Tree

OPTIONS = Options(0.0, 0.0)
TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def run(model, options=OPTIONS, solver=GENERAL_SOLVER):
    assert solver.eligible(model, options).eligible
    return solver.run(model, options, None)


def distribution_of(generator, size):
    kind = generator.integers(4)
    scale = np.exp(generator.uniform(-1, 1, size)) if kind % 2 else float(np.exp(generator.uniform(-1, 1)))
    return (Laplace if kind < 2 else Gaussian)(scale)


def tree_problem(generator):
    tree = Tree.complete(int(generator.integers(1, 9)), int(generator.integers(2, 4)))
    noise = distribution_of(generator, tree.size)
    x = cp.Variable(tree.size, nonneg=bool(generator.integers(2)))
    noisy = Noisy(
        tree.sums(generator.poisson(3.0, int(tree.is_leaf.sum())) + 0.0) + generator.normal(size=tree.size), noise=noise
    )
    constraints = [tree.consistency @ x == 0] if tree.size > 1 else []
    return cp.Problem(cp.Minimize(neg_log_likelihood(x, noisy)), constraints)


def table_problem(generator):
    shape = tuple(int(k) for k in generator.integers(1, 4, int(generator.integers(2, 4))))
    truth = generator.poisson(3.0, shape).astype(float)
    x = cp.Variable(shape, nonneg=True)
    noisy = Noisy(truth + generator.laplace(size=shape), noise=distribution_of(generator, shape))
    margin = Noisy(truth.sum(axis=0) + generator.normal(size=shape[1:]), noise=Gaussian(0.5))
    objective = neg_log_likelihood(x, noisy)
    if generator.integers(2):
        objective = objective + neg_log_likelihood(cp.sum(x, axis=0), margin)
    last = tuple(range(len(shape) - 1))
    return cp.Problem(cp.Minimize(objective), [cp.sum(x, axis=last) == truth.sum(axis=last)])


def general_problem(generator):
    n, k, p = (int(generator.integers(1, top)) for top in (6, 7, 3))
    x, y = cp.Variable(n, name="x"), cp.Variable((2, 2), bounds=[-3, 4], name="y")
    inside = generator.integers(-3, 4, n).astype(float)
    A, E = (
        generator.integers(-2, 3, (k, n)).astype(float),
        sp.csr_array(generator.integers(-1, 2, (p, n)).astype(float)),
    )
    answers = Noisy(A @ inside + generator.normal(size=k), noise=distribution_of(generator, k))
    terms = [neg_log_likelihood(A @ x, answers), cp.sum_squares(y - 1) / 3, cp.norm1(cp.diff(x)) if n > 1 else 0.0]
    terms.append(cp.sum(cp.maximum(x - 1, -2 * x)) + y[0, 1] * 0.25)
    constraints = [E @ x == E @ inside, x <= 5, cp.sum(x) + y[1, 0] >= float(inside.sum()) - 2]
    if generator.integers(2):
        return cp.Problem(cp.Maximize(1 - sum(terms)), constraints)
    return cp.Problem(cp.Minimize(sum(terms)), constraints)


def integer_problem(generator):
    n = int(generator.integers(2, 5))
    x = cp.Variable(n, integer=True)
    noisy = Noisy(generator.normal(size=n) * 3, noise=Laplace(np.exp(generator.uniform(-1, 1, n))))
    return cp.Problem(cp.Minimize(neg_log_likelihood(x, noisy)), [cp.sum(x) == int(generator.integers(-3, 4)), x <= 4])


FAMILIES = {
    "trees": (tree_problem, 10),
    "tables": (table_problem, 10),
    "general": (general_problem, 8),
    "whole": (integer_problem, 5),
}


@pytest.mark.filterwarnings("ignore:The problem has an expression with dimension")
@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_cvxpy_on_random_problems(family):
    build, count = FAMILIES[family]
    for seed in range(count):
        problem = build(np.random.default_rng(seed))
        model = recognise_postprocessing(problem)
        assert model.form is not None
        require_consistent(model)
        outcome = run(model)
        assert outcome.status == "optimal", seed
        solver = {"solver": cp.HIGHS} if model.form.integer.any() else {"solver": cp.CLARABEL, **TIGHT}
        theirs = problem.solve(**solver) * (-1 if isinstance(problem.objective, cp.Maximize) else 1)
        scale = 1.0 + abs(theirs)
        assert outcome.value == pytest.approx(theirs, abs=1e-6 * scale), (family, seed)
        assert model.form.objective(outcome.x) == outcome.value
        assert model.form.violation(outcome.x) <= 1e-7 * (1 + np.abs(outcome.x).max())
        for variable, place in model.columns:
            variable.value = outcome.x[place].reshape(variable.shape, order="F")
        assert problem.objective.value * (-1 if isinstance(problem.objective, cp.Maximize) else 1) == pytest.approx(
            outcome.value
        )


def lasso(distribution, **attributes):
    x = cp.Variable(3, name="x", **attributes)
    noisy = Noisy([3.0, 1.0, -2.0], noise=distribution)
    return cp.Problem(cp.Minimize(neg_log_likelihood(x, noisy)), [cp.sum(x) == 3, x >= 0])


def test_known_optima():
    absolute = run(recognise_postprocessing(lasso(Laplace(1.0))))
    assert absolute.value == pytest.approx(3.0)  # x = (2, 1, 0) or (3, 0, 0): one off, and two from zero
    squared = run(recognise_postprocessing(lasso(Gaussian(1.0))))
    assert squared.x == pytest.approx([2.5, 0.5, 0.0], abs=1e-6)
    assert squared.value == pytest.approx((0.25 + 0.25 + 4) / 2, abs=1e-6)


def test_options_reach_the_solver():
    verdict = GENERAL_SOLVER.eligible(recognise_postprocessing(lasso(Laplace(1.0))), Options(0.0, 0.0, solver="NOPE"))
    assert not verdict.eligible and "NOPE is not installed" in verdict.reason
    model = recognise_postprocessing(lasso(Gaussian(1.0)))
    with pytest.raises(SolverFailure, match="CLARABEL"):
        run(model, Options(0.0, 0.0, solver_options={"no_such_option": 1}))
    limited = run(model, Options(0.0, 0.0, solver="SCS", solver_options={"max_iters": 1}))
    assert limited.status in ("optimal_inaccurate", "user_limit")


def test_a_problem_outside_the_form_is_solved_as_written_and_left_alone():
    x, y = cp.Variable(3, name="x"), cp.Variable((2, 2), PSD=True)
    noisy = Noisy([3.0, 1.0, -2.0], noise=Laplace(1.0))
    ball = cp.norm(x) <= 2
    problem = cp.Problem(cp.Minimize(neg_log_likelihood(x, noisy) + cp.trace(y) - 2 * y[0, 1]), [ball, y[0, 0] == 1])
    model = recognise_postprocessing(problem)
    assert model.form is None
    x.value = np.ones(3)
    outcome = run(model)
    assert x.value.tolist() == [1, 1, 1] and y.value is None and ball.dual_value is None and problem.status is None
    columns = {variable.id: place for variable, place in model.columns}
    assert np.linalg.norm(outcome.x[columns[x.id]]) <= 2 + 1e-6
    assert outcome.value == pytest.approx(problem.solve(), rel=1e-6)
    assert outcome.x[columns[y.id]] == pytest.approx(y.value.ravel(order="F"), abs=1e-4)
    worst = recognise_postprocessing(cp.Problem(cp.Maximize(-problem.objective.args[0]), problem.constraints))
    assert run(worst).value == pytest.approx(outcome.value, rel=1e-5)


def test_infeasible_problems_name_the_constraints():
    x = cp.Variable(4, nonneg=True)
    noisy = Noisy([1.5, 2.0, 3.0, 4.0], noise=Laplace(1.0))
    for distribution in (Laplace(1.0), Gaussian(1.0)):
        noisy = Noisy(noisy.value, noise=distribution)
        sums = [cp.sum(x) == 10, cp.sum(x[:2]) == 8, cp.sum(x[2:]) == 7]
        for constraint, label in zip(sums, ("total", "east", "west"), strict=True):
            constraint.set_label(label)
        model = recognise_postprocessing(cp.Problem(cp.Minimize(neg_log_likelihood(x, noisy)), sums))
        outcome = run(model)
        assert outcome.status == "infeasible" and outcome.x is None and "(by 5)" in outcome.notes[0]
    crossed = recognise_postprocessing(cp.Problem(cp.Minimize(neg_log_likelihood(x, noisy)), [x <= -1]))
    assert run(crossed).status == "infeasible" and "at least 0 and at most -1" in run(crossed).notes[0]
    with pytest.raises(InfeasibleError):
        require_consistent(crossed)


def test_no_whole_numbers():
    x = cp.Variable(2, integer=True)
    noisy = Noisy([1.5, 2.0], noise=Laplace(1.0))
    problem = cp.Problem(cp.Minimize(neg_log_likelihood(x, noisy)), [2 * cp.sum(x) == 3, x >= 0, x <= 5])
    outcome = run(recognise_postprocessing(problem))
    assert outcome.status == "infeasible" and "integers" in outcome.notes[0]


def test_infeasible_and_unbounded_outside_the_form():
    x = cp.Variable(2)
    noisy = Noisy([1.5, 2.0], noise=Laplace(1.0))
    far = cp.Problem(cp.Minimize(neg_log_likelihood(x, noisy)), [cp.norm(x) <= 1, x[0] >= 2])
    assert run(recognise_postprocessing(far)).status == "infeasible"
    y = cp.Variable()
    model = recognise_postprocessing(cp.Problem(cp.Minimize(neg_log_likelihood(x, noisy) + y), [cp.norm(x) <= 1]))
    assert run(model).status == "unbounded"


@pytest.mark.parametrize("distribution", [Laplace(1.0), Gaussian(1.0)])
def test_unbounded(distribution):
    x = cp.Variable(2)
    direction = np.array([[1.0, 1.0]])
    noisy = Noisy([1.5], noise=distribution)
    model = recognise_postprocessing(cp.Problem(cp.Minimize(neg_log_likelihood(direction @ x, noisy) + x[0] - x[1])))
    assert run(model).status == "unbounded"


def test_squares_with_whole_numbers_want_a_solver_for_both(monkeypatch):
    model = recognise_postprocessing(lasso(Gaussian(1.0), integer=True))
    monkeypatch.setattr(general_solver, "_installed", lambda: {"HIGHS", "CLARABEL"})
    verdict = GENERAL_SOLVER.eligible(model, OPTIONS)
    assert not verdict.eligible and "integers" in verdict.reason
    monkeypatch.setattr(general_solver, "_installed", lambda: {"HIGHS", "SCIP"})
    assert GENERAL_SOLVER.eligible(model, OPTIONS).eligible


@pytest.mark.parametrize("distribution", [Laplace, Gaussian])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("spread", [1e-3, 1e3])
def test_large_and_small_numbers(distribution, scale, spread):
    x = cp.Variable(3, nonneg=True)
    noisy = Noisy(scale * np.array([3.0, 1.0, -2.0]), noise=distribution(scale * spread))
    model = recognise_postprocessing(cp.Problem(cp.Minimize(neg_log_likelihood(x, noisy)), [cp.sum(x) == 3 * scale]))
    outcome = run(model)
    wanted = 3.0 / spread if distribution is Laplace else 4.5 / 2 / spread**2
    assert outcome.value == pytest.approx(wanted, rel=1e-6)
    assert model.form.violation(outcome.x) < 1e-7 * scale


def test_bounds_far_from_the_solution() -> None:
    """Measured from near the solution, they are 4,000 residuals away: with them Clarabel runs out of steps."""
    A = np.array([[1.0, 0, -1, 0], [-1, -1, 0, 0], [1, 0, 1, 0], [1, -1, -1, -1], [1, 1, -1, 1]])
    values = np.array([5368.7, -2004504.4, 2004081.2, -993605.8, 2004317.4])
    total, sums = (
        dpm.Noisy(4002463.7, noise=dpm.noise.Laplace(500.0)),
        dpm.Noisy(values, noise=dpm.noise.Gaussian(3000.0)),
    )
    x = cp.Variable(4, nonneg=True)
    loss = dpm.released.neg_log_likelihood(cp.sum(x), total) + dpm.released.neg_log_likelihood(A @ x, sums)
    problem, free = dpm.Problem(cp.Minimize(loss)), cp.Variable(4)
    value = problem.solve(mechanism="general-solver")
    moved = cp.abs(cp.sum(free) - 2.4637) / 0.5 + cp.sum_squares(A @ free - (values - A @ np.full(4, 1e6)) / 1e3) / 18
    assert value == pytest.approx(cp.Problem(cp.Minimize(moved)).solve(solver=cp.CLARABEL), rel=1e-5, abs=1e-8)
    assert problem.release.status == "optimal"
