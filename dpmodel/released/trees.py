"""Trees (forests) whose nodes are sums of their children, in arrays by level, and least squares on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.errors import InfeasibleError, SpecificationError


class Ordered(NamedTuple):
    """A tree made from nodes in the caller's order.

    ``order`` : (N,) the caller's index of each node of ``tree``. ``position`` : (N,) its inverse, the node that each
    of the caller's indices became.
    """

    tree: Tree
    order: Integers
    position: Integers


@dataclass(frozen=True, eq=False)
class Generation:
    """The inner nodes of one level, and their children: the whole next level.

    ``nodes`` : slice (or indices) of the p inner nodes. ``below`` : slice of their c children. ``counts, starts`` :
    (p,) children of each, and where they start within ``below``. The first ``even`` nodes have ``arity`` children each.
    """

    nodes: slice | Integers
    below: slice
    counts: Integers
    starts: Integers
    arity: int
    even: int

    @property
    def uniform(self) -> bool:
        return self.even == self.counts.size

    def sum(self, values: Floats) -> Floats:
        """(..., p) sums over the children of each node of (..., c) ``values``."""
        k, m = self.arity, self.even
        head = values[..., : k * m]
        # Up to this many children per node, sums column by column beat a reduction along the short axis.
        if k <= 8:
            total = head[..., ::k].copy()
            for j in range(1, k):
                total += head[..., j::k]
        else:
            total = head.reshape(*values.shape[:-1], m, k).sum(axis=-1)
        if self.uniform:
            return total
        rest = np.add.reduceat(values[..., k * m :], self.starts[m:] - k * m, axis=-1)
        return np.concatenate([total, rest], axis=-1)

    def spread(self, values: Any) -> Any:
        """(c,) value of each child's parent, from (p,) ``values``."""
        return np.repeat(values, self.arity if self.uniform else self.counts)


@dataclass(frozen=True, eq=False)
class Tree:
    """N nodes in breadth-first order: a level is a slice, and the children of a level's nodes, node after node, are the
    next level. So children of one node are adjacent and parents come first.

    ``parent`` : (N,) node number of the parent, -1 for roots (all of level 0; several roots make a forest).
    ``bounds`` : (L + 1,) level l is ``bounds[l]:bounds[l + 1]``. Branching may differ, leaves may lie at any depth.
    """

    parent: Integers
    bounds: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(self.parent.size)

    @property
    def levels(self) -> tuple[slice, ...]:
        return tuple(slice(a, b) for a, b in zip(self.bounds[:-1], self.bounds[1:], strict=True))

    @cached_property
    def children(self) -> Integers:
        """(N,) number of children of each node."""
        return np.bincount(self.parent[self.bounds[1] :], minlength=self.size).astype(np.int64)

    @cached_property
    def is_leaf(self) -> npt.NDArray[np.bool_]:
        none: npt.NDArray[np.bool_] = self.children == 0
        return none

    @cached_property
    def leaves(self) -> Integers:
        """Node numbers of the leaves, ascending."""
        return np.flatnonzero(self.is_leaf)

    @cached_property
    def generations(self) -> tuple[Generation, ...]:
        """Parents and children, top down: one item for each level but the last."""
        found = []
        for level, below in zip(self.levels[:-1], self.levels[1:], strict=True):
            children = self.children[level]
            inner = np.flatnonzero(children)
            whole = inner.size == children.size
            counts = children if whole else children[inner]
            starts = np.cumsum(counts) - counts
            arity = int(counts[0])
            other = counts != arity
            even = int(other.argmax()) if other.any() else int(counts.size)
            nodes = level if whole else level.start + inner
            found.append(Generation(nodes, below, counts, starts, arity, even))
        return tuple(found)

    @staticmethod
    def complete(leaves: int, branching: int = 2) -> Tree:
        """The tree over ``leaves`` consecutive leaves with blocks of ``branching``; the last block of a level may be
        smaller, and every leaf lies in the last level."""
        sizes = [leaves]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // branching))
        sizes.reverse()
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        parent = np.full(int(bounds[-1]), -1, dtype=np.int64)
        for level in range(1, len(sizes)):
            parent[bounds[level] : bounds[level + 1]] = bounds[level - 1] + np.arange(sizes[level]) // branching
        return Tree(parent, tuple(int(b) for b in bounds))

    @staticmethod
    def of_parents(parents: Any, names: Sequence[Any] | None = None) -> Ordered:
        """The tree of a parent vector in any order.

        ``parents`` : (N,) integers: the index of each node's parent, negative for a root. Siblings keep their order.
        ``names`` : (N,) shown in messages in place of the indices.
        Errors: SpecificationError, when nodes form a cycle (named).
        """
        up = np.asarray(parents, dtype=np.int64)
        found = ordered(up)
        if found is None:
            raise SpecificationError(
                f"the tree has a cycle: {_names(_cycle(up), names)}", why="no node may be its own ancestor"
            )
        return found

    def sums(self, leaf_values: Floats) -> Floats:
        """(N,) node sums from the values of the leaves, (number of leaves,) in node order."""
        x = np.zeros(self.size)
        x[self.is_leaf] = leaf_values
        for generation in reversed(self.generations):
            x[generation.nodes] = generation.sum(x[generation.below])
        return x

    @cached_property
    def consistency(self) -> sp.csr_array:
        """(inner nodes, N): node minus its children."""
        inner = np.flatnonzero(~self.is_leaf)
        row = np.full(self.size, -1, dtype=np.int64)
        row[inner] = np.arange(inner.size)
        child = np.flatnonzero(self.parent >= 0)
        rows = np.concatenate([np.arange(inner.size), row[self.parent[child]]])
        columns = np.concatenate([inner, child])
        data = np.concatenate([np.ones(inner.size), -np.ones(child.size)])
        return sp.csr_array((data, (rows, columns)), shape=(inner.size, self.size))

    @cached_property
    def covers(self) -> Integers:
        """(N, 2) first leaf of each node and one past its last, leaves counted from left to right."""
        count = self.is_leaf.astype(np.int64)
        for generation in reversed(self.generations):
            count[generation.nodes] = np.add.reduceat(count[generation.below], generation.starts)
        start = np.cumsum(count) - count  # Right within level 0; below, what precedes the first sibling is taken off.
        for generation in self.generations:
            children = start[generation.below]
            shift = start[generation.nodes] - children[generation.starts]
            children += generation.spread(shift)
        return np.stack([start, start + count], axis=1)

    @cached_property
    def left_to_right(self) -> Integers:
        """Node numbers of the leaves from left to right (that is ``leaves`` when all lie in the last level)."""
        found = np.empty(self.leaves.size, dtype=np.int64)
        found[self.covers[self.leaves, 0]] = self.leaves
        return found

    @cached_property
    def incidence(self) -> sp.csr_array:
        """(N, leaves): which leaves (columns in node order) each node sums: ``sums(v)`` is ``incidence @ v``."""
        start, stop = self.covers.T
        indptr = np.concatenate([[0], np.cumsum(stop - start)])
        small = np.int32 if indptr[-1] < 2**31 else np.int64
        place = np.repeat((start - indptr[:-1]).astype(small), stop - start)
        place += np.arange(place.size, dtype=small)
        if not np.array_equal(self.left_to_right, self.leaves):
            place = np.searchsorted(self.leaves, self.left_to_right).astype(small)[place]
        return sp.csr_array((np.ones(place.size), place, indptr.astype(small)), shape=(self.size, self.leaves.size))


def ordered(parents: Integers) -> Ordered | None:
    """``Tree.of_parents`` for (N,) entries below N; None where there is a cycle. One pass over each level."""
    size = parents.size
    roots = np.flatnonzero(parents < 0)
    by_parent = np.argsort(parents, kind="stable")[roots.size :]
    count = np.bincount(parents[by_parent], minlength=size)
    first = np.cumsum(count) - count
    frontier, order, bounds = roots, [roots], [0, int(roots.size)]
    while True:
        k = count[frontier]
        total = int(k.sum())
        if total == 0:
            break
        frontier = by_parent[np.arange(total) + np.repeat(first[frontier] - (np.cumsum(k) - k), k)]
        order.append(frontier)
        bounds.append(bounds[-1] + total)
    if bounds[-1] != size:
        return None
    by_level = np.concatenate(order)
    position = np.empty(size, dtype=np.int64)
    position[by_level] = np.arange(size)
    up = parents[by_level]
    up[roots.size :] = position[up[roots.size :]]
    up[: roots.size] = -1
    return Ordered(Tree(up, tuple(bounds)), by_level, position)


def _cycle(parents: Integers) -> Integers:
    """The nodes of one cycle, each followed by its parent."""
    live = np.bincount(parents[parents >= 0], minlength=parents.size)
    stack = [int(node) for node in np.flatnonzero(live == 0)]
    while stack:  # Strip what hangs below no cycle; only run on the way to an error.
        up = int(parents[stack.pop()])
        if up >= 0:
            live[up] -= 1
            if live[up] == 0:
                stack.append(up)
    # Left are nodes on a cycle, and ancestors of none: a cycle has no way out, so any live node is on one.
    start = node = int(np.flatnonzero(live > 0)[0])
    found = [start]
    while (node := int(parents[node])) != start:
        found.append(node)
    return np.array(found)


def _names(nodes: Integers, names: Sequence[Any] | None, most: int = 6) -> str:
    shown = [repr(int(node) if names is None else names[int(node)]) for node in nodes[:most]]
    return " -> ".join([*shown, "..."] if nodes.size > most else shown)


def node_ranges(tree: Tree, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """(N,), (N,) the ends of what each node can be: the sums of its children's ends, cut by its own bounds. Together
    with the bounds of the nodes above, no value between them is ruled out.
    Errors: InfeasibleError, where nothing is left by more than rounding (1e-9 of the ends)."""
    low, high = np.array(lower, dtype=np.float64), np.array(upper, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        for family in (None, *reversed(tree.generations)):
            nodes: Any = slice(None) if family is None else family.nodes
            if family is not None:
                low[nodes] = np.maximum(low[nodes], family.sum(low[family.below]))
                high[nodes] = np.minimum(high[nodes], family.sum(high[family.below]))
            a, b = low[nodes], high[nodes]
            crossed = ~(a <= b) | (a == np.inf) | (b == -np.inf)
            if crossed.any():
                if not (a - b <= 1e-9 * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b))))[crossed].all():
                    at = int(np.flatnonzero(crossed)[0])
                    raise InfeasibleError(
                        f"a sum of variables would have to be at least {a[at]:.12g} and at most {b[at]:.12g}",
                        why="the bounds of its parts, added up, contradict its own",
                        remedy="correct one of them",
                    )
                low[nodes] = np.where(crossed, b, a)
    return low, high


def divided(family: Generation, x: Floats, left: Floats, right: Floats, target: Floats, spread: Floats) -> Floats:
    """(children,) values between left and right, with sums x (parents,), that minimise ``sum (child - target)^2 /
    spread``, up to rounding. Sums of left and right lie around x; ends may be infinite.

    Variable fixing (Bitran and Hax 1981): share out what is missing, fix the children that leave their segments on the
    side that is exceeded more, and share out again. At most as many rounds as children in the largest family.
    """
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
        side = family.spread(family.sum(over) - family.sum(under))
        out = np.where(free, np.clip(wish, left, right), out)
        leaving = ((side > 0) & (over > 0)) | ((side < 0) & (under > 0))
        if not leaving.any():
            break
        free &= ~leaving
    return out


def largest_fractions(family: Generation, fractions: Floats, quota: Floats) -> Floats:
    """(children,) 1 for the ``quota`` (parents,) largest fractions of each family, ties to the earlier. A quota below
    zero, or above the number of children (by rounding only), moves the smallest down, or all up once more."""
    order = np.lexsort((-fractions, family.spread(np.arange(quota.size))))
    rank = np.empty(fractions.size)
    rank[order] = np.arange(fractions.size) - family.spread(family.starts)
    count, target = family.spread(family.counts), family.spread(quota)
    rounds = np.floor(target / count)  # 0 unless out of range.
    extra: Floats = rounds + (rank < target - rounds * count)
    return extra


@dataclass(frozen=True, eq=False)
class TreeProblem:
    """A likelihood over the nodes of a tree: minimise over consistent node values x (parent = sum of children)
    ``sum_i absolute_i |x[node_i] - value_i| + square_i (x[node_i] - value_i)^2`` with lower <= x <= upper.

    ``node, value, absolute, square`` : (k,), nodes may be measured not at all or several times. ``lower, upper`` :
    (N,), equal where a node's value is fixed. ``select`` : (n,) the node that each variable of the form is (variables
    that must be equal are one node). Terms that do not depend on x, and integrality, are left to the form.
    """

    tree: Tree
    node: Integers
    value: Floats
    absolute: Floats
    square: Floats
    lower: Floats
    upper: Floats
    select: Integers

    def objective(self, x: Floats) -> float:
        r = x[self.node] - self.value
        return float(self.absolute @ np.abs(r) + self.square @ np.square(r))


# ------------------------------------------------------------------ the projection


@dataclass(frozen=True)
class _Step:
    """One generation: ``gain`` of the inner nodes' own values, ``share`` of each child; a number where all agree."""

    generation: Generation
    gain: Any
    share: Any


class TreeProjector:
    """Minimise ``sum_i weight_i (x_i - v_i)^2`` over node values x with parent = sum of children, again and again.

    Generalises the two passes of Hay, Rastogi, Miklau and Suciu (PVLDB 2010, Theorem 3) to any branching, weights and
    fixed nodes. Upwards: the least cost of node i's subtree at total t is ``(t - u_i)^2 / s_i`` plus a constant;
    joining children adds both u and s (infimal convolution of quadratics), and a node's own term joins as a weighted
    mean. Downwards: what a node has beyond the sum of its children's u goes to them in proportion to s.

    ``weight`` : (N,) or a number, finite and >= 0. Weight 0: unmeasured.
    ``fixed`` : (N,) values that nodes must take, nan where free.

    Where the minimiser is not unique (unmeasured leaves that no measurement settles), it is the one whose undetermined
    leaves have the least sum of squares: the limit of giving unmeasured leaves the value 0 with a vanishing weight.
    Errors: SpecificationError, negative, infinite or nan weights, wrong shapes; InfeasibleError, when fixed values
    contradict each other by more than 1e-9 of their size.
    """

    def __init__(self, tree: Tree, weight: Any = None, fixed: Floats | None = None) -> None:
        self.tree = tree
        n = tree.size
        w = np.ones(n) if weight is None else np.array(np.broadcast_to(np.asarray(weight, dtype=np.float64), (n,)))
        if not (np.isfinite(w).all() and (w >= 0).all()):
            raise SpecificationError("the weights of a tree's nodes are finite and not negative")
        own = np.full(n, np.inf)  # Variance of each node's own term, 1 / weight; 0 where fixed.
        with np.errstate(over="ignore"):
            np.divide(1.0, w, out=own, where=w > 0)
        self._held: Integers | None = None
        self._to = np.zeros(0)
        if fixed is not None:
            held = np.flatnonzero(~np.isnan(fixed))
            if held.size:
                self._held, self._to = held, np.asarray(fixed, dtype=np.float64)[held]
                own[held] = 0.0
        unmeasured = np.isinf(own)
        self._unmeasured = np.flatnonzero(unmeasured) if unmeasured.any() else None
        self._own = own
        self.variance = own.copy()  # s of each node's subtree; infinite where undetermined.
        self.below = np.full(n, np.nan)  # The sum of s over the children; nan for leaves.
        self._open = (unmeasured & tree.is_leaf).astype(np.float64)  # Undetermined leaves below, where s is infinite.
        steps = [self._join(generation) for generation in reversed(tree.generations)]
        self._up = tuple(steps)
        self._down = tuple(reversed(steps))
        if self._held is not None:
            self._check()

    def _join(self, generation: Generation) -> _Step:
        """Combine children with their parents, both ways."""
        nodes, below = generation.nodes, generation.below
        s, own = self.variance[below], self._own[nodes]
        total = generation.sum(s)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            gain = total / (total + own)
            share = s / generation.spread(total)
            joint = gain * own
        if self._unmeasured is not None:
            open_leaves = generation.sum(self._open[below])
            lost, blank = np.isinf(total), np.isinf(own)
            gain = np.where(blank, 0.0, np.where(lost, 1.0, gain))
            joint = np.where(blank, total, np.where(lost, own, joint))
            self._open[nodes] = np.where(blank, open_leaves, 0.0)
            of_open = generation.spread(np.maximum(open_leaves, 1.0))
            share = np.where(generation.spread(lost), self._open[below] / of_open, share)
        if self._held is not None:
            settled = total == 0
            gain = np.where(settled, 0.0, gain)
            joint = np.where(settled, 0.0, joint)
            share = np.where(generation.spread(settled), 0.0, share)
        self.variance[nodes] = joint
        self.below[nodes] = total
        return _Step(generation, _one(gain), _one(share))

    def _check(self) -> None:
        """Nodes whose children are all settled have no choice left: their own fixed value must agree."""
        forced = np.flatnonzero((self.below == 0) & (self._own == 0))
        if forced.size == 0:
            return
        _, sums = self._upward(np.zeros(self.tree.size), self._to)
        _, sizes = self._upward(np.zeros(self.tree.size), np.abs(self._to))
        own = np.full(self.tree.size, np.nan)
        own[self._held] = self._to
        # Relative gap at which fixed values that should add up no longer do.
        wrong = np.abs(sums - own)[forced] > 1e-9 * (sizes[forced] + np.abs(own[forced]))
        if wrong.any():
            raise InfeasibleError(
                f"the fixed values below node {int(forced[wrong][0])} of the tree do not add up to its own",
                why="a node is the sum of its children",
                remedy="leave one of them free",
            )

    def _upward(self, v: Floats, to: Floats) -> tuple[Floats, Floats]:
        """u of each node, and the sum of u over its children (undefined for leaves)."""
        u = np.array(v, dtype=np.float64)
        if u.shape != (self.tree.size,):
            raise SpecificationError(f"node values of shape {u.shape} for a tree of {self.tree.size} nodes")
        if self._unmeasured is not None:
            u[self._unmeasured] = 0.0
        if self._held is not None:
            u[self._held] = to
        sums = np.empty(self.tree.size)
        for step in self._up:
            nodes = step.generation.nodes
            total = step.generation.sum(u[step.generation.below])
            sums[nodes] = total
            mean = u[nodes] - total
            mean *= step.gain
            mean += total
            u[nodes] = mean
        return u, sums

    def passes(self, v: Floats) -> tuple[Floats, Floats]:
        """The minimiser (N,), and the sums (N,) of u over the children (undefined for leaves)."""
        x, sums = self._upward(v, self._to)
        for step in self._down:
            surplus = step.generation.spread(x[step.generation.nodes] - sums[step.generation.nodes])
            surplus *= step.share
            x[step.generation.below] += surplus
        return x, sums

    def estimates(self, v: Floats) -> Floats:
        """(N,) u: each node's estimate from its own subtree alone, of variance ``variance``."""
        return self._upward(v, self._to)[0]

    def project(self, v: Floats) -> Floats:
        """(N,) the minimiser for node values ``v`` (N,), a new array. Two passes, linear time."""
        return self.passes(v)[0]


def _one(values: Floats) -> Any:
    """The number that all of ``values`` are, or themselves."""
    first = values[0]
    return float(first) if (values == first).all() else values
