"""The nearest consistent node values of a tree in weighted least squares, in two passes over its levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.numerics.trees.tree import Generation, Tree

_AGREE = 1e-9  # Relative gap at which fixed values that should add up no longer do.


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

    Parameters
    ----------
    weight : (N,) or a number, finite and >= 0. Weight 0: unmeasured.
    fixed : (N,) values that nodes must take, nan where free.

    Where the minimiser is not unique (unmeasured leaves that no measurement settles), it is the one whose undetermined
    leaves have the least sum of squares: the limit of giving unmeasured leaves the value 0 with a vanishing weight.

    Raises
    ------
    SpecificationError
        Negative, infinite or nan weights, wrong shapes.
    InfeasibleError
        When fixed values contradict each other by more than 1e-9 of their size.
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
        _, reach = self._upward(np.zeros(self.tree.size), np.abs(self._to))
        own = np.full(self.tree.size, np.nan)
        own[self._held] = self._to
        wrong = np.abs(sums - own)[forced] > _AGREE * (reach[forced] + np.abs(own[forced]))
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
