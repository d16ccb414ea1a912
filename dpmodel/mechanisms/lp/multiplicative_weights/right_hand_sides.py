"""Private right-hand sides by primal multiplicative weights: HRRU14, Algorithm 4, tightened."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.classify.private_lp import PrivateLP, PrivateNumbers, refuse_high
from dpmodel.compile.affine_map import LinearMap
from dpmodel.compile.footprint import sensitivity_of
from dpmodel.contract import YES, Options, Progress, Verdict
from dpmodel.forecast import Bound
from dpmodel.mechanisms.lp.engines.contract import Point, Promise, Task
from dpmodel.mechanisms.lp.multiplicative_weights.game import (
    GameEngine,
    PrivateRowsNow,
    Shape,
    Steps,
    apart,
    both_signs,
    finish,
    listed_rows,
    plain_regret,
    play,
    selections_alone,
    shortfall,
    step_grid,
)
from dpmodel.mechanisms.lp.noise_once.measurement import ROUNDING, exact_rows
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.public_facts import cached
from dpmodel.numerics.simplex_form import SimplexForm
from dpmodel.privacy import NoiseSource

# Scores are clamped at this many ranges: the value, the difference and their scaling then round by less than
# 2^-12 of the range, on both neighbours and at both ends, which ROUNDING covers.
_CLAMP = 2.0**38


@dataclass(frozen=True)
class ScalarRows:
    """Public facts on the private rows when only right-hand sides are private. Equalities stand twice in the scores.

    ``index`` (k,) rows of the standard form; ``twins`` : the equalities among them; ``matrix`` (k x n) and ``fixed``
    (k,) : public; ``h`` : (k,) private parts of the right-hand sides as functions of theta; ``reach`` : R, how far one
    record moves the scores apart, no row (0) included; ``sensitivity`` : how far it moves one of them.
    """

    index: Integers
    twins: Integers
    matrix: sp.csr_array
    fixed: Floats
    h: LinearMap
    reach: float
    sensitivity: float

    @property
    def candidates(self) -> int:
        return int(self.index.size + self.twins.size + 1)

    def now(self, theta: PrivateNumbers) -> PrivateRowsNow:
        """The rows at theta; private."""
        limit = _CLAMP * self.reach if self.reach > 0 else math.inf
        assert isinstance(theta, np.ndarray)
        h = PrivateArray(np.clip(exact_rows(self.h, theta), -limit, limit))
        return PrivateRowsNow((self.matrix,), self.fixed, h, self.twins, limit)

    def row(self, i: int) -> tuple[Integers, Floats]:
        part = slice(self.matrix.indptr[i], self.matrix.indptr[i + 1])
        return self.matrix.indices[part], self.matrix.data[part]


@dataclass(frozen=True)
class ScalarMultiplicativeWeights(GameEngine):
    """A nearly feasible point when right-hand sides are private: weights over the columns, rows named privately.

    Source
        HRRU14, Algorithms 3 and 4 and Theorems 20 and 22; Plotkin, Shmoys and Tardos 1995.
    Privacy
        Private values are read by T selections and nothing else: losses are public rows. The score of row i at the
        released point x is ``a_i'x - b_i``. One record moves b by at most linf, l1, l2 in these norms (exact, from the
        footprint of the listed rows, equalities with both signs), and "no row" by 0, so scores move apart by
        R, at most ``min(2 linf, l1, sqrt(2) l2)`` (``game.apart``). Every selection is an exponential mechanism of
        scale R / epsilon_t, costing ``epsilon_t^2 / 8`` in zCDP, or epsilon_t in a pure budget; the costs add up to the
        budget. Scores are clamped and R is enlarged for rounding.
    Utility
        With probability 1 - beta, ``error = W sqrt(ln d / (2 T)) + (R / epsilon_t) (ln k + q / T)``: d columns of z, k
        candidates, q the (1 - beta)-quantile of Gamma(T); T minimises it (proved in ``game``). Public constraints hold
        by projection in relative entropy.
    Cost
        One product with the public rows, one selection and one sparse row per step.
    """

    cells: ClassVar[tuple[str, ...]] = ("scalar low",)
    name = "multiplicative-weights"
    source = "HRRU14, Algorithm 4, with exact sensitivities and zCDP accounting"
    words = ""

    def eligible(self, model: PrivateLP, options: Options) -> Verdict:
        if model.form.matrix.nnz or not model.form.scalar.nnz:
            return Verdict(False, "serves private right-hand sides with public coefficients")
        high = refuse_high(model)
        if high is not None:
            return high
        return YES

    @staticmethod
    def rows(model: PrivateLP) -> ScalarRows:
        return scalar_rows(model)

    def least(self, task: Task) -> Iterator[Bound]:
        """First with what classification tells of R: scores are moved apart at least as far as one of them, from 0."""
        form, cells = task.model.form, task.model.classification.cells
        count = int(form.private_rows.sum()) + int((form.private_rows & task.model.affine.equalities()).sum()) + 1
        yield selections_alone(task, count, max(c.sensitivity["linf"] for c in cells if c.part == "scalar"))
        yield from super().least(task)

    def entry_bounds(self, model: PrivateLP) -> tuple[Floats, Floats]:
        matrix = scalar_rows(model).matrix
        low, high = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1])
        np.minimum.at(low, matrix.indices, matrix.data)
        np.maximum.at(high, matrix.indices, matrix.data)
        return low, high

    def width(self, form: SimplexForm, rows: ScalarRows) -> float:
        return form.widest_rows(rows.matrix)

    def told(self, rows: ScalarRows, shape: Shape, plan: Steps, task: Task) -> dict[str, Any]:
        return {"width of the losses": shape.width}

    def range_of(self, rows: ScalarRows, polytope: Polyhedron) -> float:
        return rows.reach

    def plan(self, rows: ScalarRows, shape: Shape, task: Task) -> tuple[Steps, float]:
        form = shape.form
        grid = step_grid(rows.matrix.nnz + 10 * (rows.candidates + form.columns) + shape.work)
        regret, rate = plain_regret(shape.width, form.columns, grid)
        each = task.spend.epsilon / grid if task.spend.rho is None else np.sqrt(8 * task.spend.rho / grid)
        error = regret + rows.reach / each * shortfall(rows.candidates, grid, task.beta)
        best = int(np.argmin(error))
        return Steps(form, int(grid[best]), float(rate[best]), float(each[best])), float(error[best])

    def point(
        self, task: Task, promise: Promise, theta: PrivateNumbers, source: NoiseSource, progress: Progress
    ) -> Point:
        rows, plan = scalar_rows(task.model), promise.plan
        # Scores that no record can move are the same for all data: any scale will do.
        scale = self.range_of(rows, task.polytope) / plan.epsilon or 1e-9
        x = play(plan, task.polytope, rows.now(theta), rows.row, lambda x: scale, task.tilt, source, progress)
        return finish(task.polytope, x, float(abs(rows.matrix).max()) if rows.matrix.nnz else 0.0)

    def excess_sensitivity(self, task: Task) -> float:
        return scalar_rows(task.model).sensitivity


@cached
def scalar_rows(model: PrivateLP) -> ScalarRows:
    """The private rows of a model with public coefficients; computed once per problem."""
    form, affine = model.form, model.affine
    index, twins = listed_rows(model)
    place = np.full(affine.rows, -1, dtype=np.int64)
    place[index] = np.arange(index.size)
    part = form.scalar
    h = LinearMap.of(place[part.row], part.column, part.coefficient, index.size)
    reach = apart(affine, both_signs(h, twins)) * (1 + ROUNDING)
    single = max((sensitivity.linf for sensitivity in sensitivity_of(affine, h).values()), default=0.0) * (1 + ROUNDING)
    return ScalarRows(index, twins, sp.csr_array(form.A0[index]), form.b0[index], h, reach, single)


MULTIPLICATIVE_WEIGHTS = ScalarMultiplicativeWeights()
