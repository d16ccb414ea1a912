"""Standard errors and intervals: against formulas, and the coverage of intervals by exact binomial tails."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy.distributions import Gaussian, Laplace
from dpmodel.released.faces.consistent_table import consistent_table
from dpmodel.released.faces.errors import Intervals, _sparse, _tree, intervals, standard_errors
from dpmodel.released.faces.hierarchy import hierarchy
from dpmodel.released.faces.tree_query import tree_query
from dpmodel.released.likelihood import neg_log_likelihood, published

SPARSE = np.zeros(16)
SPARSE[[3, 9]] = 40, 200


def fitted(histogram, distribution, seed=0, **options):
    tree = tree_query(len(histogram))
    rng = np.random.default_rng(seed)
    noisy = Noisy(tree.answers(histogram) + distribution.sample((tree.size,), rng), noise=distribution)
    fit = tree.fit(noisy, form="likelihood", **options)
    fit.solve()
    return fit


def test_errors_of_a_separable_fit_are_those_of_its_noise():
    scale = np.array([1.0, 2.0, 4.0])
    fit = consistent_table({"a": Noisy([50.0, 60.0, 0.0], noise=Laplace(scale))}, domain={"a": 3})
    fit.solve()
    errors = standard_errors(fit, repetitions=4000)
    # max(0, z) for Laplace z of scale s: mean s/2, second moment s^2.
    np.testing.assert_allclose(errors, [2**0.5, 2 * 2**0.5, 4 * 0.75**0.5], rtol=0.12)


@pytest.mark.parametrize("known", [None, 240.0])
def test_errors_of_least_squares_against_the_formula(known):
    fit = fitted(SPARSE, Gaussian(3.0), nonneg=False, total=known)
    tree = fit.query
    A = tree.matrix.toarray()
    inverse = np.linalg.inv(A.T @ A)
    if known is not None:
        one = np.ones(16)
        inverse -= np.outer(inverse @ one, inverse @ one) / (one @ inverse @ one)
    rows = fit.ranges_matrix([0, 0, 3], [1, 16, 10])
    leaves = np.array([np.r_[[1.0], np.zeros(15)], np.ones(16), np.r_[[0] * 3, [1] * 7, [0] * 6]])
    expected = 3 * np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", leaves, inverse, leaves), 0))
    np.testing.assert_allclose(standard_errors(fit, rows, repetitions=150, rng=1), expected, rtol=0.25, atol=1e-6)
    found = intervals(fit, rows, level=0.9)
    center = leaves @ fit.histogram  # without bounds and with Gaussian noise, the fit is the estimate
    np.testing.assert_allclose((found.low + found.high) / 2, center, atol=1e-5)
    np.testing.assert_allclose((found.high - found.low) / 2, 1.645 * expected, rtol=0.1, atol=1e-5)


def test_the_sparse_factorisation_is_the_two_passes_on_a_tree():
    fit = fitted(SPARSE, Laplace(2.0), total=240)
    form, tree = fit.model.form, fit.query
    probe = np.random.default_rng(0).normal(size=form.size + 1)
    estimate, undetermined = _sparse(form, np.ones(form.value.size), probe)
    by_tree, _ = _tree(fit.model, np.ones(form.value.size), probe)
    expected = by_tree(form.value[None], True)[0]
    np.testing.assert_allclose(estimate(form.value[None], True)[0], expected, atol=1e-7)
    assert expected[0] == pytest.approx(240) and not undetermined(None).any()
    np.testing.assert_allclose(tree.answers(expected[-16:]), expected, atol=1e-9)


def covered(make, truth, rows_of, trials, level):
    """How often each truth was inside, and how often inside a third as wide an interval: the planted error."""
    inside, inside_third = np.zeros(truth.size), np.zeros(truth.size)
    for trial in range(trials):
        fit = make(trial)
        low, high = intervals(fit, rows_of(fit), level=level, repetitions=19, rng=trial)
        inside += (low <= truth + 1e-9) & (truth <= high + 1e-9)
        inside_third += np.abs(truth - (low + high) / 2) <= (high - low) / 6
    return inside, inside_third


@pytest.mark.parametrize(
    ("distribution", "trials"), [(Laplace(5.0), 120), (Gaussian(4.0), 40)], ids=lambda v: str(v)[:9]
)
def test_intervals_from_noise_cover_on_sparse_data_at_the_boundary(distribution, trials):
    """Whatever the number of simulated errors: 19 of them already hold their level of 0.8 (rank 16 of 20)."""

    def rows_of(fit):
        return fit.ranges_matrix([0, 3, 9, 0, 0, 4], [1, 4, 10, 16, 8, 9])

    truth = np.array([0, 40, 200, 240, 40, 0.0])
    inside, inside_third = covered(lambda seed: fitted(SPARSE, distribution, seed), truth, rows_of, trials, 0.8)
    assert (binom.cdf(inside, trials, 0.8) > 1e-8).all(), inside
    # And not by being infinitely wide: a range without bounds that bind is missed now and then.
    assert inside[3] < trials
    if trials == 120:
        assert binom.cdf(inside_third[3], trials, 0.8) < 1e-8, inside_third


def test_intervals_of_overlapping_tables_cover():
    truth = np.random.default_rng(1).poisson(2.0, (3, 4)).astype(float)
    trials, level = 25, 0.8

    def make(seed):
        rng = np.random.default_rng(seed)
        both = Noisy(truth + rng.laplace(scale=3, size=(3, 4)), noise=Laplace(3.0))
        rows = Noisy(truth.sum(1) + rng.normal(scale=1, size=3), noise=Gaussian(1.0))
        measured = {("a", "b"): both, "a": rows}
        fit = consistent_table(measured, domain={"a": 3, "b": 4}, known={(): truth.sum()}, form="likelihood")
        fit.solve()
        return fit

    def rows_of(fit):
        return sp.vstack([fit.marginal_matrix("b"), fit.marginal_matrix("a"), fit.marginal_matrix(())])

    expected = np.r_[truth.sum(0), truth.sum(1), truth.sum()]
    inside, _ = covered(make, expected, rows_of, trials, level)
    assert (binom.cdf(inside[:-1], trials, level) > 1e-8).all(), inside
    assert inside[-1] == trials  # the total is known


def test_what_is_not_determined_has_no_interval():
    places = hierarchy({"r": None, "a": "r", "b": "r", "c": "r"})
    fit = places.fit({"a": Noisy(2.0, noise=Laplace(1.0)), "r": Noisy(9.0, noise=Laplace(1.0))}, nonneg=False)
    fit.solve()
    rows = np.array([[0, 0, 1, 1.0], [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]])
    low, high = intervals(fit, rows)
    np.testing.assert_array_equal(np.isfinite(low), [True, False, True, True])
    np.testing.assert_array_equal(np.isfinite(high), [True, False, True, True])
    table = consistent_table({"a": Noisy([4.0, 5.0], noise=Laplace(1.0))}, domain={"a": 2, "b": 2})
    table.solve()
    found = intervals(table, sp.vstack([table.marginal_matrix("a"), table.marginal_matrix("b")]))
    np.testing.assert_array_equal(np.isfinite(found.high), [True, True, False, False])
    np.testing.assert_array_equal(found.low[2:], 0)


def test_seeds_repeat_and_simulated_fits_need_no_new_search(monkeypatch):
    fit = fitted(SPARSE, Laplace(2.0), total=240)
    rows = fit.ranges_matrix([0, 3], [8, 4])
    first = standard_errors(fit, rows, repetitions=10, rng=3)

    def refuse(form):
        raise AssertionError("looked for a tree again")

    monkeypatch.setattr("dpmodel.released.model.tree_of", refuse)
    np.testing.assert_array_equal(first, standard_errors(fit, rows, repetitions=10, rng=3))
    assert (first != standard_errors(fit, rows, repetitions=10, rng=4)).all()
    stages = []
    for method in ("percentile", "basic", "noise"):
        found = intervals(fit, rows, 0.5, method=method, repetitions=12, progress=lambda *said: stages.append(said))
        assert (found.low <= found.high).all()
        again = intervals(fit, rows, 0.5, method=method, repetitions=12)
        np.testing.assert_array_equal(found.low, again.low)
    assert stages[-1][1] == 1.0
    assert isinstance(found, Intervals)
    assert "costs no privacy" in " ".join(str(found).split()) and max(map(len, str(found).splitlines())) <= 120


def test_problems_written_by_hand():
    x, y = cp.Variable(3, nonneg=True, name="x"), cp.Variable((2, 2), name="y")
    first = Noisy([50.0, 20.0, 30.0], noise=Gaussian(np.array([1.0, 2.0, 3.0])))
    second = Noisy([[1.0, 2.0], [3.0, 4.0]], noise=Gaussian(np.array([[1.0, 2.0], [3.0, 4.0]])))
    problem = dpm.Problem(cp.Minimize(neg_log_likelihood(x, first) + neg_log_likelihood(y, second)), [cp.sum(x) == 100])
    with pytest.raises(SpecificationError, match="not solved"):
        standard_errors(problem)
    problem.solve()
    errors = standard_errors(problem, repetitions=150)
    where = {v.name(): s for v, s in problem._model().columns}
    np.testing.assert_allclose(errors[where["y"]], [1, 3, 2, 4], rtol=0.25)  # column by column
    variance = np.array([1.0, 4.0, 9.0])
    np.testing.assert_allclose(errors[where["x"]], np.sqrt(variance - variance**2 / 14), rtol=0.25)
    low, high = intervals(problem, method="noise")
    np.testing.assert_allclose(((high - low) / 2)[where["y"]], 1.96 * np.array([1, 3, 2, 4]), rtol=0.15)
    np.testing.assert_allclose(standard_errors(problem, y, repetitions=100), [[1, 2], [3, 4]], rtol=0.3)
    assert intervals(problem, x).low.shape == (3,)


@pytest.mark.parametrize("values", [[[1.0, 5], [5, 1]], [[0.0, 0], [0, 0]]])
def test_scales_of_symmetric_values_stay_with_their_entries(values: list[list[float]]) -> None:
    """Values cannot tell rows from columns where they are symmetric."""
    scale = np.array([[1.0, 10], [100, 1000]])
    x = cp.Variable((2, 2))
    problem = dpm.Problem(
        cp.Minimize(dpm.released.neg_log_likelihood(x, dpm.Noisy(values, noise=dpm.noise.Gaussian(scale))))
    )
    problem.solve()
    assert dpm.released.standard_errors(problem, x, repetitions=400) == pytest.approx(scale, rel=0.25)
    low, high = dpm.released.intervals(problem, x)
    assert (high - low) / 2 == pytest.approx(1.96 * scale, rel=0.25)


def test_penalties_do_not_shift_intervals() -> None:
    """They are no measurements of standard deviation one."""
    y = dpm.Noisy([10.0, 20.0, 30.0], noise=dpm.noise.Laplace(2.0))
    x = cp.Variable(3)
    problem = dpm.Problem(cp.Minimize(dpm.released.neg_log_likelihood(x, y) + 0.05 * cp.sum_squares(x)))
    problem.solve()
    low, high = dpm.released.intervals(problem, x)
    assert (low + high) / 2 == pytest.approx(y.value, abs=1e-6)


def test_penalties_keep_what_they_pull_towards_in_refits() -> None:
    """|x| on an entry without a measurement: every refit puts it at 0, however far out the solution was moved to."""
    y = dpm.Noisy([1.0, 2.0], noise=dpm.noise.Laplace(1.0))
    x = cp.Variable(3)
    problem = dpm.Problem(cp.Minimize(dpm.released.neg_log_likelihood(x[:2], y) + 0.1 * cp.abs(x[2] - 4)))
    problem.solve()
    x.save_value(np.array([1.0, 2.0, 9.0]))
    low, high = dpm.released.intervals(problem, x, method="percentile", repetitions=50)
    assert (low[2], high[2]) == pytest.approx((4, 4), abs=1e-6)


def test_published_numbers_outside_a_likelihood_have_no_refits() -> None:
    """Refits do not know the noise of what stands in constraints, or of a publication that enters in part."""
    y = dpm.Noisy(np.arange(4.0), noise=dpm.noise.Laplace(1.0), name="counts")
    bound = dpm.Noisy(np.zeros(4), noise=dpm.noise.Laplace(1.0), name="bound")
    x = cp.Variable(4)
    part = cp.norm1(x[:2] - published(y)[:2]) + cp.sum_squares(x)
    for loss, constraints, name in (
        (dpm.released.neg_log_likelihood(x, y), [x >= published(bound)], "bound"),
        (part, [], "counts"),
    ):
        problem = dpm.Problem(cp.Minimize(loss), constraints)
        problem.solve()
        for ask in (dpm.released.standard_errors, dpm.released.intervals):
            with pytest.raises(dpm.errors.UnsupportedModelError, match=f"{name} enters in another way"):
                ask(problem, x)


def test_what_is_asked_for_by_name():
    fit = fitted(SPARSE, Laplace(2.0))
    everything = intervals(fit).low
    np.testing.assert_array_equal(intervals(fit, "histogram").low, everything[-16:])
    two = intervals(fit, [slice(0, 4), slice(8, None)])
    np.testing.assert_array_equal(two.low, intervals(fit, fit.ranges_matrix([0, 8], [4, 16])).low)
    assert intervals(fit, slice(3, 5)).low.shape == (1,)
    places = hierarchy({"r": None, "a": "r", "b": "r"}, levels=("top", "part"))
    branch = places.fit(Noisy([9.0, 2.0, 6.0], noise=Laplace(1.0)))
    branch.solve()
    low = intervals(branch).low
    np.testing.assert_array_equal(intervals(branch, "part").low, low[1:])
    np.testing.assert_array_equal(intervals(branch, ["b", "r"]).low, low[[2, 0]])
    assert standard_errors(branch, "a", repetitions=20).shape == (1,)
    table = consistent_table({("a", "b"): Noisy(np.ones((2, 3)), noise=Laplace(1.0))}, domain={"a": 2, "b": 3})
    table.solve()
    np.testing.assert_array_equal(intervals(table, ("b", "a")).low.ravel(), intervals(table).low)
    assert standard_errors(table, "b", repetitions=20).shape == (3,)
    assert standard_errors(table, (), repetitions=20).shape == ()
    for name in (fit, branch, table, places):
        assert len(repr(name)) < 200


WRONG = {
    "unsolved": lambda f: standard_errors(f.query.fit(f.model.measurements[0])),
    "no fit": lambda f: standard_errors(3),
    "no post-processing": lambda f: standard_errors(dpm.Problem(cp.Minimize(cp.Variable(nonneg=True)))),
    "size": lambda f: standard_errors(f, np.ones((2, 3))),
    "text": lambda f: standard_errors(f, "leaves"),
    "steps": lambda f: intervals(f, slice(0, 9, 2)),
    "no list": lambda f: intervals(f, [slice(0, 2), 3]),
    "once": lambda f: standard_errors(f, repetitions=1),
    "level": lambda f: intervals(f, level=95),
    "method": lambda f: intervals(f, method="bca"),
    "too few": lambda f: intervals(f, repetitions=18),
    "too much": lambda f: intervals(f, repetitions=10**9),
    "a stranger's variable": lambda f: standard_errors(f, cp.Variable(3)),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_input_is_refused(what):
    fit = fitted(SPARSE, Laplace(2.0))
    with pytest.raises(SpecificationError):
        WRONG[what](fit)
