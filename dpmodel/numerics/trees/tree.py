"""Trees (forests) whose nodes are sums of their children, level by level in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.errors import SpecificationError

_STRIDED = 8  # Up to this many children per node, sums column by column beat a reduction along the short axis.


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
        if k <= _STRIDED:
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

        Parameters
        ----------
        parents : (N,) integers: the index of each node's parent, negative for a root. Siblings keep their order.
        names : (N,) shown in messages in place of the indices.

        Raises
        ------
        SpecificationError
            When nodes form a cycle (named).
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
