"""Private rows as multiplicative weights see them: their scores, and how far one record moves them.

Public facts, and the one reading of private values of Algorithms 4 to 6 (``weights.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.compile.affine_map import AffineMap, LinearMap, numbered
from dpmodel.compile.footprint import Sensitivity, entries_under, record_blocks, sensitivity_of, sensitivity_under
from dpmodel.kernels.direct_measurement import ROUNDING, exact_rows
from dpmodel.marks.layout import sum_by
from dpmodel.memo import cached
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.simplex_form import SimplexForm
from dpmodel.programs.model import PrivateNumbers, Program
from dpmodel.programs.rows import PrivateRows, at_private_entries, present, private_rows, public_entries

# Where coefficients are public, scores are clamped at this many ranges: the value, the difference and their scaling
# then round by less than 2^-12 of the range, on both neighbours and at both ends, which ROUNDING covers.
_CLAMP = 2.0**38
# Up to so many private coefficients the range of the scores is read off the footprint at every point.
_EXACT = 3000


@dataclass(frozen=True)
class PrivateRowsNow:
    """The private rows at theta; private. Scores are ``residual(x)``, then ``-residual(x)[twins]``, then 0.

    ``parts`` : matrices (k x n) whose sum is G; ``h`` (k,); ``twins`` : equalities among the rows;
    ``limit`` : scores are clamped to [-limit, limit].
    """

    parts: tuple[sp.csr_array, ...]
    fixed: Floats
    h: PrivateArray
    twins: Integers
    limit: float

    def scores(self, x: Floats) -> PrivateArray:
        """(k + e + 1,) scores of the rows, the twins of equalities, and no row."""
        k = self.h.size
        out = np.empty(k + self.twins.size + 1)
        out[-1] = 0.0
        rows = out[:k]
        rows[:] = self.parts[0] @ x
        for part in self.parts[1:]:
            rows += part @ x
        rows -= self.fixed
        rows -= self.h
        if math.isfinite(self.limit):
            np.clip(rows, -self.limit, self.limit, out=rows)
        out[k:-1] = -out[self.twins]
        return PrivateArray(out)


@dataclass(frozen=True)
class GameRows:
    """Public facts on private rows ``G x <= h``, equalities standing twice in the scores.

    ``rows`` : their bounds. ``index`` (k,) rows of the standard form, ``twins`` the equalities among them. ``h`` : the
    private parts of the right-hand sides as functions of theta. ``absent`` : whether rows with private coefficients may
    be absent; all their entries count as private then. ``pattern`` (k x n) CSR: where entries are private, with the
    public numbers that are added there; ``rest`` (k x n) : the public entries elsewhere. ``row_l1, row_l2, linf`` :
    norms of the change of one row's coefficients by one record, zero where these are public; ``sensitivities`` : per
    Records, of A and of the list of h; ``h_range`` : how far one record moves the right-hand sides apart.
    """

    rows: PrivateRows
    index: Integers
    twins: Integers
    h: LinearMap
    absent: bool
    row_l1: float
    row_l2: float
    linf: float
    sensitivities: tuple[tuple[Sensitivity, Sensitivity], ...]
    h_range: float

    @property
    def candidates(self) -> int:
        return int(self.index.size + self.twins.size + 1)

    @property
    def noised(self) -> bool:
        """Whether coefficients are private, so that a named row is released with noise."""
        return bool(self.rows.model.form.matrix.nnz)

    @property
    def tables(self) -> tuple[sp.csr_array, sp.csr_array]:
        """``pattern`` and ``rest``, made when rows are read: as large as the data."""
        return self.rows.model.cached("pattern and rest of private rows", lambda: _tables(self))

    @property
    def pattern(self) -> sp.csr_array:
        return self.tables[0]

    @property
    def rest(self) -> sp.csr_array:
        return self.tables[1]

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """How many entries a product reads; the most private entries of a row, and the most other ones."""
        model = self.rows.model
        row, column, _ = public_entries(model)
        beside = np.bincount(row[~at_private_entries(model, row, column)], minlength=model.affine.rows)
        inside = model.form.entries_of_rows + (beside if self.absent else 0)
        beside = np.zeros_like(beside) if self.absent else beside
        return int(inside.sum() + beside.sum()), int(inside.max(initial=0)), int(beside.max(initial=0))

    @property
    def row_entries(self) -> int:
        """The most private entries of a row."""
        return self.sizes[1]

    @cached_property
    def entry_bounds(self) -> tuple[Floats, Floats]:
        """(n,), (n,): bounds, zero included, of the entries of a private row."""
        if self.noised:
            return np.minimum(self.rows.lower, 0.0), np.maximum(self.rows.upper, 0.0)
        low, high = np.zeros(self.rest.shape[1]), np.zeros(self.rest.shape[1])
        np.minimum.at(low, self.rest.indices, self.rest.data)
        np.maximum.at(high, self.rest.indices, self.rest.data)
        return low, high

    @property
    def largest_entry(self) -> float:
        if self.noised:
            return self.rows.norminf
        return float(abs(self.rest).max()) if self.rest.nnz else 0.0

    def width(self, form: SimplexForm) -> float:
        """W: some point satisfies every row, and no row differs by more between two."""
        return form.row_range(self.rows.lower, self.rows.upper) if self.noised else form.widest_rows(self.rest)

    # ------------------------------------------------------------------ sensitivity
    def range_at(self, x: Floats, *, exact: bool = True) -> float:
        """R at a released x: how far one record moves the scores apart, no row included; ``exact`` : by the footprint
        of the scores, if there are few coefficients."""
        norms = self.norms(x)
        moved = self._moved(*norms)
        if exact and self.noised and self.rows.model.form.matrix.nnz + self.rows.model.form.scalar.nnz <= _EXACT:
            moved = min(moved, self._moved_exactly(x))
        if self.absent:
            up = float(np.maximum(self.rows.upper * x, self.rows.lower * x).sum())
            down = float(np.maximum(-self.rows.upper * x, -self.rows.lower * x).sum())
            other = min(self.rows.norm1 * norms[2], self.rows.norminf * norms[0], self.rows.norm2 * norms[1])
            moved = self._toggled(-min(down, other) - self.rows.h_upper, min(up, other) - self.rows.h_lower, moved)
        return moved * (1 + ROUNDING) + self.rounding(norms[0], norms[2])

    @staticmethod
    def norms(x: Floats) -> tuple[float, float, float]:
        """1-, 2- and infinity-norm of x."""
        size = np.abs(x)
        return float(size.sum()), float(np.linalg.norm(x)), float(size.max(initial=0.0))

    def range_over(self, polytope: Polyhedron) -> float:
        """An upper bound of ``range_at`` over a public set."""
        moved = self._moved(polytope.l1, math.sqrt(polytope.l1 * polytope.linf), polytope.linf)
        if self.absent:
            moved = self._toggled(*self.rows.residual_range(polytope), moved)
        return moved * (1 + ROUNDING) + self.rounding(polytope.l1, polytope.linf)

    def single_over(self, polytope: Polyhedron) -> float:
        """How far one record moves one score, over a public set."""
        l1, l2, linf = polytope.l1, math.sqrt(polytope.l1 * polytope.linf), polytope.linf
        moved = max((_score_sensitivity(A, l1, l2, linf) + h.linf for A, h in self.sensitivities), default=0.0)
        if self.absent:
            low, high = self.rows.residual_range(polytope)
            moved = max(moved, -low, high)
        return moved * (1 + ROUNDING) + self.rounding(l1, linf)

    def _moved(self, l1: float, l2: float, linf: float) -> float:
        # One row alone moves against nothing but "no row" and rows that stay.
        times = 1.0 if self.rows.per_record <= 1 else 2.0
        of_A = max((_score_sensitivity(A, l1, l2, linf) for A, _ in self.sensitivities), default=0.0)
        return times * of_A + self.h_range

    def _moved_exactly(self, x: Floats) -> float:
        form = self.rows.model.form
        m = max(form.affine.rows, 1)
        place = np.full(m, -1, dtype=np.int64)
        place[self.index] = np.arange(self.index.size)
        score = LinearMap.of(
            np.concatenate([place[form.matrix.row % m], self.h.row]),
            np.concatenate([form.matrix.column, self.h.column]),
            np.concatenate([form.matrix.coefficient * x[form.matrix.row // m], -self.h.coefficient]),
            self.index.size,
        )
        return score_range(form.affine, both_signs(score, self.twins))

    def _toggled(self, low: float, high: float, moved: float) -> float:
        """R when rows may also appear or vanish, a score then going between 0 and a number in [low, high]."""
        low, high = min(low, 0.0), max(high, 0.0)
        return max(moved, -low, high) if self.rows.per_record <= 1 else moved + high - low

    def rounding(self, l1: float, linf: float) -> float:
        """Rounding of two scores on two neighbours: sums of rounded products; clamped ones need no more than
        ``ROUNDING``."""
        if not self.noised:
            return 0.0
        size = min(self.rows.norm1 * linf, self.rows.norminf * l1)
        size += max(abs(self.rows.h_lower), abs(self.rows.h_upper))
        terms = float(sum(self.sizes[1:])) + 16
        return 4 * terms * 2.0**-53 * size

    # ------------------------------------------------------------------ private values
    def now(self, theta: PrivateNumbers) -> PrivateRowsNow:
        """The rows at theta; private. ``parts[0]`` has the columns of ``pattern``, zeros included."""
        assert isinstance(theta, np.ndarray)
        form, fixed, h = self.rows.model.form, self.rows.model.form.b0[self.index], exact_rows(self.h, theta)
        if not self.noised:
            limit = _CLAMP * self.h_range * (1 + ROUNDING) or math.inf
            return PrivateRowsNow((self.rest,), fixed, PrivateArray(np.clip(h, -limit, limit)), self.twins, limit)
        positions, number = self._numbered()
        entries = sum_by(number, weights=form.matrix.coefficient * theta[form.matrix.column], minlength=positions.size)
        data = self.pattern.data.copy()
        data[positions] += entries
        if self.absent:
            here = present(self.rows.model, theta)[self.index].astype(np.float64)
            data *= np.repeat(here, np.diff(self.pattern.indptr))
            fixed, h = fixed * here, h * here
        G = sp.csr_array((data, self.pattern.indices, self.pattern.indptr), shape=self.pattern.shape)
        parts = (G, self.rest) if self.rest.nnz else (G,)
        return PrivateRowsNow(parts, fixed, PrivateArray(h), self.twins, math.inf)

    def _numbered(self) -> tuple[Integers, Integers]:
        """Places in ``pattern.data`` of the private entries, and per coefficient of the matrix map which it adds to."""

        def build() -> tuple[Integers, Integers]:
            form = self.rows.model.form
            m, n = max(form.affine.rows, 1), form.affine.variables
            place = np.full(m, -1, dtype=np.int64)
            place[self.index] = np.arange(self.index.size)
            of_row = np.repeat(np.arange(self.index.size), np.diff(self.pattern.indptr))
            keys = of_row * np.int64(n) + self.pattern.indices
            row, column = form.matrix_coordinates()
            return numbered(np.searchsorted(keys, place[row] * np.int64(n) + column))

        return self.rows.model.cached("places of private entries", build)


@cached
def game_rows(model: Program) -> GameRows:
    """The private rows of a linear model; computed once per problem."""
    form, affine, rows = model.form, model.affine, private_rows(model)
    index = np.flatnonzero(form.private_rows)
    twins = np.flatnonzero(affine.equalities()[index])
    place = np.full(max(affine.rows, 1), -1, dtype=np.int64)
    place[index] = np.arange(index.size)
    h = LinearMap.of(place[form.scalar.row], form.scalar.column, form.scalar.coefficient, index.size)
    of_h = sensitivity_of(affine, h)
    sensitivities = tuple(
        (sensitivity_under(group, form.matrix, affine, matrix=True), of_h[group.records])
        for group in record_blocks(affine)
    )
    row_l1 = max((_row_l1(A) for A, _ in sensitivities), default=0.0)
    row_l2 = max((_row_l2(A) for A, _ in sensitivities), default=0.0)
    linf = max((A.linf for A, _ in sensitivities), default=0.0)
    absent = rows.absent and form.matrix.nnz > 0
    if absent:
        row_l1, row_l2, linf = max(row_l1, rows.norm1), max(row_l2, rows.norm2), max(linf, rows.norminf)
    h_range = score_range(affine, both_signs(h, twins))
    bare = GameRows(rows, index, twins, h, absent, row_l1, row_l2, linf, sensitivities, h_range)
    if not bare.noised:
        return bare
    # A private entry is a sum of rounded products.
    slack = 2.0**-48 * (rows.norminf if math.isfinite(rows.norminf) else 0.0)
    entries, grow = bare.row_entries, 1 + ROUNDING
    return replace(
        bare, row_l1=row_l1 * grow + slack * entries, row_l2=row_l2 * grow + slack * math.sqrt(entries),
        linf=linf * grow + slack,
    )  # fmt: skip


def _tables(rows: GameRows) -> tuple[sp.csr_array, sp.csr_array]:
    """``pattern`` and ``rest`` of ``GameRows``."""
    form, index, n = rows.rows.model.form, rows.index, rows.rows.model.affine.variables
    if not rows.noised:
        return sp.csr_array((index.size, n)), sp.csr_array(form.A0[index])
    place = np.full(max(form.affine.rows, 1), -1, dtype=np.int64)
    place[index] = np.arange(index.size)
    public = sp.coo_array(form.A0[index])
    row, column = form.matrix_coordinates()
    row = place[row]
    if rows.absent:
        row, column = np.concatenate([row, public.coords[0]]), np.concatenate([column, public.coords[1]])
    pattern = sp.csr_array((np.ones(row.size), (row, column)), shape=(index.size, n))
    pattern.sort_indices()
    pattern.data[:] = 0.0
    inside = np.zeros(public.nnz, dtype=bool)
    if public.nnz:
        key = np.repeat(np.arange(index.size), np.diff(pattern.indptr)) * np.int64(n) + pattern.indices
        public_key = public.coords[0] * np.int64(n) + public.coords[1]
        at = np.minimum(np.searchsorted(key, public_key), key.size - 1)
        inside = key[at] == public_key
        pattern.data[at[inside]] = public.data[inside]
    left = ~inside
    rest = sp.csr_array((public.data[left], (public.coords[0][left], public.coords[1][left])), shape=(index.size, n))
    return pattern, rest


def _row_l1(A: Sensitivity) -> float:
    """Largest 1-norm of the change of one row; at most that of all of A, and all that is known where A was not split
    into rows."""
    return float(np.fmin(A.row_l1, A.l1))


def _row_l2(A: Sensitivity) -> float:
    """Largest 2-norm of the change of one row: at most that of all of A, and sqrt of 1-norm times largest entry."""
    return min(A.l2, math.sqrt(_row_l1(A) * A.linf)) if A.linf else 0.0


def _score_sensitivity(A: Sensitivity, l1: float, l2: float, linf: float) -> float:
    """Largest change of a row's product with an x of these norms."""
    return min(_row_l1(A) * linf, A.linf * l1, _row_l2(A) * l2) if A.linf else 0.0


def both_signs(part: LinearMap, twins: Integers) -> LinearMap:
    """``part`` with its rows ``twins`` a second time, negated."""
    place = np.full(part.height, -1, dtype=np.int64)
    place[twins] = part.height + np.arange(twins.size)
    again = part.select(place[part.row] >= 0)
    return LinearMap.of(
        np.concatenate([part.row, place[again.row]]),
        np.concatenate([part.column, again.column]),
        np.concatenate([part.coefficient, -again.coefficient]),
        part.height + twins.size,
    )


def score_range(affine: AffineMap, scores: LinearMap) -> float:
    """How far one record can move two of the scores, or one of them and 0, apart.

    The two moves u >= 0 >= v satisfy ``u - v <= 2 linf``, ``<= l1`` and ``<= sqrt(2) l2``. And entry d_j of a record's
    change moves score i by ``a_ij d_j``, so ``u - v <= sum_j (max_i a_ij - min_i a_ij) |d_j|`` (0 counted in both), one
    more linear function whose change the footprint knows; it is exact when a record owns one entry.
    """
    if not scores.nnz:
        return 0.0
    high, low = np.zeros(affine.theta_size), np.zeros(affine.theta_size)
    np.maximum.at(high, scores.column, scores.coefficient)
    np.minimum.at(low, scores.column, scores.coefficient)
    columns = np.flatnonzero((high > low) & affine.private_columns)
    spread = LinearMap.of(np.zeros(columns.size), columns, (high - low)[columns], 1)
    most, moved = 0.0, sensitivity_of(affine, scores)
    for group in record_blocks(affine):
        each, by_entries = moved[group.records], float(entries_under(group, spread, affine)[0])
        most = max(most, min(2 * each.linf, each.l1, math.sqrt(2) * each.l2, by_entries))
    return most
