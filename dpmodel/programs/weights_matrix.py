"""Private coefficients by primal multiplicative weights on noisy rows: HRRU14, Algorithms 5 and 6, tightened."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.compile.affine_map import LinearMap, numbered
from dpmodel.compile.footprint import Sensitivity, record_blocks, sensitivity_of, sensitivity_under
from dpmodel.contract import YES, Options, Progress, Serves, Verdict
from dpmodel.kernels.exact_rows import ROUNDING, exact_rows
from dpmodel.marks.layout import sum_by
from dpmodel.memo import cached
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.simplex_form import SimplexForm
from dpmodel.privacy import NoiseSource
from dpmodel.programs.goals import Point, Promise, Task
from dpmodel.programs.model import PrivateNumbers, Program, refuse_high
from dpmodel.programs.rows import PrivateRows, at_private_entries, present, private_rows, public_entries
from dpmodel.programs.weights import (
    Game,
    PrivateRowsNow,
    Shape,
    Steps,
    apart,
    both_signs,
    finish,
    listed_rows,
    noisy_regret,
    play,
    shortfall,
    step_grid,
)

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
def matrix_rows(model: Program) -> MatrixRows:
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


# Shares of the budget for selections that are tried; the rest pays for the rows.
_SHARES = np.linspace(0.02, 0.98, 49)[:, None]
# Footprints of the scores take two milliseconds each: they are used in games of at most so many steps.
_EXACT_STEPS = 500
# One drawn number costs as much as reading so many.
_NOISE_WORK, _SELECTION_WORK = 2000, 80


@dataclass(frozen=True)
class NoisyMultiplicativeWeights(Game):
    """A nearly feasible point when coefficients are private: rows are named privately and released with noise.

    Source
        HRRU14, Algorithms 5 (entrywise change) and 6 (change of a column or any 1-norm of rows), with unbiased
        Gaussian noise on rows, its mean regret, exact sensitivities and zCDP.
    Privacy
        At step t, given the released x_t, two releases read private values.
        1. The selection. Row i's score is ``a_i'x_t - b_i``. One record moves scores apart by at most R(x_t): for few
           coefficients from the footprint of the scores at x_t (``apart``); else
           ``min(row_l1 ||x||_inf, linf ||x||_1, row_l2 ||x||_2)``, twice if a record reaches several rows, plus the
           same for b. If rows may be absent a score can also jump between 0 and the residual's public bounds.
           Exponential mechanism of scale R(x_t) / epsilon_t.
        2. The named row's private entries, whose change by one record has 2-norm at most
           ``D = min(l2, sqrt(row_l1 linf))`` (and 1-norm ``row_l1``); if rows may be absent, at most the norm of a row.
           Gaussian noise of standard deviation sigma costs ``D^2 / (2 sigma^2)``; in a pure budget Laplace noise of
           scale row_l1 / epsilon'. Nothing is released when "no row" is named: that is known from 1.
        The costs of T steps add up to the budget; T, the split and the rate come from public facts. Rounding of sums
        enlarges all.
    Utility
        With probability 1 - beta,
        ``error = 2 sqrt(V ln(2d/beta) / T) + (R / epsilon_t) (ln k + q / T)`` with ``V = W^2 / 8 + D_x^2 sigma^2 / 2``
        (proved in ``weights.py``; D_x the diameter of the simplex, q the (1 - beta/2)-quantile of Gamma(T)).
    Cost
        One product with the private rows, one selection and noise on one row per step.
    """

    serves: ClassVar[Serves] = Serves(Program, ("row low", "matrix low", "column low"))
    name = "noisy-multiplicative-weights"
    source = "HRRU14, Algorithms 5 and 6, with unbiased Gaussian rows and zCDP accounting"
    words = ", noise on one row each"

    def suits(self, model: Program, options: Options) -> Verdict:
        if not model.form.matrix.nnz:
            return Verdict(False, "serves private coefficients")
        high = refuse_high(model)
        if high is not None:
            return high
        if private_rows(model).relative:
            return Verdict(
                False, "the private rows have no public magnitude; give A and b bounds=[lo, hi], max_l1 or max_linf"
            )
        return YES

    @staticmethod
    def rows(model: Program) -> MatrixRows:
        return matrix_rows(model)

    def entry_bounds(self, model: Program) -> tuple[Floats, Floats]:
        rows = private_rows(model)
        return np.minimum(rows.lower, 0.0), np.maximum(rows.upper, 0.0)

    def width(self, form: SimplexForm, rows: MatrixRows) -> float:
        return form.row_range(rows.rows.lower, rows.rows.upper)

    def details(self, rows: MatrixRows, shape: Shape, plan: Steps, task: Task) -> dict[str, Any]:
        return {
            "row noise": {"distribution": "laplace" if self.pure(task) else "gaussian", "scale": plan.noise},
            "change of a row": {"l1": rows.row_l1, "l2": rows.row_l2, "linf": rows.linf},
        }

    def point(
        self, task: Task, promise: Promise, theta: PrivateNumbers, source: NoiseSource, progress: Progress
    ) -> Point:
        rows, plan = matrix_rows(task.model), promise.plan
        now = rows.now(theta)
        draw = source.laplace if self.pure(task) else source.gaussian

        def scale(x: Floats) -> float:
            # Where no score can move any scale will do.
            return self.range_at(rows, task, plan, x) / plan.epsilon or 1e-9

        def row(i: int) -> tuple[Integers, Floats]:
            return _noisy_row(rows, now, i, plan.noise, draw)

        x = play(plan, task.polytope, now, row, scale, task.tilt, source, progress)
        return finish(task.polytope, x, rows.rows.norminf)

    def excess_sensitivity(self, task: Task) -> float:
        return matrix_rows(task.model).single_over(task.polytope)

    def pure(self, task: Task) -> bool:
        """Whether rows get Laplace noise."""
        return task.spend.rho is None

    def range_of(self, rows: MatrixRows, polytope: Polyhedron) -> float:
        return rows.reach_over(polytope)

    def range_at(self, rows: MatrixRows, task: Task, plan: Steps, x: Floats) -> float:
        """R at a released point, which may lie outside the public set by a solver's tolerance; a relative lower bound
        keeps scores divided by it finite."""
        return max(rows.reach(x, exact=plan.count <= _EXACT_STEPS), 1e-9 * rows.reach_over(task.polytope))

    def plan(self, rows: MatrixRows, shape: Shape, task: Task) -> tuple[Steps, float]:
        """Steps and the share of the selections on a grid."""
        spend, form, width = task.spend, shape.form, shape.width
        reading = rows.sizes[0] + 10 * (rows.candidates + form.columns)
        drawing = _SELECTION_WORK * min(rows.candidates, 2 * math.isqrt(rows.candidates) + 1)
        drawing += _NOISE_WORK * rows.row_entries
        grid = step_grid(reading + drawing + shape.work)
        if spend.rho is None:
            each = spend.epsilon * _SHARES / grid
            scale = rows.row_l1 * grid / (spend.epsilon * (1 - _SHARES))
            variance = width**2 / 8 + 1.151 * (form.diameter * scale) ** 2
            most = 1 / np.maximum(2 * scale * form.step_limit, 1e-300)
        else:
            each = np.sqrt(8 * spend.rho * _SHARES / grid)
            scale = rows.row_l2 * np.sqrt(grid / (2 * spend.rho * (1 - _SHARES)))
            variance = width**2 / 8 + (form.diameter * scale) ** 2 / 2
            most = np.full_like(scale, np.inf)
        regret, rate = noisy_regret(variance, form.columns, grid, task.beta / 2, most)
        error = regret + rows.reach_over(task.polytope) / each * shortfall(rows.candidates, grid, task.beta / 2)
        share, best = np.unravel_index(int(np.argmin(error)), error.shape)
        found = share, best
        plan = Steps(form, int(grid[best]), float(rate[found]), float(each[found]), float(scale[found]))
        return plan, float(error[found])


def _noisy_row(
    rows: MatrixRows, now: PrivateRowsNow, i: int, scale: float, draw: Callable[[PrivateArray, float], Floats]
) -> tuple[Integers, Floats]:
    """Columns and entries of a named row: noise on every private position, the public entries as they are."""
    G = now.parts[0]
    part = slice(G.indptr[i], G.indptr[i + 1])
    exact = PrivateArray(G.data[part])
    # A scale of 0 means that no record moves any entry.
    noisy = draw(exact, scale) if scale else exact
    rest = slice(rows.rest.indptr[i], rows.rest.indptr[i + 1])
    index = np.concatenate([G.indices[part], rows.rest.indices[rest]])
    return index, np.concatenate([noisy, rows.rest.data[rest]])


NOISY_MULTIPLICATIVE_WEIGHTS = NoisyMultiplicativeWeights()
