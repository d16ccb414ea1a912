"""The nearest point of a public polyhedron: exact for a box with one row, by Newton's method or OSQP otherwise."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import norm as sparse_norm

from dpmodel._types import Floats
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.numerics.polytopes.multipliers import Multipliers


def onto_row(x: Floats, a: Floats, b: float, lower: Floats, upper: Floats, *, equality: bool) -> Floats:
    """(n,) nearest point of ``{lower <= y <= upper, a'y <= b}`` (or ``= b``), exact up to rounding.

    The answer is ``clip(x - t a)`` with t = 0 or the root of the piecewise linear, non-increasing
    ``a'clip(x - t a) = b``, found from its sorted breakpoints in O(n log n).

    Raises
    ------
    SolverFailure
        When no point has ``a'y`` small enough.
    """
    start = np.clip(x, lower, upper)
    if not equality and a @ start <= b:
        return start
    live = a != 0
    derivative, point, low, high = a[live], x[live], lower[live], upper[live]
    # Column j moves between t = enter and t = leave, its term a_j y_j falling with derivative a_j^2.
    with np.errstate(invalid="ignore"):
        enter = np.where(derivative > 0, (point - high) / derivative, (point - low) / derivative)
        leave = np.where(derivative > 0, (point - low) / derivative, (point - high) / derivative)

    def total(t: float) -> float:
        return float(derivative @ np.clip(point - t * derivative, low, high))

    ends = np.concatenate([enter, leave])
    ends = np.unique(ends[np.isfinite(ends)])
    first, last = -1, ends.size  # total(ends[first]) >= b >= total(ends[last]), with infinity beyond both sides
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if total(float(ends[middle])) >= b else (first, middle)
    if first >= 0:
        anchor = float(ends[first])
        inside = anchor + (1.0 if last == ends.size else (float(ends[last]) - anchor) / 2)
    else:
        anchor = inside = float(ends[0]) - 1.0 if ends.size else 0.0
    moving = (enter < inside) & (inside < leave)
    fall = float((derivative[moving] ** 2).sum())
    gap = total(anchor) - b
    size = 1e-9 * (1 + abs(b)) + 1e-12 * float(np.abs(derivative) @ np.abs(np.clip(point, low, high)))
    if fall == 0 and abs(gap) > size:
        raise SolverFailure("no point of a box satisfies one row", why="the public set is empty", remedy="relax it")
    t = anchor + (gap / fall if fall > 0 else 0.0)
    return np.clip(x - t * a, lower, upper)


# The longest row is scaled to length 1 and the others by as much, but none to less than this: OSQP's steps are one size
# for all rows. Left to its own scaling, which is for matrices Q other than the identity, it takes more of them.
_SHORTEST = 0.1


class Projector:
    """Repeated projections onto one polyhedron: by Newton's method, which starts from the last answer; once that fails,
    by OSQP, which keeps its factorisation."""

    def __init__(
        self, A_ub: sp.csr_array, b_ub: Floats, A_eq: sp.csr_array, b_eq: Floats, lower: Floats, upper: Floats
    ) -> None:
        self._rows = sp.csr_array(sp.vstack([A_ub, A_eq]))
        self._sides = np.concatenate([np.full(b_ub.size, -np.inf), b_eq]), np.concatenate([b_ub, b_eq])
        self._box = lower, upper
        self._multipliers: Multipliers | None = Multipliers(self._rows, *self._sides, lower, upper)

    @cached_property
    def _solver(self) -> Any:
        import osqp  # few polyhedra need it

        lower, upper = self._box
        n = lower.size
        bounded = np.flatnonzero(np.isfinite(lower) | np.isfinite(upper))
        eye = sp.eye_array(n, format="csr")[bounded]
        length = sparse_norm(self._rows, axis=1)
        longest = float(length.max(initial=0.0)) or 1.0
        scale = np.maximum(1.0 / longest, _SHORTEST / np.where(length > 0, length, longest))
        A = sp.csc_matrix(sp.vstack([sp.diags_array(scale) @ self._rows, eye]))
        low, high = (np.append(scale * side, end[bounded]) for side, end in zip(self._sides, self._box, strict=True))
        solver: Any = osqp.OSQP()
        solver.setup(
            P=sp.csc_matrix(sp.eye_array(n)),
            q=np.zeros(n),
            A=A,
            l=low,
            u=high,
            eps_abs=1e-9,
            eps_rel=1e-9,
            max_iter=20_000,
            scaling=1,
            polishing=False,
            verbose=False,
        )
        return solver

    def project(self, x: Floats) -> Floats:
        near = np.clip(x, *self._box)
        if ((value := self._rows @ near) >= self._sides[0]).all() and (value <= self._sides[1]).all():
            return near
        found = None if self._multipliers is None else self._multipliers.project(x)
        if found is not None:
            return found
        self._multipliers = None
        self._solver.update(q=-np.asarray(x, dtype=np.float64))
        result = self._solver.solve(raise_error=False)
        if result.x is None or not np.isfinite(result.x).all():
            raise SolverFailure(
                "OSQP found no nearest point", why=str(result.info.status), remedy="simpler public rows"
            )
        return np.clip(np.asarray(result.x, dtype=np.float64), *self._box)
