"""The free entries of a parameter: their order, and the matrix row, column and unit each belongs to.

CVXPY lowers a parameter to its free entries: all of them in Fortran order, the stored ones of a sparse
parameter, the diagonal of a diagonal one, the upper triangle of a symmetric one. Bounds, clipping
and noise work on these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Axis, Floats, Integers, Labels
from dpmodel.errors import SpecificationError
from dpmodel.marks.domain import elements

Unit = Literal["all", "entry", "row", "column"]
# (first, end, size): the 1-norm of a row's columns first .. end - 1 is at most size.
Lists = tuple[tuple[int, int, float], ...]
UNITS: tuple[Unit, ...] = ("all", "entry", "row", "column")


def sum_by(index: Integers, weights: Floats, minlength: int) -> Floats:
    """(minlength,) sums of ``weights`` by ``index``; numpy's bincount, but floats even when empty."""
    return np.bincount(index, weights=weights, minlength=minlength).astype(np.float64, copy=False)


def canonical(value: Any) -> Any:
    """Coordinates with duplicates added up, in CVXPY's order."""
    coordinates = sp.coo_array(value)
    if coordinates.ndim == 2:  # rows in order and columns increasing within them: sorting would change nothing
        row, column = coordinates.coords
        below = row[1:] > row[:-1]
        if (below | ((row[1:] == row[:-1]) & (column[1:] > column[:-1]))).all():
            return coordinates
    coordinates.sum_duplicates()
    return coordinates


@dataclass(frozen=True)
class Layout:
    """Where the free entries lie; arrays as long as they are made when asked for.

    ``height`` : matrix rows. ``size`` : number of free entries. ``unit_count`` : number of units. ``paired`` : whether
    units are numbered by record (rows, columns, entries of a vector), so that unit i of another parameter belongs to
    the same record. ``stored`` : row and column of the free entries where those are not all entries, in Fortran order.
    ``lists`` : what rows are scaled to besides their norms, of encoded tables: one category of each list.
    """

    unit: Unit
    height: int
    size: int
    unit_count: int
    paired: bool
    symmetric: bool
    stored: tuple[Integers, Integers] | None = None
    lists: Lists = ()

    @cached_property
    def rows(self) -> Integers:
        """(size,) matrix row of each free entry."""
        if self.stored is not None:
            return self.stored[0]
        return np.tile(np.arange(self.height, dtype=np.int64), self.width)

    @cached_property
    def columns(self) -> Integers:
        """(size,) matrix column of each free entry."""
        if self.stored is not None:
            return self.stored[1]
        return np.repeat(np.arange(self.width, dtype=np.int64), self.height)

    @cached_property
    def units(self) -> Integers:
        """(size,) unit of each free entry."""
        if self.unit == "all":
            return np.zeros(self.size, dtype=np.int64)
        if self.unit == "entry":
            return self.rows if self.paired else np.arange(self.size, dtype=np.int64)
        return self.rows if self.unit == "row" else self.columns

    @property
    def width(self) -> int:
        """Matrix columns, of a layout that holds all entries."""
        return self.size // self.height

    @cached_property
    def unit_size(self) -> int:
        """The largest number of free entries in a unit."""
        if self.stored is None:
            return {"all": self.size, "entry": 1, "row": self.width, "column": self.height}[self.unit]
        return int(np.bincount(self.units).max()) if self.size else 0

    @cached_property
    def unit_row_size(self) -> int:
        """The largest number of free entries of one matrix row within one unit."""
        if self.stored is None:
            return {"all": self.width, "entry": 1, "row": self.width, "column": 1}[self.unit]
        if self.unit_size <= 1 or np.array_equal(self.units, self.rows):
            return self.unit_size
        return int(np.unique(self._rows_of_units(), return_counts=True)[1].max())

    @cached_property
    def unit_rows(self) -> int:
        """The largest number of matrix rows in which a unit has free entries."""
        if self.stored is None:
            return {"all": self.height, "entry": 1, "row": 1, "column": self.height}[self.unit]
        if self.unit_size <= 1:
            return self.unit_size
        if np.array_equal(self.units, self.rows):
            return 1
        owners = np.unique(self._rows_of_units()) // (int(self.rows.max()) + 1)
        return int(np.unique(owners, return_counts=True)[1].max())

    def by_unit(self, entries: Floats) -> Floats | None:
        """(units, unit size) view of ``entries``; None where units have different sizes (``stored``)."""
        if self.stored is not None:
            return None
        if self.unit == "row":
            return entries.reshape((self.height, self.width), order="F")
        return entries.reshape((self.unit_count, -1))

    def _rows_of_units(self) -> Integers:
        return self.units * (int(self.rows.max()) + 1) + self.rows


def layout_of(parameter: Any, unit: Unit, where: str) -> Layout:
    """The layout of a cvxpy leaf under ``unit``.
    Errors: SpecificationError, when the shape has no such unit."""
    shape = parameter.shape
    attributes = parameter.attributes
    symmetric = any(attributes[key] for key in ("symmetric", "PSD", "NSD"))
    stored: tuple[Integers, Integers] | None = None
    if parameter.sparse_idx is not None and len(shape) > 0:
        index = tuple(np.asarray(i, dtype=np.int64) for i in parameter.sparse_idx)
        stored = index[0], index[1] if len(index) > 1 else np.zeros_like(index[0])
    elif attributes["diag"]:
        diagonal = np.arange(shape[0], dtype=np.int64)
        stored = diagonal, diagonal
    elif symmetric:
        upper = np.triu_indices(shape[0])
        stored = upper[0].astype(np.int64), upper[1].astype(np.int64)
    if unit in ("row", "column"):
        _refuse_bad_unit(shape, unit, symmetric, where)
    size = int(parameter.size) if stored is None else int(stored[0].size)
    paired = unit in ("row", "column") or (unit == "entry" and len(shape) <= 1)
    height = int(shape[0]) if shape else 1
    count = {"all": 1, "entry": height if len(shape) == 1 else size, "row": height, "column": int((*shape, 1, 1)[1])}
    return Layout(unit, height, size, count[unit], paired, symmetric, stored)


def _refuse_bad_unit(shape: tuple[int, ...], unit: Unit, symmetric: bool, where: str) -> None:
    if symmetric:
        raise SpecificationError(
            f"{where}: unit={unit!r} on a symmetric parameter",
            why="row i and column i are the same entries, so units would overlap",
            remedy="unit='entry' or unit='all', or a parameter without the symmetric attribute",
        )
    if len(shape) == 0 or (unit == "column" and len(shape) < 2):
        raise SpecificationError(
            f"{where}: unit={unit!r} on shape {shape}",
            why=f"this shape has no {unit}s",
            remedy="unit='entry' (one record owns one entry) or unit='all'",
        )
    if len(shape) > 2 and unit == "column":
        raise SpecificationError(
            f"{where}: unit={unit!r} on shape {shape}",
            why="columns are defined for matrices; the rows of more axes are what lies along the first one",
            remedy="unit='row', with the records first, or reshape to a matrix whose columns are the records",
        )


def free_entries(parameter: Any, value: Any) -> npt.NDArray[np.float64]:
    """The free entries of a full-size dense or sparse ``value``, in the order of the layout."""
    attributes = parameter.attributes
    if parameter.sparse_idx is not None and parameter.shape:
        index = parameter.sparse_idx
        if sp.issparse(value):
            stored = canonical(value)
            if stored.nnz == len(index[0]) and all(
                np.array_equal(a, b) for a, b in zip(stored.coords, index, strict=True)
            ):
                return np.asarray(stored.data, dtype=np.float64)
            value = sp.csr_array(stored)
        return np.asarray(value[index], dtype=np.float64).ravel()
    dense = value.toarray() if sp.issparse(value) else np.asarray(value, dtype=np.float64)
    if attributes["diag"]:
        return np.ascontiguousarray(np.diag(dense))
    if any(attributes[key] for key in ("symmetric", "PSD", "NSD")):
        return np.asarray(dense[np.triu_indices(parameter.shape[0])])
    return dense.ravel(order="F")


# ---- Public numbers, one per free entry, kept as short as they were declared. A range or cap is an array of shape ()
# (the same for all entries), (1, columns) (one per matrix column) or (size,) (one per free entry, in the order of the
# layout). The first two broadcast against the matrix without taking its memory.


def spread(numbers: Floats, layout: Layout) -> Floats:
    """(size,) the number of each free entry, read-only; without memory of its own where all are the same."""
    if numbers.ndim == 2:
        full = np.repeat(numbers[0], layout.height)
        full.setflags(write=False)
        return full
    return alike(numbers, layout.size) if numbers.size == 1 else np.broadcast_to(numbers, (layout.size,))


def alike(number: Floats, size: int) -> Floats:
    """(size,) one number (1,), read-only and without memory of its own: ``np.broadcast_to``, several times faster."""
    out: Floats = np.ndarray(size, number.dtype, number, strides=(0,))
    out.setflags(write=False)
    return out


def same_for_all(numbers: Floats) -> bool:
    """Whether what ``spread`` gave is one number for all entries."""
    return numbers.strides == (0,) or numbers.size == 1


def all_equal(numbers: Floats) -> bool:
    """Whether they are one number, however kept."""
    return bool(numbers.size == 0 or same_for_all(numbers) or (numbers == numbers[0]).all())


def each(function: Callable[..., Floats], *numbers: Floats) -> Floats:
    """``function`` of these, entry by entry; of one entry, without memory for the rest, where all are the same."""
    size = max(part.size for part in numbers)
    if size > 1 and all(same_for_all(part) for part in numbers):
        return alike(function(*(np.atleast_1d(part)[:1] for part in numbers)), size)
    return function(*numbers)


def some(numbers: Floats, which: Any) -> Floats:
    """``numbers[which]``, for a mask or places; still one number where they are the same for all."""
    if numbers.size > 1 and same_for_all(numbers):
        return alike(numbers[:1], int(np.count_nonzero(which) if which.dtype == bool else which.size))
    return np.asarray(numbers[which])


def at(numbers: Floats, layout: Layout, rows: Any, columns: Any) -> Floats:
    """The numbers of the entries in these ``rows`` and ``columns`` of a layout that holds all entries."""
    if numbers.ndim == 0:
        return numbers
    return np.asarray(numbers[0, columns] if numbers.ndim == 2 else numbers[rows + layout.height * columns])


def largest_sum(numbers: Floats, layout: Layout) -> float:
    """Largest sum of non-negative ``numbers`` over one unit."""
    if not layout.size:
        return 0.0
    if numbers.ndim == 0:
        return layout.unit_size * float(numbers)
    if numbers.ndim == 2:
        total, most = float(numbers.sum()), float(numbers.max())
        return {"all": layout.height * total, "row": total, "column": layout.height * most, "entry": most}[layout.unit]
    units = layout.by_unit(numbers)
    if units is not None:
        return float(units.sum(axis=1).max())
    return float(np.bincount(layout.units, weights=numbers, minlength=layout.unit_count).max(initial=0.0))


# ---- Names and categories of the axes of labelled data (pandas, xarray and the like), by duck typing


def labels_of(value: Any, shape: tuple[int, ...]) -> Labels:
    """(ndim,) labels of a Series, data frame or labelled array; () for anything else, or where they do not fit."""
    axes: list[Axis] = []
    if hasattr(value, "dims") and hasattr(value, "coords") and hasattr(value, "values"):
        for dimension, length in zip(value.dims, shape, strict=False):
            known = dimension in value.coords
            axes.append((dimension, _categories(value.coords[dimension]) if known else tuple(range(length))))
    elif hasattr(value, "index") and hasattr(value, "to_numpy"):
        axes.append((_name(value.index), _categories(value.index)))
        if hasattr(value, "columns"):
            axes.append((_name(value.columns), _categories(value.columns)))
    fits = len(axes) == len(shape) and all(len(c) == n for (_, c), n in zip(axes, shape, strict=True))
    return tuple(axes) if fits else ()


def taken(labels: Labels, index: Any) -> Labels:
    """Labels after basic indexing by integers and slices; () after any other."""
    items = index if isinstance(index, tuple) else (index,)
    if not labels or len(items) > len(labels) or not all(isinstance(item, int | slice) for item in items):
        return ()
    if any(isinstance(item, bool) for item in items):
        return ()
    out: list[Axis] = []
    for (name, categories), item in zip(labels, [*items, *[slice(None)] * (len(labels) - len(items))], strict=True):
        if isinstance(item, slice):
            out.append((name, categories[item]))
    return tuple(out)


def _name(index: Any) -> Any:
    """The name of an index; a tuple of them where it has levels."""
    names = tuple(getattr(index, "names", ()) or ())
    return names if len(names) > 1 else getattr(index, "name", None)


def _categories(index: Any) -> tuple[Any, ...]:
    return tuple(elements(index if hasattr(index, "to_list") else getattr(index, "values", index)))
