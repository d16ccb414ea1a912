"""The ADMM mechanisms: Algorithms 1 to 4 of LWK15 over one engine."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.compile.likelihood.postprocessing import LikelihoodForm, Postprocessing
from dpmodel.compile.likelihood.tree_of import tree_problem
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.forecast import Forecast
from dpmodel.mechanisms.postprocess.admm.eligible import (
    SPLIT,
    STEP,
    entrywise,
    only_sums,
    relaxed_linear,
    seconds_of,
    table_shape,
)
from dpmodel.mechanisms.postprocess.admm.engine import STEPS, TOLERANCE
from dpmodel.mechanisms.postprocess.admm.linear import GRAM, InconsistentEqualities
from dpmodel.mechanisms.postprocess.admm.setup import NO_POINT, Prepared, prepare, prepare_tables, prepare_tree
from dpmodel.mechanisms.postprocess.free_of_charge import free_of_charge
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.privacy import NoiseSource


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
