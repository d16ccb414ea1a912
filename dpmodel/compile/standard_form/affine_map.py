"""The standard form as an affine function of the parameters.

A lowered problem reads: minimise ``c'x + d`` subject to ``b - A x`` in a product of cones, where
every entry of c, d, b and A is an affine function of the parameter vector theta. ``AffineMap`` holds those
functions as coordinates (row, column, coefficient); nothing in it depends on any parameter's value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.annotate.layout import sum_by as sum_by
from dpmodel.numerics.cones import ConeBlock


@dataclass(frozen=True)
class LinearMap:
    """``height`` linear functions of theta, as coordinates.

    ``row``, ``column`` : (nnz,) integers; ``coefficient`` : (nnz,) floats. Coordinates are unique.
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
    def repeats(self) -> bool:
        """Whether some entry of theta has two coefficients."""
        return bool(self.nnz) and int(np.bincount(self.column).max()) > 1

    def compact(self) -> LinearMap:
        """The map without its empty rows: row i is row ``positions[i]``."""
        same = self.positions is self.row
        row = np.arange(self.nnz, dtype=np.int64) if same else np.searchsorted(self.positions, self.row)
        return LinearMap(row, self.column, self.coefficient, self.positions.size)

    def select(self, mask: npt.NDArray[np.bool_]) -> LinearMap:
        if mask.all():
            return self
        return LinearMap(self.row[mask], self.column[mask], self.coefficient[mask], self.height)

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
        if not ((row[1:] > row[:-1]) | ((row[1:] == row[:-1]) & (column[1:] > column[:-1]))).all():
            # Mostly a few sorted runs, which this merges; only then by both.
            order = np.argsort(row, kind="stable")
            after = row[order]
            if ((after[1:] == after[:-1]) & (np.diff(column[order]) < 0)).any():
                order = np.lexsort((column, row))
            row, column, coefficient = row[order], column[order], coefficient[order]
        if row.size:
            first = np.ones(row.size, dtype=bool)
            first[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
            if not first.all():
                starts = np.flatnonzero(first)
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
    return position - column * max(rows, 1), column  # several times faster than the remainder


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

    @property
    def private_blocks(self) -> tuple[ThetaBlock, ...]:
        return tuple(block for block in self.parameters if block.private)

    @property
    def private_columns(self) -> npt.NDArray[np.bool_]:
        """(P,) mask of the private entries of theta."""
        return private_mask(self.parameters, self.theta_size)

    def equalities(self) -> npt.NDArray[np.bool_]:
        """(m,) whether each row lies in a zero cone."""
        mask = np.zeros(self.rows, dtype=bool)
        for block in self.cones:
            if block.kind == "zero":
                mask[block.rows] = True
        return mask

    def block_of_row(self) -> Integers:
        """(m,) number of the cone block of each row."""
        sizes = [block.size for block in self.cones]
        return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)

    def is_linear(self) -> bool:
        return all(block.kind in ("zero", "nonneg") for block in self.cones)
