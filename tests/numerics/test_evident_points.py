"""Points found without a linear program: never in an empty set, always in the public set of a query release."""

from __future__ import annotations

import contextlib

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.numerics.cone_program import ConeSolution


def squares(limit):
    """Weights of at least 50 whose squared distance from 40 is least, and at most ``limit``."""
    weight, totals = cp.Variable(6), dpm.Private(np.ones(2), name="totals", unit="entry", linf=1)
    far = cp.sum_squares(weight - 40)
    rules = [weight >= 50, *([] if limit is None else [far <= limit]), weight[:2] == totals]
    return dpm.Problem(cp.Minimize(far), rules)._model(None).public


def test_a_set_of_squares_is_empty_below_its_least():
    assert squares(700).feasible and not squares(500).feasible and squares(None).feasible  # 600 is the least


def test_a_set_without_whole_points_is_empty_before_anything_is_charged():
    """Though the one between them is not, which bounds on what is lost look at."""
    x, c = cp.Variable(2, integer=True, bounds=[0, 5]), dpm.Private([1.0, 2], name="c", linf=0.1, bounds=[0, 3])
    problem, budget = dpm.Problem(cp.Minimize(c @ x), [2 * x[0] + 2 * x[1] == 3]), dpm.Budget(2)
    with pytest.raises(dpm.errors.InfeasibleError):
        problem.solve(1, 1e-6, budget=budget)
    assert budget.spent.epsilon == 0


def public_set(objective, constraints):
    """The public set of a program with these constraints and one private one beside."""
    b, idle = dpm.Private(shape=1, name="b", unit="entry", linf=1), cp.Variable(1, nonneg=True)
    return dpm.Problem(cp.Minimize(objective), [*constraints, idle <= b])._model(None).public


def long_rows(seed):
    """An empty set of so many short rows that interior points are asked, and an objective with a ray."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    A, b, c = rng.integers(-3, 4, (5, n)) * 1.0, rng.integers(-3, 3, 5) * 1.0, rng.integers(-3, 4, n) * 1.0
    z, y = cp.Variable(1100), cp.Variable(n)
    rows = [z[1:] - z[:-1] <= 1, z[:-1] - z[1:] <= 1, A @ y <= b, y[0] + y[1] >= z[0] - 1, y[0] <= 2 - z[1]]
    return c @ y + z[0], rows


def semidefinite(_):
    x = cp.Variable(2)
    move = 2 * x[0] - 2 * x[1]
    return -x[0] - x[1], [cp.bmat([[2 + move, 1 + move], [1 + move, -2 + move]]) >> 0]  # less than 0 by (1, -1)


@pytest.mark.parametrize("write, seed", [(long_rows, 27), (long_rows, 30), (long_rows, 48), (semidefinite, 0)])
def test_a_ray_of_the_objective_shows_no_point(write, seed):
    """Solvers by interior points call such programs unbounded, even where the set is empty."""
    public = public_set(*write(seed))
    with contextlib.suppress(dpm.errors.InfeasibleError):
        public.support(-public.form.c0)
    assert not public.feasible
    with pytest.raises(dpm.errors.InfeasibleError):
        public.require_feasible()


def test_bounds_over_semidefinite_sets_are_bounds():
    """The most is 1; CVXPY's usual solver for matrices tells .999996."""
    y, X = cp.Variable(3, nonneg=True), cp.Variable((2, 2), symmetric=True)
    rules = [y <= 2, 2 * y[0] + y[1] + 2 * y[2] == 2, y[1] - y[0] - 2 * y[2] == -2, X >> 0]
    found = public_set(-y[1] - y[2], [*rules, -X[0, 0] - X[0, 1] - X[1, 1] == y[0]])
    assert 1 <= found.support(-found.form.c0) <= 1 + 1e-5


@pytest.mark.parametrize("status, most", [("optimal_inaccurate", 3.004), ("user_limit", np.inf)])
def test_a_solver_that_stops_early_bounds_little_or_nothing(status, most, monkeypatch):
    x = cp.Variable(2)
    found = public_set(-cp.sum(x), [cp.norm(x - 1) <= 1])
    told = ConeSolution(status, -3.0, np.full(found.program.c.size, 1.5), None, 0.0)
    monkeypatch.setattr("dpmodel.compile.public_set.solve_cone_program", lambda *given, **named: told)
    assert found.support(-found.form.c0) == pytest.approx(most)
    assert ("feasible" in vars(found)) == (status != "user_limit")
