"""Private rows on a grid, so that sums, products and counts are exact; and points on a grid to ask them at.

Why. One row more moves the others in memory, and vectorised products then round them differently. A row near a
threshold would be active in one data set and not in the other, so that sums moved by more than one row. Here rows are
rounded to multiples of 2^-24 and points to multiples of 2^-28. By Cauchy and Schwarz all partial sums of a product are
at most 1.01, hence multiples of 2^-52 below 2: exact in double precision in whatever order. What a row does depends on
this row and on the point alone. Sums of up to 2^28 rows are exact too, and more are added up in integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Mask
from dpmodel.mechanisms.contract import Verdict
from dpmodel.mechanisms.linalg.systems import PrivateInequalities
from dpmodel.numerics.polytopes.cone_projection import project, projector

ROW_GRID, POINT_GRID = 2.0**24, 2.0**28
# Rows added up in double precision at once: sums of their entries stay below 2^53 units.
_BLOCK = 2**28
_MOST_VARIABLES = 2**16
# How far an answer of the homogeneous form is moved towards y0 > 0 where it is not there (times the margin, at most).
_LIFT, _LIFT_SHARE = 2.0**-20, 2.0**-6


@dataclass(frozen=True)
class GridRows:
    """Rows of norm 1 at most, rounded to the grid.

    ``rows`` (n, D), dense or CSR; ``live`` (n,) : which are not zero. Zero rows always hold and do nothing.
    """

    rows: Any
    live: Mask

    @staticmethod
    def of(rows: Any) -> GridRows:
        """From (n, D) rows, dense or CSR. Unit rows never become zero (D <= 2^16)."""
        if sp.issparse(rows):
            grid = sp.csr_array(rows, dtype=np.float64, copy=True)
            grid.sum_duplicates()
            grid.data = np.rint(grid.data * ROW_GRID) / ROW_GRID
            live = np.asarray(abs(grid).max(axis=1).toarray()).ravel() > 0 if grid.shape[0] else np.zeros(0, dtype=bool)
            return GridRows(grid, live)
        dense = np.rint(np.asarray(rows, dtype=np.float64) * ROW_GRID) / ROW_GRID
        return GridRows(dense, (dense != 0).any(axis=1))

    @property
    def count(self) -> int:
        return int(self.rows.shape[0])

    def values(self, point: Floats) -> Floats:
        """(n,) exact products with a grid point of norm 1.01 at most."""
        return np.asarray(self.rows @ point, dtype=np.float64)

    def below(self, point: Floats, level: float) -> Mask:
        """(n,) rows that are not zero with ``<a, y> < level``."""
        return np.asarray((self.values(point) < level) & self.live)

    def sum(self, mask: Mask) -> Floats:
        """(D,) the exact sum of some rows (rounded once beyond 2^28 of them)."""
        total = np.zeros(self.rows.shape[1], dtype=np.int64)
        for start in range(0, self.count, _BLOCK):
            block = slice(start, start + _BLOCK)
            part = self.rows[block].T @ mask[block].astype(np.float64)
            total += np.rint(np.asarray(part) * ROW_GRID).astype(np.int64)
        return total / ROW_GRID


def grid_point(point: Floats) -> Floats:
    """(D,) the nearest grid point, at most ``sqrt(D) 2^-29`` away."""
    return np.asarray(np.rint(point * POINT_GRID) / POINT_GRID)


def row_norm(size: int) -> float:
    """Largest norm of a row on the grid: 1 + 1e-11 before (D <= 2^16), entries moved by 2^-25 at most."""
    return 1 + 1e-11 + math.sqrt(size) * 2.0**-25


def allowance(size: int) -> float:
    """How far ``<a, y>`` for a row and a unit vector as they are is from the product on the grids, at most, after the
    answer was projected onto the cone once more: ``sqrt(D) (2^-25 + 2 2^-29)`` and rounding."""
    return math.sqrt(size) * 2.0**-24


def lift(model: PrivateInequalities) -> tuple[Floats, float] | None:
    """A public unit vector p of the cone with the largest ``p0``, and by how much of it answers may be moved.

    The projection p of e0 onto the cone has ``<e0, p> = ||p||^2`` and vanishes only if no cone point has y0 > 0. None:
    there is no such point, or it is too far away for double precision. Homogeneous systems need no lift: (0, 0).
    """
    size = model.cone_dimension
    if model.homogeneous:
        return np.zeros(size), 0.0
    p = project(model.cone, np.eye(1, size)[0])
    norm = float(np.linalg.norm(p))
    by = min(_LIFT, _LIFT_SHARE * (model.margin or 0.0))
    return (p / norm, by) if norm > 0 and by * p[0] / norm >= math.sqrt(size) * 2.0**-26 else None


def cone_eligible(model: PrivateInequalities) -> Verdict | None:
    """No, where a mechanism that searches the unit ball for a point with a margin cannot serve; else None."""
    if model.margin is None:
        return Verdict(False, "it needs a public margin rho0 that some point keeps to all rows: give margin=")
    size = model.cone_dimension
    if size > _MOST_VARIABLES:
        return Verdict(False, f"at most {_MOST_VARIABLES} variables are covered by its exact sums")
    if model.margin < 64 * allowance(size):
        return Verdict(False, f"the margin is below {64 * allowance(size):.2g}, too small for double precision")
    if model.remember("lift", lambda: lift(model)) is None:
        return Verdict(False, "no public point is near enough to the origin for double precision")
    return None


def finisher(model: PrivateInequalities) -> Callable[[Floats], Floats]:
    """The map from a point that was found to a unit grid point with y0 > 0 (zero stays zero); public facts only."""
    found = model.remember("lift", lambda: lift(model))
    assert found is not None  # cone_eligible
    upward, by = found

    def finish(point: Floats) -> Floats:
        norm = float(np.linalg.norm(point))
        y = point / norm if norm > 0 else point
        if not model.homogeneous and y[0] < by * upward[0]:
            y = y + by * upward
            y = y / max(float(np.linalg.norm(y)), 1.0)
        return grid_point(y)

    return finish


def answer_of(model: PrivateInequalities, y: Floats) -> Floats:
    """(d,) the answer x of a grid point, projected onto the cone that rounding left."""
    return model.lowered(projector(model.cone)(y))


__all__ = ["POINT_GRID", "ROW_GRID", "GridRows", "Mask", "allowance", "answer_of", "cone_eligible", "finisher",
           "grid_point", "lift", "row_norm"]  # fmt: skip
