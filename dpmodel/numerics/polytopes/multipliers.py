"""The nearest point of a polyhedron by Newton's method on the multipliers of its rows.

    minimise  1/2 ||y - x||^2   subject to  A_ub y <= b_ub,  A_eq y = b_eq,  lower <= y <= upper

For multipliers l (at least zero for inequalities) the minimiser over the box is ``y(l) = clip(x - A'l)``. The dual
function is smooth and concave, with gradient ``A y(l) - b`` and generalised Hessian ``-A D A'``, D the columns strictly
inside the box. Its pieces are quadratic, so that few steps end at the answer, from the last multipliers even fewer;
each solves its equation by conjugate gradients, with a ridge that goes to zero with the residual. Where the box and the
rows leave little room, steps may not end: then another method takes over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import norm as sparse_norm

from dpmodel._types import Floats, Mask
from dpmodel.numerics.polytopes.conjugate_gradients import conjugate_gradients

_STEPS, _CONJUGATE, _HALVINGS = 60, 60, 30
# What rows may be missed by, as a share of the sizes that they add up; the ridge, as a share of what they are missed
# by; to which share of the residual a step's equation is solved, at first; Armijo's constant.
_EXACT, _RIDGE, _INEXACT, _ARMIJO = 1e-11, 1e-3, 1e-2, 1e-4
# Matrices with no more entries are taken as dense: the calls take longer than the products.
_DENSE = 20_000
# Added to the diagonal in any case: rows whose columns are all at their ends have none.
_LEAST_RIDGE = 1e-14


class Multipliers:
    """Repeated projections onto one polyhedron; each starts from the multipliers of the last."""

    def __init__(self, rows: sp.csr_array, low: Floats, high: Floats, lower: Floats, upper: Floats) -> None:
        """``low <= rows y <= high``, where ``low`` is -inf or equals ``high``."""
        length = sparse_norm(rows, axis=1)
        scale = 1.0 / np.where(length > 0, length, 1.0)
        A: Any = sp.csr_array(sp.diags_array(scale) @ rows)
        self._A = A = A.toarray() if A.shape[0] * A.shape[1] <= _DENSE else A
        self._across = A.T if isinstance(A, np.ndarray) else sp.csr_array(A.T)
        self._size, self._squares = abs(A), A * A
        self._b = scale * high
        self._least = np.where(np.isfinite(low), -np.inf, 0.0)
        self._box = lower, upper
        self._last = np.zeros(high.size)

    def project(self, x: Floats) -> Floats | None:
        """(n,) the nearest point; None where steps do not end at it."""
        multipliers = self._last
        raw, y, value, gap = self._at(x, multipliers)
        size = 1.0 + np.abs(self._b) + self._size @ np.abs(y)
        for _ in range(_STEPS):
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
                return None
            multipliers, (raw, y, value, gap) = after, found
        return None

    def _at(self, x: Floats, multipliers: Floats) -> tuple[Floats, Floats, float, Floats]:
        """The point before and after the box, the dual function, and its gradient."""
        raw = x - self._across @ multipliers
        y = np.clip(raw, *self._box)
        gap = np.asarray(self._A @ y - self._b)
        return raw, y, 0.5 * float((y - x) @ (y - x)) + float(multipliers @ gap), gap

    def _newton(self, inside: Floats, live: Mask, missed: Floats, share: float) -> Floats:
        """Solve ``(A D A' + ridge) step = missed`` over the ``live`` rows, nearly."""
        ridge = _RIDGE * share + _LEAST_RIDGE
        return conjugate_gradients(
            lambda d: np.where(live, self._A @ (inside * (self._across @ d)), 0.0) + ridge * d,
            missed, 1.0 / (self._squares @ inside + ridge), min(_INEXACT, share), _CONJUGATE,
        )  # fmt: skip
