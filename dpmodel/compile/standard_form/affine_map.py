"""The standard form as an affine function of the parameters.

A lowered problem reads: minimise ``c'x + d`` subject to ``b - A x`` in a product of cones, where
every entry of c, d, b and A is an affine function of the parameter vector theta. ``AffineMap`` holds those
functions as coordinates (row, column, coefficient); nothing in it depends on any parameter's value.
"""

from __future__ import annotations

from collections.abc import Mapping
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
        if (self.row[1:] < self.row[:-1]).any():
            return np.unique(self.row)
        return self.row[np.diff(self.row, prepend=-1) > 0]  # much faster than ``np.unique`` of what is in order

    def compact(self) -> LinearMap:
        """The map without its empty rows: row i is row ``positions[i]``."""
        row = np.searchsorted(self.positions, self.row)
        return LinearMap(row, self.column, self.coefficient, self.positions.size)

    def select(self, mask: npt.NDArray[np.bool_]) -> LinearMap:
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
    ``matrix`` (height m * n; its row ``i + m * j`` is entry (i, j) of A) are linear maps of theta.
    ``column_names`` : (n,) name of the variable behind each column; ``variable_columns`` : id of a user's variable ->
    its first column, for variables whose entries are columns one to one.
    """

    variables: int
    rows: int
    theta_size: int
    objective: LinearMap
    offset: LinearMap
    scalar: LinearMap
    matrix: LinearMap
    cones: tuple[ConeBlock, ...]
    parameters: tuple[ThetaBlock, ...]
    column_names: tuple[str, ...]
    variable_columns: Mapping[int, int]
    boolean: Integers
    integer: Integers
    maximize: bool

    @property
    def private_blocks(self) -> tuple[ThetaBlock, ...]:
        return tuple(block for block in self.parameters if block.private)

    @property
    def private_columns(self) -> npt.NDArray[np.bool_]:
        """(P,) mask of the private entries of theta."""
        mask = np.zeros(self.theta_size, dtype=bool)
        for block in self.private_blocks:
            mask[block.columns] = True
        return mask

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
