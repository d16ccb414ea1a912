"""Points of a bounded public set as points of a scaled simplex: ``x = shift + S z`` with z >= 0 and ``sum(z) = L``.

Lower bounds are shifted out, columns without one are counted down from their upper bound, free columns are split in
two (as the 1-norm of CVXPY does already), columns may be rescaled, and a slack column takes up what is left of L, which
comes from public constraints alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.marks.layout import sum_by
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.numerics.polyhedron import Polyhedron, absolute_values

# Free columns whose range is looked for by linear programs of their own; and how many rows are tried as scales.
_MOST_FREE, _MOST_SCALES = 64, 4


@dataclass(frozen=True)
class SimplexForm:
    """``x = shift + factor z[:n]``, less ``factor z[n:n+s]`` in the ``split`` columns; then a slack, if any.

    ``shift, factor`` (n,), factor != 0, and > 0 in split columns; ``split`` (s,) numbers of the columns that stand
    twice, in increasing order; ``total`` : L, ``sum(z) = L``; ``slack`` : whether the last column of z is a slack.
    ``signed, size`` (k,) : pairs of columns with the public rows ``|x_signed| <= x_size`` (a 1-norm, as CVXPY lowers
    it): there ``factor z`` holds u and v >= 0 with ``x_signed = u - v``, ``x_size = u + v``, which is all of them.
    """

    shift: Floats
    factor: Floats
    split: Integers
    total: float
    slack: bool
    signed: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    size: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def columns(self) -> int:
        """Number of columns of z."""
        return int(self.shift.size + self.split.size + self.slack)

    @cached_property
    def trivial(self) -> bool:
        """Whether x is the first n entries of z."""
        plain = not self.split.size and not self.signed.size
        return plain and not self.shift.any() and bool((self.factor == 1).all())

    def to_x(self, z: Floats) -> Floats:
        """(n,) x of z (columns,); a view of z when the form is trivial."""
        n = self.shift.size
        if self.trivial:
            return z[:n]
        x = self.shift + self.factor * z[:n]
        if self.split.size:
            x[self.split] -= self.factor[self.split] * z[n : n + self.split.size]
        if self.signed.size:
            u, v = x[self.signed], x[self.size]
            x[self.signed], x[self.size] = u - v, u + v
        return x

    def pull(self, index: Integers, values: Floats) -> tuple[Integers, Floats]:
        """``S'a`` for the sparse row a with distinct columns ``index`` and entries ``values``: columns, entries."""
        if self.signed.size:
            index, values = self._paired(index, values)
        scaled = self.factor[index] * values
        if not self.split.size:
            return index, scaled
        place = np.minimum(np.searchsorted(self.split, index), self.split.size - 1)
        twice = self.split[place] == index
        return (
            np.concatenate([index, self.shift.size + place[twice]]),
            np.concatenate([scaled, -scaled[twice]]),
        )

    def _paired(self, index: Integers, values: Floats) -> tuple[Integers, Floats]:
        """``(entries of x) -> (entries of u, v)`` of a sparse row: every entry of a pair also meets its partner."""
        partner, sign = np.full(self.shift.size, -1, dtype=np.int64), np.ones(self.shift.size)
        partner[self.signed], partner[self.size] = self.size, self.signed
        sign[self.signed] = -1.0
        other = partner[index] >= 0
        meets = sign[index[other]] * values[other]
        every, place = np.unique(np.concatenate([index, partner[index[other]]]), return_inverse=True)
        return every, sum_by(place.astype(np.int64), np.concatenate([values, meets]), every.size)

    def pull_rows(self, A: sp.csr_array) -> sp.csr_array:
        """(rows x columns) A S."""
        if self.trivial and not self.slack:
            return A
        paired = sp.csr_array(A @ _pairing(self.shift.size, self.signed, self.size)) if self.signed.size else A
        # Columns are scaled in place: a product with a diagonal matrix takes ten times as long.
        scaled = paired.data * self.factor[paired.indices], paired.indices, paired.indptr
        if not self.split.size:
            return sp.csr_array(scaled, shape=(A.shape[0], self.columns))
        parts = [sp.csr_array(scaled, shape=A.shape)]
        parts.append(-sp.csr_array(A[:, self.split]) @ sp.diags_array(self.factor[self.split]))
        if self.slack:
            parts.append(sp.csr_array((A.shape[0], 1)))
        return sp.csr_array(sp.hstack(parts))

    def row_range(self, lower: Floats, upper: Floats) -> float:
        """Largest ``L (max_k a_k - min_k a_k)`` over rows a of z whose x entries lie between ``lower`` and ``upper``.

        The bounds enclose 0 (zero rows are allowed).
        """
        if self.signed.size:
            (p, q), (low, high) = (self.signed, self.size), (lower, upper)
            lower, upper = low.copy(), high.copy()
            lower[p], upper[p] = low[p] + low[q], high[p] + high[q]
            lower[q], upper[q] = low[q] - high[p], high[q] - low[p]
        return self.total * _spread(self.factor, self.split, lower, upper)

    def widest_rows(self, A: sp.csr_array) -> float:
        """Largest ``L (max_k a_k - min_k a_k)`` over the rows a of A S, with a zero column where there is a slack."""
        if not A.shape[0]:
            return 0.0
        rows = self.pull_rows(A)
        return self.total * float((rows.max(axis=1).toarray() - rows.min(axis=1).toarray()).max(initial=0.0))

    @property
    def step_limit(self) -> float:
        """Largest ``|x_j - x'_j|`` over two vertices."""
        size = np.abs(self.factor)
        return self.total * max(float(size.max(initial=0.0)), 2 * float(size[self._both_ways].max(initial=0.0)))

    @property
    def _both_ways(self) -> Integers:
        """Columns of x whose column of z stands for two directions."""
        return np.concatenate([self.split, self.signed, self.size])

    @property
    def diameter(self) -> float:
        """Largest 2-norm distance of the x of two vertices."""
        size = np.sort(np.abs(self.factor))[-2:] if self.factor.size > 1 else np.abs(self.factor)
        apart = float(np.linalg.norm(size))
        return self.total * max(apart, 2 * float(np.abs(self.factor[self._both_ways]).max(initial=0.0)))


def simplex_form(polytope: Polyhedron, lower: Floats, upper: Floats) -> SimplexForm | tuple[int, ...]:
    """The form of a public set whose losses have the smallest range, or the columns that nothing bounds.

    ``lower, upper`` (n,) : public bounds, enclosing 0, of the entries of the rows that will be losses. Three shapes are
    tried (columns counted up from their lower bounds, down from their upper bounds, or split where they have both
    signs), the first two also with columns scaled by public rows with positive entries, which makes
    ``{x >= 0, a'x <= s}`` a simplex exactly.
    """
    none = np.zeros(0, dtype=np.int64)
    signed, size = absolute_values(polytope)
    if signed.size:
        forms = list(_paired_forms(polytope, signed, size))
        if forms:
            return min(forms, key=lambda form: form.row_range(lower, upper) * (1 + 1e-4 * form.slack))
    low, high, missing = _ranges(polytope)
    if missing.size:
        return tuple(int(j) for j in missing)
    shapes = [(~np.isfinite(low), none)]
    if np.isfinite(high).any():
        shapes.append((np.isfinite(high), none))
    crossing = np.flatnonzero((low < 0) & (high > 0))
    if crossing.size:
        shapes.append((~np.isfinite(low), crossing))
    best, least = None, np.inf
    for down, split in shapes:
        for form in _forms(polytope, low, high, down, split):
            # Fewer columns at the same range are better, and solvers' last digits decide nothing.
            wide = form.row_range(lower, upper) * (1 + 1e-4 * form.columns / polytope.size)
            if best is None or wide < least:
                best, least = form, wide
    return best if best is not None else tuple(range(polytope.size))


def _ranges(polytope: Polyhedron) -> tuple[Floats, Floats, Integers]:
    """(n,), (n,) bounds of x over the polytope, and the columns where a bound needed is missing."""
    low, high = (bound.copy() for bound in polytope.box)
    open_ = np.flatnonzero(~np.isfinite(low) & ~np.isfinite(high))
    if open_.size > _MOST_FREE:
        return low, high, open_
    for j in open_:
        unit = np.zeros(polytope.size)
        unit[j] = 1.0
        try:
            low[j], high[j] = -polytope.support(-unit), polytope.support(unit)
        except SolverFailure:
            return low, high, open_
    return low, high, np.flatnonzero(~np.isfinite(low) & ~np.isfinite(high))


def _forms(polytope: Polyhedron, low: Floats, high: Floats, down: np.ndarray, split: Integers) -> Iterator[SimplexForm]:
    """Forms with the columns as they are and rescaled by positive public rows; ``down`` : counted from above."""
    sign = np.where(down, -1.0, 1.0)
    shift = np.where(down, high, low)
    shift[split] = 0.0
    sign[split] = 1.0
    twice = float(np.maximum(-low[split], high[split]).sum())
    single = np.ones(polytope.size, dtype=bool)
    single[split] = False
    L = _largest_sum(polytope, np.where(single, sign, 0.0), shift) + twice
    if np.isfinite(L) and L > 0:
        yield SimplexForm(shift, sign, split, L, True)
    if split.size:
        return
    for a, right, equality in _positive_rows(polytope, sign, shift, high > low, None):
        factor = sign / np.where(a > 0, a, 1.0)
        # Fixed columns stay at zero and need no slack of their own.
        yield SimplexForm(shift, factor, split, right, not equality)


def _paired_forms(polytope: Polyhedron, signed: Integers, size: Integers) -> Iterator[SimplexForm]:
    """Forms with pairs ``|x_signed| <= x_size``, the other columns counted up from their lower bounds."""
    low = polytope.box[0].copy()
    low[signed] = low[size] = 0.0
    if not np.isfinite(low).all():
        return
    none, ones = np.zeros(0, dtype=np.int64), np.ones(polytope.size)
    weight = np.ones(polytope.size)
    weight[signed] = 0.0
    L = _largest_sum(polytope, weight, low)
    if np.isfinite(L) and L > 0:
        yield SimplexForm(low, ones, none, L, True, signed, size)
    for a, right, equality in _positive_rows(polytope, ones, low, ones > 0, _pairing(polytope.size, signed, size)):
        yield SimplexForm(low, 1 / a, none, right, not equality, signed, size)


def _positive_rows(
    polytope: Polyhedron, sign: Floats, shift: Floats, live: np.ndarray, pairing: Any
) -> Iterator[tuple[Floats, float, bool]]:
    """Public rows ``a'y <= right`` (or ``=``) with a > 0 on the live columns, for y = sign (x - shift), or of pairs."""
    for A, b, equality in ((polytope.A_eq, polytope.b_eq, True), (polytope.A_ub, polytope.b_ub, False)):
        if not A.shape[0]:
            continue
        right_sides = b - A @ shift
        pulled = A if pairing is None else sp.csr_array(A @ pairing)
        for row in np.flatnonzero(np.diff(pulled.indptr) >= int(live.sum()))[:_MOST_SCALES]:
            entries = slice(pulled.indptr[row], pulled.indptr[row + 1])
            a = np.bincount(pulled.indices[entries], pulled.data[entries], polytope.size) * sign
            right = float(right_sides[row])
            if equality and (a[live] < 0).all():
                a, right = -a, -right
            if (a[live] > 0).all() and right > 0:
                yield a, right, equality


def _pairing(n: int, signed: Integers, size: Integers) -> Any:
    """(n x n) x of the columns u, v of pairs."""
    eye = sp.eye_array(n, format="csr")
    if not signed.size:
        return eye
    ones = np.ones(signed.size)
    entries = np.concatenate([-ones, ones])
    return sp.csr_array(eye + sp.csr_array((entries, (np.r_[signed, size], np.r_[size, signed])), shape=(n, n)))


def _largest_sum(polytope: Polyhedron, sign: Floats, shift: Floats) -> float:
    """Upper bound on ``sum sign_j (x_j - shift_j)`` over the polytope."""
    if (sign == 1).all() and (polytope.box[0] >= 0).all():
        return polytope.l1 - float(shift.sum())
    if not sign.any():
        return 0.0
    try:
        return polytope.support(sign) - float(sign @ shift)
    except SolverFailure:
        return np.inf


def _spread(factor: Floats, split: Integers, lower: Floats, upper: Floats) -> float:
    top = np.maximum(factor * upper, factor * lower)
    bottom = np.minimum(factor * upper, factor * lower)
    high, low = float(top.max(initial=0.0)), float(bottom.min(initial=0.0))
    if split.size:
        size = float(np.maximum(np.abs(top), np.abs(bottom))[split].max())
        high, low = max(high, size), min(low, -size)
    return high - low


# ------------------------------------------------------------------
# Weights of a public set in the log domain: the point of largest entropy among those a score vector prefers


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
