"""The public range of each entry: bounds as declared, in the short form of ``per_entry``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.annotate.layout import Layout, free_entries
from dpmodel.annotate.per_entry import spread
from dpmodel.errors import SpecificationError

Range = tuple[Floats, Floats]


def column_bounds(bounds: Any, shape: tuple[int, ...], where: str) -> tuple[Any, Range | None]:
    """(what CVXPY is told, bounds per column or None) for ``bounds=[lo, hi]`` of a matrix of ``shape`` (n, p).

    A bound of shape (p,) or (1, p), or repeated down the rows without memory (``np.broadcast_to``), holds per column;
    the other one may be a number or None. CVXPY wants numbers or full matrices, and is told the hull of the
    intervals, which is true and takes no memory. Anything else is left to CVXPY.

    Raises
    ------
    SpecificationError
        For NaN, crossed or impossible bounds per column, or a vector of another length.
    """
    if len(shape) != 2 or not isinstance(bounds, (list, tuple)) or len(bounds) != 2:
        return bounds, None
    ends = [_per_column(bound, shape, where) for bound in bounds]
    if all(end is None for end in ends):
        return bounds, None
    if any(end is None and np.ndim(bound) > 0 for end, bound in zip(ends, bounds, strict=True)):
        # The other is a full matrix.
        return [b if end is None else np.broadcast_to(end, shape) for end, b in zip(ends, bounds, strict=True)], None
    default = (-math.inf, math.inf)
    try:
        lower, upper = (
            np.full((1, shape[1]), default[k] if bounds[k] is None else float(bounds[k])) if end is None else end
            for k, end in enumerate(ends)
        )
    except (TypeError, ValueError):
        return bounds, None
    wrong = ~((lower <= upper) & (lower < np.inf) & (upper > -np.inf))
    if wrong.any():
        raise SpecificationError(
            f"{where}: bounds are NaN, crossed or out of reach in {int(wrong.sum())} of {shape[1]} columns",
            why="every column needs a lowest and a highest value",
            remedy="bounds=[lo, hi] with lo <= hi in every column",
        )
    return [float(lower.min()), float(upper.max())], (lower, upper)


def _per_column(bound: Any, shape: tuple[int, ...], where: str) -> Floats | None:
    if bound is None or sp.issparse(bound) or np.ndim(bound) == 0:
        return None
    try:
        array = np.asarray(bound)
        if array.dtype.kind not in "biuf":
            return None
    except (TypeError, ValueError):
        return None
    repeated = array.shape == shape and array.ndim == 2 and array.strides[0] == 0
    if array.shape in ((shape[1],), (1, shape[1])) or repeated:
        row = array[:1] if array.ndim == 2 else array[None, :]
        return np.array(row, dtype=np.float64)
    if array.ndim == 1:
        raise SpecificationError(
            f"{where}: bounds of length {array.size} for {shape[1]} columns",
            why="a vector of bounds holds one number per column of the matrix",
            remedy=f"vectors of length {shape[1]}, numbers, or full matrices",
        )
    return None


def declared_range(
    bounds: Any, per_column: Range | None, parameter: Any, layout: Layout, magnitude: Mapping[str, float], where: str
) -> Range:
    """What entries are clipped to: ``bounds``, the sign attributes and ``max_linf``.

    Raises
    ------
    SpecificationError
        When these do not meet, or would be broken by scaling units to ``max_l1`` or ``max_l2``.
    """
    attributes = parameter.attributes
    lower, upper = np.asarray(-np.inf), np.asarray(np.inf)
    if per_column is not None:
        if layout.symmetric:
            raise SpecificationError(
                f"{where}: bounds per column of a symmetric parameter",
                why="entry (i, j) lies in two columns",
                remedy="numbers or a symmetric matrix as bounds",
            )
        listed = layout.stored is not None
        lower, upper = (end[0, layout.columns] if listed else end for end in per_column)
    elif bounds is not None:
        lower, upper = (_free_bound(bound, parameter, layout) for bound in bounds)
    if attributes["nonneg"] or attributes["pos"] or attributes["boolean"] is True:
        lower = np.maximum(lower, 0.0)
    if attributes["nonpos"] or attributes["neg"]:
        upper = np.minimum(upper, 0.0)
    if attributes["boolean"] is True:
        upper = np.minimum(upper, 1.0)
    limit = magnitude["max_linf"]
    lower, upper = np.asarray(np.maximum(lower, -limit)), np.asarray(np.minimum(upper, limit))
    if (lower > upper).any():
        raise SpecificationError(
            f"{where}: no value satisfies bounds, sign attributes and max_linf at once",
            why="their ranges do not meet",
            remedy="bounds inside [-max_linf, max_linf] and of the declared sign",
        )
    if min(magnitude["max_l1"], magnitude["max_l2"]) < math.inf and not holds_zero((lower, upper)):
        raise SpecificationError(
            f"{where}: bounds that exclude 0 together with max_l1 or max_l2",
            why="scaling a unit to its largest norm would take its entries out of the bounds",
            remedy="bounds with 0 inside, or max_linf",
        )
    return lower, upper


def holds_zero(entry_range: Range) -> bool:
    """Whether zero lies in the range of every entry."""
    return bool((entry_range[0] <= 0).all() and (entry_range[1] >= 0).all())


def within_norms(entry_range: Range, magnitude: Mapping[str, float]) -> Range:
    """The range of the entries once units were scaled: no entry is above its unit's norm."""
    limit = min(magnitude.values())
    return np.asarray(np.maximum(entry_range[0], -limit)), np.asarray(np.minimum(entry_range[1], limit))


def _free_bound(bound: Any, parameter: Any, layout: Layout) -> Floats:
    if sp.issparse(bound):
        coo = sp.coo_array(bound)
        coo.sum_duplicates()
        return np.asarray(coo.data, dtype=np.float64)
    array = np.asarray(bound, dtype=np.float64)
    return array.reshape(()).copy() if array.size == 1 else free_entries(parameter, array).copy()


def range_of_columns(entry_range: Range, layout: Layout, width: int) -> Range:
    """(width,), (width,): range of every matrix column, entries that are no free entries (zeros) among them."""
    lower, upper = entry_range
    if lower.ndim != 1 and upper.ndim != 1:
        low, high = (np.array(np.broadcast_to(end, (1, width))[0]) for end in (lower, upper))
    elif layout.stored is None and layout.width == width:
        low, high = (spread(end, layout).reshape((layout.height, width), order="F") for end in (lower, upper))
        low, high = low.min(axis=0), high.max(axis=0)
    else:  # few models have bounds entry by entry on a part of a matrix: one range for all columns
        low, high = np.full(width, lower.min(initial=np.inf)), np.full(width, upper.max(initial=-np.inf))
    if layout.stored is not None and not layout.symmetric:
        return np.minimum(low, 0.0), np.maximum(high, 0.0)
    return low, high
