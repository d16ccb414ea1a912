"""ADMM for likelihood forms: the splits, x-update and last step that a form gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.likelihood.postprocessing import LikelihoodForm
from dpmodel.compile.likelihood.structure import margins_of
from dpmodel.compile.likelihood.tree_of import form_of_nodes
from dpmodel.errors import InfeasibleError
from dpmodel.marks.layout import sum_by
from dpmodel.mechanisms.postprocess.admm.engine import Result, Status, minimise
from dpmodel.mechanisms.postprocess.admm.linear import InconsistentEqualities, XUpdate, diagonal_update, x_update
from dpmodel.mechanisms.postprocess.admm.repair import Polytope
from dpmodel.mechanisms.postprocess.admm.splits import Splits, splits_of
from dpmodel.mechanisms.postprocess.general_solver import linear_program
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.numerics.projections.margins import MarginProjector
from dpmodel.numerics.trees.projector import TreeProjector
from dpmodel.numerics.trees.tree import TreeProblem

NO_POINT = (InconsistentEqualities, InfeasibleError)  # what ``prepare`` and its kin raise
SECONDS = 60.0  # for each linear program of ``diagnose``; after that nothing is said


@dataclass(frozen=True, eq=False)
class Prepared:
    """What ``minimise`` needs of a form. ``select`` : the place of each variable of the form among those solved for
    (nodes of a tree), None where the same."""

    splits: Splits
    update: XUpdate
    repair: Callable[[Floats], Floats | None]
    doubt: Callable[[], Status | None]
    refactor: Callable[[Floats], XUpdate] | None = None
    select: Integers | None = None

    def solve(self, **options: Any) -> Result:
        """``minimise`` with these parts; ``Result.x`` in the order of the form."""
        found = minimise(self.splits, self.update, self.repair, self.doubt, self.refactor, **options)
        return found if self.select is None else replace(found, x=found.x[self.select])


@dataclass(frozen=True, eq=False)
class Projection:
    """x-update with a diagonal K by a projector onto the equalities in the norm of K (up to a factor)."""

    onto: Callable[[Floats], Floats]
    diagonal: Floats

    def solve(self, q: Floats) -> Floats:
        return self.onto(q / self.diagonal)


def prepare(form: LikelihoodForm) -> Prepared:
    """Algorithms 1 and 4: one factorisation of A'PA and the equalities.

    Errors: InconsistentEqualities.
    """
    splits = splits_of(form)
    refactor = partial(x_update, splits, form.equality, form.equality_value)
    return Prepared(splits, refactor(splits.weight), repairer(form), partial(diagnose, form), refactor)


def prepare_tables(form: LikelihoodForm, shape: tuple[int, ...] | None) -> Prepared:
    """Algorithm 2: the x-update projects onto the margins. Where E is made of complete margins of a table of ``shape``,
    by an orthogonal transform in O(n log n) whatever their number; else as in ``prepare``.

    The transform needs the same penalty everywhere, so where weights differ their geometric mean is taken.
    Errors: InconsistentEqualities, InfeasibleError.
    """
    known = margins_of(form.equality, form.equality_value, shape) if shape else None
    splits, n = splits_of(form), form.size
    counts = np.ones(n) + sum_by(splits.rows.indices, splits.rows.data**2, n)
    if known is None or not (counts == counts[0]).all():
        return prepare(form)
    penalty = float(np.exp(np.mean(np.log(splits.weight))))
    splits = replace(splits, weight=np.full(splits.weight.size, penalty))
    projector = MarginProjector(known.shape, known.axes, known.targets)
    box = Polytope(projector.project, np.ones(n), form.lower, form.upper)
    diagonal: Floats = penalty * counts
    update = Projection(projector.project, diagonal)
    return Prepared(splits, update, box.nearest, partial(diagnose, form))


def prepare_tree(problem: TreeProblem) -> Prepared:
    """Algorithm 3, over the nodes of the tree: the projection onto consistent trees is two passes over its levels.

    Errors: InfeasibleError, where fixed nodes contradict each other.
    """
    tree, n = problem.tree, problem.tree.size
    form = form_of_nodes(problem)
    splits = splits_of(form)
    fixed = np.where(problem.lower == problem.upper, problem.lower, np.nan)
    diagonal: Floats = splits.weight[:n] + sum_by(splits.rows.indices, splits.weight[n:], n)
    update = Projection(TreeProjector(tree, diagonal, fixed).project, diagonal)
    leaves = tree.is_leaf
    low = np.where(leaves, problem.lower, 0.0)
    simple = (
        np.isfinite(low).all()
        and bool((problem.upper == np.inf).all())
        and bool((problem.lower[~leaves] <= tree.sums(problem.lower[leaves])[~leaves]).all())
    )
    repair: Callable[[Floats], Floats | None]
    if simple or not (np.isfinite(problem.lower).any() or np.isfinite(problem.upper).any()):

        def repair(x: Floats) -> Floats | None:
            return tree.sums(np.maximum(x[leaves], problem.lower[leaves]))
    else:
        box = Polytope(TreeProjector(tree, None, fixed).project, np.ones(n), problem.lower, problem.upper)
        repair = box.nearest
    return Prepared(splits, update, repair, partial(diagnose, form), select=problem.select)


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

    def repair(x: Floats) -> Floats | None:
        found = box.nearest(np.concatenate([x, value[E.shape[0] :] - scaled @ x]) if q else x)
        return None if found is None else found[:n]

    return repair


def diagnose(form: LikelihoodForm) -> Status | None:
    """By HiGHS: "infeasible" where the constraints contradict each other, "unbounded" where some direction that keeps
    them lowers the objective for ever; None for neither."""
    n, k = form.size, form.value.size
    nothing = {"matrix": sp.csr_array((0, n)), "value": np.zeros(0), "absolute": np.zeros(0), "square": np.zeros(0)}
    # Along d the loss grows by absolute |M d| per unit, without end where square is positive and M d is not zero.
    rigid = form.matrix[np.flatnonzero(form.square)]
    directions = replace(
        form,
        value=np.zeros(k),
        square=np.zeros(k),
        equality=sp.csr_array(sp.vstack([form.equality, rigid])),
        equality_value=np.zeros(form.equality_value.size + rigid.shape[0]),
        inequality_value=np.zeros(form.inequality_value.size),
        lower=np.where(np.isfinite(form.lower), 0.0, -np.inf),
        upper=np.where(np.isfinite(form.upper), 0.0, np.inf),
    )
    try:
        if linear_program(replace(form, linear=np.zeros(n), **nothing), time_limit=SECONDS)[0] == "infeasible":
            return "infeasible"
        if form.linear.any() and linear_program(directions, time_limit=SECONDS)[0] == "unbounded":
            return "unbounded"
    except SolverFailure:
        pass
    return None
