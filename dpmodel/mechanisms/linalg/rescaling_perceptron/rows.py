"""Unit rows on a grid so coarse that every sum a cone mechanism needs is exact in double precision.

Floating-point sums depend on the order of their terms, and the order depends on who else is in the data. Here no sum
is rounded, so a released sum or count changes by exactly what one record owns:

* rows are cut towards zero to multiples of 2^-30 and directions to multiples of 2^-22 (neither norm can grow), so
  products are multiples of 2^-52, and by Cauchy and Schwarz every partial sum of one is below 2: 53 bits hold it;
* sums of up to 2^22 rows are multiples of 2^-30 below 2^22: 52 bits; longer sums are put together as 64-bit integers;
* second moments use rows cut to 2^-15: multiples of 2^-30 again.

Cutting moves a row by at most ``sqrt(D) 2^-30``; what is asked of the rows must be larger (``coarsest``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Mask

_ROW, _DIRECTION, _MOMENT = 2.0**30, 2.0**22, 2.0**15
_CHUNK = 2**22


def coarsest(size: int) -> float:
    """How far the cutting of rows and directions can move ``<a, y>``, for unit vectors of ``size`` entries."""
    return math.sqrt(size) * (1 / _ROW + 1 / _DIRECTION)


@dataclass(frozen=True, eq=False)
class GridRows:
    """(n, D) rows of norm at most 1 (CSR or dense), zero or of norm about 1, on the grid. Build with ``of``.

    ``weight``, ``public`` : for made-up rows of simulations, each of which may stand for several equal ones, and whose
    rescaling may take the quick way.
    """

    rows: Any
    present: Mask
    weight: float = 1.0
    public: bool = False

    @staticmethod
    def of(rows: Any, weight: float = 1.0, *, public: bool = False) -> GridRows:
        """Cut ``rows``, (n, D) of norm at most 1 + 1e-12."""
        if sp.issparse(rows):
            cut = sp.csr_array(rows, dtype=np.float64, copy=True)
            cut.data = np.trunc(cut.data * _ROW) / _ROW
            present = (
                np.asarray(abs(cut).max(axis=1).toarray()).ravel() > 0 if cut.nnz else np.zeros(cut.shape[0], bool)
            )
            return GridRows(cut, present, weight)
        cut = np.trunc(np.asarray(rows, dtype=np.float64) * _ROW) / _ROW
        return GridRows(cut, (cut != 0).any(axis=1), weight, public)

    def below(self, direction: Floats, least: float) -> Mask:
        """(n,) whether ``<a, y/||y||> < least``, each row by itself; all rows for y = 0. Zero rows always hold.

        Parameters
        ----------
        direction : (D,) y, public.
        """
        norm = float(np.linalg.norm(direction))
        if not norm > 0:
            return self.present
        # The factor keeps the norm below 1 after rounding.
        unit = np.trunc(direction / norm * (1 - 2.0**-40) * _DIRECTION) / _DIRECTION
        return np.asarray(self.rows @ unit < least) & self.present

    def sum_and_count(self, chosen: Mask) -> tuple[Floats, float]:
        """(D,) sum of the chosen rows, and their number."""
        n = self.rows.shape[0]
        if n <= _CHUNK:
            total = np.asarray(self.rows.T @ chosen.astype(np.float64))
        else:
            whole = np.zeros(self.rows.shape[1], dtype=np.int64)
            for start in range(0, n, _CHUNK):
                part = self.rows[start : start + _CHUNK].T @ chosen[start : start + _CHUNK].astype(np.float64)
                whole += np.asarray(part * _ROW).astype(np.int64)
            total = whole / _ROW
        return self.weight * total, self.weight * float(np.count_nonzero(chosen))

    def second_moments(self) -> Floats:
        """(D, D) sum of ``a a'`` of the rows cut to the coarser grid."""
        n, size = self.rows.shape
        whole = np.zeros((size, size))
        step = max(_CHUNK // max(size, 1), 1)  # a part is made dense
        for start in range(0, n, step):
            part = self.rows[start : start + step]
            coarse = np.trunc((part.toarray() if sp.issparse(part) else part) * _MOMENT) / _MOMENT
            whole += coarse.T @ coarse
        return self.weight * whole

    def rescaled(self, by: Floats) -> GridRows:
        """The rows ``a'W`` scaled to unit norm, for a public (D, D) W.

        Sparse products go row by row, so a row of the result depends on its own record alone; dense ones may not.
        """
        moved = np.asarray((self.rows if self.public else sp.csr_array(self.rows)) @ by)
        norms = np.sqrt((moved * moved).sum(axis=1))
        factor = np.divide(1 - 2.0**-40, norms, out=np.zeros_like(norms), where=norms > 0)
        return GridRows.of(moved * factor[:, None], self.weight, public=self.public)


__all__ = ["GridRows", "Mask", "coarsest"]
