"""Exact maximum likelihood under Laplace noise on trees: piecewise-linear messages, level by level."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.contract import YES, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.forecast import Forecast
from dpmodel.privacy import NoiseSource
from dpmodel.released.form import running
from dpmodel.released.model import Postprocessing, Solver
from dpmodel.released.trees import Generation, TreeProblem, TreeProjector, divided, largest_fractions, node_ranges

Ties = Literal["nearest", "middle"]


@dataclass(frozen=True)
class ExactTree(Solver):
    """The exact optimum of absolute deviations on a tree.

    Source
        The problem: Lee, Wang and Kifer 2015 (Laplace noise). The method: conjugates of convex piecewise-linear
        messages add over children (infimal convolution), as in derivative-trick dynamic programs (``messages``).
    Privacy
        Reads published numbers only: post-processing, costs nothing.
    Utility
        An exact optimum. Weights enter as integer multiples of a unit: to a relative 1e-12 where they are small
        multiples of a common unit (equal weights exactly), which changes the objective by that share at most; else to
        2^-44 of the largest weight.

        Optima are often many. ``ties``: a root takes a point of its optimal stretch and every node divides its value
        among its children within stretches over which all divisions cost the same, from the root down:

        * "nearest" (default): as near as possible to the least-squares estimate of each node from the measurements in
          its own subtree (squares weighted by the estimates' variances). Decided level by level, so not the
          least-squares point of all optima.
        * "middle": the midpoint, then shares in proportion to the children's stretches (equal shares to stretches
          without an end).

        In simulations (tests/benchmarks/postprocessing/tree_ties.py) "nearest" had the least mean squared error over
        shapes, sizes and branchings; "middle" has less at the leaves where counts are below the noise everywhere and
        few are zero.
        Integers: ``integer=True``, or variables declared integer, minimise over integers exactly, whatever the values
        (``integer_problem``; the ends of all stretches are then integers, since segment ends are sums of values and
        bounds).
    Cost
        Each node has a list of segments: with equal weights h + 2 at height h, in general as many as its subtree has
        measurements. Some N log N per level of N segments: half a second at 2^17 bins.
    """

    serves: ClassVar[Serves] = Serves(Postprocessing)
    name: str = "exact-tree"
    source: str = "LWK15 (the problem); exact messages (the method)"
    ties: Ties = "nearest"
    integer: bool = False

    def place(self, model: Postprocessing) -> int:
        return 4

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        problem, form = model.tree_problem(), model.form
        if problem is None or form is None:
            return Verdict(False, "the constraints are not those of a tree of sums")
        if problem.square.any():
            return Verdict(
                False, "squared standard deviations (Gaussian noise): the exact tree solver is for absolute ones"
            )
        if form.linear.any():
            return Verdict(False, "a linear term in the objective: the exact tree solver has standard deviations only")
        if form.integer.any() and not is_integer(problem):
            declared = np.zeros(problem.tree.size, dtype=bool)
            declared[problem.select[form.integer]] = True
            if not declared[problem.tree.is_leaf].all():  # integer leaves make integer nodes
                return Verdict(False, "some variables are integers, others not, and so are values or bounds")
        return YES

    def forecast(self, model: Postprocessing, options: Options) -> Forecast:
        problem = model.tree_problem()
        assert problem is not None
        tree = problem.tree
        work = f"one pass up and one down a tree of {tree.size} nodes in {len(tree.levels)} levels"
        return self.free_of_charge(model, "an exact optimum of the likelihood", alpha=0.0, work=work)

    def run(
        self, model: Postprocessing, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        start = time.perf_counter()
        problem, form = model.tree_problem(), model.form
        assert problem is not None and form is not None
        progress("passing messages up the tree", 0.1)
        try:
            nodes = solve_exact_tree(problem, self.ties, integer=self.integer or bool(form.integer.any()))
        except InfeasibleError as error:
            return Outcome("infeasible", None, None, None, time.perf_counter() - start, notes=(error.what,))
        x = nodes[problem.select]
        return Outcome("optimal", x, None, form.objective(x), time.perf_counter() - start)


EXACT_TREE = ExactTree()


def solve_exact_tree(problem: TreeProblem, ties: Ties = "nearest", *, integer: bool = False) -> Floats:
    """(N,) node values that minimise ``sum_i absolute_i |x[node_i] - value_i|``, consistent, within the bounds.

    ``problem`` : square weights zero. Bounds may be infinite on either side, on any node; any node may be fixed
        (lower = upper), measured several times or not at all; any number of roots, children, depths.
    ``ties`` : which optimum, see ``ExactTree``.
    ``integer`` : minimise over integers (values and bounds need not be integers).

    Bounds of leaves hold exactly; inner nodes are the sums of leaves, so their bounds hold to rounding.
    Errors: InfeasibleError, if no consistent x keeps the bounds; SpecificationError, for square weights, values that
    are not finite or an unknown rule for ties.
    """
    if ties not in get_args(Ties):
        raise SpecificationError(f"ties={ties!r}", remedy=f"one of {', '.join(get_args(Ties))}")
    if problem.square.any():
        raise SpecificationError("square weights in a problem for absolute ones", remedy="use least-squares-tree")
    if not (np.isfinite(problem.value).all() and np.isfinite(problem.absolute).all()):
        raise SpecificationError("a value or weight of the tree is not finite", remedy="leave such measurements out")
    if integer:
        problem = integer_problem(problem)
    units = integer_weights(problem.absolute)
    levels = levels_of(problem, units)
    found = messages(levels, units, problem.value)
    target, spread = _estimates(problem)
    x = np.zeros(problem.tree.size)
    low, high = found.roots()
    top = levels[0].nodes
    if ties == "middle":
        first = np.where(np.isfinite(low), low, np.minimum(high, 0.0))  # 0, or the end nearest to it, of an open one
        middle = first + (np.where(np.isfinite(high), high, np.maximum(low, 0.0)) - first) / 2
        x[top] = np.floor(middle) if integer else middle
    else:
        x[top] = np.clip(np.rint(target[top]) if integer else target[top], low, high)
    for number, level in enumerate(levels):
        family = level.family
        if family is None:
            continue
        at = x[level.nodes] if level.inner is None else x[level.nodes][level.inner]
        left, right = found.children(number, family, at)
        below = levels[number + 1].nodes
        if ties == "middle":
            shares = pro_rata(family, at, left, right)
        else:
            shares = divided(family, at, left, right, target[below], spread[below])
        if integer:  # at, left and right are: down to integers, and what is missing to the largest fractions
            near = np.rint(shares)
            settled = np.abs(shares - near) <= 1e-9 + 1e-14 * np.abs(shares)
            down = np.where(settled, near, np.floor(shares))
            fractions = np.where(settled, 0.0, shares - down)
            shares = down + largest_fractions(family, fractions, at - family.sum(down))
        x[below] = shares
    return problem.tree.sums(x[problem.tree.is_leaf])


def _estimates(problem: TreeProblem) -> tuple[Floats, Floats]:
    """Each node's least-squares estimate from the measurements in its subtree, bounds aside, and the variance of that,
    up to a factor: under Laplace noise precisions are proportional to squared weights."""
    tree = problem.tree
    precision = np.square(problem.absolute / (float(problem.absolute.max(initial=0.0)) or 1.0))
    own = np.bincount(problem.node, weights=precision, minlength=tree.size).astype(np.float64)
    pull = np.bincount(problem.node, weights=precision * problem.value, minlength=tree.size)
    # variance of an unmeasured leaf, in units of the largest measured one's
    unknown = float(own[own > 0].min(initial=np.inf if own.any() else 1.0)) / 1e6
    projector = TreeProjector(tree, np.where((own == 0) & tree.is_leaf, unknown, own))
    return projector.estimates(np.divide(pull, own, out=np.zeros(own.size), where=own > 0)), projector.variance


def is_integer(problem: TreeProblem) -> bool:
    """Whether values and finite bounds are integers; then the ends of all optimal stretches are."""
    used = problem.value[problem.absolute > 0]
    bounds = np.concatenate([problem.lower, problem.upper])
    bounds = bounds[np.isfinite(bounds)]
    return bool((used == np.rint(used)).all() and (bounds == np.rint(bounds)).all())


def integer_problem(problem: TreeProblem) -> TreeProblem:
    """A problem with integer values and bounds that is the same at integer points, so has the same optima over these.

    With ``f = v - floor(v)`` and integer x, ``|x - v| = (1 - f) |x - floor(v)| + f |x - ceil(v)|``: both
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
        lower=np.ceil(problem.lower - 1e-9),  # a bound this near to an integer is taken to be it
        upper=np.floor(problem.upper + 1e-9),
    )


# ------------------------------------------------------------------ dividing a node's value among its children


def pro_rata(family: Generation, x: Floats, left: Floats, right: Floats) -> Floats:
    """(children,) values between left and right with sums x (parents,), in proportion to the lengths of the segments;
    equal shares to those without an end, if any."""
    base, room, up = left, right - left, np.ones(left.size, dtype=bool)
    if np.isinf(left).any():
        base = np.where(np.isinf(left), np.where(np.isinf(right), 0.0, right), left)
        up = family.spread(family.sum(base) <= x)
        room = np.where(up, right - base, base - left)
    endless = np.isinf(room)
    if endless.any():
        some = family.spread(family.sum(endless.astype(np.float64))) > 0
        room = np.where(some, endless.astype(np.float64), room)
    rest, total = np.abs(x - family.sum(base)), family.sum(room)
    share = np.divide(rest, total, out=np.zeros_like(rest), where=total > 0)
    given = family.spread(share) * room
    return np.asarray(np.clip(base + np.where(up, given, -given), left, right))


# ------------------------------------------------------------------ levels, and weights in integers


@dataclass(frozen=True, eq=False)
class Level:
    """One level. ``lower, upper`` : domains of its nodes, given their subtrees. ``inner`` : columns of nodes with
    children (None: all), ``family`` : these children (None: none). ``cut`` : whether bounds of its own say more
    than their children's. ``rounds`` : (measurements, columns): the first measurement of each node, then the
    second, ..."""

    nodes: slice
    lower: Floats
    upper: Floats
    inner: Integers | None
    family: Generation | None
    cut: bool
    rounds: tuple[tuple[Integers, Integers], ...]


def integer_weights(weights: Floats) -> Integers:
    """Integers u that, times a unit, are equal to the weights to a relative 1e-12 where they are small
    multiples of a common unit (so the objective changes by no more than that share), else to 2^-44 of the largest
    weight (2^-35 with 2^24 measurements). Sums of integers are exact, so derivatives that should be equal are.
    """
    if weights.size and weights.min() == weights.max() > 0:
        return np.ones(weights.shape, dtype=np.int64)
    known, where = np.unique(weights, return_inverse=True)
    positive = known[known > 0]
    if positive.size == 0:
        return np.zeros(weights.shape, dtype=np.int64)
    smallest, largest = float(positive[0]), float(positive[-1])
    if largest / smallest < 2.0**30:
        for m in range(1, 61):
            q = known / smallest * m
            if (np.abs(q - np.rint(q)) <= 1e-12 * q).all():
                return np.rint(q).astype(np.int64)[where.ravel()]
    # integer weights where no common unit is found
    unit = largest * 2.0 ** -min(44, 60 - int(weights.size).bit_length())  # sums stay below 2^62
    return np.rint(known / unit).astype(np.int64)[where.ravel()]


def levels_of(problem: TreeProblem, units: Integers) -> tuple[Level, ...]:
    """The levels, from the roots down, of measurements with weights ``units`` (k,).
    Errors: InfeasibleError, as ``node_ranges``."""
    tree = problem.tree
    lower, upper = node_ranges(tree, problem.lower, problem.upper)
    used = np.flatnonzero(units > 0)
    used = used[np.argsort(problem.node[used], kind="stable")]
    nodes = problem.node[used]
    turn = np.arange(used.size) - np.searchsorted(nodes, nodes)  # how many of the same node came before
    edges = np.searchsorted(nodes, tree.bounds)
    found = []
    for number, level in enumerate(tree.levels):
        inner = np.flatnonzero(~tree.is_leaf[level])
        family, cut = None, False
        if inner.size:
            family = tree.generations[number]
            low, high = family.sum(lower[family.below]), family.sum(upper[family.below])
            cut = bool((lower[family.nodes] > low).any() or (upper[family.nodes] < high).any())
        part = slice(edges[number], edges[number + 1])
        which, column, when = used[part], nodes[part] - level.start, turn[part]
        rounds = tuple((which[when == r], column[when == r]) for r in range(int(when.max(initial=-1)) + 1))
        columns = None if inner.size == level.stop - level.start else inner
        found.append(Level(level, lower[level], upper[level], columns, family, cut, rounds))
    return tuple(found)


# ------------------------------------------------------------------ lists of segments


@dataclass(frozen=True, eq=False)
class Lists:
    """Convex piecewise-linear functions of n nodes: segments in the order of nodes, then derivatives. ``first`` : (n +
    1,) node j has ``first[j]:first[j + 1]``; ``derivative, start, end`` : (m,). ``left, right`` : (n,) domains."""

    first: Integers
    derivative: Integers
    start: Floats
    end: Floats
    left: Floats
    right: Floats

    @property
    def owner(self) -> Integers:
        """(m,) node of each segment."""
        return np.repeat(np.arange(self.left.size), np.diff(self.first))

    def passing(self, derivative: Integers, owner: Integers) -> tuple[Floats, Floats]:
        """(n,) ends of the stretch on which each node's function has ``derivative`` (n,) among its subgradients."""
        n = self.left.size
        wanted = derivative[owner]
        less = np.bincount(owner[self.derivative < wanted], minlength=n)
        upto = np.bincount(owner[self.derivative <= wanted], minlength=n)
        left, right = self.right.copy(), self.left.copy()
        has = self.first[:-1] + less < self.first[1:]
        left[has] = self.start[(self.first[:-1] + less)[has]]
        has = upto > 0
        right[has] = self.end[(self.first[:-1] + upto - 1)[has]]
        return left, right


@dataclass(frozen=True, eq=False)
class Messages:
    """For each level ``before``, the sums over children (None for levels of leaves only), and ``after``, with own
    bounds and terms."""

    before: tuple[Lists | None, ...]
    after: tuple[Lists, ...]

    def roots(self) -> tuple[Floats, Floats]:
        """Ends of the optimal stretch of each root."""
        top = self.after[0]
        return top.passing(np.zeros(top.left.size, dtype=np.int64), top.owner)

    def children(self, number: int, family: Generation, x: Floats) -> tuple[Floats, Floats]:
        """(children,) ends of the stretches in which the children of level ``number`` may share x, one per parent."""
        total, below = self.before[number], self.after[number + 1]
        assert total is not None
        owner = total.owner
        passed = np.bincount(owner[total.start <= x[owner]], minlength=x.size)
        at = total.first[:-1] + np.maximum(passed - 1, 0)
        some = np.diff(total.first) > 0
        price = np.zeros(x.size, dtype=np.int64)
        price[some] = total.derivative[at[some]]
        return below.passing(family.spread(price), below.owner)


def messages(levels: Sequence[Level], units: Integers, value: Floats) -> Messages:
    """From the leaves up; time N log^2 N or so per level of N segments.

    The least cost of dividing x among children has conjugate the sum of theirs, so its segments are theirs in the order
    of derivatives, laid end to end. Adding ``w |x - v|`` splits the segment at v and moves derivatives left of it down
    and right of it up by w.
    """
    before: list[Lists | None] = []
    after: list[Lists] = []
    below: Lists | None = None
    for level in reversed(levels):
        total = None
        if level.family is not None:
            assert below is not None
            total = _sum(level.family, below)
        below = _with_leaves(level, total)
        for which, columns in level.rounds:
            below = _measured(below, units[which], value[which], columns)
        before.append(total)
        after.append(below)
    return Messages(tuple(reversed(before)), tuple(reversed(after)))


def _sum(family: Generation, below: Lists) -> Lists:
    """Infimal convolution over siblings: all their segments in the order of derivatives.

    Where children are unbounded to the left, derivatives smaller than the largest of their first ones never occur; the
    sum begins with an endless segment of that derivative, and children stand at the ends of theirs.
    """
    n, parents = below.left.size, family.counts.size
    owner = below.owner
    of = family.spread(np.arange(parents))
    parent = of[owner]
    base = family.sum(below.left)
    head = None
    keep = np.ones(owner.size, dtype=bool)
    if np.isinf(base).any():
        endless = np.isinf(below.left)
        least = np.full(parents, np.iinfo(np.int64).min)
        np.maximum.at(least, of[endless], below.derivative[below.first[:-1][endless]])
        early = below.derivative <= least[parent]
        count = np.bincount(owner[early], minlength=n)
        place = below.left.copy()
        place[count > 0] = below.end[(below.first[:-1] + count - 1)[count > 0]]
        base = family.sum(place)
        keep = ~early
        head = np.flatnonzero(family.sum(endless.astype(np.float64)) > 0)
    length = (below.end - below.start)[keep]
    derivative, parent = below.derivative[keep], parent[keep]
    order = np.lexsort((derivative, parent))
    derivative, parent, length = derivative[order], parent[order], length[order]
    end = base[parent] + running(np.add, length, parent)
    start = np.append(0.0, end)[:-1]
    fresh = np.diff(parent, prepend=-1) != 0
    start[fresh] = base[parent[fresh]]
    used = np.isfinite(start)
    derivative, parent, start, end = derivative[used], parent[used], start[used], end[used]
    if head is not None:
        parent = np.concatenate([head, parent])
        derivative = np.concatenate([least[head], derivative])
        start = np.concatenate([np.full(head.size, -np.inf), start])
        end = np.concatenate([base[head], end])
        order = np.argsort(parent, kind="stable")
        derivative, parent, start, end = derivative[order], parent[order], start[order], end[order]
    return Lists(_first(parent, parents), derivative, start, end, family.sum(below.left), family.sum(below.right))


def _with_leaves(level: Level, total: Lists | None) -> Lists:
    """Before own terms: the children's sums cut to the bounds, and zero on their domain for leaves."""
    low, high = level.lower, level.upper
    if level.inner is None:
        assert total is not None
        if not level.cut:
            return total
        owner, derivative, start, end = total.owner, total.derivative, total.start, total.end
    else:
        leaf = np.ones(low.size, dtype=bool)
        leaf[level.inner] = False
        owner = np.flatnonzero(leaf)
        derivative, start, end = np.zeros(owner.size, dtype=np.int64), low[owner], high[owner]
        if total is not None:
            owner = np.concatenate([owner, level.inner[total.owner]])
            order = np.argsort(owner, kind="stable")
            owner = owner[order]
            derivative = np.concatenate([derivative, total.derivative])[order]
            start = np.concatenate([start, total.start])[order]
            end = np.concatenate([end, total.end])[order]
    start, end = np.maximum(start, low[owner]), np.minimum(end, high[owner])
    some = start < end
    return Lists(_first(owner[some], low.size), derivative[some], start[some], end[some], low, high)


def _measured(old: Lists, units: Integers, value: Floats, columns: Integers) -> Lists:
    """With ``units |x - value|`` added at ``columns``: segments split at the value, left parts down, right parts up."""
    n = old.left.size
    weight = np.zeros(n, dtype=np.int64)
    at = np.full(n, np.inf)
    weight[columns], at[columns] = units, value
    owner = old.owner
    weight, at = weight[owner], at[owner]
    start = np.column_stack([old.start, np.maximum(old.start, at)]).ravel()
    end = np.column_stack([np.minimum(old.end, at), old.end]).ravel()
    derivative = np.column_stack([old.derivative - weight, old.derivative + weight]).ravel()
    some = start < end
    owner = np.repeat(owner, 2)[some]
    return Lists(_first(owner, n), derivative[some], start[some], end[some], old.left, old.right)


def _first(owner: Integers, n: int) -> Integers:
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))])
