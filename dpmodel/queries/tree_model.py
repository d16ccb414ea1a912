"""A model over the nodes of a tree that is known beforehand: no solver has to look for it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.annotate.noisy import Noisy
from dpmodel.compile.likelihood.postprocessing import LikelihoodForm, Postprocessing
from dpmodel.errors import SpecificationError
from dpmodel.mechanisms.postprocess.rounding.trees import round_tree
from dpmodel.numerics.trees.tree import Tree, TreeProblem
from dpmodel.queries.consistent import refuse_contradiction

Arrays = tuple[LikelihoodForm, tuple[Noisy, ...], tuple[slice, ...]]


def tree_postprocessing(tree: Tree, arrays: Arrays, words: str) -> Postprocessing:
    """``arrays`` : form, measurements and rows; every row of the form picks one node. Contradictions of known numbers
    have been refused before (``known_nodes``, ``refuse_contradiction``): they are not looked for again."""
    form, measurements, rows = arrays
    model = Postprocessing(form, measurements, rows, words=words)
    model.remember("consistent", lambda: True)
    model.remember(
        "tree problem",
        lambda: TreeProblem(
            tree,
            form.matrix.indices.astype(np.int64),
            form.value,
            form.absolute,
            form.square,
            form.lower,
            form.upper,
            np.arange(tree.size, dtype=np.int64),
        ),
    )
    return model


def known_nodes(
    tree: Tree,
    low: Floats,
    high: Floats,
    zeros: Integers,
    fixed: Mapping[int, float],
    names: Sequence[Hashable],
) -> tuple[Floats, Floats]:
    """(nodes,) bounds with known nodes and structural zeros (and all below these) put in.

    Raises
    ------
    InfeasibleError
        Unless some consistent numbers lie within them: a node's own bounds must meet the range of its children's sum.
    """
    low, high = low.copy(), high.copy()
    zero = np.zeros(tree.size, dtype=bool)
    zero[zeros] = True
    for level in tree.levels[1:]:
        zero[level] |= zero[tree.parent[level]]
    for place in np.flatnonzero(zero).tolist():
        refuse_contradiction(repr(names[place]), 0.0, "it has to be", low[place], high[place])
    low[zero] = high[zero] = 0.0
    for place, value in fixed.items():
        refuse_contradiction(repr(names[place]), value, "it has to be", low[place], high[place])
        low[place] = high[place] = value
    # The range of the sum of each node's children, from the bottom up.
    least, most = low.copy(), high.copy()
    for level in reversed(tree.levels[1:]):
        up, first = tree.parent[level], int(tree.parent[level][0])
        here = np.unique(up)
        below, above = (np.bincount(up - first, weights=reach[level])[here - first] for reach in (least, most))
        own = low[here] == high[here]
        for node, a, b in zip(here[own].tolist(), below[own].tolist(), above[own].tolist(), strict=True):
            refuse_contradiction(repr(names[node]), float(low[node]), "its parts sum to", a, b)
        # Known parts decide their sum to the last digit.
        sums = np.where(own, np.clip(low[here], below, above), 0.0)
        low[here], high[here] = np.where(own, sums, low[here]), np.where(own, sums, high[here])
        least[here], most[here] = np.where(own, sums, below), np.where(own, sums, above)
    return low, high


def rounded_tree(model: Postprocessing, tree: Tree, x: Floats, round: str, seed: int) -> Floats:
    """(nodes,) whole consistent numbers, each the floor or ceiling of x; see ``round_tree``.

    Raises
    ------
    SpecificationError
        Where a bound or known number is not whole, so that floors and ceilings do not keep it.
    """
    form = model.form
    assert form is not None
    whole = round_tree(tree, x, round, seed)  # type: ignore[arg-type]
    wrong = np.maximum(form.lower - whole, whole - form.upper)
    at = int(np.argmax(wrong))
    if wrong[at] > 1e-6 * max(1.0, abs(whole[at])):
        raise SpecificationError(
            f"rounded, node {at} would be {whole[at]:.12g}, not in {form.lower[at]:.12g} to {form.upper[at]:.12g}",
            why="a bound or known number is not whole, and rounding keeps floors and ceilings only",
            remedy="round=None, or whole bounds and totals",
        )
    return whole
