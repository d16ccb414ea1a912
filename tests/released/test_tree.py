"""Trees in arrays, and their recognition in a likelihood, against brute force on small random ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.tree_of import tree_of
from dpmodel.released.trees import Tree, node_ranges


def random_parents(rng, size, root=0.15):
    """Parents in a shuffled order."""
    up = np.array([-1 if i == 0 or rng.random() < root else rng.integers(0, i) for i in range(size)])
    name = rng.permutation(size)
    given = np.empty(size, dtype=int)
    given[name] = np.where(up >= 0, name[up], -1)
    return given


def descendants_or_self(parents, node):
    found = {node}
    while True:
        more = {i for i, p in enumerate(parents) if p in found} | found
        if more == found:
            return found
        found = more


def test_parents_in_any_order_become_breadth_first_arrays():
    rng = np.random.default_rng(0)
    for _ in range(150):
        given = random_parents(rng, int(rng.integers(1, 25)))
        tree, order, position = Tree.of_parents(given)
        assert np.array_equal(position[order], np.arange(given.size))
        assert np.array_equal(np.where(tree.parent >= 0, order[tree.parent], -1), given[order])
        assert (np.diff(tree.parent) >= 0).all() and tree.bounds[-1] == tree.size
        for level, above in zip(tree.levels[1:], tree.levels, strict=False):
            assert ((tree.parent[level] >= above.start) & (tree.parent[level] < above.stop)).all()
        assert (tree.parent[tree.levels[0]] == -1).all()
        assert np.array_equal(Tree.of_parents(tree.parent).order, np.arange(tree.size))  # Already in order: kept.

        leaves = rng.normal(size=tree.leaves.size)
        x = tree.sums(leaves)
        expected = np.empty(tree.size)
        at = dict(zip(tree.leaves, leaves, strict=True))
        for node in range(tree.size):
            expected[node] = sum(at[i] for i in descendants_or_self(list(tree.parent), node) if i in at)
        np.testing.assert_allclose(x, expected, atol=1e-12)
        np.testing.assert_allclose(tree.incidence @ leaves, expected, atol=1e-12)
        np.testing.assert_allclose(tree.consistency @ x, 0, atol=1e-12)
        across = x[tree.left_to_right]
        np.testing.assert_allclose([across[a:b].sum() for a, b in tree.covers], expected, atol=1e-12)


def test_generations_sum_and_spread_whatever_the_branching():
    rng = np.random.default_rng(1)
    for branching in (2, 3, 8, 9, 20):
        for leaves in (branching**2, branching**2 - 1, branching + 1):
            tree = Tree.complete(leaves, branching)
            x = rng.normal(size=tree.size)
            for g in tree.generations:
                expected = np.bincount(tree.parent[g.below], weights=x[g.below], minlength=tree.size)[g.nodes]
                np.testing.assert_allclose(g.sum(x[g.below]), expected, atol=1e-12)
                np.testing.assert_array_equal(g.spread(np.arange(tree.size)[g.nodes]), tree.parent[g.below])


@pytest.mark.parametrize(
    ("parents", "words"),
    [
        ([0], "cycle: 0"),
        ([-1, 2, 3, 1, 1], "cycle: 1 -> 2 -> 3"),
    ],
)
def test_bad_parents_are_refused(parents, words):
    with pytest.raises(SpecificationError, match=words):
        Tree.of_parents(parents)


# Recognition. A spelling is a form made from a known tree; whatever it is, the tree problem found must mean the same.


def means_the_same(form: LikelihoodForm, rng) -> None:
    """Every consistent x gives the form the same objective and the same constraints, and no more than that is free."""
    found = tree_of(form)
    assert found is not None
    tree = found.tree
    structure = np.flatnonzero(np.abs(form.equality.toarray()).sum(axis=1) != 0)
    E = form.equality.toarray()[structure]
    families = E[(E > 0).any(axis=1) & (E < 0).any(axis=1)]
    rank = np.linalg.matrix_rank(families) if families.size else 0
    assert tree.leaves.size == form.size - rank
    shift = form.objective(np.zeros(form.size)) - found.objective(np.zeros(tree.size))
    for _ in range(3):
        x = tree.sums(rng.normal(size=tree.leaves.size))
        y = x[found.select]
        np.testing.assert_allclose(families @ y, 0, atol=1e-9)
        np.testing.assert_allclose(form.objective(y), found.objective(x) + shift, rtol=1e-9)
    for _ in range(6):
        x = tree.sums(rng.integers(-2, 3, size=tree.leaves.size).astype(float))
        inside = bool((x >= found.lower - 1e-9).all() and (x <= found.upper + 1e-9).all())
        assert inside == (form.violation(x[found.select]) <= 1e-9)
    assert form.violation(tree.sums(np.ones(tree.leaves.size))[found.select]) <= 1e-9  # As the makers below have it.


def spelled(rng, *, by_nodes: bool, mixed: bool = False, twins: bool = False) -> LikelihoodForm:
    """A random forest's form: variables are nodes or leaves (or some of each); all leaves at 1 is feasible."""
    given = random_parents(rng, int(rng.integers(1, 12)))
    tree = Tree.of_parents(given).tree
    sums = tree.incidence.toarray()
    if by_nodes:
        kept = ~tree.is_leaf & (rng.random(tree.size) < (0.5 if mixed else 1.0))
        columns = np.concatenate([np.flatnonzero(kept), tree.leaves])
    else:
        kept, columns = np.zeros(tree.size, dtype=bool), tree.leaves
    columns = rng.permutation(columns)
    n = columns.size

    def row(node):
        """The node's sum over the variables: itself, or its nearest kept descendants."""
        found = np.zeros(n)
        stack = [node]
        while stack:
            i = stack.pop()
            here = np.flatnonzero(columns == i)
            if here.size:
                found[here[0]] = 1
            else:
                stack += list(np.flatnonzero(tree.parent == i))
        return found

    def family(node):
        found = -sum(row(i) for i in np.flatnonzero(tree.parent == node))
        found[np.flatnonzero(columns == node)[0]] += 1
        return found

    at_one = sums.sum(axis=1)
    equality = [family(i) * rng.choice([1.0, -1.0, 2.5]) for i in np.flatnonzero(kept)]
    value = [0.0] * len(equality)
    allowed = range(tree.size) if mixed or not by_nodes else columns
    pool = [i for i in allowed if rng.random() < 0.3]
    c = [rng.choice([1.0, -3.0, 0.5]) for _ in pool]
    equality += [row(i) * s for i, s in zip(pool, c, strict=True)]
    value += [at_one[i] * s for i, s in zip(pool, c, strict=True)]
    pool = [i for i in allowed if rng.random() < 0.3]
    c = [rng.choice([1.0, -3.0, 0.5]) for _ in pool]
    inequality = [row(i) * s for i, s in zip(pool, c, strict=True)]
    level = [at_one[i] * s + 0.5 * (rng.random() < 0.5) for i, s in zip(pool, c, strict=True)]
    pool = [i for i in list(allowed) * 2 if rng.random() < 0.7]
    matrix = [row(i) * rng.choice([1.0, -2.0, 0.25]) for i in pool]
    if twins and n:
        j = int(rng.integers(n))
        n += 1

        def grown(rows):
            return [np.append(r, 0.0) for r in rows]

        equality, inequality, matrix = grown(equality), grown(inequality), grown(matrix)
        link = np.zeros(n)
        link[j], link[-1] = rng.choice([1.0, -1.0]) * np.array([1, -1])
        equality.append(link)
        value.append(0.0)
        for rows in (inequality, matrix):  # Some rows speak of the twin instead.
            for r in rows:
                if rng.random() < 0.5:
                    r[j], r[-1] = r[-1], r[j]
    k = len(matrix)
    order = rng.permutation(len(equality))
    return LikelihoodForm.of(
        np.array(matrix).reshape(k, n),
        rng.normal(size=k),
        absolute=rng.random(k) * (rng.random(k) < 0.7),
        square=rng.random(k) * (rng.random(k) < 0.7),
        equality=np.array(equality).reshape(-1, n)[order],
        equality_value=np.array(value)[order] if value else 0.0,
        inequality=np.array(inequality).reshape(-1, n),
        inequality_value=np.array(level) if level else 0.0,
        lower=np.where(rng.random(n) < 0.5, 0.0, -np.inf),
    )


@pytest.mark.parametrize("twins", [False, True])
@pytest.mark.parametrize(("by_nodes", "mixed"), [(True, False), (False, False), (True, True)])
def test_spelled_trees_are_recognised(by_nodes, mixed, twins):
    rng = np.random.default_rng([by_nodes, mixed, twins])
    for _ in range(30):
        means_the_same(spelled(rng, by_nodes=by_nodes, mixed=mixed, twins=twins), rng)


def test_laminar_families_and_no_others_are_trees():
    rng = np.random.default_rng(5)
    met = {True: 0, False: 0}
    for _ in range(150):
        n = int(rng.integers(1, 6))
        rows = [rng.random(n) < rng.choice([0.3, 0.6]) for _ in range(rng.integers(1, 5))]
        rows = [r for r in rows if r.any()] or [np.ones(n, dtype=bool)]
        laminar = all(not (a & b).any() or (a <= b).all() or (b <= a).all() for a in rows for b in rows)
        form = LikelihoodForm.of(np.array(rows, dtype=float), 1.0, square=1.0)
        found = tree_of(form)
        assert (found is not None) == laminar
        met[laminar] += 1
        if found is not None:
            means_the_same(form, rng)
            assert found.tree.size == len({tuple(r) for r in rows if r.sum() > 1}) + n
    assert min(met.values()) > 20


def three(**sensitivities) -> LikelihoodForm:
    """total = a + b, all measured; the near misses below change one thing."""
    arrays = {"matrix": np.eye(3), "value": np.zeros(3), "absolute": 1.0, "equality": [[1.0, -1.0, -1.0]]}
    return LikelihoodForm.of(**(arrays | sensitivities))


@pytest.mark.parametrize(
    "sensitivities",
    [
        {"linear": [0.0, 1e-300, 0.0]},
        {"matrix": [[1, 0, 0], [0, 1, -1], [0, 0, 1]]},  # A difference is measured.
        {"matrix": [[1, 0, 0], [0, 1, 2], [0, 0, 1]]},  # Weights within a sum.
        {"matrix": [[1, 1, 0], [0, 1, 0], [0, 0, 1]]},  # total + a.
        {"equality": [[1.0, -1.0, -1.0 - 1e-15]]},
        {"equality": [[1.0, -1.0, -2.0]]},
        {"equality_value": 1e-9},
        {"equality": [[1.0, -2.0, 0.0]]},
        {"equality": [[1.0, -1.0, 0.0]], "equality_value": 1.0},
        {"equality": [[1.0, -1.0, -1.0], [1.0, -1.0, -1.0]]},  # Two families of one parent.
        {"equality": [[1.0, -1.0, -1.0], [-1.0, 1.0, -1.0]]},  # A cycle.
        {"equality": [[1.0, -1.0, -1.0], [1.0, -1.0, 0.0]]},  # A parent equal to its child.
        {"inequality": [[1.0, -1.0, 0.0]]},
        {"inequality": [[1.0, 1.0, 0.0]]},
        {"equality": [[0.0, 0.0, 0.0]], "equality_value": 1.0},
        {"inequality": [[0.0, 0.0, 0.0]], "inequality_value": -1.0},
    ],
)
def test_near_misses_are_no_trees(sensitivities):
    assert tree_of(three()) is not None
    assert tree_of(three(**sensitivities)) is None


def test_a_child_of_two_parents_is_no_tree():
    E = [[1.0, 0, -1, -1, 0], [0, 1.0, 0, -1, -1]]
    assert tree_of(LikelihoodForm.of(np.eye(5), 0.0, square=1.0, equality=E)) is None


def test_two_way_margins_are_no_tree_but_one_way_margins_are():
    rows = sp.kron(sp.identity(3), np.ones((1, 4)))
    columns = sp.kron(np.ones((1, 3)), sp.identity(4))
    one = sp.vstack([rows, sp.identity(12), np.ones((1, 12))])
    found = tree_of(LikelihoodForm.of(one, 0.0, square=1.0))
    assert found is not None and found.tree.bounds == (0, 1, 4, 16)
    assert tree_of(LikelihoodForm.of(sp.vstack([rows, columns]), 0.0, square=1.0)) is None


def test_fixed_values_and_bounds_reach_their_nodes():
    form = LikelihoodForm.of(
        np.eye(4),
        0.0,
        square=1.0,
        lower=0.0,
        equality=[[2.0, 2.0, 2.0, 2.0]],
        equality_value=[20.0],
        inequality=[[-1.0, -1.0, 0.0, 0.0]],
        inequality_value=[-3.0],
    )
    found = tree_of(form)
    assert found is not None
    assert found.tree.bounds == (0, 1, 4, 6)
    assert (found.lower[0], found.upper[0]) == (10.0, 10.0)
    assert found.lower[found.tree.parent[found.select[0]]] == 3.0
    assert (found.lower[found.select] == 0).all()


def test_one_value_from_two_spellings_is_one_value():
    form = LikelihoodForm.of(
        [[1.0]], 0.0, square=1.0, equality=[[3.0], [1.0]], equality_value=[0.9, 0.9 / 3 * (1 + 2e-16)]
    )
    found = tree_of(form)
    assert 4.9 / 7 != 0.7
    assert found is not None and found.lower[0] == found.upper[0]


def test_contradicting_values_are_left_to_solvers():
    form = LikelihoodForm.of(np.eye(2), 0.0, square=1.0, equality=[[1.0, 1.0], [1.0, 1.0]], equality_value=[4.0, 5.0])
    problem = tree_of(form)
    assert problem is not None and (problem.lower > problem.upper).any()
    with pytest.raises(InfeasibleError, match="at least 5 and at most 4"):
        node_ranges(problem.tree, problem.lower, problem.upper)
