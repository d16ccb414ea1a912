"""ADMM for likelihood forms: the splits, x-update and last step that a form gets, set up once and used again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.likelihood.postprocessing import LikelihoodForm
from dpmodel.compile.likelihood.tree_of import tree_of
from dpmodel.errors import InfeasibleError
from dpmodel.mechanisms.postprocess.admm.diagnosis import diagnose
from dpmodel.mechanisms.postprocess.admm.engine import Result, Settings, Start, Status, minimise
from dpmodel.mechanisms.postprocess.admm.linear import (
    InconsistentEqualities,
    XUpdate,
    diagonal_update,
    x_update,
)
from dpmodel.mechanisms.postprocess.admm.margins import Contradiction, margins_of
from dpmodel.mechanisms.postprocess.admm.repair import Polytope
from dpmodel.mechanisms.postprocess.admm.splits import Splits, splits_of, splits_of_tree
from dpmodel.numerics.projections.margins import MarginProjector
from dpmodel.numerics.trees.projector import TreeProjector
from dpmodel.numerics.trees.tree import TreeProblem

__all__ = [
    "Prepared",
    "Settings",
    "Start",
    "prepare",
    "prepare_tables",
    "prepare_tree",
    "solve_admm",
    "solve_admm_tree",
]

NO_POINT = (InconsistentEqualities, Contradiction, InfeasibleError)  # what ``prepare`` and its kin raise
CHEAP_GRAM, SMALL_GRAM = 2e7, 400  # operations and rows up to which tables of margins are polished
KEPT = 1e-8  # how far a repaired point may be from the equalities, relative to its largest entry


@dataclass(frozen=True, eq=False)
class Prepared:
    """What does not depend on the measured values: the x-update's factors and the last step. ``again`` makes the splits
    of another form with the same matrices, weights and constraints, and other values. ``doubt`` : ``diagnose``.
    ``select`` : the place of each variable of the form among those solved for (nodes of a tree), None where the
    same."""

    splits: Splits
    update: XUpdate
    repair: Callable[[Floats], Floats | None]
    refactor: Callable[[Floats], XUpdate] | None
    doubt: Callable[[], Status | None]
    again: Callable[[LikelihoodForm], Splits]
    select: Integers | None = None

    def at(self, form: LikelihoodForm) -> Prepared:
        """The same for other measured values."""
        return replace(self, splits=self.again(form))

    def solve(
        self,
        settings: Settings | None = None,
        *,
        start: Start | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Result:
        """``minimise`` with these parts; ``Result.x`` as in ``splits`` (the nodes of a tree)."""
        return minimise(
            self.splits,
            self.update,
            self.repair,
            settings or Settings(),
            start=start,
            refactor=self.refactor,
            doubt=self.doubt,
            progress=progress,
        )


@dataclass(frozen=True, eq=False)
class Info:
    """How a solve went: ``gap`` : relative duality gap; ``residuals`` : primal and dual, in noise scales; ``start`` :
    for the next solve; ``prepared`` : for the next solve with the same matrices."""

    steps: int
    gap: float
    bound: float
    residuals: tuple[float, float]
    violation: float
    start: Start | None
    prepared: Prepared | None


@dataclass(frozen=True, eq=False)
class Projection:
    """x-update with a diagonal K by a projector onto the equalities in the norm of K (up to a factor)."""

    onto: Callable[[Floats], Floats]
    diagonal: Floats

    def solve(self, q: Floats) -> Floats:
        return self.onto(q / self.diagonal)


def solve_admm(
    form: LikelihoodForm,
    *,
    start: Start | None = None,
    settings: Settings | None = None,
    prepared: Prepared | None = None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Floats, Status, Info]:
    """(x, status, info) for ``form``, integrality aside.

    ``start`` : an earlier ``info.start`` (a bootstrap's next sample needs a fraction of the steps). ``prepared`` : of
    ``prepare``, ``prepare_tree`` or ``prepare_tables``, or an earlier ``info.prepared``; other values of the form are
    taken into account, other matrices, weights or constraints are not. x satisfies bounds exactly and the equalities to
    1e-8 of its largest entry when the status is "optimal"; then its objective is within ``settings.tolerance`` of
    the least, relative to the sum of the sizes of the objective's terms (``Splits.dual_bound`` says in which sense).
    """
    lost = Info(0, np.inf, -np.inf, (np.inf, np.inf), np.inf, None, None)
    if (form.lower > form.upper).any():
        return np.zeros(form.size), "infeasible", lost
    try:
        ready = prepare(form) if prepared is None else prepared.at(form)
    except NO_POINT:
        return np.clip(0.0, form.lower, form.upper), "infeasible", lost
    found = ready.solve(settings, start=start, progress=progress)
    x = np.clip(found.x if ready.select is None else found.x[ready.select], form.lower, form.upper)
    info = Info(found.steps, found.gap, found.bound, found.residuals, form.violation(x), found.start, ready)
    return x, found.status, info


def solve_admm_tree(
    problem: TreeProblem, *, start: Start | None = None, settings: Settings | None = None
) -> tuple[Floats, Status, Result]:
    """``solve_admm`` over the N nodes of a tree, by ``prepare_tree``.

    Errors: InfeasibleError, where fixed nodes contradict each other.
    """
    found = prepare_tree(problem).solve(settings, start=start)
    return found.x, found.status, found


def prepare(form: LikelihoodForm) -> Prepared:
    """Algorithms 1 and 4: one factorisation of A'PA and the equalities.

    Errors: InconsistentEqualities.
    """
    splits = splits_of(form)
    update = x_update(splits, form.equality, form.equality_value)

    def refactor(weight: Floats) -> XUpdate:
        return x_update(splits, form.equality, form.equality_value, weight)

    return Prepared(splits, update, repairer(form), refactor, lambda: diagnose(form), splits_of)


def prepare_tables(form: LikelihoodForm, shape: tuple[int, ...] | None) -> Prepared:
    """Algorithm 2: the x-update projects onto the margins. Where E is made of complete margins of a table of ``shape``,
    by an orthogonal transform in O(n log n) whatever their number; else by the pseudo-inverse of the Gram matrix of E.

    The transform needs the same penalty everywhere, so where weights differ their geometric mean is taken.
    Errors: InconsistentEqualities, Contradiction, InfeasibleError.
    """
    known = margins_of(form.equality, form.equality_value, shape) if shape else None
    if known is None:
        return prepare(form)

    def again(other: LikelihoodForm) -> Splits:
        found = splits_of(other)
        if not (found.weight == found.weight[0]).all():
            found = replace(found, weight=np.full(found.weight.size, np.exp(np.mean(np.log(found.weight)))))
        return found

    splits = again(form)
    projector = MarginProjector(shape or (), known[0], known[1])
    n = form.size
    counts = 1.0 + np.bincount(splits.rows.indices, weights=splits.rows.data**2, minlength=n)
    if splits.rows.shape[0] and not (counts == counts[0]).all():
        return prepare(form)
    update = Projection(projector.project, splits.weight[:n] * counts)
    box = Polytope(projector.project, np.ones(n), form.lower, form.upper)
    refactor = None
    per_column = np.bincount(form.equality.indices, minlength=n).astype(np.float64)
    if per_column @ per_column <= CHEAP_GRAM and form.equality.shape[0] <= SMALL_GRAM:

        def refactor(weight: Floats) -> XUpdate:
            return x_update(splits, form.equality, form.equality_value, weight)

    return Prepared(splits, update, box.repaired(KEPT), refactor, lambda: diagnose(form), again)


def prepare_tree(problem: TreeProblem) -> Prepared:
    """Algorithm 3, over the nodes of the tree: the projection onto consistent trees is two passes over its levels.

    Errors: InfeasibleError, where fixed nodes contradict each other.
    """
    splits = splits_of_tree(problem)
    tree, n = problem.tree, problem.tree.size
    fixed = np.where(problem.lower == problem.upper, problem.lower, np.nan)

    def refactor(weight: Floats) -> XUpdate:
        diagonal = weight[:n] + np.bincount(splits.rows.indices, weights=weight[n:], minlength=n)
        return Projection(TreeProjector(tree, diagonal, fixed).project, diagonal)

    update = refactor(splits.weight)
    leaves = tree.is_leaf
    inner = ~leaves
    low = np.where(leaves, problem.lower, 0.0)
    simple = (
        np.isfinite(low).all()
        and bool((problem.upper[leaves] == np.inf).all() and (problem.upper[inner] == np.inf).all())
        and bool((problem.lower[inner] <= tree.sums(problem.lower[leaves])[inner]).all())
    )
    repair: Callable[[Floats], Floats | None]
    if simple or not (np.isfinite(problem.lower).any() or np.isfinite(problem.upper).any()):

        def repair(x: Floats) -> Floats | None:
            return tree.sums(np.maximum(x[leaves], problem.lower[leaves]))
    else:
        box = Polytope(TreeProjector(tree, None, fixed).project, np.ones(n), problem.lower, problem.upper)
        repair = box.repaired(KEPT)

    def again(form: LikelihoodForm) -> Splits:
        other = tree_of(form)
        assert other is not None
        return splits_of_tree(other)

    def doubt() -> Status | None:
        nodes = sp.eye_array(n, format="csr")[:0]
        return diagnose(
            LikelihoodForm.of(nodes, np.zeros(0), equality=tree.consistency, lower=problem.lower, upper=problem.upper)
        )

    return Prepared(splits, update, repair, refactor, doubt, again, problem.select)


def repairer(form: LikelihoodForm) -> Callable[[Floats], Floats | None]:
    """The last step: to the nearest feasible point. Inequalities get slack variables."""
    E, G, n, q = form.equality, form.inequality, form.size, form.inequality.shape[0]
    if not E.shape[0] and not q:
        return lambda x: np.clip(x, form.lower, form.upper)
    if not np.isfinite(form.lower).any() and not np.isfinite(form.upper).any() and not q:
        return lambda x: x
    norms = np.sqrt(np.asarray(G.power(2).sum(axis=1)).ravel()) if q else np.zeros(0)
    norms[norms == 0] = 1.0
    scaled = sp.diags_array(1 / norms) @ G if q else G
    rows = sp.csr_array(sp.block_array([[E, None], [scaled, sp.eye_array(q)]])) if q else E
    value = np.concatenate([form.equality_value, form.inequality_value / norms])
    onto: list[XUpdate] = []

    def project(z: Floats) -> Floats:
        if not onto:
            onto.append(diagonal_update(np.ones(n + q), rows, value))
        return onto[0].solve(z)

    lower = np.concatenate([form.lower, np.zeros(q)])
    box = Polytope(project, np.ones(n + q), lower, np.concatenate([form.upper, np.full(q, np.inf)]))
    nearest = box.repaired(KEPT)

    def repair(x: Floats) -> Floats | None:
        found = nearest(np.concatenate([x, value[E.shape[0] :] - scaled @ x]) if q else x)
        return None if found is None else found[:n]

    return repair
