"""Least squares on trees against dense solves of the optimality conditions, and Clarabel where bounds bind."""

from __future__ import annotations

import clarabel
import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel.contract import Options
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.privacy import SeededSource
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.least_squares_tree import (
    LeastSquaresTree,
    bounded_fit,
    descended,
    node_targets,
)
from dpmodel.released.model import Postprocessing
from dpmodel.released.trees import Tree, TreeProblem, TreeProjector

OPTIONS = Options(epsilon=0.0, delta=0.0)
INF = np.inf


def projected(tree, value, weight=None, fixed=None):
    return TreeProjector(tree, weight, fixed).project(value)


def random_tree(rng, most, root=0.12):
    size = int(rng.integers(1, most))
    up = [-1 if i == 0 or rng.random() < root else int(rng.integers(max(0, i - 8), i)) for i in range(size)]
    return Tree.of_parents(up).tree


def cost(x, v, w):
    return float(w @ np.square(x - v))


def dense(tree, v, w, fixed):
    """A minimiser, from the linear optimality conditions."""
    A = [tree.consistency.toarray()]
    b = [np.zeros(A[0].shape[0])]
    if fixed is not None:
        held = np.flatnonzero(~np.isnan(fixed))
        A.append(np.eye(tree.size)[held])
        b.append(fixed[held])
    A, b = np.vstack(A), np.concatenate(b)
    K = np.block([[np.diag(w), A.T], [A, np.zeros((A.shape[0],) * 2)]])
    return np.linalg.lstsq(K, np.concatenate([w * v, b]), rcond=1e-12)[0][: tree.size]


def general(tree, v, w, lower, upper):
    """Clarabel's answer, or None."""
    C, eye = tree.consistency, sp.identity(tree.size, format="csr")
    low, high = np.isfinite(lower), np.isfinite(upper)
    A = sp.csc_matrix(sp.vstack([C, -eye[low], eye[high]]))
    b = np.concatenate([np.zeros(C.shape[0]), -lower[low], upper[high]])
    cones = [clarabel.ZeroConeT(C.shape[0]), clarabel.NonnegativeConeT(int(low.sum() + high.sum()))]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    P = sp.csc_matrix(sp.diags(2 * w))
    found = clarabel.DefaultSolver(P, -2 * w * v, A, b, cones, settings).solve()
    return np.array(found.x) if str(found.status) == "Solved" else None


@pytest.mark.parametrize("unmeasured", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_projection_against_dense_optimality_conditions(unmeasured, known):
    rng = np.random.default_rng([unmeasured, known])
    for _ in range(60):
        tree = random_tree(rng, 15)
        v, w = rng.normal(size=tree.size) * 10, 10 ** rng.uniform(-2, 2, size=tree.size)
        if unmeasured:
            w[rng.random(tree.size) < 0.3] = 0
        fixed = None
        if known:
            truth = tree.sums(rng.integers(0, 9, size=tree.leaves.size).astype(float))
            fixed = np.where(rng.random(tree.size) < 0.3, truth, np.nan)
        x, best = projected(tree, v, w, fixed), dense(tree, v, w, fixed)
        assert np.abs(tree.consistency @ x).max(initial=0) < 1e-10
        if fixed is not None:
            held = ~np.isnan(fixed)
            np.testing.assert_allclose(x[held], fixed[held], atol=1e-10)
        np.testing.assert_allclose(cost(x, v, w), cost(best, v, w), rtol=1e-7, atol=1e-8)
        if not unmeasured:
            np.testing.assert_allclose(x, best, atol=1e-6)


def test_undetermined_leaves_have_the_least_squares():
    tree, _, position = Tree.of_parents([-1, 0, 0, 1, 1])  # Root of 1 and 2; 1 of 3 and 4.
    w = np.zeros(5)
    w[position[0]] = 1.0
    x = projected(tree, np.full(5, 6.0), w)
    np.testing.assert_allclose(x[position], [6, 4, 2, 2, 2])
    np.testing.assert_array_equal(projected(tree, np.full(5, 6.0), 0.0), 0.0)
    faint = w + 1e-9  # The limit that the docstring speaks of: leaves at 0 with a vanishing weight.
    faint[position[1]] = 0
    near = projected(tree, np.where(w > 0, 6.0, 0.0), faint)
    np.testing.assert_allclose(near, x, atol=1e-6)


def test_extreme_weights_stay_finite():
    rng = np.random.default_rng(5)
    tree = Tree.complete(32)
    for scale in (1e-200, 1e200):
        v = rng.normal(size=tree.size)
        np.testing.assert_allclose(projected(tree, v, scale), projected(tree, v), atol=1e-12)
    mixed = 10 ** rng.uniform(-12, 12, size=tree.size)
    x = projected(tree, v, mixed)
    assert np.isfinite(x).all() and np.abs(tree.consistency @ x).max() < 1e-9


def test_bad_input_is_refused():
    tree = Tree.complete(2)
    for weight in (-1.0, np.nan, np.inf):
        with pytest.raises(SpecificationError, match="weights"):
            TreeProjector(tree, weight)
    with pytest.raises(SpecificationError, match="shape"):
        TreeProjector(tree).project(np.zeros(4))
    with pytest.raises(InfeasibleError, match="add up"):
        TreeProjector(tree, fixed=np.array([3.0, 1.0, 1.0]))
    TreeProjector(tree, fixed=np.array([0.3, 0.1, 0.2]))  # 0.1 + 0.2 is not 0.3 in floats.


def bounded_case(rng, kind):
    """``(tree, v, w, lower, upper)`` that some integer point keeps."""
    tree = random_tree(rng, 30)
    n = tree.size
    truth = tree.sums(rng.poisson(0.7, size=tree.leaves.size).astype(float))
    v = truth + rng.normal(size=n) * rng.choice([0.3, 2, 10])
    w = 10 ** rng.uniform(-1, 1, size=n)
    lower, upper = np.where(tree.is_leaf, 0.0, -INF), np.full(n, INF)
    if kind == "upper":
        lower, upper = np.full(n, -INF), np.where(tree.is_leaf, truth, INF)
    if "totals" in kind:
        known = rng.random(n) < 0.2
        lower[known] = upper[known] = truth[known]
    if "unmeasured" in kind:
        w[rng.random(n) < 0.3] = 0
    return tree, v, w, lower, upper


KINDS = ["leaves", "leaves, totals", "leaves, unmeasured", "upper", "leaves, totals, unmeasured"]


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_against_clarabel(kind):
    rng = np.random.default_rng((KINDS).index(kind))
    compared = 0
    for _ in range(30):
        tree, v, w, lower, upper = bounded_case(rng, kind)
        x, optimal = bounded_fit(tree, v, w, lower, upper)
        assert optimal
        wrong = max(np.abs(tree.consistency @ x).max(initial=0), (lower - x).max(), (x - upper).max())
        assert wrong < 1e-9 * (np.abs(v).max() + 1)
        best = general(tree, v, w, lower, upper)
        if best is not None:
            compared += 1
            np.testing.assert_allclose(cost(x, v, w), cost(best, v, w), rtol=1e-6, atol=1e-6)
    assert compared > 20


def test_values_far_larger_than_a_total_do_not_fail():
    rng = np.random.default_rng(11)
    tree = Tree.complete(16)
    lower, upper = np.zeros(tree.size), np.full(tree.size, INF)
    for total in (0.0, 1e-20, 1.0, 1e6):
        for size in (1.0, 1e10, 1e17):
            lower[0] = upper[0] = total
            x, _ = bounded_fit(tree, rng.normal(size=tree.size) * size, np.ones(tree.size), lower, upper)
            scale = 1e-10 * (size + total)
            assert np.abs(tree.consistency @ x).max() <= scale and x.min() >= -scale


def test_contradictions_are_infeasible():
    tree = Tree.complete(2)
    for lower, upper in (([5, 0, 0], [9, 2, 2]), ([-INF, 3, 3], [4, INF, INF]), ([1, 1, 1], [1, 1, 1])):
        with pytest.raises(InfeasibleError, match="at least"):
            bounded_fit(tree, np.zeros(3), np.ones(3), np.array(lower, float), np.array(upper, float))


# The mechanism.


def model_of(tree, v, **arrays):
    settings = {"square": 0.5, "equality": tree.consistency} | arrays
    return Postprocessing(LikelihoodForm.of(sp.identity(tree.size, format="csr"), v, **settings), ())


def test_repeated_measurements_count_together():
    problem = TreeProblem(
        Tree.complete(1),
        np.array([0, 0]),
        np.array([1.0, 4.0]),
        np.zeros(2),
        np.array([1.0, 2.0]),
        np.array([-INF]),
        np.array([INF]),
        np.array([0]),
    )
    value, weight = node_targets(problem)
    assert (value[0], weight[0]) == (3.0, 3.0)


# ------------------------------------------------------------------ from the top down
def test_a_descent_keeps_sums_bounds_and_known_values() -> None:
    """Random trees, of leaves at all depths, bounds of both sides at any node, known nodes among them."""
    rng = np.random.default_rng(0)
    for trial in range(60):
        n = int(rng.integers(2, 40))
        tree = Tree.of_parents([-1 if i < 2 else int(rng.integers(0, i)) for i in range(n)])[0]
        inside = tree.sums(rng.integers(0, 5, tree.leaves.size).astype(float))
        lower = np.where(rng.random(tree.size) < 0.6, inside - rng.integers(0, 3, tree.size), -np.inf)
        upper = np.where(rng.random(tree.size) < 0.4, inside + rng.integers(0, 3, tree.size), np.inf)
        known = rng.random(tree.size) < 0.1
        lower[known] = upper[known] = inside[known]
        weight = np.where(rng.random(tree.size) < 0.2, 0.0, rng.uniform(0.1, 4, tree.size))
        v = inside + rng.normal(0, 6, tree.size)
        x = descended(tree, v, weight, lower, upper)
        np.testing.assert_allclose(tree.consistency @ x, 0, atol=1e-7, err_msg=str(trial))
        assert (x >= lower - 1e-7).all() and (x <= upper + 1e-7).all()
        np.testing.assert_allclose(x[known], inside[known], atol=1e-9)


def test_a_descent_is_the_nearest_point_level_by_level() -> None:
    tree = Tree.complete(8, 8)
    v, weight = np.array([10.0, 9, -4, 1, 0.5, -2, 3, 0, -1]), np.array([1e9, *[1.0] * 8])
    x = descended(tree, v, weight, np.array([-np.inf, *[0.0] * 8]), np.full(9, np.inf))
    free = descended(tree, v, weight, np.full(9, -np.inf), np.full(9, np.inf))
    y = cp.Variable(8, nonneg=True)
    cp.Problem(cp.Minimize(cp.sum_squares(y - free[1:])), [cp.sum(y) == free[0]]).solve()
    np.testing.assert_allclose(x[1:], y.value, atol=1e-5)
    assert x[0] == free[0] == pytest.approx(10)


def test_bounds_that_contradict_each_other_are_told_from_the_top_down_too() -> None:
    model = model_of(
        Tree.complete(2), [1.0, 1.0, 1.0], lower=np.array([-np.inf, 2.0, 2.0]), upper=np.array([3.0, 9, 9])
    )
    assert LeastSquaresTree(top_down=True).run(model, OPTIONS, SeededSource(0)).status == "infeasible"
