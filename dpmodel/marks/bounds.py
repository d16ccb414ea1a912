"""How far one record may move a parameter: the declared bounds, checked and completed.

A *unit* is what one record owns of a parameter. The change of a unit is a vector d; the declared
bounds say ``||d||_1 <= l1``, ``||d||_2 <= l2``, ``||d||_inf <= linf`` and, for every matrix row i,
``||d_i||_1 <= row_l1``. Missing ones follow from the others and from the unit's shape; none at all
means arbitrarily far (infinite bounds).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.marks.domain import is_frame
from dpmodel.marks.layout import Layout, free_entries, spread


@dataclass(frozen=True)
class SensitivityBounds:
    """Completed bounds on the change of one unit; ``inf`` where nothing bounds it.

    ``l1, l2, linf`` are norms over the unit's entries, ``row_l1`` the 1-norm of any one matrix row
    of the change.
    """

    l1: float
    l2: float
    linf: float
    row_l1: float

    @property
    def finite(self) -> bool:
        return math.isfinite(self.linf)


@dataclass(frozen=True)
class Ball:
    """Declared norm bounds on the change of one unit, besides the caps of its entries; ``inf`` for none."""

    l1: float
    l2: float
    row_l1: float


def positive(name: str, value: Any, where: str) -> float:
    """``value`` as a positive finite float, or inf for None."""
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        # An array given by mistake may be the private value itself: its type is shown, not its entries.
        shown = repr(value) if isinstance(value, (bool, str)) else f"<{type(value).__name__}>"
        raise SpecificationError(
            f"{where}: {name}={shown}",
            why="a bound is one positive number (entrywise bounds go into bounds=[lo, hi])",
            remedy=f"{name}=1.0, or leave it out",
        )
    try:
        number = float(value)
    except OverflowError:  # integers beyond 1e308
        number = math.inf
    if math.isnan(number) or number <= 0 or math.isinf(number):
        why = "a bound on what one record moves must be a positive finite number"
        remedy = f"leave {name} out if a record may move it arbitrarily far"
        if number == 0:
            why = "a bound of 0 says that no record moves this parameter: then it is public"
            remedy = "a plain cvxpy.Parameter or constant"
        raise SpecificationError(f"{where}: {name}={number:g}", why=why, remedy=remedy)
    return number


def refuse_contradictions(bounds: dict[str, float], where: str) -> None:
    """For every vector linf <= l2 <= l1 and linf <= row_l1 <= l1: a larger left side was a mistake.

    (A bound that is merely loose, such as l1 above size * linf, is tightened and not refused.)
    """
    names = list(bounds)
    prefix = "max_" if names and names[0].startswith("max_") else ""
    for small, large in (("linf", "l2"), ("l2", "l1"), ("linf", "l1"), ("linf", "row_l1"), ("row_l1", "l1")):
        a, b = bounds.get(prefix + small, math.inf), bounds.get(prefix + large, math.inf)
        # Declared bounds may disagree by rounding (sqrt(2) typed by hand) without contradicting each other.
        if math.isfinite(a) and a > b * (1 + 1e-9):
            raise SpecificationError(
                f"{where}: {prefix}{small}={a:g} contradicts {prefix}{large}={b:g}",
                why=f"no vector has an {small} norm above its {large} norm",
                remedy=f"{prefix}{small} at most {b:g}, or leave one of the two out",
            )


def complete(
    l1: float, l2: float, linf: float, row_l1: float, *, size: int, row_size: int, rows: int
) -> SensitivityBounds:
    """Derive the missing bounds for a unit of ``size`` entries in ``rows`` rows of at most ``row_size``."""
    for _ in range(3):  # each pass can only tighten; three reach the fixed point of these rules
        linf = _tighten(linf, l2, l1, row_l1)
        row_l1 = _tighten(row_l1, l1, row_size * linf, math.sqrt(row_size) * l2)
        l1 = _tighten(l1, size * linf, math.sqrt(size) * l2, rows * row_l1)
        l2 = _tighten(l2, l1, math.sqrt(size) * linf)
        if math.isfinite(l1) and math.isfinite(linf):
            l2 = _tighten(l2, math.sqrt(l1) * math.sqrt(linf))
    return SensitivityBounds(l1=l1, l2=l2, linf=linf, row_l1=row_l1)


def _tighten(bound: float, *others: float) -> float:
    """The least of the bounds, where rounding alone never lowers ``bound``."""
    least = min(others)
    return least if least < bound * (1 - 1e-12) else bound


# ---- The public range of each entry: bounds as declared, one number where all entries have the same


Range = tuple[Floats, Floats]


def column_bounds(bounds: Any, shape: tuple[int, ...], where: str) -> tuple[Any, Range | None]:
    """(what CVXPY is told, bounds per column or None) for ``bounds=[lo, hi]`` of a matrix of ``shape`` (n, p).

    A bound of shape (p,) or (1, p), or repeated down the rows without memory (``np.broadcast_to``), holds per column;
    the other one may be a number or None. CVXPY wants numbers or full matrices, and is told the hull of the
    intervals, which is true and takes no memory. Anything else is left to CVXPY.
    Errors: SpecificationError, for NaN, crossed or impossible bounds per column, or a vector of another length.
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
    Errors: SpecificationError, when these do not meet, or would be broken by scaling units to ``max_l1`` or
    ``max_l2``."""
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


# ---- ``bounds=``: one convention wherever ranges of private numbers are declared
#
# ``(lo, hi)``, each a number or an array, or a mapping from column name or index to ``(lo, hi)``.


_MAPPING = "one pair per column is written as a mapping: {0: (lo, hi), 1: (lo, hi)}, or with names of columns"


def names_of(value: Any) -> tuple[Any, ...] | None:
    """The column names of a data frame, or None."""
    return tuple(value.columns) if is_frame(value) else None


def read_bounds(bounds: Any, width: int | None, names: Sequence[Any] | None, where: str) -> tuple[Any, Any]:
    """(lo, hi): numbers, arrays or None, as declared for data of ``width`` columns (None: no matrix).

    ``bounds`` : such a pair, a mapping from columns to pairs of numbers, or one pair of numbers for each column, in
    their order.
    Errors: SpecificationError, for what is no pair; mappings that miss a column or name an unknown one; pairs of pairs
    that could be read as lows and highs and as one pair per column; and ranges of one value, which leave nothing
    private.
    """
    if isinstance(bounds, Mapping):
        lo, hi = _by_column(bounds, width, names, where)
    else:
        by_column = width is not None and _is_by_column(bounds, width, where)
        listed = isinstance(bounds, Sequence | np.ndarray) and not isinstance(bounds, str)
        if not listed or not (by_column or len(bounds) == 2):
            raise SpecificationError(
                f"{where}: bounds is not a pair (lo, hi)",
                why="a lowest and a highest value, each a number or an array",
                remedy=f"bounds=(lo, hi); {_MAPPING}",
            )
        lo, hi = np.asarray(bounds, dtype=np.float64).T if by_column else bounds
    _refuse_constants(lo, hi, where)
    return lo, hi


def _by_column(
    bounds: Mapping[Any, Any], width: int | None, names: Sequence[Any] | None, where: str
) -> tuple[Any, Any]:
    if width is None:
        raise SpecificationError(f"{where}: bounds by column for data without columns", remedy="bounds=(lo, hi)")
    known = list(range(width)) if names is None else list(names)
    if names is not None and not any(key in known for key in bounds):
        known = list(range(width))
    missing, unknown = [key for key in known if key not in bounds], [key for key in bounds if key not in known]
    if missing or unknown:
        said = [f"missing for {_some(missing)}"] * bool(missing) + [
            f"given for unknown columns {_some(unknown)}"
        ] * bool(unknown)
        raise SpecificationError(
            f"{where}: bounds are {' and '.join(said)}",
            why="every column needs its lowest and its highest value"
            + (" (the data has no column names)" if names is None and any(isinstance(k, str) for k in unknown) else ""),
            remedy="one pair (lo, hi) for every column, by name where the data has names, or by index, and no other",
        )
    pairs = [read_bounds(bounds[key], None, None, f"{where}: column {key}") for key in known]
    lows, highs = zip(*pairs, strict=True)
    free = -np.inf, np.inf
    return tuple(
        np.array([free[k] if end is None else end for end in ends], dtype=np.float64)
        for k, ends in enumerate((lows, highs))
    )  # type: ignore[return-value]


def _some(keys: Sequence[Any]) -> str:
    return ", ".join(map(str, keys[:5])) + (" and others" if len(keys) > 5 else "")


def _is_by_column(bounds: Any, width: int, where: str) -> bool:
    """Whether these are pairs (lo, hi), one for each of ``width`` columns; refused where they may be lows and highs."""
    try:
        table = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    if table.shape != (width, 2) or (table[:, 0] >= table[:, 1]).any():
        return False
    two_arrays = not isinstance(bounds, np.ndarray) and any(isinstance(end, np.ndarray) for end in bounds)
    if width != 2 or two_arrays:
        return width != 2
    if (table[0] >= table[1]).any():
        return True
    (a, b), (c, d) = table.tolist()
    raise SpecificationError(
        f"{where}: bounds of two pairs for two columns can be read both ways",
        why=f"as lows ({a:g}, {b:g}) and highs ({c:g}, {d:g}), or as column 0 in ({a:g}, {b:g}) and column 1 in "
        f"({c:g}, {d:g})",
        remedy=f"lows and highs: bounds=(np.array([{a:g}, {b:g}]), np.array([{c:g}, {d:g}])); "
        f"columns: bounds={{0: ({a:g}, {b:g}), 1: ({c:g}, {d:g})}}",
    )


def _refuse_constants(lo: Any, hi: Any, where: str) -> None:
    if lo is None or hi is None or sp.issparse(lo) or sp.issparse(hi):
        return
    try:
        same = np.equal(np.asarray(lo, dtype=np.float64), np.asarray(hi, dtype=np.float64))
    except (TypeError, ValueError):
        return  # refused where the numbers are read
    if same.any():
        raise SpecificationError(
            f"{where}: bounds with lo == hi",
            why="clipped to one public value, the numbers say nothing about any record; what is private needs a range",
            remedy=f"lo < hi, and what is constant as a plain constant or without that column; {_MAPPING}",
        )
