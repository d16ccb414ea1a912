"""What a review of post-processing found."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.compile.likelihood import published


# ------------------------------------------------------------------ the general solver
@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_residuals_far_smaller_than_the_counts(size: float) -> None:
    """Interior points stop at 1e-9 of the numbers they see: 0.7% of the objective was missed at sums of 10,000."""
    rng = np.random.default_rng(0)
    true, A = np.rint(rng.random(8) * size), rng.integers(0, 2, (14, 8)).astype(float)
    y = dpm.Noisy(A @ true + rng.normal(size=14), noise=dpm.Gaussian(1.0))
    x, z = cp.Variable(8, nonneg=True), cp.Variable(8)
    problem = dpm.Problem(cp.Minimize(dpm.neg_log_likelihood(A @ x, y)), [x[0] - x[1] == true[0] - true[1]])
    value = problem.solve(mechanism="general-solver")
    # The same in x - true; no bound binds.
    least = cp.Problem(cp.Minimize(cp.sum_squares(A @ z - (y.value - A @ true)) / 2), [z[0] == z[1]])
    assert value == pytest.approx(least.solve(solver=cp.CLARABEL), rel=1e-5)
    assert problem.release.status == "optimal"


def test_bounds_far_from_the_solution() -> None:
    """Measured from near the solution, they are 4,000 residuals away: with them Clarabel runs out of steps."""
    A = np.array([[1.0, 0, -1, 0], [-1, -1, 0, 0], [1, 0, 1, 0], [1, -1, -1, -1], [1, 1, -1, 1]])
    values = np.array([5368.7, -2004504.4, 2004081.2, -993605.8, 2004317.4])
    total, sums = dpm.Noisy(4002463.7, noise=dpm.Laplace(500.0)), dpm.Noisy(values, noise=dpm.Gaussian(3000.0))
    x = cp.Variable(4, nonneg=True)
    loss = dpm.neg_log_likelihood(cp.sum(x), total) + dpm.neg_log_likelihood(A @ x, sums)
    problem, free = dpm.Problem(cp.Minimize(loss)), cp.Variable(4)
    value = problem.solve(mechanism="general-solver")
    moved = cp.abs(cp.sum(free) - 2.4637) / 0.5 + cp.sum_squares(A @ free - (values - A @ np.full(4, 1e6)) / 1e3) / 18
    assert value == pytest.approx(cp.Problem(cp.Minimize(moved)).solve(solver=cp.CLARABEL), rel=1e-5, abs=1e-8)
    assert problem.release.status == "optimal"


def test_a_far_bound_that_binds_after_all() -> None:
    x = cp.Variable(3, bounds=[-200.0, 1e6])
    y = dpm.Noisy([0.5, 0.0, -0.25], noise=dpm.Gaussian(1.0))
    problem = dpm.Problem(cp.Minimize(dpm.neg_log_likelihood(x, y) + 1000 * cp.sum(x)), [x[0] <= 1e5])
    problem.solve(mechanism="general-solver")
    assert x.value == pytest.approx(np.full(3, -200.0), abs=1e-4)


def test_highs_is_not_given_squares_with_whole_numbers() -> None:
    x = cp.Variable(3, integer=True)
    y = dpm.Noisy([1.5, 2.0, 3.0], noise=dpm.Gaussian(1.0))
    problem = dpm.Problem(cp.Minimize(dpm.neg_log_likelihood(x, y)), [cp.sum(x) == 6, x[0] - x[1] <= 1])
    with pytest.raises(dpm.UnsupportedModelError, match="HiGHS does not take squared errors with whole numbers"):
        problem.solve(solver="HIGHS")


# ------------------------------------------------------------------ uncertainty
def test_penalties_do_not_shift_intervals() -> None:
    """They were taken for measurements of deviation one."""
    y = dpm.Noisy([10.0, 20.0, 30.0], noise=dpm.Laplace(2.0))
    x = cp.Variable(3)
    problem = dpm.Problem(cp.Minimize(dpm.neg_log_likelihood(x, y) + 0.05 * cp.sum_squares(x)))
    problem.solve()
    low, high = dpm.intervals(problem, x)
    assert (low + high) / 2 == pytest.approx(y.value, abs=1e-6)


def test_penalties_keep_what_they_pull_towards_in_refits() -> None:
    """|x| on an entry without a measurement: every refit puts it at 0, however far out the solution was moved to."""
    y = dpm.Noisy([1.0, 2.0], noise=dpm.Laplace(1.0))
    x = cp.Variable(3)
    problem = dpm.Problem(cp.Minimize(dpm.neg_log_likelihood(x[:2], y) + 0.1 * cp.abs(x[2] - 4)))
    problem.solve()
    x.save_value(np.array([1.0, 2.0, 9.0]))
    low, high = dpm.intervals(problem, x, method="percentile", repetitions=50)
    assert (low[2], high[2]) == pytest.approx((4, 4), abs=1e-6)


@pytest.mark.parametrize("values", [[[1.0, 5], [5, 1]], [[0.0, 0], [0, 0]]])
def test_scales_of_symmetric_values_stay_with_their_entries(values: list[list[float]]) -> None:
    """Rows and columns were told apart by the values, which symmetric ones do not allow."""
    scale = np.array([[1.0, 10], [100, 1000]])
    x = cp.Variable((2, 2))
    problem = dpm.Problem(cp.Minimize(dpm.neg_log_likelihood(x, dpm.Noisy(values, noise=dpm.Gaussian(scale)))))
    problem.solve()
    assert dpm.standard_errors(problem, x, repetitions=400) == pytest.approx(scale, rel=0.25)
    low, high = dpm.intervals(problem, x)
    assert (high - low) / 2 == pytest.approx(1.96 * scale, rel=0.25)


def test_published_numbers_outside_a_likelihood_have_no_refits() -> None:
    """The noise of what stands in constraints, or in part, was left out or ended in a ValueError of NumPy."""
    y = dpm.Noisy(np.arange(4.0), noise=dpm.Laplace(1.0), name="counts")
    bound = dpm.Noisy(np.zeros(4), noise=dpm.Laplace(1.0), name="bound")
    x = cp.Variable(4)
    part = cp.norm1(x[:2] - published(y)[:2]) + cp.sum_squares(x)
    for loss, constraints, name in (
        (dpm.neg_log_likelihood(x, y), [x >= published(bound)], "bound"),
        (part, [], "counts"),
    ):
        problem = dpm.Problem(cp.Minimize(loss), constraints)
        problem.solve()
        for ask in (dpm.standard_errors, dpm.intervals):
            with pytest.raises(dpm.UnsupportedModelError, match=f"{name} enters in another way"):
                ask(problem, x)


# ------------------------------------------------------------------ one publication is one piece of evidence
def test_helpers_refuse_a_publication_given_twice_or_with_two_laws() -> None:
    values = np.arange(6.0).reshape(2, 3) + 0.5
    first = dpm.Noisy(values, noise=dpm.Laplace(1.0))
    domain = {"a": 2, "b": 3}
    with pytest.raises(dpm.SpecificationError, match="twice"):
        dpm.consistent_table({("a", "b"): [first, first]}, domain=domain)
    with pytest.raises(dpm.SpecificationError, match="two laws"):
        dpm.consistent_table({("a", "b"): [first, dpm.Noisy(values, noise=dpm.Gaussian(1.0))]}, domain=domain)
    places = dpm.hierarchy({"all": None, "x": "all", "y": "all"})
    pair = dpm.Noisy([1.5, 2.5], noise=dpm.Laplace(1.0))
    with pytest.raises(dpm.SpecificationError, match="twice"):
        places.fit({1: [pair, pair]})


def test_whole_numbers_that_agree_by_chance() -> None:
    """Noise of scale 0.2 is 0 in 99% of draws: two publications of a dozen cells agree more often than not."""
    x = cp.Variable(12)
    counts = np.arange(12.0)

    def both(scale: float) -> dpm.Problem:
        pair = [dpm.Noisy(counts, noise=dpm.DiscreteLaplace(scale)) for _ in range(2)]
        return dpm.Problem(cp.Minimize(sum(dpm.neg_log_likelihood(x, noisy) for noisy in pair)))

    both(0.2).solve()
    with pytest.raises(dpm.SpecificationError, match="twice"):
        both(20.0).solve()


# ------------------------------------------------------------------ words
def test_least_squares_of_noise_that_is_zero() -> None:
    """Its variance underflows: it was NaN in "a constant of the model"."""
    noisy = dpm.Noisy(np.arange(3.0), noise=dpm.DiscreteGaussian(0.01), name="counts")
    with pytest.raises(dpm.SpecificationError, match=r"counts: discrete gaussian noise of scale 0\.01 is zero"):
        dpm.neg_log_likelihood(cp.Variable(3), noisy, form="least-squares")
    with pytest.raises(dpm.SpecificationError, match="is zero in practice"):
        dpm.tree_query(2).fit(noisy, form="least-squares")
    dpm.neg_log_likelihood(cp.Variable(3), noisy)


def test_rounded_numbers_are_not_called_the_exact_optimum() -> None:
    tree = dpm.tree_query(4)
    fit = tree.fit(dpm.Noisy(np.arange(7.0) + 0.25, noise=dpm.Laplace(1.0)))
    assert fit.solve().accuracy.proved
    accuracy = fit.solve(round="unbiased").accuracy
    assert not accuracy.proved and accuracy.alpha is None and "whole numbers beside" in accuracy.statement


def test_messages_name_what_was_given() -> None:
    with pytest.raises(dpm.SpecificationError, match="type str"):
        dpm.tree_query("8")
    places = dpm.hierarchy({"all": None, "x": "all"}, levels=("nation", "state"))
    with pytest.raises(dpm.SpecificationError, match="levels are called 'nation', 'state'"):
        places.fit({"county": dpm.Noisy([1.0], noise=dpm.Laplace(1.0))})
