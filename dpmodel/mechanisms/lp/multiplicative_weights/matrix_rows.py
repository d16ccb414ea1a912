"""Private rows of A for games on them: their public facts, how far one record moves scores and rows, their values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.classify.private_lp import PrivateLP, PrivateNumbers
from dpmodel.compile.affine_map import LinearMap, numbered
from dpmodel.compile.footprint import Sensitivity, record_blocks, sensitivity_of, sensitivity_under
from dpmodel.marks.layout import sum_by
from dpmodel.mechanisms.lp.multiplicative_weights.game import PrivateRowsNow, apart, both_signs, listed_rows
from dpmodel.mechanisms.lp.noise_once.measurement import ROUNDING, exact_rows
from dpmodel.mechanisms.lp.private_rows import PrivateRows, at_private_entries, present, private_rows, public_entries
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.public_facts import cached

# Up to so many private coefficients the range of the scores is read off the footprint at every point.
_EXACT = 3000


@dataclass(frozen=True)
class MatrixRows:
    """Public facts on private rows ``G x <= h``, equalities standing twice in the scores.

    ``rows`` : their bounds. ``index`` (k,) rows of the standard form, ``twins`` the equalities among them.
    ``pattern`` (k x n) CSR: where entries are private, with the public numbers that are added there; ``rest`` (k x n) :
    the public entries elsewhere. If rows may be absent all their entries count as private. ``row_l1, row_l2, linf`` :
    norms of the change of one row by one record; ``sensitivities`` : per Records, of A and of the list of h;
    ``h_apart`` : how far one record moves the right-hand sides apart.
    """

    rows: PrivateRows
    index: Integers
    twins: Integers
    h: LinearMap
    row_l1: float
    row_l2: float
    linf: float
    sensitivities: tuple[tuple[Sensitivity, Sensitivity], ...]
    h_apart: float

    @property
    def candidates(self) -> int:
        return int(self.index.size + self.twins.size + 1)

    @property
    def tables(self) -> tuple[sp.csr_array, sp.csr_array]:
        """``pattern`` and ``rest``, made when rows are read: as large as the data."""
        return self.rows.model.cached("pattern and rest of private rows", lambda: _tables(self.rows, self.index))

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
        inside = model.form.entries_of_rows + (beside if self.rows.absent else 0)
        beside = np.zeros_like(beside) if self.rows.absent else beside
        return int(inside.sum() + beside.sum()), int(inside.max(initial=0)), int(beside.max(initial=0))

    @property
    def row_entries(self) -> int:
        """The most private entries of a row."""
        return self.sizes[1]

    # ------------------------------------------------------------------ sensitivity
    def reach(self, x: Floats, *, exact: bool = True) -> float:
        """R at a released x: how far one record moves the scores apart, no row included; ``exact`` : by the footprint
        of the scores, if there are few coefficients."""
        norms = self.norms(x)
        moved = self._moved(*norms)
        if exact and self.rows.model.form.matrix.nnz + self.rows.model.form.scalar.nnz <= _EXACT:
            moved = min(moved, self._moved_exactly(x))
        if self.rows.absent:
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

    def reach_over(self, polytope: Polyhedron) -> float:
        """An upper bound of ``reach`` over a public set."""
        moved = self._moved(polytope.l1, math.sqrt(polytope.l1 * polytope.linf), polytope.linf)
        if self.rows.absent:
            moved = self._toggled(*self.rows.residual_range(polytope), moved)
        return moved * (1 + ROUNDING) + self.rounding(polytope.l1, polytope.linf)

    def single_over(self, polytope: Polyhedron) -> float:
        """How far one record moves one score, over a public set."""
        l1, l2, linf = polytope.l1, math.sqrt(polytope.l1 * polytope.linf), polytope.linf
        moved = max((_score_sensitivity(A, l1, l2, linf) + h.linf for A, h in self.sensitivities), default=0.0)
        if self.rows.absent:
            low, high = self.rows.residual_range(polytope)
            moved = max(moved, -low, high)
        return moved * (1 + ROUNDING) + self.rounding(l1, linf)

    def _moved(self, l1: float, l2: float, linf: float) -> float:
        # One row alone moves against nothing but "no row" and rows that stay.
        times = 1.0 if self.rows.per_record <= 1 else 2.0
        of_A = max((_score_sensitivity(A, l1, l2, linf) for A, _ in self.sensitivities), default=0.0)
        return times * of_A + self.h_apart

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
        return apart(form.affine, both_signs(score, self.twins))

    def _toggled(self, low: float, high: float, moved: float) -> float:
        """R when rows may also appear or vanish, a score then going between 0 and a number in [low, high]."""
        low, high = min(low, 0.0), max(high, 0.0)
        return max(moved, -low, high) if self.rows.per_record <= 1 else moved + high - low

    def rounding(self, l1: float, linf: float) -> float:
        """Rounding of two scores on two neighbours: sums of rounded products."""
        size = min(self.rows.norm1 * linf, self.rows.norminf * l1)
        size += max(abs(self.rows.h_lower), abs(self.rows.h_upper))
        terms = float(sum(self.sizes[1:])) + 16
        return 4 * terms * 2.0**-53 * size

    # ------------------------------------------------------------------ private values
    def now(self, theta: PrivateNumbers) -> PrivateRowsNow:
        """The rows at theta; private. ``parts[0]`` has the columns of ``pattern``, zeros included."""
        assert isinstance(theta, np.ndarray)
        form = self.rows.model.form
        positions, number = self._numbered()
        entries = sum_by(number, weights=form.matrix.coefficient * theta[form.matrix.column], minlength=positions.size)
        data = self.pattern.data.copy()
        data[positions] += entries
        fixed, h = form.b0[self.index], exact_rows(self.h, theta)
        if self.rows.absent:
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
def matrix_rows(model: PrivateLP) -> MatrixRows:
    """The private rows of a model with private coefficients; computed once per problem."""
    form, affine, rows = model.form, model.affine, private_rows(model)
    index, twins = listed_rows(model)
    place = np.full(max(affine.rows, 1), -1, dtype=np.int64)
    place[index] = np.arange(index.size)
    h = LinearMap.of(place[form.scalar.row], form.scalar.column, form.scalar.coefficient, index.size)
    of_h = sensitivity_of(affine, h)
    sensitivities = tuple(
        (sensitivity_under(group, form.matrix, affine, matrix=True), of_h[group.records])
        for group in record_blocks(affine)
    )
    row_l1 = max((min(_known(A.row_l1), A.l1) for A, _ in sensitivities), default=0.0)
    row_l2 = max((_row_two_norm(A) for A, _ in sensitivities), default=0.0)
    linf = max((A.linf for A, _ in sensitivities), default=0.0)
    if rows.absent:
        row_l1, row_l2, linf = max(row_l1, rows.norm1), max(row_l2, rows.norm2), max(linf, rows.norminf)
    bare = MatrixRows(rows, index, twins, h, row_l1, row_l2, linf, sensitivities, apart(affine, both_signs(h, twins)))
    # A private entry is a sum of rounded products.
    slack = 2.0**-48 * (rows.norminf if math.isfinite(rows.norminf) else 0.0)
    entries, grow = bare.row_entries, 1 + ROUNDING
    return replace(
        bare, row_l1=row_l1 * grow + slack * entries, row_l2=row_l2 * grow + slack * math.sqrt(entries),
        linf=linf * grow + slack,
    )  # fmt: skip


def _tables(rows: PrivateRows, index: Integers) -> tuple[sp.csr_array, sp.csr_array]:
    """``pattern`` and ``rest`` of ``MatrixRows``."""
    form, n = rows.model.form, rows.model.affine.variables
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
    outside = ~inside
    rest = sp.csr_array(
        (public.data[outside], (public.coords[0][outside], public.coords[1][outside])), shape=(index.size, n)
    )
    return pattern, rest


def _row_two_norm(A: Sensitivity) -> float:
    """Largest 2-norm of the change of one row: at most that of all of A, and sqrt of 1-norm times largest entry."""
    return min(A.l2, math.sqrt(_known(A.row_l1) * A.linf))


def _score_sensitivity(A: Sensitivity, l1: float, l2: float, linf: float) -> float:
    """Largest change of a row's product with an x of these norms."""
    return min(_known(A.row_l1) * linf, A.linf * l1, _row_two_norm(A) * l2)


def _known(bound: float) -> float:
    return math.inf if math.isnan(bound) else bound
