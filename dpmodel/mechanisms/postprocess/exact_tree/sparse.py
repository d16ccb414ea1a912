"""Messages of the exact tree solver where derivatives are too many to share: each node has its own list of segments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.mechanisms.postprocess.exact_tree.messages import Messages, messages
from dpmodel.mechanisms.postprocess.exact_tree.plan import LevelPlan, TreePlan, turns
from dpmodel.numerics.trees.tree import Generation


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
class SparseMessages:
    """As ``Messages``: ``before`` the sums over children, ``after`` with own bounds and terms."""

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


def exact_messages(plan: TreePlan, value: Floats) -> Messages | SparseMessages:
    """In shared tables where these are small enough."""
    return messages(plan, value) if plan.shared else sparse_messages(plan, value)


def sparse_messages(plan: TreePlan, value: Floats) -> SparseMessages:
    """From the leaves up; time N log^2 N or so per level of N segments."""
    order = plan.cached("turns", lambda: turns(plan))
    before: list[Lists | None] = []
    after: list[Lists] = []
    below: Lists | None = None
    for level, rounds in zip(reversed(plan.levels), reversed(order), strict=True):
        total = None
        if level.family is not None:
            assert below is not None
            total = _sum(level.family, below)
        below = _with_leaves(level, plan, total)
        for which, columns in rounds:
            below = _measured(below, plan.units[which], value[which], columns)
        before.append(total)
        after.append(below)
    return SparseMessages(tuple(reversed(before)), tuple(reversed(after)), plan)


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
