"""Sums over the nodes of a known tree: what measures them, and a model of them that no solver has to look for."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.likelihood.postprocessing import Postprocessing, picks
from dpmodel.errors import SpecificationError
from dpmodel.marks.private import Private
from dpmodel.marks.records import Neighbors, Records
from dpmodel.mechanisms.postprocess.rounding.trees import round_tree
from dpmodel.numerics.trees.tree import Tree, TreeProblem
from dpmodel.queries.consistent import Round, assembled, public_array, refuse_contradiction
from dpmodel.queries.form_choice import Setting, settled
from dpmodel.queries.private_sums import private_sums


class TreeOfSums:
    """Sums of leaf values over a ``tree``: what histograms and hierarchies share."""

    tree: Tree

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self.tree.size

    @property
    def sensitivity(self) -> int:
        """How far one record in one leaf moves all nodes in the 1-norm (add-remove): the number of levels."""
        return len(self.tree.levels)

    @property
    def matrix(self) -> sp.csr_array:
        """(nodes, leaves) 0/1 matrix: nodes as sums of leaves."""
        return self.tree.incidence

    def _in_order(self, values: Any) -> Any:
        """Values of the leaves in their order, where they came with names; others as they are."""
        return values

    def answers(self, leaf_values: Any) -> Floats:
        """(nodes,) the sums of public leaf values: (leaves,) in their order, or by name where leaves have names."""
        values = public_array(self._in_order(leaf_values), "leaf_values")
        if values.size != self.tree.leaves.size:
            raise SpecificationError(f"{values.size} values for {self.tree.leaves.size} leaves", remedy="one per leaf")
        return self.tree.sums(values)

    def query(self, leaf_values: Any) -> cp.Expression:
        """The affine expression (nodes,) of Private leaf counts (or of a CVXPY vector), for ``measure``. Under
        "replace-one" ``private`` needs less noise: it knows that the total stays, and this does not."""
        leaves = self.tree.leaves.size
        if tuple(leaf_values.shape) != (leaves,):
            raise SpecificationError(f"leaf counts of shape {tuple(leaf_values.shape)}", remedy=f"shape ({leaves},)")
        return cp.Constant(self.matrix, name="tree of sums") @ leaf_values

    def private(
        self, counts: Any, *, neighbors: Neighbors = "replace-one", name: str = "counts", **attributes: Any
    ) -> Private:
        """The node sums of private counts, to ``measure``: as ``query`` of a Private vector, without its matrix.

        Parameters
        ----------
        counts : (leaves,) array, each record adding one to one entry; None to plan without data. {name: count} or a
            pandas Series by name where leaves have names.
        neighbors : "add-remove", or "replace-one", where the number of records is public.
        attributes : of ``Private``, such as ``integer=True`` for whole noise.
        """
        leaves = self._in_order(counts)
        return private_sums(self.tree, leaves, Records.of_table(None, neighbors, None), name, attributes)

    def _fitted(
        self, parts: Any, low: Floats, high: Floats, words: str, alpha: float, form: str
    ) -> tuple[Postprocessing, Setting]:
        """The model of measured nodes, ``parts`` (Noisy, nodes), within the bounds, and how it is spelled.

        Contradictions of known numbers have been refused before (``known_nodes``, ``refuse_contradiction``): they are
        not looked for again, and no solver has to look for the tree.
        """
        tree, rows = self.tree, [(noisy, picks(nodes, self.size)) for noisy, nodes in parts]

        def build(setting: Setting) -> Postprocessing:
            bounds = {"equality": tree.consistency, "lower": low, "upper": high}
            arrays, measurements, places = assembled(rows, setting, self.size, **bounds)
            model = Postprocessing(arrays, measurements, places, words=f"post-processing: {words}; it costs no privacy")
            model.cached("consistent", lambda: True)
            node = arrays.matrix.indices.astype(np.int64)
            noise = (arrays.value, arrays.absolute, arrays.square)
            model.cached("tree problem", lambda: TreeProblem(tree, node, *noise, low, high, np.arange(tree.size)))
            return model

        return settled(build, alpha, form)


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


def rounded_tree(tree: Tree, x: Floats, lower: Floats, upper: Floats, round: Round, seed: int) -> Floats:
    """(nodes,) whole consistent numbers, each the floor or ceiling of x; see ``round_tree``.

    Raises
    ------
    SpecificationError
        Where a bound or known number is not whole, so that floors and ceilings do not keep it.
    """
    whole = round_tree(tree, x, round, seed)
    wrong = np.maximum(lower - whole, whole - upper)
    at = int(np.argmax(wrong))
    if wrong[at] > 1e-6 * max(1.0, abs(whole[at])):
        raise SpecificationError(
            f"rounded, node {at} would be {whole[at]:.12g}, not in {lower[at]:.12g} to {upper[at]:.12g}",
            why="a bound or known total that is not whole: rounding keeps floors and ceilings only",
            remedy="round=None, or whole bounds and totals",
        )
    return whole
