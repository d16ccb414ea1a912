"""The free entries of a parameter: their order, and the matrix row, column and unit each belongs to.

CVXPY lowers a parameter to its free entries: all of them in Fortran order, the stored ones of a sparse
parameter, the diagonal of a diagonal one, the upper triangle of a symmetric one. Bounds, clipping
and noise work on these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.annotate.bounds import Unit
from dpmodel.errors import SpecificationError


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
    """

    unit: Unit
    height: int
    size: int
    unit_count: int
    paired: bool
    symmetric: bool
    stored: tuple[Integers, Integers] | None = None

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

    Raises
    ------
    SpecificationError
        When the shape has no such unit.
    """
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
    if len(shape) > 2:
        raise SpecificationError(
            f"{where}: unit={unit!r} on shape {shape}",
            why="rows and columns are defined for vectors and matrices",
            remedy="reshape to a matrix whose rows are the records",
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
