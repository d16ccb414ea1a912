"""Trees (forests) whose nodes are sums of their children, level by level in arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from dpmodel.compile.affine_map import Floats, Integers
from dpmodel.compile.postprocessing import LikelihoodForm, Postprocessing


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
        return np.bincount(self.parent[self.parent >= 0], minlength=self.size).astype(np.int64)

    @cached_property
    def is_leaf(self) -> np.ndarray:
        return self.children == 0

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

    def sums(self, leaf_values: Floats) -> Floats:
        """(N,) node sums from the values of the leaves, (number of leaves,) in node order."""
        x = np.zeros(self.size)
        x[self.is_leaf] = leaf_values
        for level in reversed(self.levels[1:]):
            up = self.parent[level]
            first = int(up[0])
            total = np.bincount(up - first, weights=x[level])
            x[first : first + total.size] += total
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


@dataclass(frozen=True, eq=False)
class TreeProblem:
    """A likelihood over the nodes of a tree: minimise over consistent node values x (parent = sum of children)
    ``sum_i absolute_i |x[node_i] - value_i| + square_i (x[node_i] - value_i)^2`` with lower <= x <= upper.

    ``node, value, absolute, square`` : (k,), nodes may be measured not at all or several times; ``lower, upper`` : (N,).
    ``select`` : (n,) the node that each variable of the form is.
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


def tree_problem(model: Postprocessing) -> TreeProblem | None:
    """The model as a tree, or None where it is none; looked for once."""
    return model.remember("tree problem", lambda: None if model.form is None else _recognise(model.form))


def _recognise(form: LikelihoodForm) -> TreeProblem | None:
    return None
