"""Nearest points of a public polyhedron, and the steps that this and other post-processing take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg
from scipy.sparse.linalg import norm as sparse_norm

from dpmodel._types import Floats, Mask
from dpmodel.numerics.cone_program import SolverFailure


def conjugate_gradients(
    times: Callable[[Floats], Floats], right: Floats, precondition: Floats, share: float, steps: int
) -> Floats:
    """d with ``times(d)`` near ``right``: to a ``share`` of its 2-norm, or as near as so many ``steps`` come. ``times``
    : a positive definite matrix; ``precondition`` : the inverse of its diagonal, about."""
    matrix, inverse = (
        LinearOperator((right.size, right.size), product, dtype=np.float64)
        for product in (times, lambda v: precondition * v)
    )
    return np.asarray(cg(matrix, right, rtol=share, maxiter=steps, M=inverse)[0])


# ------------------------------------------------------------------ Newton's method on the multipliers of rows


_STEPS, _MANY_STEPS, _OUTER, _CONJUGATE, _HALVINGS = 60, 300, 40, 60, 30
# What rows may be missed by, as a share of the sizes that they add up; the ridge, as a share of what they are missed
# by; to which share of the residual a step's equation is solved, at first; Armijo's constant.
_EXACT, _RIDGE, _INEXACT, _ARMIJO = 1e-11, 1e-3, 1e-2, 1e-4
# Matrices with no more entries are taken as dense: the calls take longer than the products.
_DENSE = 20_000


class Multipliers:
    """Repeated projections onto one polyhedron; each starts from the multipliers of the last.

    ``minimise 1/2 ||y - x||^2 subject to A_ub y <= b_ub, A_eq y = b_eq, lower <= y <= upper``

    For multipliers l (at least zero for inequalities) the minimiser over the box is ``y(l) = clip(x - A'l)``. The
    dual function is smooth and concave, with gradient ``A y(l) - b`` and generalised Hessian ``-A D A'``, D the
    columns strictly inside the box. Its pieces are quadratic, so that few steps end at the answer, from the last
    multipliers even fewer; each solves its equation by conjugate gradients, with a ridge that goes to zero with the
    residual. Where the box and the rows leave little room, steps may not end: then another method takes over.
    """

    def __init__(
        self, rows: sp.csr_array, low: Floats, high: Floats, lower: Floats, upper: Floats, steps: int = _STEPS
    ) -> None:
        """``low <= rows y <= high``, where ``low`` is -inf or equals ``high``; at most so many ``steps``."""
        length = sparse_norm(rows, axis=1)
        scale = 1.0 / np.where(length > 0, length, 1.0)
        A: Any = sp.csr_array(sp.diags_array(scale) @ rows)
        self._A = A = A.toarray() if A.shape[0] * A.shape[1] <= _DENSE else A
        self._across = A.T if isinstance(A, np.ndarray) else sp.csr_array(A.T)
        self._size, self._squares = abs(A), A * A
        self._b, self._scale, self._steps = scale * high, scale, steps
        self._least = np.where(np.isfinite(low), -np.inf, 0.0)
        self._box = lower, upper
        self._last = np.zeros(high.size)

    def begin(self, multipliers: Floats) -> None:
        """Begin the next projection at these multipliers (p,) of the rows."""
        self._last = multipliers / self._scale

    @property
    def multipliers(self) -> Floats:
        """(p,) of the rows, at the last nearest point."""
        return self._last * self._scale

    def project(self, x: Floats) -> Floats | None:
        """(n,) the nearest point; None where steps do not end at it (``seen`` is where they did)."""
        multipliers = self._last
        raw, y, value, gap = self._at(x, multipliers)
        size = 1.0 + np.abs(self._b) + self._size @ np.abs(y)
        for _ in range(self._steps):
            idle = (multipliers <= self._least) & (gap <= 0)
            missed = np.where(idle, 0.0, gap)
            share = float((np.abs(missed) / size).max(initial=0.0))
            if share <= _EXACT:
                self._last = multipliers
                return y
            inside = ((raw > self._box[0]) & (raw < self._box[1])).astype(np.float64)
            step = self._newton(inside, ~idle, missed, min(share, 1.0))
            for halving in range(_HALVINGS):
                after = np.maximum(multipliers + 0.5**halving * step, self._least)
                found = self._at(x, after)
                if found[2] >= value + _ARMIJO * float(gap @ (after - multipliers)) - 1e-15 * abs(value):
                    break
            else:
                break
            multipliers, (raw, y, value, gap) = after, found
        self.seen = y
        return None

    def _at(self, x: Floats, multipliers: Floats) -> tuple[Floats, Floats, float, Floats]:
        """The point before and after the box, the dual function, and its gradient."""
        raw = x - self._across @ multipliers
        y = np.clip(raw, *self._box)
        gap = np.asarray(self._A @ y - self._b)
        return raw, y, 0.5 * float((y - x) @ (y - x)) + float(multipliers @ gap), gap

    def _newton(self, inside: Floats, live: Mask, missed: Floats, share: float) -> Floats:
        """Solve ``(A D A' + ridge) step = missed`` over the ``live`` rows, nearly."""
        ridge = _RIDGE * share + 1e-14  # rows whose columns are all at their ends have nothing on the diagonal
        return conjugate_gradients(
            lambda d: np.where(live, self._A @ (inside * (self._across @ d)), 0.0) + ridge * d,
            missed, 1.0 / (self._squares @ inside + ridge), min(_INEXACT, share), _CONJUGATE,
        )  # fmt: skip


# ------------------------------------------------------------------
# The nearest point of a public polyhedron: exact for a box with one row, by Newton's method or Clarabel otherwise


def onto_row(x: Floats, a: Floats, b: float, lower: Floats, upper: Floats, *, equality: bool) -> Floats:
    """(n,) nearest point of ``{lower <= y <= upper, a'y <= b}`` (or ``= b``), exact up to rounding.

    The answer is ``clip(x - t a)`` with t = 0 or the root of the piecewise linear, non-increasing
    ``a'clip(x - t a) = b``, found from its sorted breakpoints in O(n log n).
    Errors: SolverFailure, when no point has ``a'y`` small enough.
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


class Projector:
    """Repeated projections onto one polyhedron: by Newton's method, which starts from the last answer; once that fails,
    by Clarabel."""

    def __init__(
        self, A_ub: sp.csr_array, b_ub: Floats, A_eq: sp.csr_array, b_eq: Floats, lower: Floats, upper: Floats
    ) -> None:
        self._rows = sp.csr_array(sp.vstack([A_ub, A_eq]))
        self._sides = np.concatenate([np.full(b_ub.size, -np.inf), b_eq]), np.concatenate([b_ub, b_eq])
        self._box = lower, upper
        self._multipliers: Multipliers | None = Multipliers(self._rows, *self._sides, lower, upper)

    @cached_property
    def _solver(self) -> Any:
        import clarabel  # few polyhedra need it

        lower, upper = self._box
        eye, above, below = sp.eye_array(lower.size, format="csr"), np.isfinite(upper), np.isfinite(lower)
        count = int(np.count_nonzero(np.isinf(self._sides[0])))  # inequalities come first
        A = sp.csc_matrix(sp.vstack([self._rows[count:], self._rows[:count], eye[above], -eye[below]]))
        b = np.concatenate([self._sides[1][count:], self._sides[1][:count], upper[above], -lower[below]])
        equal = self._rows.shape[0] - count
        sizes = ((clarabel.ZeroConeT, equal), (clarabel.NonnegativeConeT, b.size - equal))
        settings = clarabel.DefaultSettings()
        settings.verbose = settings.presolve_enable = False  # presolved programs take no other point
        P = sp.csc_matrix(sp.eye_array(lower.size))
        cones = [kind(size) for kind, size in sizes if size]
        return clarabel.DefaultSolver(P, np.zeros(lower.size), A, b, cones, settings)

    def project(self, x: Floats) -> Floats:
        near = np.clip(x, *self._box)
        if ((value := self._rows @ near) >= self._sides[0]).all() and (value <= self._sides[1]).all():
            return near
        found = None if self._multipliers is None else self._multipliers.project(x)
        if found is not None:
            return found
        self._multipliers = None
        self._solver.update(q=-np.asarray(x, dtype=np.float64))
        result = self._solver.solve()
        if str(result.status) not in ("Solved", "AlmostSolved"):
            raise SolverFailure("Clarabel found no nearest point", why=str(result.status), remedy="simpler public rows")
        return np.clip(np.asarray(result.x, dtype=np.float64), *self._box)


# ------------------------------------------------------------------ separable least squares


@dataclass(frozen=True)
class DiagonalQP:
    """Minimise ``sum_j weight_j (z_j - target_j)^2 / 2`` subject to ``A z = b``, ``lower <= z <= upper``.

    ``A`` : (m, n) sparse, ``b`` (m,); the others (n,), weights >= 0, bounds may be infinite.
    """

    A: sp.csr_array
    b: Floats
    weight: Floats
    target: Floats
    lower: Floats
    upper: Floats


def solve_diagonal_qp(
    program: DiagonalQP, *, start: Floats, tolerance: float, tau: float = 30.0
) -> tuple[Floats, bool]:
    """(n,) the minimiser, and whether steps ended at it: not where no point meets the rows.

    For millions of variables, for which solvers that factorise are too slow. A proximal term
    ``(z - z_k)^2 / (2 tau)`` makes every coordinate strictly convex; in units in which all have the same curvature one
    step is a projection. The outer loop is the proximal point method (Rockafellar 1976); together they are the method
    of Li, Sun and Toh (SIAM J. Optim. 28, 2018).

    ``start`` : (n,) centre of the first proximal step; where the minimiser is not unique, one near it is found.
    ``tolerance`` : of stationarity, in the units of z, for weights of order one. ``tau`` : first proximal parameter, in
        units of 1 / weight; grows threefold per step.
    """
    A, strict = program.A, bool((program.weight > 0).all())
    centre, multipliers = np.clip(start, program.lower, program.upper), np.zeros(program.b.size)
    for _ in range(_OUTER):
        pull = 0.0 if strict else 1.0 / tau
        root = np.sqrt(program.weight + pull)
        rows = sp.csr_array((A.data / root[A.indices], A.indices, A.indptr), shape=A.shape)
        step = Multipliers(rows, program.b, program.b, program.lower * root, program.upper * root, _MANY_STEPS)
        step.begin(multipliers)
        scaled = step.project((program.weight * program.target + pull * centre) / root)
        found = step.seen if scaled is None else scaled
        before, centre, multipliers = centre, np.clip(found / root, program.lower, program.upper), step.multipliers
        if scaled is None or strict or float(np.abs(centre - before).max(initial=0.0)) <= tolerance * tau:
            return centre, scaled is not None
        tau *= 3.0
    return centre, False


# ------------------------------------------------------------------ Nesterov's method


def accelerated(w: Floats, step: Callable[[Floats], Floats], weights: Floats | float = 1.0) -> Iterator[Floats]:
    """Nesterov's accelerated steps with restarts: points after w (p,), without end.

    ``step`` : a (proximal) gradient step in the metric ``diag(weights)``. Momentum starts again where it points uphill
    (O'Donoghue and Candes 2015). With w (B, p), of every row by itself.
    """
    ahead, t = w, np.ones((*w.shape[:-1], 1))
    while True:
        after = step(ahead)
        uphill = ((ahead - after) * (weights * (after - w))).sum(axis=-1, keepdims=True) > 0
        t = np.where(uphill, 1.0, t)
        then = (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead, w, t = after + (t - 1) / then * (after - w), after, then
        yield w
