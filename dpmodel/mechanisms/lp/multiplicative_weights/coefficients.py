"""Private coefficients by primal multiplicative weights on noisy rows: HRRU14, Algorithms 5 and 6, tightened."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.classify.private_lp import PrivateLP, PrivateNumbers, refuse_high
from dpmodel.contract import YES, Options, Progress, Verdict
from dpmodel.mechanisms.lp.engines.contract import Point, Promise, Task
from dpmodel.mechanisms.lp.multiplicative_weights.game import (
    GameEngine,
    PrivateRowsNow,
    Shape,
    Steps,
    finish,
    noisy_regret,
    play,
    shortfall,
    step_grid,
)
from dpmodel.mechanisms.lp.multiplicative_weights.matrix_rows import MatrixRows, matrix_rows
from dpmodel.mechanisms.lp.private_rows import private_rows
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.simplex_form import SimplexForm
from dpmodel.privacy import NoiseSource

# Shares of the budget for selections that are tried; the rest pays for the rows.
_SHARES = np.linspace(0.02, 0.98, 49)[:, None]
# Footprints of the scores take two milliseconds each: they are used in games of at most so many steps.
_EXACT_STEPS = 500
# One drawn number costs as much as reading so many.
_NOISE_WORK, _SELECTION_WORK = 2000, 80


@dataclass(frozen=True)
class NoisyMultiplicativeWeights(GameEngine):
    """A nearly feasible point when coefficients are private: rows are named privately and released with noise.

    Source
        HRRU14, Algorithms 5 (entrywise change) and 6 (change of a column or any 1-norm of rows), with unbiased
        Gaussian noise on rows, its mean regret, exact sensitivities and zCDP.
    Privacy
        At step t, given the released x_t, two releases read private values.
        1. The selection. Row i's score is ``a_i'x_t - b_i``. One record moves scores apart by at most R(x_t): for few
           coefficients from the footprint of the scores at x_t (``game.apart``); else
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
        (proved in ``game``; D_x the diameter of the simplex, q the (1 - beta/2)-quantile of Gamma(T)).
    Cost
        One product with the private rows, one selection and noise on one row per step.
    """

    cells: ClassVar[tuple[str, ...]] = ("row low", "matrix low", "column low")
    name = "noisy-multiplicative-weights"
    source = "HRRU14, Algorithms 5 and 6, with unbiased Gaussian rows and zCDP accounting"
    words = ", noise on one row each"

    def eligible(self, model: PrivateLP, options: Options) -> Verdict:
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
    def rows(model: PrivateLP) -> MatrixRows:
        return matrix_rows(model)

    def entry_bounds(self, model: PrivateLP) -> tuple[Floats, Floats]:
        rows = private_rows(model)
        return np.minimum(rows.lower, 0.0), np.maximum(rows.upper, 0.0)

    def width(self, form: SimplexForm, rows: MatrixRows) -> float:
        return form.row_range(rows.rows.lower, rows.rows.upper)

    def told(self, rows: MatrixRows, shape: Shape, plan: Steps, task: Task) -> dict[str, Any]:
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
