"""Node sums of private counts as one Private parameter, with the bounds that a tree of sums has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpmodel._types import PrivateArray
from dpmodel.errors import SpecificationError
from dpmodel.marks.domain import array_of
from dpmodel.marks.private import Private
from dpmodel.marks.records import Records
from dpmodel.numerics.trees.tree import Tree


def private_sums(tree: Tree, counts: Any, records: Records, name: str, attributes: dict[str, Any]) -> Private:
    """(nodes,) sums of ``counts`` (leaves,), where each record adds one to one leaf.

    Sensitivity: a record adds one to every node on a path from a leaf to its root, at most ``levels`` nodes. Added or
    removed, it moves that many entries by one: D1 = levels, D2 = sqrt(levels). Replaced, it moves the nodes of one path
    down and those of another up, and leaves what they share: with one root at most 2 (levels - 1) entries move,
    with several 2 levels; each by one. Counts are whole (rounding others could move two of them by two) and cut where
    sums of them could not be exact (beyond 2^52 / leaves), which is public policy: a record still adds at most one, and
    sums have no rounding errors.

    Raises
    ------
    SpecificationError
        For counts of another size or not whole; and where replacing a record changes nothing.
    """
    leaves = int(tree.is_leaf.sum())
    array = _numbers(counts)
    if counts is not None:
        if array is None:
            raise SpecificationError("counts are no array of numbers", remedy=f"({leaves},) numbers")
        if array.size != leaves:
            raise SpecificationError(f"{array.size} counts for {leaves} leaves", remedy="one per leaf, in their order")
        if (array != np.rint(array)).any():
            raise SpecificationError(
                "counts that are not whole",
                why="each record adds one to one leaf",
                remedy="query(Private(values, ...)) for sums of other numbers",
            )
    levels, several = len(tree.bounds) - 1, tree.bounds[1] > 1
    moved = levels if records.neighbors == "add-remove" else 2 * (levels if several else levels - 1)
    if not moved:
        raise SpecificationError(
            "a single node under replace-one",
            why="replacing a record does not change the number of records, which is public",
            remedy="use it as it is",
        )
    most = 2.0**52 // leaves
    value = None if array is None else PrivateArray(tree.sums(np.clip(array, -most, most)))
    l1, l2 = float(moved), math.sqrt(moved)
    shape = (tree.size,)
    return Private(value, shape=shape, name=name, unit="all", l1=l1, l2=l2, linf=1, records=records, **attributes)


def _numbers(counts: Any) -> PrivateArray | None:
    """Flat numbers, or None: an error of NumPy could show entries, also as the context of another."""
    try:
        array = np.asarray(None) if counts is None else array_of(counts)
        return None if counts is None or array.dtype.kind in "mM" else PrivateArray(array.astype(np.float64).ravel())
    except (TypeError, ValueError, OverflowError):
        return None
