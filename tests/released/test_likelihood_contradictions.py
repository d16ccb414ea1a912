"""Contradictions among public constraints, named before a solver sees them."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from dpmodel.errors import InfeasibleError
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy.distributions import Laplace
from dpmodel.released.constraints import contradiction, require_consistent
from dpmodel.released.likelihood import neg_log_likelihood, published
from dpmodel.released.read import recognise_postprocessing


def recognised(objective, constraints):
    return recognise_postprocessing(cp.Problem(cp.Minimize(objective), constraints))


X5 = cp.Variable(5, nonneg=True, name="x")
N5 = Noisy(np.arange(5) + 0.5, noise=Laplace(1.0))


def labelled(constraint, label):
    constraint.set_label(label)
    return constraint


CONTRADICTIONS = {
    "total too large": (
        [X5 <= 1, labelled(cp.sum(X5) == 6, "national total")],
        "national total.*at most 5 and must be 6",
    ),
    "total too small": ([X5 >= 2, labelled(cp.sum(X5) == 6, "national total")], "national total.*at least 10"),
    "negative total": ([cp.sum(X5) == -1], "at least 0 and must be -1"),
    "row of a block": ([np.array([[1.0, 1, 0, 0, 0], [0, 0, 1, 1, 0]]) @ X5 == [1.0, -2.0]], "row 1"),
    "inequality": ([cp.sum(X5) <= -1], "at least 0 and must be at most -1"),
    "bounds": ([labelled(X5[2] >= 4, "low"), labelled(X5[2] <= 3, "high")], "low and high: x, entry 2"),
    "fixed twice": ([X5[1] == 4, X5[1] == 3], "entry 1 must be at least 4 and at most 3"),
    "against an attribute": ([X5[0] == -1], "constraint 0"),
    "same sum": ([cp.sum(X5) == 6, labelled(2 * cp.sum(X5) == 13, "other")], "other contradict each other"),
    "no variable": ([cp.sum(published(N5)) == 3], "does not hold"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_named(name):
    constraints, message = CONTRADICTIONS[name]
    model = recognised(neg_log_likelihood(X5, N5), constraints)
    with pytest.raises(InfeasibleError, match=f"(?s){message}"):
        require_consistent(model)


def test_no_whole_number_between_the_bounds():
    x = cp.Variable(2, integer=True, name="x")
    model = recognised(neg_log_likelihood(x, Noisy([1.0, 2.0], noise=Laplace(1.0))), [x >= 0.25, x <= 0.75])
    with pytest.raises(InfeasibleError, match="integers between"):
        require_consistent(model)


def test_contradictions_of_several_constraints_are_found_by_the_solver():
    parts = [labelled(cp.sum(X5[:3]) == 60, "east"), labelled(cp.sum(X5[3:]) == 50, "west")]
    model = recognised(neg_log_likelihood(X5, N5), [labelled(cp.sum(X5) == 100, "total"), *parts])
    require_consistent(model)
    error = contradiction(model)
    assert isinstance(error, InfeasibleError) and "(by 10)" in str(error)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_bounds_that_cross_by_rounding_meet(scale):
    x = cp.Variable(2)
    noisy = Noisy([1.0, 2.0], noise=Laplace(1.0))
    model = recognised(neg_log_likelihood(x, noisy), [x[0] == (0.1 + 0.2) * scale, x[0] <= 0.3 * scale])
    require_consistent(model)
    assert model.form.lower[0] == model.form.upper[0] == pytest.approx(0.3 * scale)
    apart = recognised(neg_log_likelihood(x, noisy), [x[0] == 0.31 * scale, x[0] <= 0.3 * scale])
    with pytest.raises(InfeasibleError):
        require_consistent(apart)


def test_feasible_problems_pass():
    generator = np.random.default_rng(8)
    for _ in range(50):
        n, p = int(generator.integers(1, 8)), int(generator.integers(1, 6))
        x = cp.Variable(n)
        inside = generator.normal(size=n) * 10 ** generator.uniform(-3, 6)
        E = generator.integers(-2, 3, (p, n)).astype(float)
        noisy = Noisy(inside + 1, noise=Laplace(1.0))
        constraints = [
            E @ x == E @ inside,
            x >= inside - generator.uniform(size=n) * (generator.random(n) < 0.7),
            x <= inside,
        ]
        require_consistent(recognised(neg_log_likelihood(x, noisy), constraints))
