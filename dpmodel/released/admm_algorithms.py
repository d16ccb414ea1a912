"""Algorithms 1 to 4 of LWK15 over one engine: the x-update and last step that a form gets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.forecast import Forecast
from dpmodel.marks.layout import sum_by
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.privacy import NoiseSource
from dpmodel.released.admm import (
    DENSE,
    GRAM,
    STEPS,
    TOLERANCE,
    InconsistentEqualities,
    Polytope,
    Result,
    Splits,
    Status,
    XUpdate,
    diagonal_update,
    gram_is_dense,
    minimise,
    splits_of,
    x_update,
)
from dpmodel.released.general_solver import linear_program
from dpmodel.released.model import LikelihoodForm, Postprocessing, free_of_charge
from dpmodel.released.projection import MarginProjector
from dpmodel.released.structure import margins_of
from dpmodel.released.tree_of import form_of_nodes, tree_problem
from dpmodel.released.trees import TreeProblem, TreeProjector

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


# ------------------------------------------------------------------ eligible forms


# Seconds on one core of a 2020s server: of a step whatever its size, per split, per nonzero of a product with its
# transpose, per entry of a dense symmetric product; per nonzero of a sparse factor's solve.
STEP, SPLIT, NONZERO, ENTRY, FILL = 1.5e-4, 4e-8, 2e-9, 6e-10, 3e-8


def relaxed_linear(model: Postprocessing) -> Verdict:
    """Whether there is a form without whole variables."""
    if model.form is None:
        return Verdict(False, "the model has terms or constraints outside measurements and linear constraints")
    if model.form.integer.any():
        return Verdict(False, "variables must be whole: round a solution of the relaxed model, or use general-solver")
    return YES


def table_shape(model: Postprocessing) -> tuple[int, ...] | None:
    """Axes of x in C order: of the table, or of the only variable (flattened column by column, so axes reversed)."""
    if model.shape is not None:
        return model.shape
    if model.form is not None and len(model.columns) == 1:
        shape = tuple(int(d) for d in reversed(model.columns[0][0].shape))
        if len(shape) > 1 and int(np.prod(shape)) == model.form.size:
            return shape
    return None


def entrywise(form: LikelihoodForm) -> bool:
    """Whether every measurement is of one variable."""
    return bool((np.diff(form.matrix.indptr) <= 1).all())


def only_sums(form: LikelihoodForm) -> bool:
    """Whether every equality is a constant times a sum of variables, and there are no inequalities."""
    E = form.equality
    counts = np.diff(E.indptr)
    if not counts.size or (counts == 0).any() or form.inequality.shape[0]:
        return False
    return bool(np.array_equal(E.data, np.repeat(E.data[E.indptr[:-1]], counts)))


def seconds_of(form: LikelihoodForm) -> tuple[float, float]:
    """(a factorisation, a step) of the general recipe."""
    n, k, p, q = form.size, form.matrix.shape[0], form.equality.shape[0], form.inequality.shape[0]
    entries = form.matrix.nnz + form.equality.nnz + form.inequality.nnz
    step = STEP + SPLIT * (n + k + q) + NONZERO * (form.matrix.nnz + form.inequality.nnz)
    diagonal = entrywise(form) and not q
    if diagonal and gram_is_dense(form.equality):
        per_column = np.bincount(form.equality.indices, minlength=n).astype(np.float64)
        factor = 1.5e-9 * min(float(per_column @ per_column), 0.1 * p * p * n) + 8e-10 * p**3
        return 1e-3 + factor, step + NONZERO * form.equality.nnz + ENTRY * p * p
    if not diagonal and n <= DENSE and form.matrix.nnz > 20 * n:
        return 1e-3 + 4e-11 * (k + n) * n * n, step + ENTRY * n * n
    return 1e-3 + 1e-6 * (entries + n), step + FILL * (entries + n)


# ------------------------------------------------------------------ the mechanisms


@dataclass(frozen=True)
class Admm(Mechanism[Postprocessing]):
    """Maximum likelihood under any linear constraints by ADMM: Algorithm 1, the general recipe.

    ``tolerance`` : relative duality gap at which it stops; ``steps`` : their most.

    Source
        LWK15, Algorithm 1 and sections 4.1 to 4.6; Boyd et al., "Distributed optimization and statistical learning via
        ADMM", 2011, sections 3.3 and 3.4 (stopping, penalty, over-relaxation). Where this departs from the paper:
        equalities are kept exactly by the x-update, so (8d) and eta are not needed; a variable's measurement and bounds
        are one split (``Splits``); penalties are per entry, 1/scale^2, so that units do not matter; (25) is corrected;
        steps are ended by a duality gap, and finished by solving for the active set (``polish``) and moving to the
        nearest feasible point (``Polytope``).
    Privacy
        Reads published numbers only: post-processing, costs nothing.
    Utility
        "optimal": bounds hold exactly, equalities to 1e-8 of the largest entry, and the objective is within
        ``tolerance`` of the least, relative to the sum of its terms' sizes, by a dual bound that holds within 20 noise
        scales of the point and its data (``Splits.dual_bound``). "optimal_inaccurate": the steps ran out before.
        Infeasible and unbounded problems are recognised with HiGHS when the multipliers grow or the steps run out.
        Of several optima under absolute errors of sums (strategies) it takes one near the least-squares point, from
        which it starts (docs/measurements/post-processing.md, matrix mechanism).
    Cost
        One factorisation (and one per polish, a few in all), 20 to 1,000 steps of one solve with it each; poorly
        conditioned strategies take thousands.
    Errors
        SpecificationError for settings out of range.
    """

    serves: ClassVar[Serves] = Serves(Postprocessing)
    tolerance: float = TOLERANCE
    steps: int = STEPS
    name: str = "admm"
    source: str = "LWK15, Algorithm 1; Boyd et al. 2011"

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1 or self.steps < 1:
            raise SpecificationError(
                f"tolerance {self.tolerance!r}, steps {self.steps!r}", why="a relative error, and a positive number"
            )

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        return relaxed_linear(model)

    def forecast(self, model: Postprocessing, options: Options) -> Forecast:
        form = _form(model)
        seconds, steps, work = self._effort(model, form)
        return free_of_charge(
            f"the objective within {10 * self.tolerance:.0e} of the optimum, relatively; constraints to 1e-8",
            seconds=seconds,
            alpha=10 * self.tolerance,
            work=f"{work}, about {steps} steps",
            caveats=("the number of steps depends on the data",),
        )

    def run(
        self, model: Postprocessing, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        form = _form(model)
        began = time.perf_counter()

        def said(status: str, x: Floats | None = None, note: str = "") -> Outcome:
            value = None if x is None else form.objective(x)
            extra = 0.0 if x is None else form.violation(x)
            notes = (note,) if note else ()
            return Outcome(status, x, None, value, time.perf_counter() - began, extra_violation=extra, notes=notes)

        if (form.lower > form.upper).any():
            return said("infeasible", note="a lower bound is above its upper bound")
        try:
            ready = self.prepared(model)
        except NO_POINT:
            return said("infeasible", note="no point satisfies the equalities")
        try:
            found = ready.solve(
                tolerance=self.tolerance,
                steps=self.steps,
                start=self._least_squares(form),
                progress=lambda done: progress("ADMM", done),
            )
        except InconsistentEqualities:  # they were consistent before penalties changed
            raise SolverFailure(
                f"{self.name} lost the equalities to rounding",
                why="weights or coefficients differ by too many orders of magnitude",
                remedy="mechanism='general-solver', or units in which the numbers are of one size",
            ) from None
        if found.status in ("infeasible", "unbounded"):
            return said(found.status)
        x = np.clip(found.x, form.lower, form.upper)
        return said(found.status, x, f"{found.steps} steps, relative duality gap {found.gap:.1e}")

    def _least_squares(self, form: LikelihoodForm) -> Floats | None:
        """Where to begin under absolute errors of sums of variables: their optimum is seldom unique, and steps that
        begin at the least-squares point end at an optimum near it. None where each variable is measured by itself."""
        if entrywise(form) or form.square.any():
            return None
        squares = replace(form, absolute=np.zeros_like(form.absolute), square=np.square(form.absolute) / 4)
        found = prepare(squares).solve(tolerance=self.tolerance, steps=self.steps)
        return found.x if found.status.startswith("optimal") else None

    def prepared(self, model: Postprocessing) -> Prepared:
        """Factors and last step for this model.

        Errors: InconsistentEqualities and its kin (``NO_POINT``).
        """
        return prepare(_form(model))

    def _effort(self, model: Postprocessing, form: LikelihoodForm) -> tuple[float, int, str]:
        """(seconds, steps, factorisation in words)."""
        steps = 300 if entrywise(form) else 1300
        polishes = 0 if entrywise(form) else 6
        factor, step = seconds_of(form)
        return (1 + polishes) * factor + steps * step, steps, "one factorisation"


@dataclass(frozen=True)
class AdmmTables(Admm):
    """Algorithm 2: contingency tables under public margins.

    As ``Admm``, with the projection onto the margins as x-update: where they are complete margins of a table whose
    axes are known, an orthogonal transform (``MarginProjector``), O(cells) whatever their number; else the
    pseudo-inverse of their Gram matrix, which copes with redundant rows. Margins that contradict each other are
    "infeasible".

    Source
        LWK15, Algorithm 2 and section 5.1.
    Privacy
        Reads published numbers only: post-processing, costs nothing. The margins must be public or measured.
    Utility
        As ``Admm``.
    Cost
        20 to 100 projections where most cells are positive, up to 1,000 on small sparse tables. 2^16 cells, all two-way
        margins of 16 columns: tests/benchmarks/postprocessing/table_speed.py.
    """

    name: str = "admm-tables"
    source: str = "LWK15, Algorithm 2"

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        verdict = relaxed_linear(model)
        form = model.form
        if form is None or not verdict.eligible:
            return verdict
        if not entrywise(form):
            return Verdict(False, "measurements of sums of cells: not a table under exact margins")
        if not only_sums(form):
            return Verdict(False, "the constraints are not sums of cells")
        if form.equality.shape[0] > GRAM and table_shape(model) is None:
            return Verdict(False, f"more than {GRAM} margins of cells whose table's axes are not known")
        return YES

    def prepared(self, model: Postprocessing) -> Prepared:
        return prepare_tables(_form(model), table_shape(model))

    def _effort(self, model: Postprocessing, form: LikelihoodForm) -> tuple[float, int, str]:
        shape = table_shape(model)
        if shape is None:
            return super()._effort(model, form)
        steps = 60
        each = STEP + (SPLIT + 4e-9 * len(shape)) * form.size
        return 2e-3 + 3e-8 * form.equality.nnz + steps * each, steps, "one closed-form projection per step"


@dataclass(frozen=True)
class AdmmTree(Admm):
    """Algorithm 3: histograms with a tree of sums.

    As ``Admm`` over the nodes of the tree, with the two-pass projection onto consistent trees as x-update: any
    branching, incomplete trees, nodes measured once, several times or not at all, bounds and known values.

    Source
        LWK15, Algorithm 3 and section 5.2; the projection of Hay et al., PVLDB 2010, with weights (``TreeProjector``).
    Privacy
        Reads published numbers only: post-processing, costs nothing.
    Utility
        As ``Admm``; with lower bounds on leaves only, sums hold exactly.
    Cost
        100 to 400 passes over the levels, linear in the nodes.
    """

    name: str = "admm-tree"
    source: str = "LWK15, Algorithm 3"

    def _least_squares(self, form: LikelihoodForm) -> Floats | None:
        return None  # exact-tree has the better choice among optima

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        verdict = relaxed_linear(model)
        if not verdict.eligible:
            return verdict
        try:
            found = tree_problem(model)
        except InfeasibleError:
            return YES
        return YES if found is not None else Verdict(False, "the sums in the model do not form a tree")

    def prepared(self, model: Postprocessing) -> Prepared:
        problem = tree_problem(model)
        assert problem is not None
        return prepare_tree(problem)

    def _effort(self, model: Postprocessing, form: LikelihoodForm) -> tuple[float, int, str]:
        try:
            problem = tree_problem(model)
        except InfeasibleError:
            problem = None
        nodes = form.size if problem is None else problem.tree.size
        levels = 1 if problem is None else len(problem.tree.levels)
        steps = 150
        return 5e-3 + 1e-6 * nodes + steps * (STEP + 1e-5 * levels + SPLIT * nodes), steps, "two passes over the tree"


@dataclass(frozen=True)
class AdmmStrategy(Admm):
    """Algorithm 4: the matrix mechanism, x from noisy answers to a strategy A with y = A x - r~ as one split.

    As ``Admm``; ``A'PA`` and the penalty of the bounds are factorised once, densely up to 2,500 columns.

    Source
        LWK15, Algorithm 4 and section 5.3, problem (5).
    Privacy
        Reads published numbers only: post-processing, costs nothing.
    Utility
        As ``Admm``.
    Cost
        About 1,000 steps of O(k n); polishing takes a factorisation each time and usually ends the search.
    """

    name: str = "admm-strategy"
    source: str = "LWK15, Algorithm 4"

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        verdict = relaxed_linear(model)
        form = model.form
        if form is None or not verdict.eligible:
            return verdict
        if entrywise(form):
            return Verdict(False, "every measurement is of a single variable: there is no strategy matrix")
        if form.equality.shape[0] or form.inequality.shape[0]:
            return Verdict(False, "Algorithm 4 knows bounds only; admm takes other constraints too")
        return YES


def _form(model: Postprocessing) -> LikelihoodForm:
    assert model.form is not None
    return model.form


ADMM = Admm()
ADMM_TABLES = AdmmTables()
ADMM_TREE = AdmmTree()
ADMM_STRATEGY = AdmmStrategy()
