"""Exact least squares on a tree, under bounds too: maximum likelihood under Gaussian noise."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpmodel._types import Floats
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.errors import InfeasibleError
from dpmodel.forecast import Forecast
from dpmodel.marks.layout import sum_by
from dpmodel.privacy import NoiseSource
from dpmodel.released.decision import free_of_charge
from dpmodel.released.model import Postprocessing
from dpmodel.released.projection import project_sums
from dpmodel.released.structure import Separable, Sums
from dpmodel.released.trees import Tree, TreeProblem, TreeProjector

_EXACT = 1e-10  # Violations and multipliers of the wrong sign below this share of the values count as zero.
_BLOCK = 100


@dataclass(frozen=True)
class BoundedFit:
    """``x`` : (N,) consistent, within the bounds if ``optimal``. ``rounds`` : tree projections that it took.
    ``optimal`` : certified, by the monotone theorem or by the conditions of Karush, Kuhn and Tucker."""

    x: Floats
    rounds: int
    optimal: bool


@dataclass(frozen=True)
class _Bounds:
    """What bounds are left to see to. ``fixed`` : nan where free. ``lower, upper`` : infinite where they follow from
    those of the children, or the node is fixed."""

    fixed: Floats
    lower: Floats
    upper: Floats


def bounded_fit(tree: Tree, v: Floats, weight: Floats, lower: Floats, upper: Floats) -> BoundedFit:
    """Minimise ``sum_i weight_i (x_i - v_i)^2`` over consistent x with ``lower <= x <= upper`` (equal: fixed).

    First the minimiser with the fixed values alone; if it keeps the bounds, it is optimal. Else one-sided bounds
    of leaves, as in x >= 0, by growing active sets:

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

    In practice a handful of rounds suffices. With bounds of both sides or of inner nodes that the leaves' do not imply:
    the same relaxation first, and if its optimum violates them, active sets in which bounds whose multipliers have
    the wrong sign are let go, with a certificate at the end; if they cycle, from better and better starts given
    by splitting (ADMM). ``optimal`` is False if none of these was certified.

    Raises
    ------
    InfeasibleError
        When no consistent x keeps the bounds.
    """
    bounds = _settled(tree, lower, upper)
    search = _Search(tree, v, weight, bounds)
    leaf = tree.is_leaf
    low = leaf & np.isfinite(bounds.lower)
    side = -1 if low.any() else 1
    limited = low if side < 0 else leaf & np.isfinite(bounds.upper)
    held = np.zeros(tree.size, dtype=np.int8)
    x = search.solve(held)
    while True:
        beyond = (x < bounds.lower) if side < 0 else (x > bounds.upper)
        new = limited & beyond & (held == 0)
        if not new.any():
            break
        try:
            x = search.solve(np.where(new, np.int8(side), held))
        except InfeasibleError:  # Only by rounding, the values being far larger than the bounds.
            break
        held[new] = side
    if not search.violated(x).any():
        return BoundedFit(x, search.rounds, True)
    # Active sets tried in a row without a proof that they end.
    certified = search.exchange(held, 60)
    if certified is None:
        certified = search.split()
    if certified is None:
        return BoundedFit(search.nearest, search.rounds, False)
    return BoundedFit(certified, search.rounds, True)


class _Search:
    """One problem, and how many projections it has taken. Held nodes: -1 at the lower bound, 1 at the upper one."""

    def __init__(self, tree: Tree, v: Floats, weight: Floats, bounds: _Bounds) -> None:
        self.tree, self.v, self.weight, self.bounds = tree, v, weight, bounds
        known = np.where(np.isnan(bounds.fixed), 0.0, np.abs(bounds.fixed))
        self.size = max(float(np.abs(v[weight > 0]).max(initial=0.0)), float(known.max(initial=0.0)))
        self.rounds = 0
        self.nearest: Floats = v

    def _projector(self, held: npt.NDArray[np.int8]) -> TreeProjector:
        fixed = np.where(held < 0, self.bounds.lower, np.where(held > 0, self.bounds.upper, self.bounds.fixed))
        self.rounds += 1
        return TreeProjector(self.tree, self.weight, fixed)

    def solve(self, held: npt.NDArray[np.int8]) -> Floats:
        return self._projector(held).project(self.v)

    def violated(self, x: Floats) -> npt.NDArray[np.bool_]:
        slack = _EXACT * self.size
        out: npt.NDArray[np.bool_] = (x < self.bounds.lower - slack) | (x > self.bounds.upper + slack)
        return out

    def exchange(self, held: npt.NDArray[np.int8], rounds: int) -> Floats | None:
        """The certified optimum from a guess of the active bounds, or None."""
        held, seen = held.copy(), set()
        for _ in range(rounds):
            key = held.tobytes()
            if key in seen:
                return None
            seen.add(key)
            try:
                projector = self._projector(held)
            except InfeasibleError:  # These bounds cannot be active together.
                return None
            x, sums = projector.passes(self.v)
            price = multipliers(self.tree, self.weight, self.v, x, sums, projector.below)
            slack = _EXACT * float(np.abs(self.weight * (x - self.v)).max(initial=0.0))
            let_go = ((held < 0) & (price < -slack)) | ((held > 0) & (price > slack))
            violated = self.violated(x) & (held == 0)
            if not let_go.any() and not violated.any():
                return x
            held[let_go] = 0
            held[violated & (x < self.bounds.lower)] = -1
            held[violated & (x > self.bounds.upper)] = 1
        return None

    def split(self) -> Floats | None:
        """Splitting steps between consistency and bounds, whose limit tells the active bounds.

        Beside consistency, which x keeps, and the bounds, which z keeps, the conditions for optimality fail by
        ``x - z`` and by ``2 penalty`` times the last change of z; both below ``_EXACT`` of the values is accepted too.
        """
        bounds, weight = self.bounds, self.weight
        typical = float(weight[weight > 0].mean()) if (weight > 0).any() else 1.0
        # Of the mean weight: splitting penalises moves of unmeasured nodes too.
        penalty = np.maximum(weight, 0.1 * typical)
        projector = TreeProjector(self.tree, weight + penalty, bounds.fixed)
        clean = np.where(weight > 0, self.v, 0.0)
        x = projector.project(clean)
        z = np.clip(x, bounds.lower, bounds.upper)
        dual = np.zeros(z.size)
        # Blocks of splitting steps, each followed by such a try.
        for _ in range(40):
            for _ in range(_BLOCK):
                before = z
                x = projector.project((weight * clean + penalty * (z - dual)) / (weight + penalty))
                moved = x + dual
                z = np.clip(moved, bounds.lower, bounds.upper)
                dual = moved - z
            self.rounds += _BLOCK
            self.nearest = x
            change = max(float(np.abs(x - z).max()), float(np.abs(z - before).max()))
            if change <= _EXACT * self.size:
                return x
            held = np.zeros(z.size, dtype=np.int8)
            held[moved < bounds.lower] = -1
            held[moved > bounds.upper] = 1
            found = self.exchange(held, 10)
            if found is not None:
                return found
        return None


def multipliers(tree: Tree, weight: Floats, v: Floats, x: Floats, sums: Floats, below: Floats) -> Floats:
    """(N,) multiplier of each node's bound at x: zero where none is held, not negative where a lower bound belongs.

    Let ``g = 2 weight (x - v)`` and P_i the sum of ``g - multiplier`` on the path from the root to i; optimality is
    P = 0 at leaves. Below inner node i the cost of total t is ``(t - sums_i)^2 / below_i``, whose derivative at x_i is
    -P_i. So the multiplier of i is ``P_parent + g_i - P_i``. Where all children are settled (below 0) P_i is free, and
    the choice is multiplier 0.
    """
    g = np.where(weight > 0, 2 * weight * (x - v), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        price = np.where(np.isinf(below), 0.0, -2 * (x - sums) / below)
    price[tree.is_leaf] = 0.0
    settled = below == 0
    found = g.copy()
    roots = tree.levels[0]
    price[roots] = np.where(settled[roots], g[roots], price[roots])
    found[roots] -= price[roots]
    for generation in tree.generations:
        nodes = generation.below
        above = generation.spread(price[generation.nodes]) + g[nodes]
        price[nodes] = np.where(settled[nodes], above, price[nodes])
        found[nodes] = above - price[nodes]
    return found


def least_and_most(tree: Tree, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """(N,), (N,) the ends of what each node can be: the sums of the children's, cut by its own bounds.

    Raises
    ------
    InfeasibleError
        Where nothing is left.
    """
    low, high = lower.copy(), upper.copy()
    with np.errstate(invalid="ignore"):
        _check(low, high)
        for generation in reversed(tree.generations):
            nodes = generation.nodes
            low[nodes] = np.maximum(low[nodes], generation.sum(low[generation.below]))
            high[nodes] = np.minimum(high[nodes], generation.sum(high[generation.below]))
            _check(low[nodes], high[nodes])
    return low, high


def _settled(tree: Tree, lower: Floats, upper: Floats) -> _Bounds:
    """Drop the bounds that follow from others, and fix what has one value left.

    The values that a node can take under the bounds of its subtree are an interval, [sum of the children's lower ends,
    sum of their upper ends] cut by its own bounds: empty if and only if they contradict each other.
    """
    low, high = least_and_most(tree, lower, upper)
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
    return _Bounds(fixed, np.where(free, own_low, -np.inf), np.where(free, own_high, np.inf))


def _check(low: Floats, high: Floats) -> None:
    """Refuse empty intervals; those crossed by rounding only are left to the tree projection."""
    wrong = low - high > 1e-9 * (np.abs(low) + np.abs(high))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise InfeasibleError(
            f"a sum of variables would have to be at least {low[at]:g} and at most {high[at]:g}",
            why="the bounds of its parts, added up, contradict its own",
            remedy="relax one of them",
        )


# ------------------------------------------------------------------ bounds from the top down


def descended(tree: Tree, v: Floats, weight: Floats, lower: Floats, upper: Floats) -> Floats:
    """(N,) consistent x with ``lower <= x <= upper``, by level the nearest to the least-squares fit without bounds.

    Roots are clipped to what their subtrees can be. Below, the children of a node take the values nearest to their
    estimates, weighted by the precision that their own subtrees give them, that add up to it. Nodes with equal bounds
    have that value in both fits.

    Raises
    ------
    InfeasibleError
        When the bounds contradict each other.
    """
    low, high = least_and_most(tree, lower, upper)
    x = TreeProjector(tree, weight, np.where(lower == upper, lower, np.nan)).project(v)
    if ((x >= low) & (x <= high)).all():
        return x
    precision = _precision(tree, weight)
    top = tree.levels[0]
    x[top] = np.clip(x[top], low[top], high[top])
    nothing = np.zeros(0)
    for generation in tree.generations:
        below, parents = generation.below, x[generation.nodes]
        group = np.repeat(np.arange(parents.size), generation.counts)
        size = group.size
        losses = Separable(precision[below], x[below], np.zeros(size), np.zeros(0, dtype=np.int64), nothing, nothing)
        sums = Sums(group, np.ones(size), parents, np.ones(parents.size, dtype=bool))
        x[below] = project_sums(losses, sums, low[below], high[below])
    return x


def _precision(tree: Tree, weight: Floats) -> Floats:
    """(N,) one over the variance of each node from its own subtree, up to a constant; never 0."""
    out = weight.copy()
    with np.errstate(divide="ignore"):
        for generation in reversed(tree.generations):
            out[generation.nodes] += 1 / generation.sum(1 / out[generation.below])
    return np.maximum(out, 1e-9 * max(float(out.max(initial=0.0)), 1e-300))


# ------------------------------------------------------------------ the mechanism


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

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        if model.form is None:
            return Verdict(False, "the model has terms or constraints outside measurements and linear constraints")
        if model.form.absolute.any():
            return Verdict(False, "absolute deviations (Laplace noise) are measured, not squares")
        if model.form.integer.any():
            return Verdict(False, "variables must be whole: round a solution of the relaxed model (round_tree)")
        if model.tree_problem() is None:
            return Verdict(False, "the sums in the model do not form a tree")
        return YES

    def forecast(self, model: Postprocessing, options: Options) -> Forecast:
        problem = model.tree_problem()
        assert problem is not None
        kind, nodes = _bounds(problem), f"{problem.tree.size:,} nodes"
        passes = "one pass" if kind == "free" else "several passes"
        words, alpha, work = "the optimum, exactly (to rounding)", 0.0, f"{passes} up and down {nodes}"
        caveats: tuple[str, ...] = ()
        if self.top_down:
            words = (
                "each level the nearest to the unbiased estimates that sums to the level above, exactly (to rounding)"
            )
            work = f"a pass up and down {nodes}, and one down"
        elif kind == "general":
            words, alpha = "the optimum, certified to 1e-10 of the values when it is called optimal", 1e-8
            caveats = ("bounds on two sides or inside the tree: the number of passes is not proved",)
        return free_of_charge(self.name, model, words, alpha=alpha, work=work, caveats=caveats)

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
