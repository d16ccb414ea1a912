"""Weights of a public set in the log domain: the point of largest entropy among those a score vector prefers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.numerics.polytopes.polyhedron import Polyhedron
from dpmodel.numerics.polytopes.simplex_form import SimplexForm

MOST_ROWS = 300
_TOLERANCE, _MOST_ITERATIONS = 1e-9, 100
# Up to this size the rows are kept dense, which is faster.
_DENSE = 2_000_000


@dataclass
class EntropicPolytope:
    """The public set in a simplex form, as ``{p >= 0, sum(p) = 1, p <= caps, rows p <= right}``, with p = z / L.

    ``rows`` (r x d, CSR), the first ``equalities`` of them equations. Rows and caps that the simplex implies
    are left out, so that for a scaled simplex nothing remains and ``weights`` is the softmax of Algorithm 3.
    """

    form: SimplexForm
    rows: sp.csr_array
    right: Floats
    equalities: int
    caps: Floats | None
    _multipliers: Floats = field(default_factory=lambda: np.zeros(0))
    _before: Floats = field(default_factory=lambda: np.zeros(0))

    @staticmethod
    def of(polytope: Polyhedron, form: SimplexForm) -> EntropicPolytope:
        L = form.total
        A_ub, b_ub, caps = _bounds_as_caps(polytope, form)
        if A_ub.shape[0]:
            A_ub, b_ub = sp.csr_array(sp.vstack([polytope.A_ub, A_ub])), np.concatenate([polytope.b_ub, b_ub])
        else:
            A_ub, b_ub = polytope.A_ub, polytope.b_ub
        eq, eq_right = _needed(polytope.A_eq, polytope.b_eq, form, equality=True)
        ub, ub_right = _needed(A_ub, b_ub, form, equality=False)
        rows = sp.csr_array(sp.vstack([eq, ub]))
        right = np.concatenate([eq_right, ub_right])
        return EntropicPolytope(form, rows, right, eq.shape[0], None if caps is None else caps / L)

    @cached_property
    def _fast(self) -> Any:
        """The rows as they are multiplied with."""
        return self.rows.toarray() if math.prod(self.rows.shape) <= _DENSE else self.rows

    @property
    def work(self) -> float:
        """Cost of one call beside a softmax, as numbers that could be read instead: about three Newton steps."""
        r, d = self.rows.shape
        return 3e4 + 0.5 * r * r * d if r else 0.0

    def weights(self, log_weights: Floats, out: Floats) -> Floats:
        """(d,) ``L argmax <g, p> + entropy(p)`` over the set, for g = ``log_weights``; written to ``out``.

        Without rows a softmax. With rows, projected Newton steps on their multipliers (extrapolated from the last
        calls), to a residual of 1e-9 of a row's size. Everything here is post-processing of released numbers.
        """
        r = self.rows.shape[0]
        if self._multipliers.size != r:
            self._multipliers = self._before = np.zeros(r)
        if not r:
            self._capped(log_weights, out)
        else:
            self._newton(log_weights, out)
        out *= self.form.total
        return out

    def _capped(self, s: Floats, out: Floats) -> float:
        """Fill ``out`` with ``min(caps, exp(s - nu))`` of sum 1 and return nu."""
        top = float(s.max())
        np.subtract(s, top, out=out)
        np.exp(out, out=out)
        total = float(out.sum())
        out /= total
        nu = top + np.log(total)
        if self.caps is None:
            return float(nu)
        full = np.zeros(out.size, dtype=bool)
        left = 1.0
        while True:
            # Columns above their cap are full; the others share what is left. The set of full columns only grows.
            over = (out > self.caps) & ~full
            if not over.any():
                return float(nu)
            full |= over
            left = 1.0 - float(self.caps[full].sum())
            rest = np.where(full, -np.inf, s)
            top = float(rest.max())
            if left <= 0 or not np.isfinite(top):
                out[:] = np.where(full, self.caps, 0.0)
                return float(nu)
            share = np.exp(rest - top)
            total = float(share.sum())
            nu = top + np.log(total / left)
            np.copyto(out, np.where(full, self.caps, share * (left / total)))

    def _dual(self, g: Floats, lam: Floats, out: Floats) -> tuple[float, Floats]:
        """Dual value and its gradient at the multipliers; fills ``out`` with p."""
        s = g - self._fast.T @ lam
        nu = self._capped(s, out)
        value = nu + float(self.right @ lam)
        if self.caps is not None:
            full = (out >= self.caps) & (self.caps > 0)
            value += float((self.caps[full] * (s[full] - nu - np.log(self.caps[full]))).sum())
        return value, self.right - self._fast @ out

    def _newton(self, g: Floats, out: Floats) -> None:
        sided = np.arange(self.rows.shape[0]) >= self.equalities
        # A constant tilt moves multipliers at a constant speed.
        lam = 2 * self._multipliers - self._before
        lam[sided] = np.maximum(lam[sided], 0.0)
        value, gradient = self._dual(g, lam, out)
        for _ in range(_MOST_ITERATIONS):
            residual = np.where(sided & (lam <= 0), -gradient, np.abs(gradient))
            if float(residual.max()) <= _TOLERANCE:
                break
            free = ~(sided & (lam <= 0) & (gradient >= 0))
            step = np.zeros(lam.size)
            try:
                step[free] = -np.linalg.solve(self._hessian(out, free), gradient[free])
            except np.linalg.LinAlgError:  # rows that repeat each other beyond what the ridge mends
                step[free] = -gradient[free]
            for halving in range(40):
                trial = lam + step / 2.0**halving
                trial[sided] = np.maximum(trial[sided], 0.0)
                new_value, new_gradient = self._dual(g, trial, out)
                if new_value <= value + 1e-4 * float(gradient @ (trial - lam)) + 1e-14 * (1 + abs(value)):
                    break
            else:
                self._dual(g, lam, out)
                break
            lam, value, gradient = trial, new_value, new_gradient
        self._before, self._multipliers = self._multipliers, lam

    def _hessian(self, p: Floats, free: np.ndarray) -> Floats:
        moving = p if self.caps is None else np.where(p < self.caps, p, 0.0)
        B = self._fast[free]
        mass, mean = float(moving.sum()), B @ moving
        if isinstance(B, np.ndarray):
            H = (B * moving) @ B.T
        else:
            H = (B @ sp.diags_array(moving) @ B.T).toarray()
        if mass > 0:
            H = H - np.outer(mean, mean) / mass
        H[np.diag_indices_from(H)] += 1e-13 + 1e-9 * np.abs(np.diag(H))
        return H


def _needed(A: sp.csr_array, b: Floats, form: SimplexForm, *, equality: bool) -> tuple[sp.csr_array, Floats]:
    """Rows ``A x <= b`` (or ``= b``) in p, scaled to entries of size 1, without those that the simplex implies."""
    if not A.shape[0]:
        return sp.csr_array((0, form.columns)), np.zeros(0)
    B, right = form.pull_rows(A), (b - A @ form.shift) / form.total
    most, least = B.max(axis=1).toarray().ravel(), B.min(axis=1).toarray().ravel()
    size = np.maximum(np.maximum(most, -least), 1e-300)
    needed = most > right + 1e-9 * size
    if equality:
        needed |= least < right - 1e-9 * size
    keep = np.flatnonzero(needed)
    found = B[keep]
    found.data = found.data * np.repeat(1 / size[keep], np.diff(found.indptr))
    return found, right[keep] / size[keep]


def _bounds_as_caps(polytope: Polyhedron, form: SimplexForm) -> tuple[sp.csr_array, Floats, Floats | None]:
    """Declared bounds of x as caps of z (d,) if any binds, and as rows ``A x <= b`` where a cap cannot say them."""
    n = form.shift.size
    if form.trivial and not polytope.lower.any() and bool((polytope.upper >= form.total).all()):
        return sp.csr_array((0, n)), np.zeros(0), None
    caps = np.full(form.columns, np.inf)
    size = np.abs(form.factor)
    caps[:n] = (
        np.maximum(np.where(form.factor > 0, polytope.upper - form.shift, form.shift - polytope.lower), 0.0) / size
    )
    # The bound on the other side holds by z >= 0, unless the polytope was cut after the form was made.
    lower_bound = np.where(form.factor > 0, polytope.lower - form.shift, form.shift - polytope.upper)
    above, below = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    if form.split.size:
        j = form.split
        caps[n : n + j.size] = np.maximum(-polytope.lower[j], 0.0) / size[j]
        above[j], below[j] = polytope.upper[j] < 0, polytope.lower[j] > 0
        lower_bound[j] = -np.inf
    if form.signed.size:
        pair = np.concatenate([form.signed, form.size])
        caps[pair], lower_bound[pair] = np.inf, -np.inf
        above[pair], below[pair] = np.isfinite(polytope.upper[pair]), np.isfinite(polytope.lower[pair])
    late = np.isfinite(lower_bound) & (lower_bound > 1e-9 * (1 + np.abs(form.shift)))
    above |= late & (form.factor < 0)
    below |= late & (form.factor > 0)
    column = np.append(np.flatnonzero(above), np.flatnonzero(below))
    sign = np.repeat([1.0, -1.0], [above.sum(), below.sum()])
    rows = sp.csr_array((sign, column, np.arange(column.size + 1)), shape=(column.size, n))
    binding = bool((caps < form.total * (1 - 1e-9)).any())
    return rows, np.concatenate([polytope.upper[above], -polytope.lower[below]]), caps if binding else None
