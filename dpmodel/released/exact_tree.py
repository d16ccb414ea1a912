"""Exact maximum likelihood under Laplace noise on trees: piecewise-linear messages, level by level."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from dpmodel._types import Floats
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.forecast import Forecast
from dpmodel.privacy import NoiseSource
from dpmodel.released.decision import free_of_charge
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.messages import TreePlan, messages, tree_plan
from dpmodel.released.model import Postprocessing
from dpmodel.released.trees import Generation, TreeProblem, TreeProjector


def is_integer(problem: TreeProblem) -> bool:
    """Whether values and finite bounds are integers; then the ends of all optimal stretches are."""
    used = problem.value[problem.absolute > 0]
    bounds = np.concatenate([problem.lower, problem.upper])
    bounds = bounds[np.isfinite(bounds)]
    return bool((used == np.rint(used)).all() and (bounds == np.rint(bounds)).all())


def integer_problem(problem: TreeProblem) -> TreeProblem:
    """A problem with whole values and bounds that is the same at whole points, so has the same optima over these.

    With ``f = v - floor(v)`` and whole x, ``|x - v| = (1 - f) |x - floor(v)| + f |x - ceil(v)|``: both
    sides are f at floor(v), 1 - f at ceil(v), and have derivatives -1 before and 1 beyond.
    """
    if is_integer(problem):
        return problem
    floor = np.floor(problem.value)
    fraction = problem.value - floor
    between = fraction > 0
    return replace(
        problem,
        node=np.concatenate([problem.node, problem.node[between]]),
        value=np.concatenate([floor, floor[between] + 1.0]),
        absolute=np.concatenate([problem.absolute * (1.0 - fraction), (problem.absolute * fraction)[between]]),
        square=np.concatenate([problem.square, problem.square[between]]),
        lower=-_largest_integer(-problem.lower),
        upper=_largest_integer(problem.upper),
    )


def _largest_integer(bound: Floats) -> Floats:
    """Largest integers below; infinite bounds as they are."""
    # a bound this near to an integer is taken to be it
    return np.where(np.isinf(bound), bound, np.floor(bound + 1e-9))


# ------------------------------------------------------------------ dividing a node's value among its children


_NARROW = 64

# All functions: x (parents,), left <= right (children,) with sums around x; they return (children,) values between left
# and right that add up to x, up to rounding. Ends may be infinite.


def in_order(family: Generation, x: Floats, left: Floats, right: Floats) -> Floats:
    """The first child is filled first. Integers stay whole."""
    base, room, up = _base(family, x, left, right)
    rest = np.abs(x - family.sum(base))
    given = np.zeros_like(room)
    narrow = np.flatnonzero(family.counts <= _NARROW)
    for k in range(int(family.counts[narrow].max(initial=0))):
        narrow = narrow[family.counts[narrow] > k]
        at = family.starts[narrow] + k
        part = np.minimum(rest[narrow], room[at])
        given[at] = part
        rest[narrow] -= part
    for wide in np.flatnonzero(family.counts > _NARROW):
        span = slice(family.starts[wide], family.starts[wide] + family.counts[wide])
        filled = np.minimum(np.cumsum(np.minimum(room[span], rest[wide])), rest[wide])
        given[span] = np.diff(filled, prepend=0.0)
    return np.asarray(np.clip(base + np.where(up, given, -given), left, right))


def pro_rata(family: Generation, x: Floats, left: Floats, right: Floats) -> Floats:
    """In proportion to the lengths of the segments; equal shares to those without an end, if any."""
    base, room, up = _base(family, x, left, right)
    rest = np.abs(x - family.sum(base))
    endless = np.isinf(room)
    if endless.any():
        some = family.spread(family.sum(endless.astype(np.float64))) > 0
        room = np.where(some, endless.astype(np.float64), room)
    total = family.sum(room)
    share = np.divide(rest, total, out=np.zeros_like(rest), where=total > 0)
    given = family.spread(share) * room
    return np.asarray(np.clip(base + np.where(up, given, -given), left, right))


def nearest(family: Generation, x: Floats, left: Floats, right: Floats, target: Floats, spread: Floats) -> Floats:
    """The division that minimises ``sum (child - target)^2 / spread``."""
    if family.uniform and family.arity == 2:
        t, a, b, s = (item.reshape(-1, 2) for item in (target, left, right, spread))
        first = t[:, 0] + (x - t[:, 0] - t[:, 1]) * (s[:, 0] / (s[:, 0] + s[:, 1]))
        out = np.empty_like(t)
        low, high = np.maximum(a[:, 0], x - b[:, 1]), np.minimum(b[:, 0], x - a[:, 1])
        np.minimum(np.maximum(first, low), high, out=out[:, 0])
        np.subtract(x, out[:, 0], out=out[:, 1])
        return np.asarray(np.clip(out.ravel(), left, right))
    return _knapsack(family, x, left, right, target, spread)


def _knapsack(family: Generation, x: Floats, left: Floats, right: Floats, target: Floats, spread: Floats) -> Floats:
    """Variable fixing (Bitran and Hax 1981): share out what is missing, fix the children that leave their segments on
    the side that is exceeded more, and share out again. At most as many rounds as children in the largest family."""
    free = np.ones(left.size, dtype=bool)
    out = np.clip(target, left, right)
    for _ in range(int(family.counts.max()) + 1):
        fixed = family.sum(np.where(free, 0.0, out))
        weight = family.sum(np.where(free, spread, 0.0))
        missing = x - fixed - family.sum(np.where(free, target, 0.0))
        level = np.divide(missing, weight, out=np.zeros_like(missing), where=weight > 0)
        wish = target + family.spread(level) * spread
        over = np.where(free, np.maximum(wish - right, 0.0), 0.0)
        under = np.where(free, np.maximum(left - wish, 0.0), 0.0)
        more = family.sum(over) - family.sum(under)
        out = np.where(free, np.clip(wish, left, right), out)
        side = family.spread(more)
        leaving = ((side > 0) & (over > 0)) | ((side < 0) & (under > 0))
        if not leaving.any():
            break
        free &= ~leaving
    return out


def integer_division(family: Generation, x: Floats, left: Floats, right: Floats, division: Floats) -> Floats:
    """A division into integers, each the given one rounded up or down, for whole x, left and right: differences of
    the rounded running sums of the fractions."""
    near = np.rint(division)
    settled = np.abs(division - near) <= 1e-9 + 1e-14 * np.abs(division)
    floor = np.where(settled, near, np.floor(division))
    running = np.rint(np.cumsum(np.where(settled, 0.0, division - floor)))
    out = floor + np.diff(running, prepend=0.0)
    wrong = (family.sum(out) != x) | (family.sum(((out < left) | (out > right)).astype(np.float64)) > 0)
    if wrong.any():  # rounding errors of very large numbers
        out = np.where(family.spread(wrong), in_order(family, x, left, right), out)
    return np.asarray(out, dtype=np.float64)


def _base(family: Generation, x: Floats, left: Floats, right: Floats) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """(base, room, up): points from which to go up (or down), how far each child can go, and which way."""
    base = left
    open_left = np.isinf(left)
    if not open_left.any():
        return base, right - left, np.ones(left.size, dtype=bool)
    base = np.where(open_left, np.where(np.isinf(right), 0.0, right), left)
    up = family.spread(family.sum(base) <= x)
    return base, np.where(up, right - base, base - left), up


# ------------------------------------------------------------------ the mechanism


Ties = Literal["nearest", "middle", "lower", "upper"]


def solve_exact_tree(
    problem: TreeProblem, ties: Ties = "nearest", *, plan: TreePlan | None = None, whole: bool = False
) -> Floats:
    """(N,) node values that minimise ``sum_i absolute_i |x[node_i] - value_i|``, consistent, within the bounds.

    Parameters
    ----------
    problem : square weights zero. Bounds may be infinite on either side, on any node; any node may be fixed
        (lower = upper), measured several times or not at all; any number of roots, children, depths.
    ties : which optimum, see ``ExactTree``.
    plan : ``tree_plan`` of a problem that differs in values only, to save its making.
    whole : minimise over integers (values and bounds need not be whole). Without it, "lower" and "upper" give
        integers for whole values and bounds; the other rules may not.

    Bounds of leaves hold exactly; inner nodes are the sums of leaves, so their bounds hold to rounding.

    Raises
    ------
    InfeasibleError
        If no consistent x keeps the bounds; names a node where they clash.
    SpecificationError
        For square weights, values that are not finite or an unknown rule for ties.
    """
    _check(problem, ties)
    if whole:
        problem = integer_problem(problem)
    if plan is None or not plan.fits(problem):
        plan = tree_plan(problem)
    tree = problem.tree
    found = messages(plan, problem.value)
    target, spread = _targets(plan, problem.value, ties)
    x = np.zeros(tree.size)
    for number, level in enumerate(plan.levels):
        if number == 0:
            x[level.nodes] = _choose(*found.roots(), ties, whole, target[level.nodes])
        if level.family is None:
            continue
        at = x[level.nodes] if level.inner is None else x[level.nodes][level.inner]
        left, right = found.children(number, at)
        below = plan.levels[number + 1].nodes
        x[below] = _divide(level.family, at, left, right, ties, whole, target[below], spread[below])
    return tree.sums(x[tree.is_leaf])


def _check(problem: TreeProblem, ties: str) -> None:
    if ties not in get_args(Ties):
        raise SpecificationError(f"ties={ties!r}", remedy=f"one of {', '.join(get_args(Ties))}")
    if problem.square.any():
        raise SpecificationError("square weights in a problem for absolute ones", remedy="use least-squares-tree")
    if not (np.isfinite(problem.value).all() and np.isfinite(problem.absolute).all()):
        raise SpecificationError("a value or weight of the tree is not finite", remedy="leave such measurements out")


def _targets(plan: TreePlan, value: Floats, ties: str) -> tuple[Floats, Floats]:
    """Where ties should lead: each node's least-squares estimate from the measurements in its subtree, bounds aside,
    and the variance of that."""
    if ties != "nearest":
        nothing = np.broadcast_to(np.zeros(1), (plan.tree.size,))
        return nothing, nothing
    precision, own, projector = plan.cached("estimator", lambda: _estimator(plan))
    pull = np.bincount(plan.node, weights=precision * value, minlength=plan.tree.size)
    return projector.estimates(np.divide(pull, own, out=np.zeros(own.size), where=own > 0)), projector.variance


def _estimator(plan: TreePlan) -> tuple[Floats, Floats, TreeProjector]:
    """(precisions of the measurements, their sums per node, least squares with these), up to a factor: under Laplace
    noise precisions are proportional to squared weights."""
    largest = float(plan.absolute.max(initial=0.0)) or 1.0
    precision = np.square(plan.absolute / largest)
    own = np.bincount(plan.node, weights=precision, minlength=plan.tree.size).astype(np.float64)
    # variance of an unmeasured leaf, in units of the largest measured one's
    unknown = float(own[own > 0].min(initial=np.inf if own.any() else 1.0)) / 1e6
    return precision, own, TreeProjector(plan.tree, np.where((own == 0) & plan.tree.is_leaf, unknown, own))


def _choose(low: Floats, high: Floats, ties: str, whole: bool, target: Floats) -> Floats:
    """Values of the roots between the ends of their optimal stretches; 0 or the end nearest to it where one is open."""
    first = np.where(np.isfinite(low), low, np.minimum(high, 0.0))
    last = np.where(np.isfinite(high), high, np.maximum(low, 0.0))
    if ties == "lower":
        return first
    if ties == "upper":
        return last
    if ties == "middle":
        middle = first + (last - first) / 2
        return np.floor(middle) if whole else middle
    return np.clip(np.rint(target) if whole else target, low, high)


def _divide(
    family: Generation, x: Floats, left: Floats, right: Floats, ties: str, whole: bool, target: Floats, spread: Floats
) -> Floats:
    if ties in ("lower", "upper"):
        return in_order(family, x, left, right)
    if ties == "middle":
        out = pro_rata(family, x, left, right)
    else:
        out = nearest(family, x, left, right, target, spread)
    return integer_division(family, x, left, right, out) if whole else out


@dataclass(frozen=True)
class ExactTree(Mechanism[Postprocessing]):
    """The exact optimum of absolute deviations on a tree.

    Source
        The problem: Lee, Wang and Kifer 2015 (Laplace noise). The method: conjugates of convex piecewise-linear
        messages add over children (infimal convolution), as in derivative-trick dynamic programs; derived in
        ``messages.py``.
    Privacy
        Reads published numbers only: post-processing, costs nothing.
    Utility
        An exact optimum. Weights enter as whole multiples of a unit: to a relative 1e-12 where they are small multiples
        of a common unit (equal weights exactly), which changes the objective by that share at most; else to 2^-44 of
        the largest weight.

        Optima are often many. ``ties``: a root takes a point of its optimal stretch and every node divides its value
        among its children within stretches over which all divisions cost the same, from the root down:

        * "nearest" (default): as near as possible to the least-squares estimate of each node from the measurements in
          its own subtree (squares weighted by the estimates' variances). Decided level by level, so not the
          least-squares point of all optima.
        * "middle": the midpoint, then shares in proportion to the children's stretches (equal shares to stretches
          without an end).
        * "lower", "upper": the left (right) end, then the first child takes all it can, and so on.

        In simulations (tests/benchmarks/postprocessing/tree_ties.py) "nearest" had the least mean squared error over
        shapes, sizes and branchings; "middle" has less at the leaves where counts are below the noise everywhere and
        few are zero.
        Integers: with whole values and bounds "lower" and "upper" give integers. ``whole=True``, or variables
        declared whole, minimise over integers exactly, whatever the values (``integer_problem``; the ends of
        all stretches are then whole, since segment ends are sums of values and bounds).
    Cost
        Each node has a list of segments: with equal weights h + 2 at height h, in general as many as its subtree has
        measurements. Some N log N per level of N segments: half a second at 2^17 bins.
    """

    serves: ClassVar[Serves] = Serves(Postprocessing)
    name: str = "exact-tree"
    source: str = "LWK15 (the problem); exact messages (the method)"
    ties: Ties = "nearest"
    whole: bool = False

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        try:
            problem = model.tree_problem()
        except InfeasibleError:
            return YES  # run says so
        if problem is None or model.form is None:
            return Verdict(False, "the constraints are not those of a tree of sums")
        if problem.square.any():
            return Verdict(
                False, "squared standard deviations (Gaussian noise): the exact tree solver is for absolute ones"
            )
        if model.form.linear.any():
            return Verdict(False, "a linear term in the objective: the exact tree solver has standard deviations only")
        if model.form.integer.any() and not (_all_integer(model.form, problem) or is_integer(problem)):
            return Verdict(False, "some variables are integers, others not, and so are values or bounds")
        return YES

    def forecast(self, model: Postprocessing, options: Options) -> Forecast:
        try:
            plan = self._plan(model)
        except InfeasibleError:
            return free_of_charge(self.name, model, "no feasible point", alpha=0.0, work="one look at the bounds")
        return free_of_charge(
            self.name,
            model,
            "an exact optimum of the likelihood",
            alpha=0.0,
            work=f"one pass up and one down a tree of {plan.tree.size} nodes in {len(plan.levels)} levels",
        )

    def run(
        self, model: Postprocessing, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        start = time.perf_counter()
        assert model.form is not None
        progress("passing messages up the tree", 0.1)
        try:
            problem, plan = self._problem(model), self._plan(model)
            nodes = solve_exact_tree(problem, self.ties, plan=plan, whole=self._in_integers(model))
        except InfeasibleError as error:
            seconds = time.perf_counter() - start
            return Outcome("infeasible", None, None, None, seconds, notes=(error.what,))
        x = nodes[problem.select]
        return Outcome("optimal", x, None, model.form.objective(x), time.perf_counter() - start)

    def _in_integers(self, model: Postprocessing) -> bool:
        return self.whole or (model.form is not None and bool(model.form.integer.any()))

    def _problem(self, model: Postprocessing) -> TreeProblem:
        problem = model.tree_problem()
        assert problem is not None
        if not self._in_integers(model):
            return problem
        return model.cached("whole tree problem", lambda: integer_problem(problem))

    def _plan(self, model: Postprocessing) -> TreePlan:
        key = ("exact tree plan", self._in_integers(model))
        return model.cached(key, lambda: tree_plan(self._problem(model)))


def _all_integer(form: LikelihoodForm, problem: TreeProblem) -> bool:
    """Whether every leaf, and so every node, is an integer variable."""
    whole = np.zeros(problem.tree.size, dtype=bool)
    whole[problem.select[form.integer]] = True
    return bool(whole[problem.tree.is_leaf].all())


EXACT_TREE = ExactTree()
