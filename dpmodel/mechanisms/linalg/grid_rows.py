"""Private rows on a grid, so that sums, products and counts are exact; and points on a grid to ask them at.

Why. One row more moves the others in memory, and vectorised products then round them differently. A row near a
threshold would be active in one data set and not in the other, so that sums moved by more than one row. Here rows are
rounded to multiples of 2^-24 and points to multiples of 2^-28. By Cauchy and Schwarz all partial sums of a product are
at most 1.01, hence multiples of 2^-52 below 2: exact in double precision in whatever order. What a row does depends on
this row and on the point alone. Sums of up to 2^28 rows are exact too, and more are added up in integers. Second
moments are those of rows cut towards zero to multiples of 2^-15, added up in units of 2^-30 in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Mask, PrivateArray

ROW_GRID, POINT_GRID, _MOMENT_GRID = 2.0**24, 2.0**28, 2.0**15
# Rows added up in double precision at once: sums of their entries (of moments: entries made dense) stay below 2^53
# units.
_BLOCK, _MOMENT_BLOCK = 2**28, 2**22


@dataclass(frozen=True, eq=False)
class GridRows:
    """(n, D) private rows of norm 1 at most, dense or CSR, rounded to the grid. Build with ``of``.

    ``live`` (n,) : which are not zero. Zero rows always hold and do nothing. ``weight``, ``public`` : for synthetic
    rows of simulations, each of which may stand for several equal ones, and whose rescaling may take the quick way.
    """

    rows: Any
    live: Mask
    weight: float = 1.0
    public: bool = False

    @staticmethod
    def of(rows: Any, weight: float = 1.0, *, public: bool = False) -> GridRows:
        """From (n, D) rows, dense or CSR. Unit rows never become zero (D <= 2^16)."""
        if not sp.issparse(rows):
            dense = np.rint(np.asarray(rows, dtype=np.float64) * ROW_GRID) / ROW_GRID
            return GridRows(dense, (dense != 0).any(axis=1), weight, public)
        grid = sp.csr_array(rows, dtype=np.float64, copy=True)
        grid.sum_duplicates()
        grid.data = np.rint(grid.data * ROW_GRID) / ROW_GRID
        grid.eliminate_zeros()
        return GridRows(grid, np.diff(grid.indptr) > 0, weight, public)

    @property
    def count(self) -> int:
        return int(self.rows.shape[0])

    @property
    def size(self) -> int:
        """D."""
        return int(self.rows.shape[1])

    def values(self, point: Floats) -> PrivateArray:
        """(n,) exact products with a grid point of norm 1.01 at most."""
        return PrivateArray(np.asarray(self.rows @ point, dtype=np.float64))

    def below(self, point: Floats, level: float) -> Mask:
        """(n,) rows that are not zero with ``<a, y> < level``."""
        return np.asarray((self.values(point) < level) & self.live)

    def sum(self, mask: Mask) -> PrivateArray:
        """(D,) the exact sum of some rows (rounded once beyond 2^28 of them)."""
        total = np.zeros(self.size, dtype=np.int64)
        for start in range(0, self.count, _BLOCK):
            block = slice(start, start + _BLOCK)
            part = self.rows[block].T @ mask[block].astype(np.float64)
            total += np.rint(np.asarray(part) * ROW_GRID).astype(np.int64)
        return PrivateArray(self.weight * (total / ROW_GRID))

    def number(self, mask: Mask) -> float:
        """How many rows some are."""
        return self.weight * float(np.count_nonzero(mask))

    def second_moments(self) -> PrivateArray:
        """(D, D) the exact sum of ``a a'`` over the rows on the coarser grid."""
        whole = np.zeros((self.size, self.size), dtype=np.int64)
        step = max(_MOMENT_BLOCK // max(self.size, 1), 1)
        for start in range(0, self.count, step):
            part = self.rows[start : start + step]
            coarse = np.trunc((part.toarray() if sp.issparse(part) else part) * _MOMENT_GRID)
            whole += (coarse.T @ coarse).astype(np.int64)
        return PrivateArray(self.weight * (whole / _MOMENT_GRID**2))

    def rescaled(self, by: Floats) -> GridRows:
        """The rows ``a'W`` scaled to unit norm, for a public (D, D) W.

        Sparse products go row by row, so a row of the result depends on its own record alone; dense ones may not.
        """
        moved = np.asarray((self.rows if self.public else sp.csr_array(self.rows)) @ by)
        norms = np.sqrt((moved * moved).sum(axis=1))[:, None]
        unit = np.divide(moved, norms, out=np.zeros_like(moved), where=norms > 0)
        return GridRows.of(unit, self.weight, public=self.public)


def grid_point(point: Floats) -> Floats:
    """(D,) the nearest grid point, at most ``sqrt(D) 2^-29`` away."""
    return np.asarray(np.rint(point * POINT_GRID) / POINT_GRID)


def grid_direction(point: Floats) -> Floats:
    """The grid point nearest to ``point`` scaled to unit norm; zero stays zero."""
    norm = float(np.linalg.norm(point))
    return grid_point(point / norm) if norm > 0 else point


def row_norm(size: int) -> float:
    """Largest norm of a row on the grid: 1 + 1e-11 before (D <= 2^16), entries moved by 2^-25 at most."""
    return 1 + 1e-11 + math.sqrt(size) * 2.0**-25


def allowance(size: int) -> float:
    """How far ``<a, y>`` for a row and a unit vector as they are is from the product on the grids, at most, after the
    answer was projected onto the cone once more: ``sqrt(D) (2^-25 + 2 2^-29)`` and rounding."""
    return math.sqrt(size) * 2.0**-24
