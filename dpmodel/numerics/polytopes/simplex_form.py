"""Points of a bounded public set as points of a scaled simplex: ``x = shift + S z`` with z >= 0 and ``sum(z) = L``.

Lower bounds are shifted out, columns without one are counted down from their upper bound, free columns are split in
two (as the 1-norm of CVXPY does already), columns may be rescaled, and a slack column takes up what is left of L, which
comes from public constraints alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.marks.layout import sum_by
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.numerics.polytopes.polyhedron import Polyhedron, absolute_values

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
