"""Exact least squares on a tree, under bounds too: maximum likelihood under Gaussian noise."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import YES, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.errors import InfeasibleError
from dpmodel.forecast import Forecast
from dpmodel.marks.layout import sum_by
from dpmodel.privacy import NoiseSource
from dpmodel.released.model import Postprocessing, Solver
from dpmodel.released.trees import Tree, TreeProblem, TreeProjector, divided, node_ranges


@dataclass(frozen=True)
class LeastSquaresTree(Solver):
    """Weighted least squares over the nodes of a tree, exactly.

    Source
        Hay, Rastogi, Miklau and Suciu, "Boosting the accuracy of differentially private histograms through
        consistency", PVLDB 2010, Theorem 3, for any branching, weights, missing and repeated measurements and known
        totals (``TreeProjector``); bounds by active sets (``bounded_fit``). LWK15, section 4.6.
    Privacy
        Reads published numbers only: post-processing, costs nothing.
    Utility
        The optimum, to rounding, without bounds and with bounds on one side of the leaves (x >= 0), beside known values
        of any nodes: proved. Optima under bounds of both sides or of inner nodes are left to other solvers. Without
        bounds it is the best linear unbiased estimate, whatever the distribution of the noise, if the weights are one
        over the variances. Where measurements leave leaves undetermined, these have the least sum of squares.

        ``top_down`` : under any bounds. Not the optimum where they bind, but level by level from the top: each level is
        the point nearest to the estimates without bounds that keeps its bounds and sums to the level above
        (``descended``). Under
        x >= 0 the optimum moves a total of many small cells up, the more the less is known of the total itself. Here
        bounds of cells do not move the levels above, so these keep the error of the best linear unbiased estimate,
        whose variance is never above that of the published number; levels below a bound that binds are simulated
        (``tests/released/test_form_choice.py``), not proved.
    Cost
        Linear in the nodes: one projection without bounds, about ten with x >= 0.
    """

    serves: ClassVar[Serves] = Serves(Postprocessing)
    name: str = "least-squares-tree"
    source: str = "Hay et al., PVLDB 2010, Theorem 3, for any tree; active sets for bounds"
    top_down: bool = False

    def place(self, model: Postprocessing) -> int:
        return 2

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        if model.form is None:
            return Verdict(False, "the model has terms or constraints outside measurements and linear constraints")
        if model.form.absolute.any():
            return Verdict(False, "absolute deviations (Laplace noise) are measured, not squares")
        if model.form.integer.any():
            return Verdict(False, "variables must be whole: round a solution of the relaxed model (round_tree)")
        problem = model.tree_problem()
        if problem is None:
            return Verdict(False, "the sums in the model do not form a tree")
        if not self.top_down and not one_sided(problem):
            return Verdict(False, "bounds of both sides, or of sums: active sets are proved for one side of the leaves")
        return YES

    def forecast(self, model: Postprocessing, options: Options) -> Forecast:
        problem = model.tree_problem()
        assert problem is not None
        words, work = "the optimum, exactly (to rounding)", "passes"
        if self.top_down:
            words = (
                "each level the nearest to the unbiased estimates that sums to the level above, exactly (to rounding)"
            )
            work = "a pass and one from the top"
        work = f"{work} up and down {problem.tree.size:,} nodes"
        return self.free_of_charge(model, words, alpha=0.0, work=work)

    def run(
        self, model: Postprocessing, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        begin = time.perf_counter()
        problem, form = model.tree_problem(), model.form
        assert problem is not None and form is not None
        progress("least squares on a tree", 0.0)
        value, weight = node_targets(problem)
        try:
            if self.top_down:
                nodes, optimal = descended(problem.tree, value, weight, problem.lower, problem.upper), True
            else:
                nodes, optimal = bounded_fit(problem.tree, value, weight, problem.lower, problem.upper)
        except InfeasibleError as error:
            return Outcome("infeasible", None, None, None, time.perf_counter() - begin, notes=(str(error),))
        x = nodes[problem.select]
        status = "optimal" if optimal else "optimal_inaccurate"
        return Outcome(status, x, None, form.objective(x), time.perf_counter() - begin)


LEAST_SQUARES_TREE = LeastSquaresTree()


def node_targets(problem: TreeProblem) -> tuple[Floats, Floats]:
    """``value, weight`` (N,): the squares of all measurements of a node are, up to a constant, one square with the
    summed weight about their weighted mean. Value 0 where the weight is 0."""
    size = problem.tree.size
    weight = sum_by(problem.node, problem.square, size)
    pull = sum_by(problem.node, problem.square * problem.value, size)
    value = np.divide(pull, weight, out=np.zeros(size), where=weight > 0)
    return value, weight


def one_sided(problem: TreeProblem) -> bool:
    """Whether the bounds, beside known values, are of one side of leaves, or follow from these."""
    leaf, lower, upper = problem.tree.is_leaf, problem.lower, problem.upper
    loose = lower < upper
    of_sums = (lower > problem.tree.sums(lower[leaf])) | (upper < problem.tree.sums(upper[leaf]))
    low, high = np.isfinite(lower[leaf & loose]).any(), np.isfinite(upper[leaf & loose]).any()
    return not (loose & of_sums).any() and not (low and high)


def bounded_fit(tree: Tree, v: Floats, weight: Floats, lower: Floats, upper: Floats) -> tuple[Floats, bool]:
    """(N,) consistent x with ``lower <= x <= upper`` (equal: fixed) that minimises ``sum_i weight_i (x_i - v_i)^2``,
    for ``one_sided`` bounds; and whether it keeps them, which rounding alone can prevent.

    First the minimiser with the fixed values alone; if it keeps the bounds, it is optimal. Else growing active sets:

    Theorem. Let only leaves have lower bounds (or only upper ones), beside fixed nodes. Start with no bound active,
    and while the minimiser with the active leaves held at their bounds violates other bounds, hold those leaves
    too. This ends at the optimum after at most as many rounds as there are leaves.

    Proof. Let all weights be positive, fixed nodes having large ones. In terms of the leaves y the Hessian H has
    entries ``H_jk`` = twice the weight on the path from the root to the lowest common ancestor of j and k: it is
    strictly ultrametric, so its inverse K has no positive entry off the diagonal (Martinez, Michon and San Martin,
    SIAM J. Matrix Anal. 15, 1994), and the principal submatrices ``K_BB`` have entrywise non-negative inverses. The
    minimiser with multipliers nu on the bounds is ``y = q + K nu`` (measured from the bounds). Let A be held, nu its
    multipliers, and B the union of A and the violated leaves. Then ``K_BB nu_B + q_B = y_B <= 0`` (zero on A,
    negative elsewhere) and the next multipliers mu solve ``K_BB mu_B + q_B = 0``. So ``mu_B - nu_B = -inv(K_BB) y_B``
    is not negative: multipliers never fall, and are never negative. At the end y >= 0, mu >= 0 and one of each pair is
    zero. Weights that are zero, and fixed nodes, are limits of this, in which the tree projection picks the limit.
    Leaves that a fixed node forces to their bounds are held from the start.

    In practice a handful of rounds suffices.
    Errors: InfeasibleError, when no consistent x keeps the bounds.
    """
    fixed, lower, upper = _settled(tree, lower, upper)
    low = tree.is_leaf & np.isfinite(lower)
    bound = lower if low.any() else upper
    limited = low if low.any() else tree.is_leaf & np.isfinite(upper)
    x = TreeProjector(tree, weight, fixed).project(v)
    while True:
        new = limited & np.isnan(fixed) & ((x < lower) | (x > upper))
        if not new.any():
            break
        fixed = np.where(new, bound, fixed)
        try:
            x = TreeProjector(tree, weight, fixed).project(v)
        except InfeasibleError:  # Only by rounding, the values being far larger than the bounds.
            break
    size = max(float(np.abs(v[weight > 0]).max(initial=0.0)), float(np.abs(fixed[~np.isnan(fixed)]).max(initial=0.0)))
    return x, not ((x < lower - 1e-10 * size) | (x > upper + 1e-10 * size)).any()


def _settled(tree: Tree, lower: Floats, upper: Floats) -> tuple[Floats, Floats, Floats]:
    """(N,) fixed values (nan where free), and lower and upper bounds without those that follow from others; what has
    one value left is fixed.

    The values that a node can take under the bounds of its subtree are an interval, [sum of the children's lower ends,
    sum of their upper ends] cut by its own bounds: empty if and only if they contradict each other.
    """
    low, high = node_ranges(tree, lower, upper)
    least, most = np.full(tree.size, -np.inf), np.full(tree.size, np.inf)  # From the children alone.
    own_low, own_high = lower.copy(), upper.copy()
    fixed = np.where(lower == upper, lower, np.nan)
    with np.errstate(invalid="ignore"):
        for generation in tree.generations:
            least[generation.nodes] = generation.sum(low[generation.below])
            most[generation.nodes] = generation.sum(high[generation.below])
    own_low[own_low <= least] = -np.inf
    own_high[own_high >= most] = np.inf
    forced_low, forced_high = high <= least, low >= most  # Children of these are at their lower (upper) ends.
    if forced_low.any() or forced_high.any():
        for generation in tree.generations:
            below = generation.below
            down, up = generation.spread(forced_low[generation.nodes]), generation.spread(forced_high[generation.nodes])
            fixed[below] = np.where(down, low[below], np.where(up, high[below], fixed[below]))
            inner = ~tree.is_leaf[below]
            forced_low[below] |= inner & down & (low[below] <= least[below])
            forced_high[below] |= inner & up & (high[below] >= most[below])
    free = np.isnan(fixed)
    return fixed, np.where(free, own_low, -np.inf), np.where(free, own_high, np.inf)


def descended(tree: Tree, v: Floats, weight: Floats, lower: Floats, upper: Floats) -> Floats:
    """(N,) consistent x with ``lower <= x <= upper``, by level the nearest to the least-squares fit without bounds.

    Roots are clipped to what their subtrees can be. Below, the children of a node take the values nearest to their
    estimates, weighted by the precision that their own subtrees give them, that add up to it. Nodes with equal bounds
    have that value in both fits.
    Errors: InfeasibleError, when the bounds contradict each other.
    """
    low, high = node_ranges(tree, lower, upper)
    x = TreeProjector(tree, weight, np.where(lower == upper, lower, np.nan)).project(v)
    if ((x >= low) & (x <= high)).all():
        return x
    # One over the variance of each node from its own subtree, up to a constant; never 0.
    precision = weight.copy()
    with np.errstate(divide="ignore"):
        for family in reversed(tree.generations):
            precision[family.nodes] += 1 / family.sum(1 / precision[family.below])
    spread = 1 / np.maximum(precision, 1e-9 * max(float(precision.max(initial=0.0)), 1e-300))
    top = tree.levels[0]
    x[top] = np.clip(x[top], low[top], high[top])
    for family in tree.generations:
        below = family.below
        x[below] = divided(family, x[family.nodes], low[below], high[below], x[below], spread[below])
    return x
