"""Trees of sums: the matrix by hand, ranges by brute force, sensitivity as measure sees it, fits against scipy."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

import dpmodel as dpm
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy.distributions import Laplace
from dpmodel.released.faces.measure import measure
from dpmodel.released.faces.tree_query import tree_query

SHAPES = [(1, 2), (2, 2), (7, 2), (8, 2), (10, 3), (9, 3), (5, 7), (17, 4), (32, 2)]


def noisy_tree(tree, histogram, distribution, seed=0):
    rng = np.random.default_rng(seed)
    return Noisy(tree.answers(histogram) + distribution.sample((tree.size,), rng), noise=distribution, name="tree")


def least_absolute(tree, noisy, total=None):
    """The optimum by scipy's HiGHS over the leaves: min sum w t, -t <= A h - y <= t, h >= 0."""
    A, k, n = tree.matrix.toarray(), tree.size, tree.bins
    weight = 1 / noisy.scale.ravel()
    left = np.block([[A, -np.eye(k)], [-A, -np.eye(k)]])
    right = np.r_[noisy.value, -noisy.value]
    equality = None if total is None else np.r_[np.ones(n), np.zeros(k)][None, :]
    found = linprog(
        np.r_[np.zeros(n), weight], left, right, equality, None if total is None else [total], [(0, None)] * (n + k)
    )
    return found.fun


@pytest.mark.parametrize(("bins", "branching"), SHAPES)
def test_matrix_and_answers_are_sums_of_blocks(bins, branching):
    tree = tree_query(bins, branching)
    histogram = np.random.default_rng(bins).integers(0, 9, bins).astype(float)
    by_hand, width = [], branching ** (tree.height - 1)
    while width >= 1:
        by_hand += [histogram[a : a + width].sum() for a in range(0, bins, width)]
        width //= branching
    np.testing.assert_array_equal(tree.answers(histogram), by_hand)
    np.testing.assert_array_equal(tree.matrix @ histogram, by_hand)
    assert (tree.matrix.sum(axis=0) == tree.height).all()
    assert tree.height == tree.sensitivity


@pytest.mark.parametrize(("bins", "branching"), SHAPES)
def test_raw_ranges_by_brute_force(bins, branching):
    tree = tree_query(bins, branching)
    histogram = np.random.default_rng(bins).integers(0, 9, bins).astype(float)
    noisy = Noisy(tree.answers(histogram), noise=Laplace(2.0))
    start, stop = np.triu_indices(bins + 1)
    true = np.array([histogram[a:b].sum() for a, b in zip(start, stop, strict=True)])
    np.testing.assert_allclose(tree.read_raw(noisy, start, stop), true)
    count = np.array([tree.covering(a, b).size for a, b in zip(start.tolist(), stop.tolist(), strict=True)])
    np.testing.assert_allclose(tree.raw_sigma(noisy, start, stop), np.sqrt(8.0 * count))
    assert count.max() <= 2 * (branching - 1) * max(tree.height - 1, 1)
    assert tree.covering(0, bins).size <= 1 or bins == 1
    assert isinstance(tree.read_raw(noisy, 0, bins), float)


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_private_sums_by_brute_force(neighbors):
    """Every neighbour of a small histogram stays within the declared bounds, and some reach them."""
    for bins, branching in ((8, 2), (9, 3), (7, 2)):
        tree = tree_query(bins, branching)
        private = tree.private(np.ones(bins), neighbors=neighbors)
        one = np.eye(bins)
        moves = one if neighbors == "add-remove" else [a - b for a in one for b in one]
        sensitivities = np.array([tree.answers(move) for move in moves])
        assert np.abs(sensitivities).sum(axis=1).max() == pytest.approx(private.sensitivity.l1)
        assert np.sqrt(np.square(sensitivities).sum(axis=1)).max() == pytest.approx(private.sensitivity.l2)
        assert np.abs(sensitivities).max() == private.sensitivity.linf == 1
    noisy = measure(tree.private(np.arange(7), integer=True), 1.0, rng=1)
    assert noisy.noise.discrete
    assert tree.fit(noisy).solve().guarantee.epsilon == 0


def test_private_sums_show_no_counts():
    tree = tree_query(3)
    for wrong in ([1, 2], [1, 2, "x31415"], [1, 2, np.nan]):
        with pytest.raises(SpecificationError) as error:
            tree.private(wrong)
        assert "31415" not in str(error.value)
        assert error.value.__context__ is None
    with pytest.raises(SpecificationError, match="single node"):
        tree_query(1).private([3], neighbors="replace-one")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("total", [None, 30.0])
def test_fit_reaches_the_optimum_of_scipy(seed, total):
    rng = np.random.default_rng(seed)
    tree = tree_query(int(rng.integers(2, 30)), int(rng.integers(2, 5)))
    histogram = rng.integers(0, 5, tree.bins) * (rng.random(tree.bins) < 0.4)
    distribution = Laplace(tree.by_level(rng.uniform(1, 4, tree.height)))
    noisy = noisy_tree(tree, histogram, distribution, seed)
    fit = tree.fit(noisy, total=total, form="likelihood")
    release = fit.solve()
    assert release.value == pytest.approx(least_absolute(tree, noisy, total), rel=1e-4)
    np.testing.assert_allclose(tree.answers(fit.histogram), fit.nodes, atol=1e-6)
    assert fit.histogram.min() >= -1e-9
    if total is not None:
        assert fit.range(0, tree.bins) == pytest.approx(total)


def test_the_tree_is_known_without_a_search_and_the_cvxpy_problem_is_the_same():
    tree = tree_query(6)
    noisy = noisy_tree(tree, [0, 0, 9, 1, 0, 4], Laplace(2.0), 3)
    fit = tree.fit(noisy, bounds=(0, 8), form="likelihood")
    assert fit.model.tree_problem().tree is tree.tree
    problem = fit.problem()
    problem.solve(solver=cp.HIGHS)
    assert problem.value == pytest.approx(fit.solve().value, rel=1e-4)
    x = problem.var_dict["x"]
    tighter = dpm.Problem(problem.objective, [*problem.constraints, x[-1] >= 7])
    tighter.solve()
    assert x.value[-1] >= 7 - 1e-6


def test_ranges_read_back():
    tree = tree_query(11, 3)
    fit = tree.fit(noisy_tree(tree, np.arange(11.0), Laplace(0.5)))
    fit.solve()
    start, stop = np.triu_indices(12)
    expected = [fit.histogram[a:b].sum() for a, b in zip(start, stop, strict=True)]
    np.testing.assert_allclose(fit.ranges(start, stop), expected, atol=1e-9)
    np.testing.assert_allclose(fit.ranges_matrix(start, stop) @ fit.x, expected, atol=1e-6)


@pytest.mark.parametrize("how", ["unbiased", "controlled", "nearest"])
def test_rounding_keeps_the_sums(how):
    tree = tree_query(13, 3)
    fit = tree.fit(noisy_tree(tree, np.arange(13.0), Laplace(3.0), 5), total=78, form="least-squares")
    release = fit.solve(round=how, rng=4)
    np.testing.assert_array_equal(fit.nodes, np.rint(fit.nodes))
    np.testing.assert_array_equal(tree.answers(fit.histogram), fit.nodes)
    assert fit.range(0, 13) == 78
    assert any("rounded" in note for note in release.notes)
    np.testing.assert_array_equal(release.variables["nodes"], fit.nodes)
    again = tree.fit(noisy_tree(tree, np.arange(13.0), Laplace(3.0), 5), total=78, form="least-squares")
    again.solve(round=how, rng=4)
    np.testing.assert_array_equal(again.nodes, fit.nodes)


def test_rounded_numbers_are_not_called_the_exact_optimum():
    fit = tree_query(4).fit(Noisy(np.arange(7.0) + 0.25, noise=Laplace(1.0)))
    assert fit.solve().accuracy.proved
    accuracy = fit.solve(round="unbiased").accuracy
    assert not accuracy.proved and accuracy.alpha is None and "integers beside" in accuracy.statement


def test_rounding_refuses_bounds_that_are_not_whole():
    tree = tree_query(3)
    fit = tree.fit(noisy_tree(tree, [1.0, 2, 3], Laplace(0.1)), total=6.5)
    with pytest.raises(SpecificationError, match="not whole"):
        fit.solve(round="nearest")
    assert fit.release is None


WRONG = {
    "no distribution": lambda t: t.fit(np.zeros(t.size)),
    "size": lambda t: t.fit(Noisy(np.zeros(3), noise=Laplace(1))),
    "level": lambda t: t.fit({9: Noisy(np.zeros(3), noise=Laplace(1))}),
    "level size": lambda t: t.fit({0: Noisy(np.zeros(3), noise=Laplace(1))}),
    "nothing": lambda t: t.fit({}),
    "bounds": lambda t: t.fit(Noisy(np.zeros(t.size), noise=Laplace(1)), bounds=3),
    "nan total": lambda t: t.fit(Noisy(np.zeros(t.size), noise=Laplace(1)), total=float("nan")),
    "alpha": lambda t: t.fit(Noisy(np.zeros(t.size), noise=Laplace(1)), alpha=0),
    "form": lambda t: t.fit(Noisy(np.zeros(t.size), noise=Laplace(1)), form="l3"),
    "round": lambda t: t.fit(Noisy(np.zeros(t.size), noise=Laplace(1))).solve(round="up"),
    "unsolved": lambda t: t.fit(Noisy(np.zeros(t.size), noise=Laplace(1))).histogram,
    "range": lambda t: t.read_raw(Noisy(np.zeros(t.size), noise=Laplace(1)), 3, 99),
    "backwards": lambda t: t.covering(3, 2),
    "half a bin": lambda t: t.covering(0.5, 2),
    "by level": lambda t: t.by_level([1.0]),
    "private": lambda t: t.answers(dpm.Private(np.ones(t.bins), name="p", linf=1)),
    "bins": lambda t: tree_query(0),
    "branching": lambda t: tree_query(4, 1),
    "matrix": lambda t: tree_query(np.ones((2, 2))),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_input_is_refused(what):
    with pytest.raises(SpecificationError):
        WRONG[what](tree_query(6))


def test_totals_that_the_bounds_cannot_meet():
    tree = tree_query(6)
    noisy = Noisy(np.zeros(tree.size), noise=Laplace(1))
    with pytest.raises(InfeasibleError, match="known to be 31, but the bins can sum to at most 30"):
        tree.fit(noisy, bounds=(0, 5), total=31)
    with pytest.raises(InfeasibleError, match="-1"):
        tree.fit(noisy, total=-1)
    with pytest.raises(InfeasibleError, match="entry 2"):
        tree.fit(noisy, bounds=(0, [1, 1, -1, 1, 1, 1]))


def test_private_counts_are_whole() -> None:
    """Rounding 0.5 and 1.5, which one record tells apart, would move a sum by two."""
    with pytest.raises(dpm.errors.SpecificationError, match="whole"):
        dpm.released.tree_query(2).private([0.5, 3.0])
