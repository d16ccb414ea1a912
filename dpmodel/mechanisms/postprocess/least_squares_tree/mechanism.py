"""Exact least squares on a tree: maximum likelihood under Gaussian noise, in two passes over the levels."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.compile.likelihood.postprocessing import Postprocessing
from dpmodel.compile.likelihood.tree_of import tree_problem
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.errors import InfeasibleError
from dpmodel.forecast import Forecast
from dpmodel.marks.layout import sum_by
from dpmodel.mechanisms.postprocess.free_of_charge import free_of_charge
from dpmodel.mechanisms.postprocess.least_squares_tree.bounds import bounded_fit
from dpmodel.mechanisms.postprocess.least_squares_tree.descent import descended
from dpmodel.numerics.trees.tree import TreeProblem
from dpmodel.privacy import NoiseSource

# Seconds, measured on one core of a 2020s server at 2^10 to 2^20 leaves: a start, and each node; bounds take 4 to 9
# (general ones 9 to 13) rounds there.
_START = 5e-4
_NODE = {"free": 8e-8, "leaves": 4e-7, "general": 8e-7}


@dataclass(frozen=True)
class LeastSquaresTree(Mechanism[Postprocessing]):
    """Weighted least squares over the nodes of a tree, exactly.

    Source
        Hay, Rastogi, Miklau and Suciu, "Boosting the accuracy of differentially private histograms through
        consistency", PVLDB 2010, Theorem 3, for any branching, weights, missing and repeated measurements and known
        totals (``TreeProjector``); bounds by active sets (``bounds.py``). LWK15, section 4.6.
    Privacy
        Reads published numbers only: post-processing, costs nothing.
    Utility
        The optimum, to rounding, without bounds and with bounds on one side of the leaves (x >= 0), beside known values
        of any nodes: proved. With bounds of both sides or of inner nodes that bind, the answer is certified by the
        conditions of Karush, Kuhn and Tucker to 1e-10 of the values, or called "optimal_inaccurate". Without bounds it
        is the best linear unbiased estimate, whatever the distribution of the noise, if the weights are one over the
        variances. Where measurements leave leaves undetermined, these have the least sum of squares.

        ``top_down`` : not the optimum where bounds bind, but level by level from the top: each level is the point
        nearest to the estimates without bounds that keeps its bounds and sums to the level above (``descended``). Under
        x >= 0 the optimum moves a total of many small cells up, the more the less is known of the total itself. Here
        bounds of cells do not reach upwards, so an upper level keeps the error of the best linear unbiased estimate,
        whose variance is never above that of the published number; levels below a bound that binds are simulated
        (``tests/queries/test_form_choice.py``), not proved.
    Cost
        Linear in the nodes: one projection without bounds, about ten with x >= 0.
    """

    serves: ClassVar[Serves] = Serves(Postprocessing)
    name: str = "least-squares-tree"
    source: str = "Hay et al., PVLDB 2010, Theorem 3, for any tree; active sets for bounds"
    top_down: bool = False

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        if model.form is None:
            return Verdict(False, "the model has terms or constraints outside measurements and linear constraints")
        if model.form.absolute.any():
            return Verdict(False, "absolute deviations (Laplace noise) are measured, not squares")
        if model.form.integer.any():
            return Verdict(False, "variables must be whole: round a solution of the relaxed model (round_tree)")
        if tree_problem(model) is None:
            return Verdict(False, "the sums in the model do not form a tree")
        return YES

    def forecast(self, model: Postprocessing, options: Options) -> Forecast:
        problem = tree_problem(model)
        if problem is None:
            return free_of_charge("not eligible: no tree", seconds=np.inf, alpha=np.inf, work="none")
        kind = _bounds(problem)
        if self.top_down:
            return free_of_charge(
                "each level the nearest to the unbiased estimates that sums to the level above, exactly (to rounding)",
                seconds=_START + _NODE["general"] * problem.tree.size,
                alpha=0.0,
                work=f"a pass up and down {problem.tree.size:,} nodes, and one down",
            )
        seconds = _START + _NODE[kind] * problem.tree.size
        passes = "one pass" if kind == "free" else "several passes"
        words = f"{passes} up and down {problem.tree.size:,} nodes"
        if kind == "general":
            return free_of_charge(
                "the optimum, certified to 1e-10 of the values when it is called optimal",
                seconds=seconds,
                alpha=1e-8,
                work=words,
                caveats=("bounds on two sides or inside the tree: the number of passes is not proved",),
            )
        return free_of_charge("the optimum, exactly (to rounding)", seconds=seconds, alpha=0.0, work=words)

    def run(
        self, model: Postprocessing, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        begin = time.perf_counter()
        problem, form = tree_problem(model), model.form
        assert problem is not None and form is not None
        progress("least squares on a tree", 0.0)
        value, weight = node_targets(problem)
        try:
            if self.top_down:
                x = descended(problem.tree, value, weight, problem.lower, problem.upper)[problem.select]
                return Outcome("optimal", x, None, form.objective(x), time.perf_counter() - begin)
            fit = bounded_fit(problem.tree, value, weight, problem.lower, problem.upper)
        except InfeasibleError as error:
            return Outcome("infeasible", None, None, None, time.perf_counter() - begin, notes=(str(error),))
        x = fit.x[problem.select]
        status = "optimal" if fit.optimal else "optimal_inaccurate"
        return Outcome(status, x, None, form.objective(x), time.perf_counter() - begin)


def node_targets(problem: TreeProblem) -> tuple[Floats, Floats]:
    """``value, weight`` (N,): the squares of all measurements of a node are, up to a constant, one square with the
    summed weight about their weighted mean. Value 0 where the weight is 0."""
    size = problem.tree.size
    weight = sum_by(problem.node, problem.square, size)
    pull = sum_by(problem.node, problem.square * problem.value, size)
    value = np.divide(pull, weight, out=np.zeros(size), where=weight > 0)
    return value, weight


def _bounds(problem: TreeProblem) -> str:
    """Which bounds, beside known values, there are: none, of one side of leaves, or others."""
    loose = problem.lower < problem.upper
    low, high = loose & np.isfinite(problem.lower), loose & np.isfinite(problem.upper)
    if not low.any() and not high.any():
        return "free"
    inner = ~problem.tree.is_leaf
    # Bounds of inner nodes at zero follow from those of the leaves under x >= 0; others count.
    implied = (problem.lower[problem.tree.is_leaf] >= 0).all()
    low_inside = (low & inner & (problem.lower > 0 if implied else inner)).any()
    if high.any():
        return "general" if low.any() or (high & inner).any() else "leaves"
    return "general" if low_inside else "leaves"


LEAST_SQUARES_TREE = LeastSquaresTree()
