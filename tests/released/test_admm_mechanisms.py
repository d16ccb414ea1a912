"""The ADMM mechanisms: who applies to what, agreement with the general recipe, forecasts, as printed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from released.admm_cases import margins, reference, table

from dpmodel.as_printed.algorithm_1 import ADMM_AS_PRINTED, AdmmAsPrinted
from dpmodel.contract import Mechanism, Options
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.privacy import noise_source
from dpmodel.released.admm import ADMM, Admm, prepare_tables, prepare_tree
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.model import Postprocessing
from dpmodel.released.tree_of import form_of_nodes
from dpmodel.released.trees import Tree, TreeProblem

OPTIONS = Options(0.0, 0.0)


def model_of(form: LikelihoodForm, shape: tuple[int, ...] | None = None) -> Postprocessing:
    return Postprocessing(form, (), shape=shape)


def tree_case(leaves: int, seed: int, *, branching: int = 2, noise: float = 10.0) -> TreeProblem:
    g = np.random.default_rng(seed)
    tree = Tree.complete(leaves, branching)
    truth = tree.sums(np.where(g.random(tree.is_leaf.sum()) < 0.6, 0, g.geometric(0.05, tree.is_leaf.sum())) * 1.0)
    n = tree.size
    return TreeProblem(
        tree,
        np.arange(n),
        truth + g.laplace(0, noise, n),
        np.full(n, 1 / noise),
        np.zeros(n),
        np.zeros(n),
        np.full(n, np.inf),
        np.arange(n),
    )


def strategy(n: int, k: int, seed: int) -> LikelihoodForm:
    g = np.random.default_rng(seed)
    ends = np.sort(g.integers(0, n, (k, 2)), axis=1)
    A = ((np.arange(n) >= ends[:, :1]) & (np.arange(n) <= ends[:, 1:])) * 1.0
    truth = np.where(g.random(n) < 0.6, 0, g.geometric(0.05, n))
    return LikelihoodForm.of(A, A @ truth + g.laplace(0, 10, k), absolute=0.1, lower=0.0)


def run(mechanism: Mechanism, model: Postprocessing):
    return mechanism.run(model, OPTIONS, noise_source(0))


@pytest.mark.parametrize(
    ("shape", "order", "alpha"),
    [
        *(((2,) * 6, 2, alpha) for alpha in (1.0, 0.9, 0.0)),
        ((2,) * 6, 1, 0.9), ((4, 3, 5), 1, 0.9), ((4, 3, 5), 2, 1.0), ((3, 1, 4), 1, 0.0), ((5, 3), 0, 0.9),
    ],
)  # fmt: skip
def test_tables(shape: tuple[int, ...], order: int, alpha: float) -> None:
    form = table(shape, order, 3, alpha=alpha)
    best = reference(form)
    for axes in (shape, None):
        outcome = run(ADMM, model_of(form, axes))
        assert outcome.status == "optimal"
        assert outcome.value == pytest.approx(best, rel=2e-5)
        assert form.violation(outcome.x) <= 1e-6
    assert prepare_tables(form, shape).refactor is None  # a closed-form projection, no factors


def test_margins_that_cannot_be_met() -> None:
    form = table((3, 2, 2), 1, 0)
    clash = form.equality_value.copy()
    clash[0] += 1
    negative = form.equality_value.copy()
    negative[0], negative[1] = -5.0, negative[1] + negative[0] + 5.0
    for value in (clash, negative):
        wrong = dataclasses.replace(form, equality_value=value)
        for axes in ((3, 2, 2), None):
            assert run(ADMM, model_of(wrong, axes)).status == "infeasible"


def test_margins_that_no_table_without_negative_cells_has() -> None:
    """Three bits that are pairwise always different: each margin is possible, all three are not."""
    E = margins((2, 2, 2), 2)
    form = LikelihoodForm.of(
        np.eye(8), np.full(8, 2.0), absolute=1.0, equality=E, equality_value=np.tile([0.0, 5, 5, 0], 3), lower=0.0
    )
    assert run(ADMM, model_of(form, (2, 2, 2))).status == "infeasible"
    free = dataclasses.replace(form, lower=np.full(8, -np.inf))
    assert run(ADMM, model_of(free, (2, 2, 2))).status == "optimal"


def test_structural_zeros_and_unequal_scales() -> None:
    form = table((4, 3, 3), 1, 5)
    g = np.random.default_rng(0)
    upper = np.where((g.random(36) < 0.2) & (form.value < 5), 0.0, np.inf)
    form = dataclasses.replace(form, upper=upper, absolute=np.exp(g.normal(0, 1, 36)) / 5)
    best = reference(form)
    for axes in ((4, 3, 3), None):
        outcome = run(ADMM, model_of(form, axes))
        assert outcome.value == pytest.approx(best, rel=2e-5)
        assert (outcome.x[upper == 0] == 0).all()


@pytest.mark.parametrize(("leaves", "branching"), [(1, 2), (2, 2), (16, 2), (27, 3), (21, 4)])
def test_trees(leaves: int, branching: int) -> None:
    problem = tree_case(leaves, leaves, branching=branching)
    form = form_of_nodes(problem)
    best = reference(form)
    found = prepare_tree(problem).solve()
    assert found.status == "optimal"
    assert problem.objective(found.x) == pytest.approx(best, rel=2e-5, abs=1e-6)
    assert form.violation(found.x) <= 1e-9
    if leaves > 1:
        outcome = run(ADMM, model_of(form))
        assert outcome.value == pytest.approx(best, rel=2e-5, abs=1e-6)


def test_trees_with_gaps_repeats_bounds_and_other_weights() -> None:
    g = np.random.default_rng(4)
    base = tree_case(20, 9, branching=3)
    n = base.tree.size
    node = g.integers(0, n, 2 * n)
    truth = base.tree.sums(g.geometric(0.1, base.tree.is_leaf.sum()) * 1.0)
    scales = np.exp(g.normal(1, 0.7, node.size))
    value = truth[node] + g.laplace(0, scales)
    upper = np.where(base.tree.is_leaf, truth + 2, np.inf)
    upper[0] = truth[0]
    lower = np.zeros(n)
    lower[0] = truth[0]
    for square in (0.0, 0.1):
        problem = TreeProblem(base.tree, node, value, 1 / scales, square / scales**2, lower, upper, np.arange(n))
        form = form_of_nodes(problem)
        found = prepare_tree(problem).solve()
        assert found.status == "optimal"
        assert problem.objective(found.x) == pytest.approx(reference(form), rel=2e-5)
        assert form.violation(found.x) <= 1e-6
    impossible = dataclasses.replace(problem, upper=np.where(base.tree.is_leaf, 0.5, upper))
    with pytest.raises(InfeasibleError):
        prepare_tree(impossible)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "k"), [(20, 12), (30, 50)])
def test_strategies(n: int, k: int, seed: int) -> None:
    form = strategy(n, k, seed)
    outcome = run(ADMM, model_of(form))
    assert outcome.status == "optimal"
    assert outcome.value == pytest.approx(reference(form), rel=2e-5, abs=1e-6 * k)
    assert (outcome.x >= 0).all()


def test_as_printed_on_tables_of_the_papers_size() -> None:
    """Six and eight binary columns, alpha .9, all margins of order 1 and 2."""
    for columns, order in ((6, 0), (6, 1), (6, 2), (8, 2)):
        form = table((2,) * columns, order, columns, noise=1.0, alpha=0.9)
        outcome = run(ADMM_AS_PRINTED, model_of(form))
        assert outcome.status == "optimal"
        assert outcome.value == pytest.approx(reference(form), rel=2e-3)
        assert form.violation(outcome.x) <= 1e-3
    for form in (form_of_nodes(tree_case(8, 1, noise=1.0)), strategy(8, 12, 1)):
        assert run(ADMM_AS_PRINTED, model_of(form)).value == pytest.approx(reference(form), rel=1e-2)
    assert run(AdmmAsPrinted(steps=3), model_of(form)).status == "optimal_inaccurate"


def test_settings_are_checked() -> None:
    for wrong in ({"tolerance": 0.0}, {"steps": 0}):
        with pytest.raises(SpecificationError):
            Admm(**wrong)
    loose = run(Admm(tolerance=1e-2), model_of(form_of_nodes(tree_case(32, 1))))
    assert loose.status == "optimal"
