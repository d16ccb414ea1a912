"""The standard form as an affine function of the parameters.

A lowered problem reads: minimise ``c'x + d`` subject to ``b - A x`` in a product of cones, where
every entry of c, d, b and A is an affine function of the parameter vector theta. ``AffineMap`` holds those
functions as coordinates (row, column, coefficient); nothing in it depends on any parameter's value.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.marks.layout import some
from dpmodel.marks.layout import sum_by as sum_by
from dpmodel.numerics.cones import ConeBlock, ConeKind


@dataclass(frozen=True)
class LinearMap:
    """``height`` linear functions of theta, as coordinates.

    ``row``, ``column`` : (nnz,) integers; ``coefficient`` : (nnz,) floats, without memory of their own where all
    are the same. Coordinates are unique.
    """

    row: Integers
    column: Integers
    coefficient: Floats
    height: int

    @property
    def nnz(self) -> int:
        return int(self.row.size)

    @cached_property
    def positions(self) -> Integers:
        """(r,) the rows with a coefficient, increasing; found once, because a map may have millions of coordinates."""
        if (self.row[1:] > self.row[:-1]).all():
            return self.row
        if (self.row[1:] < self.row[:-1]).any():
            return np.unique(self.row)
        return self.row[np.diff(self.row, prepend=-1) > 0]  # much faster than ``np.unique`` of what is in order

    @property
    def single(self) -> bool:
        """Whether no row has two coefficients."""
        return self.positions.size == self.nnz

    @cached_property
    def columns_between(self) -> tuple[int, int]:
        """The first and the last entry of theta with a coefficient."""
        return (int(self.column.min()), int(self.column.max())) if self.nnz else (0, -1)

    @cached_property
    def repeats(self) -> bool:
        """Whether some entry of theta has two coefficients."""
        return bool(self.nnz) and int(np.bincount(self.column).max()) > 1

    def units_of(self, block: ThetaBlock) -> Integers:
        """(nnz,) the unit of each coefficient's entry of theta, where all of them are in ``block``; found once."""
        if block.offset not in self.found:
            units = block.parameter.layout.units
            short = units.astype(np.int32) if units.max(initial=0) < 2**31 else units
            self.found[block.offset] = short[self.column - block.offset if block.offset else self.column]
        units_here: Integers = self.found[block.offset]
        return units_here

    @cached_property
    def found(self) -> dict[Hashable, Any]:
        """Public facts of this map that are found once, because it may have millions of coordinates."""
        return {}

    def within(self, block: ThetaBlock) -> bool:
        """Whether all coefficients are of entries in ``block``."""
        first, last = self.columns_between
        return block.offset <= first and last < block.offset + block.size

    def compact(self) -> LinearMap:
        """The map without its empty rows: row i is row ``positions[i]``."""
        if self.positions is self.row:
            row = np.arange(self.nnz, dtype=np.int64)
        elif (self.row[1:] >= self.row[:-1]).all():
            row = np.cumsum(np.diff(self.row, prepend=self.row[:1]) > 0)
        else:
            row = np.searchsorted(self.positions, self.row)
        return LinearMap(row, self.column, self.coefficient, self.positions.size)

    def select(self, mask: npt.NDArray[np.bool_]) -> LinearMap:
        if mask.all():
            return self
        return LinearMap(self.row[mask], self.column[mask], some(self.coefficient, mask), self.height)

    def apply(self, theta: Floats) -> Floats:
        """(height,) values at ``theta``; only for maps of moderate height (not the matrix map)."""
        return sum_by(self.row, weights=self.coefficient * theta[self.column], minlength=self.height)

    def tocsr(self, width: int) -> sp.csr_array:
        return sp.csr_array((self.coefficient, (self.row, self.column)), shape=(self.height, width))

    @staticmethod
    def of(row: Any, column: Any, coefficient: Any, height: int) -> LinearMap:
        """Coordinates with duplicates added up and zeros dropped."""
        row = np.asarray(row, dtype=np.int64)
        column = np.asarray(column, dtype=np.int64)
        coefficient = np.asarray(coefficient, dtype=np.float64)
        after = row[1:] > row[:-1]
        if not after.all():
            if not (after | ((row[1:] == row[:-1]) & (column[1:] > column[:-1]))).all():
                # Mostly a few sorted runs, which this merges; only then by both.
                order = np.argsort(row, kind="stable")
                sorted_row = row[order]
                if ((sorted_row[1:] == sorted_row[:-1]) & (np.diff(column[order]) < 0)).any():
                    order = np.lexsort((column, row))
                row, column, coefficient = row[order], column[order], coefficient[order]
            new = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
            if not new.all():
                starts = np.append(0, np.flatnonzero(new) + 1)
                coefficient = np.add.reduceat(coefficient, starts)
                row, column = row[starts], column[starts]
        keep = coefficient != 0
        if not keep.all():
            row, column, coefficient = row[keep], column[keep], coefficient[keep]
        return LinearMap(row, column, coefficient, int(height))


def joined(parts: Sequence[LinearMap]) -> LinearMap:
    """The sum of linear maps of the same height."""
    some = [part for part in parts if part.nnz]
    if len(some) <= 1:
        return some[0] if some else parts[0]
    return LinearMap.of(
        np.concatenate([part.row for part in some]),
        np.concatenate([part.column for part in some]),
        np.concatenate([part.coefficient for part in some]),
        some[0].height,
    )


def private_mask(blocks: Iterable[ThetaBlock], theta_size: int) -> npt.NDArray[np.bool_]:
    """(P,) mask of the private entries of theta."""
    mask = np.zeros(theta_size, dtype=bool)
    for block in blocks:
        if block.private:
            mask[block.columns] = True
    return mask


def numbered(values: Integers) -> tuple[Integers, Integers]:
    """The distinct values, increasing, and for each of ``values`` which one it is: by marks, nothing is sorted."""
    if not values.size:
        return values, values
    there = np.zeros(int(values.max()) + 1, dtype=bool)
    there[values] = True
    distinct = np.flatnonzero(there)
    place = np.empty(there.size, dtype=np.int64)
    place[distinct] = np.arange(distinct.size)
    return distinct, place[values]


def coordinates_of(position: Integers, rows: int) -> tuple[Integers, Integers]:
    """Row and column of entries at ``row + rows * column`` of a matrix."""
    column = position // max(rows, 1)
    row = column * max(rows, 1)
    return np.subtract(position, row, out=row), column  # several times faster than the remainder


def by_columns(data: Floats, row: Integers, column: Integers, shape: tuple[int, int]) -> sp.csr_array:
    """The matrix of entries that come column by column, in order."""
    if shape[0] < 2**16:  # short integers are sorted by counting, which takes less than two matrices of scipy's
        order = np.argsort(row.astype(np.uint16), kind="stable")
        ends = np.append(0, np.cumsum(np.bincount(row, minlength=shape[0])))
        return sp.csr_array((data[order], column[order], ends), shape=shape)
    ends = np.cumsum(np.bincount(column, minlength=shape[1]))
    return sp.csc_array((data, row, np.append(0, ends)), shape=shape).tocsr()


@dataclass(frozen=True)
class ThetaBlock:
    """Where one parameter's free entries lie in theta, and the parameter (a cvxpy leaf)."""

    parameter: Any
    offset: int
    size: int
    private: bool

    @property
    def columns(self) -> slice:
        return slice(self.offset, self.offset + self.size)

    @property
    def name(self) -> str:
        return str(self.parameter.name())


@dataclass(frozen=True)
class AffineMap:
    """The standard form as a function of theta = (parameters, 1).

    ``variables`` : number of columns n; ``rows`` : number of rows m; ``theta_size`` : P, the constant 1
    included as the last entry. ``objective`` (height n), ``offset`` (height 1), ``scalar`` (height m) and
    ``matrix`` (height m * n; its row ``i + m * j`` is entry (i, j) of A) are linear maps of theta. The last is kept as
    its coefficients of public numbers and of private ones, ``public_matrix`` and ``private_matrix``: there may be
    millions of them.
    ``column_names`` : (n,) name of the variable behind each column; ``variable_columns`` : id of a user's variable ->
    its first column, for variables whose entries are columns one to one.
    """

    variables: int
    rows: int
    theta_size: int
    objective: LinearMap
    offset: LinearMap
    scalar: LinearMap
    public_matrix: LinearMap
    private_matrix: LinearMap
    cones: tuple[ConeBlock, ...]
    parameters: tuple[ThetaBlock, ...]
    column_names: tuple[str, ...]
    variable_columns: Mapping[int, int]
    boolean: Integers
    integer: Integers
    maximize: bool

    @property
    def matrix(self) -> LinearMap:
        """All of A, joined anew."""
        return joined([self.public_matrix, self.private_matrix])

    @cached_property
    def private_blocks(self) -> tuple[ThetaBlock, ...]:
        return tuple(block for block in self.parameters if block.private)

    @cached_property
    def private_columns(self) -> npt.NDArray[np.bool_]:
        """(P,) mask of the private entries of theta."""
        mask = private_mask(self.parameters, self.theta_size)
        mask.setflags(write=False)  # handed out again and again
        return mask

    @cached_property
    def private_parts(self) -> Mapping[str, LinearMap]:
        """The private coefficients of objective, offset and scalar."""
        private, parts = self.private_columns, ("objective", "offset", "scalar")
        return {name: getattr(self, name).select(private[getattr(self, name).column]) for name in parts}

    @cached_property
    def private_coordinates(self) -> tuple[Integers, Integers]:
        """Row and column of A of every private coefficient, in the order of ``private_matrix``."""
        position, m = self.private_matrix.row, self.rows
        if self.private_matrix.positions is position and self.variables <= position.size:
            # In order: nothing is divided.
            starts = np.searchsorted(position, m * np.arange(self.variables + 1, dtype=np.int64))
            column = np.repeat(np.arange(self.variables), np.diff(starts))
            row = position - np.repeat(m * np.arange(self.variables, dtype=np.int64), np.diff(starts))
        else:
            row, column = coordinates_of(position, m)
        if max(self.rows, self.variables) < 2**31:  # what scipy's matrices have, in half the memory
            row, column = row.astype(np.int32), column.astype(np.int32)
        row.setflags(write=False)
        column.setflags(write=False)
        return row, column

    def equalities(self) -> npt.NDArray[np.bool_]:
        """(m,) whether each row lies in a zero cone."""
        return self._of_kind("zero")

    def inequalities(self) -> npt.NDArray[np.bool_]:
        """(m,) whether each row lies in a nonneg cone."""
        return self._of_kind("nonneg")

    def _of_kind(self, kind: ConeKind) -> npt.NDArray[np.bool_]:
        mask = np.zeros(self.rows, dtype=bool)
        for block in self.cones:
            if block.kind == kind:
                mask[block.rows] = True
        return mask

    def block_of_row(self) -> Integers:
        """(m,) number of the cone block of each row."""
        sizes = [block.size for block in self.cones]
        return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)

    def is_linear(self) -> bool:
        return all(block.kind in ("zero", "nonneg") for block in self.cones)
