"""Messages of the exact tree solver: least cost of a subtree as a function of its node's value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpmodel._types import Floats, Integers
from dpmodel.errors import InfeasibleError
from dpmodel.memo import PublicFacts
from dpmodel.released.trees import Generation, Tree, TreeProblem

# ------------------------------------------------------------------ what does not depend on the values


@dataclass(frozen=True, eq=False)
class LevelPlan:
    """One level. ``inner`` : columns of nodes with children (None: all), ``family`` : these children (None: none).
    ``cut`` : columns whose own bounds say more than their children's, or None. ``rounds`` : (measurements, columns):
    the first measurement of each node, then the second, ..."""

    nodes: slice
    inner: Integers | None
    family: Generation | None
    cut: Integers | None
    rounds: tuple[tuple[Integers, Integers], ...]

    @property
    def size(self) -> int:
        return int(self.nodes.stop - self.nodes.start)


@dataclass(frozen=True, eq=False)
class TreePlan(PublicFacts):
    """Everything about a ``TreeProblem`` but its values; cheap to use again with others.

    ``lower, upper`` : (N,) domains after adding up children's. ``levels`` : from the roots down. Weights are ``units``
    (k,), integers, times ``unit``.
    """

    tree: Tree
    node: Integers
    absolute: Floats
    given_lower: Floats
    given_upper: Floats
    lower: Floats
    upper: Floats
    units: Integers
    unit: float
    levels: tuple[LevelPlan, ...]

    def fits(self, problem: TreeProblem) -> bool:
        """Whether it was made for this problem, values aside."""
        return (
            problem.tree is self.tree
            and problem.node is self.node
            and problem.absolute is self.absolute
            and problem.lower is self.given_lower
            and problem.upper is self.given_upper
        )


def integer_weights(weights: Floats) -> tuple[Integers, float]:
    """Integers u and a unit with ``u unit`` equal to the weights to a relative 1e-12 where they are small
    multiples of a common unit (so the objective changes by no more than that share), else to 2^-44 of the largest
    weight (2^-35 with 2^24 measurements). Sums of integers are exact, so derivatives that should be equal are.
    """
    if weights.size and weights.min() == weights.max() > 0:
        return np.ones(weights.shape, dtype=np.int64), float(weights[0])
    known, where = np.unique(weights, return_inverse=True)
    positive = known[known > 0]
    if positive.size == 0:
        return np.zeros(weights.shape, dtype=np.int64), 1.0
    smallest, largest = float(positive[0]), float(positive[-1])
    if largest / smallest < 2.0**30:
        for m in range(1, 61):
            q = known / smallest * m
            if (np.abs(q - np.rint(q)) <= 1e-12 * q).all():
                return np.rint(q).astype(np.int64)[where.ravel()], smallest / m
    # integer weights where no common unit is found
    unit = largest * 2.0 ** -min(44, 60 - int(weights.size).bit_length())  # sums stay below 2^62
    return np.rint(known / unit).astype(np.int64)[where.ravel()], unit


def domains(problem: TreeProblem) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """(lower, upper, cut): the values each node can take given its subtree, and which inner nodes' own bounds matter.

    Raises
    ------
    InfeasibleError
        If a node's bounds and its children's disagree by more than a relative 1e-9.
    """
    tree = problem.tree
    lower, upper = np.array(problem.lower, dtype=np.float64), np.array(problem.upper, dtype=np.float64)
    cut = np.zeros(tree.size, dtype=bool)
    for number, level in reversed(list(enumerate(tree.levels))):
        if number < len(tree.generations):
            family = tree.generations[number]
            inner = family.nodes
            low, high = family.sum(lower[family.below]), family.sum(upper[family.below])
            cut[inner] = (lower[inner] > low) | (upper[inner] < high)
            lower[inner] = np.maximum(lower[inner], low)
            upper[inner] = np.minimum(upper[inner], high)
        a, b = lower[level], upper[level]
        with np.errstate(invalid="ignore"):
            # relative: fixed values that add up to this are taken to agree
            tolerance = 1e-9 * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))
            empty = ~(a <= b + tolerance) | (a == np.inf) | (b == -np.inf)
        if empty.any():
            at = level.start + int(np.flatnonzero(empty)[0])
            raise InfeasibleError(
                f"no value of node {at} of the tree satisfies the bounds",
                why=f"with the bounds below it, it is at least {lower[at]:.12g} and at most {upper[at]:.12g}",
                remedy="correct the bounds or the known totals of this node or of nodes below it",
            )
        crossed = a > b
        lower[level] = np.where(crossed, b, a)
    return lower, upper, cut


def tree_plan(problem: TreeProblem) -> TreePlan:
    """Domains, integer weights and index arrays.

    Raises
    ------
    InfeasibleError
        As ``domains``.
    """
    lower, upper, cut = domains(problem)
    units, unit = integer_weights(problem.absolute)
    given = (problem.tree, problem.node, problem.absolute, problem.lower, problem.upper)
    return TreePlan(*given, lower, upper, units, unit, _levels(problem, units, cut))


def _levels(problem: TreeProblem, units: Integers, cut: npt.NDArray[np.bool_]) -> tuple[LevelPlan, ...]:
    tree = problem.tree
    used = np.flatnonzero(units > 0)
    used = used[np.argsort(problem.node[used], kind="stable")]
    nodes = problem.node[used]
    turn = np.arange(used.size) - np.searchsorted(nodes, nodes)  # how many of the same node came before
    edges = np.searchsorted(nodes, tree.bounds)
    plans = []
    for number, level in enumerate(tree.levels):
        inner = np.flatnonzero(~tree.is_leaf[level])
        family = tree.generations[number] if inner.size else None
        part = slice(edges[number], edges[number + 1])
        which, column, when = used[part], nodes[part] - level.start, turn[part]
        rounds = tuple((which[when == r], column[when == r]) for r in range(int(when.max(initial=-1)) + 1))
        bounded = np.flatnonzero(cut[level]) if cut[level].any() else None
        columns = None if inner.size == level.stop - level.start else inner
        plans.append(LevelPlan(level, columns, family, bounded, rounds))
    return tuple(plans)


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
    plan: TreePlan

    def roots(self) -> tuple[Floats, Floats]:
        """Ends of the optimal stretch of each root."""
        top = self.after[0]
        return top.passing(np.zeros(top.left.size, dtype=np.int64), top.owner)

    def children(self, number: int, x: Floats) -> tuple[Floats, Floats]:
        """(children,) ends of the stretches in which the children of level ``number`` may share x, one per parent."""
        family, total, below = self.plan.levels[number].family, self.before[number], self.after[number + 1]
        assert family is not None and total is not None
        owner = total.owner
        passed = np.bincount(owner[total.start <= x[owner]], minlength=x.size)
        at = total.first[:-1] + np.maximum(passed - 1, 0)
        some = np.diff(total.first) > 0
        price = np.zeros(x.size, dtype=np.int64)
        price[some] = total.derivative[at[some]]
        return below.passing(family.spread(price), below.owner)


def messages(plan: TreePlan, value: Floats) -> Messages:
    """From the leaves up; time N log^2 N or so per level of N segments.

    The least cost of dividing x among children has conjugate the sum of theirs, so its segments are theirs in the order
    of derivatives, laid end to end. Adding ``w |x - v|`` splits the segment at v and moves derivatives left of it down
    and right of it up by w.
    """
    before: list[Lists | None] = []
    after: list[Lists] = []
    below: Lists | None = None
    for level in reversed(plan.levels):
        total = None
        if level.family is not None:
            assert below is not None
            total = _sum(level.family, below)
        below = _with_leaves(level, plan, total)
        for which, columns in level.rounds:
            below = _measured(below, plan.units[which], value[which], columns)
        before.append(total)
        after.append(below)
    return Messages(tuple(reversed(before)), tuple(reversed(after)), plan)


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
    start, end = _running(base, parent, length)
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


def _running(base: Floats, parent: Integers, length: Floats) -> tuple[Floats, Floats]:
    """(start, end) of segments laid one after another from each parent's base. Running sums by doubling within each
    parent, so that no parent's rounding errors depend on the others."""
    m = parent.size
    place = np.arange(m) - np.searchsorted(parent, parent)
    total = length.copy()
    step = 1
    while step <= int(place.max(initial=0)):
        total[step:] += np.where(place[step:] >= step, total[:-step], 0.0)
        step *= 2
    end = base[parent] + total
    start = np.empty(m)
    start[1:] = end[:-1]
    fresh = place == 0
    start[fresh] = base[parent[fresh]]
    return start, end


def _with_leaves(level: LevelPlan, plan: TreePlan, total: Lists | None) -> Lists:
    """Before own terms: the children's sums cut to the bounds, and zero on their domain for leaves."""
    low, high = plan.lower[level.nodes], plan.upper[level.nodes]
    if level.inner is None:
        assert total is not None
        if level.cut is None:
            return total
        owner, derivative, start, end = total.owner, total.derivative, total.start, total.end
    else:
        leaf = np.ones(level.size, dtype=bool)
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
    return Lists(_first(owner[some], level.size), derivative[some], start[some], end[some], low, high)


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
