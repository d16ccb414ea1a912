"""Bounds on a tree from the top down: what is said of small cells does not move the totals above them."""

from __future__ import annotations

import numpy as np

from dpmodel._types import Floats
from dpmodel.compile.likelihood.structure import Separable, Sums
from dpmodel.mechanisms.postprocess.least_squares_tree.bounds import least_and_most
from dpmodel.mechanisms.postprocess.projection.sums import project_sums
from dpmodel.numerics.trees.projector import TreeProjector
from dpmodel.numerics.trees.tree import Tree


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
