"""The exact tree solver against HiGHS, and by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.released.exact_tree import solve_exact_tree
from dpmodel.released.trees import Tree, TreeProblem

TIES = ("nearest", "middle")


def random_tree(g: np.random.Generator) -> Tree:
    """A forest of up to 5 levels with 0 to 3 children per node."""
    sizes, parent, start = [int(g.integers(1, 4))], [], 0
    parent.append(np.full(sizes[0], -1))
    for _ in range(int(g.integers(0, 5))):
        children = g.integers(0, 4, sizes[-1])
        if children.sum() == 0:
            break
        parent.append(np.repeat(start + np.arange(sizes[-1]), children))
        start += sizes[-1]
        sizes.append(int(children.sum()))
    return Tree(np.concatenate(parent).astype(np.int64), tuple(int(b) for b in np.cumsum([0, *sizes])))


def random_problem(g: np.random.Generator) -> TreeProblem:
    """Bounds of every kind around a feasible point (inner nodes', now and then, without regard to it), measurements
    missing and repeated, weights equal, from a small set or without a pattern."""
    tree = random_tree(g)
    size, leaf = tree.size, tree.is_leaf
    leaves = int(leaf.sum())
    lower, upper = np.full(size, -np.inf), np.full(size, np.inf)
    kind = g.integers(4)
    if kind < 2:
        lower[leaf] = 0.0
    elif kind == 2:
        lower[leaf] = np.where(g.random(leaves) < 0.5, g.integers(-3, 2, leaves), -np.inf)
    if kind in (0, 2):
        upper[leaf] = np.where(g.random(leaves) < 0.5, lower[leaf].clip(-2) + g.integers(0, 6, leaves), np.inf)
    truth = tree.sums(np.clip(g.integers(-2, 6, leaves).astype(float), lower[leaf], upper[leaf]))
    for bound, sign in ((lower, -1), (upper, 1)):
        some = (g.random(size) < g.choice([0, 0.1, 0.4])) & ~leaf
        bound[some] = truth[some] + sign * g.integers(0, 2, some.sum())
    if g.random() < 0.1:
        lower[0] = upper[0] = float(g.integers(-3, 6))
    node = np.arange(size) if g.random() < 0.5 else g.integers(0, size, int(g.integers(0, 2 * size + 2)))
    k = node.size
    choices = ([1.0], [1.0, 2.0, 3.0], [0.1, 0.2, 0.7, 0.0])
    weight = g.choice(choices[int(g.integers(3))], k) if g.random() < 0.8 else g.random(k) + 0.1
    noise = g.laplace(0, 2, k)
    value = truth[node] + (noise if g.random() < 0.5 else np.rint(noise))
    return TreeProblem(tree, node.astype(np.int64), value, weight, np.zeros(k), lower, upper, np.arange(size))


def highs(problem: TreeProblem, whole: bool = False) -> tuple[int, float]:
    """(status, optimum) of the linear program with split standard deviations."""
    size, k = problem.tree.size, problem.node.size
    S = sp.csr_array((np.ones(k), (np.arange(k), problem.node)), shape=(k, size))
    A = sp.vstack([sp.hstack([S, -sp.eye_array(k)]), sp.hstack([-S, -sp.eye_array(k)])]).tocsr() if k else None
    b = np.concatenate([problem.value, -problem.value]) if k else None
    C = problem.tree.consistency
    E = sp.hstack([C, sp.csr_array((C.shape[0], k))]).tocsr() if C.shape[0] else None
    bounds = np.column_stack(
        [np.concatenate([problem.lower, np.zeros(k)]), np.concatenate([problem.upper, np.full(k, np.inf)])]
    )
    c = np.concatenate([np.zeros(size), problem.absolute])
    e = np.zeros(C.shape[0]) if E is not None else None
    integrality = np.concatenate([np.ones(size), np.zeros(k)]) if whole else None
    found = linprog(c, A_ub=A, b_ub=b, A_eq=E, b_eq=e, bounds=bounds, method="highs", integrality=integrality)
    return int(found.status), float(found.fun) if found.status == 0 else np.nan


@cache
def solved_by_highs(seed: int) -> tuple[TreeProblem, int, float]:
    problem = random_problem(np.random.default_rng(seed))
    return problem, *highs(problem)


def violation(problem: TreeProblem, x: np.ndarray) -> float:
    residual = np.abs(problem.tree.consistency @ x).max(initial=0.0)
    return max(float((problem.lower - x).max()), float((x - problem.upper).max()), float(residual))


def histogram(leaves: int, branching: int = 2, seed: int = 0, total: float = 1e6, epsilon: float = 0.1) -> TreeProblem:
    g = np.random.default_rng(seed)
    tree = Tree.complete(leaves, branching)
    counts = g.multinomial(int(total), g.dirichlet(np.full(leaves, 0.05))).astype(float)
    scale = len(tree.levels) / epsilon
    value = tree.sums(counts) + g.laplace(0, scale, tree.size)
    lower = np.where(tree.is_leaf, 0.0, -np.inf)
    weight, none = np.full(tree.size, 1 / scale), np.zeros(tree.size)
    nodes = np.arange(tree.size)
    return TreeProblem(
        tree, nodes, value, weight, none, lower, np.full(tree.size, np.inf), np.flatnonzero(tree.is_leaf)
    )


def simple(parent: list[int], bounds: list[int], value: list[float], **sensitivities: object) -> TreeProblem:
    size = len(parent)
    nodes, zeros = np.arange(size), np.zeros(size)
    tree = Tree(np.array(parent), tuple(bounds))
    free = TreeProblem(tree, nodes, np.array(value), np.ones(size), zeros, zeros - np.inf, zeros + np.inf, nodes)
    return replace(free, **sensitivities)  # type: ignore[arg-type]


def test_optimal_on_random_trees() -> None:
    """Objective against HiGHS, every rule for ties; infeasible iff HiGHS says so."""
    solved = refused = 0
    for seed in range(90):
        problem, status, best = solved_by_highs(seed)
        if status == 2:
            with pytest.raises(InfeasibleError):
                solve_exact_tree(problem)
            refused += 1
            continue
        assert status == 0, seed
        for ties in TIES:
            x = solve_exact_tree(problem, ties)
            value = problem.objective(x)
            assert abs(value - best) <= 1e-9 * (1 + best), (seed, ties)
            assert violation(problem, x) <= 1e-9, (seed, ties)
            leaf = problem.tree.is_leaf
            assert (problem.lower[leaf] <= x[leaf]).all() and (x[leaf] <= problem.upper[leaf]).all()
        solved += 1
    assert solved > 60 and refused >= 2


def test_by_hand() -> None:
    """A root measured 10 with children measured 2 and 3: every split of 5 to 10 costs 5 at least; 5 <= total <= 10."""
    problem = simple([-1, 0, 0], [0, 1, 3], [10.0, 2.0, 3.0])
    for ties in TIES:
        x = solve_exact_tree(problem, ties)
        assert problem.objective(x) == pytest.approx(5.0)
    # Children cost 1 per unit beyond 5 and the root gains 1 per unit up to 10, so derivatives are 0 between.
    assert solve_exact_tree(problem, "middle").tolist() == [7.5, 3.25, 4.25]  # equal shares of endless stretches
    # Least squares of all three measurements: 10 - 5/3 at the root, 5/3 more at each child.
    np.testing.assert_allclose(solve_exact_tree(problem, "nearest"), [25 / 3, 11 / 3, 14 / 3])


def test_middle_is_pro_rata() -> None:
    """Root fixed at 3; children in [0, 2] and [0, 4], unmeasured."""
    problem = simple(
        [-1, 0, 0],
        [0, 1, 3],
        [0.0] * 3,
        absolute=np.zeros(3),
        lower=np.array([3.0, 0.0, 0.0]),
        upper=np.array([3.0, 2.0, 4.0]),
    )
    assert solve_exact_tree(problem, "middle").tolist() == [3.0, 1.0, 2.0]


def test_forest_is_each_tree_on_its_own() -> None:
    one = simple([-1, 0, 0], [0, 1, 3], [4.0, 1.0, 2.0])
    two = simple([-1, 0], [0, 1, 2], [4.0, 8.0])
    both = simple([-1, -1, 0, 0, 1], [0, 2, 5], [4.0, 4.0, 1.0, 2.0, 8.0])
    for ties in TIES:
        x, a, b = (solve_exact_tree(p, ties) for p in (both, one, two))
        assert x.tolist() == [a[0], b[0], a[1], a[2], b[1]]


def test_infeasible_bounds() -> None:
    problem = simple(
        [-1, 0, 0], [0, 1, 3], [0.0] * 3, upper=np.array([1.0, 9.0, 9.0]), lower=np.array([-9.0, 1.0, 1.0])
    )
    with pytest.raises(InfeasibleError, match="at least 2 and at most 1"):
        solve_exact_tree(problem)
    with pytest.raises(InfeasibleError, match="at least 10 and at most 9"):
        solve_exact_tree(replace(problem, lower=np.array([-9.0, 0.0, 10.0])))


def test_fixed_sums_may_disagree_by_rounding() -> None:
    fixed = np.array([0.3, 0.1, 0.2])
    assert 0.1 + 0.2 != 0.3
    problem = simple([-1, 0, 0], [0, 1, 3], [1.0, 1.0, 1.0], lower=fixed, upper=fixed)
    np.testing.assert_allclose(solve_exact_tree(problem), fixed, rtol=1e-15)


def test_whole_numbers_stay_whole() -> None:
    """All rules with integer=True; optimal all the same."""
    g = np.random.default_rng(7)
    base = histogram(200, 3)
    problem = replace(base, value=np.rint(base.value))
    _, best = highs(problem)
    for ties in TIES:
        x = solve_exact_tree(problem, ties, integer=True)
        assert (x == np.rint(x)).all(), ties
        assert problem.objective(x) == pytest.approx(best, rel=1e-9)
    fixed = replace(problem, lower=problem.lower.copy(), upper=problem.upper.copy())
    fixed.lower[0] = fixed.upper[0] = float(g.integers(10**6, 2 * 10**6))
    x = solve_exact_tree(fixed, integer=True)
    assert x[0] == fixed.lower[0] and (x == np.rint(x)).all() and (x >= fixed.lower).all()


def test_whole_optimum_of_values_that_are_not_whole() -> None:
    """The exact optimum over integers, against branch and bound."""
    tried = 0
    for seed in range(25):
        problem = random_problem(np.random.default_rng(seed))
        if problem.tree.size > 25:
            continue
        status, best = highs(problem, whole=True)
        try:
            for ties in TIES:
                x = solve_exact_tree(problem, ties, integer=True)
                assert (x == np.rint(x)).all() and violation(problem, x) <= 1e-9
                assert problem.objective(x) == pytest.approx(best, rel=1e-7, abs=1e-7), (seed, ties)
            tried += 1
        except InfeasibleError:
            assert status == 2
    assert tried > 9


def test_large_values_and_small_scales() -> None:
    """Values of 1e9 with noise of scale 1, and weights of any unit: consistent, and as good as without the 1e9."""
    problem = histogram(512, total=1e9, epsilon=9.0)
    lift = 1e9 * problem.tree.sums(np.ones(512))
    lifted = replace(problem, value=problem.value + lift)
    near = replace(problem, lower=np.where(problem.tree.is_leaf, -1e9, -np.inf))
    for unit in (1.0, 1e-12, 1e12):
        scaled, plain = (replace(p, absolute=np.full(p.tree.size, unit)) for p in (lifted, near))
        x = solve_exact_tree(scaled)
        assert violation(scaled, x) <= 1e-15 * x[0] * 10
        # Deviations of 1 at sums of 5e11.
        assert scaled.objective(x) == pytest.approx(plain.objective(solve_exact_tree(plain)), rel=1e-4)


def test_wrong_arguments() -> None:
    problem = histogram(4)
    with pytest.raises(SpecificationError, match="ties"):
        solve_exact_tree(problem, "elastic")  # type: ignore[arg-type]
    with pytest.raises(SpecificationError, match="square"):
        solve_exact_tree(replace(problem, square=problem.absolute))
    with pytest.raises(SpecificationError, match="finite"):
        solve_exact_tree(replace(problem, value=problem.value * np.nan))
