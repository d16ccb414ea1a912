"""Private coefficients by primal multiplicative weights on noisy rows: HRRU14, Algorithms 5 and 6, and tightened."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.mechanisms.contract import YES, Progress, Request, Verdict, refuse_high
from dpmodel.mechanisms.lp.engines.contract import Point, Promise, Task
from dpmodel.mechanisms.lp.multiplicative_weights.game import (
    MOST_STEPS,
    PrivateRowsNow,
    Steps,
    finish,
    longest_game,
    noisy_regret,
    play,
    shortfall,
    simplex_of,
    step_grid,
)
from dpmodel.mechanisms.lp.multiplicative_weights.matrix_rows import MatrixRows, matrix_rows
from dpmodel.mechanisms.lp.private_rows import private_rows, public_polyhedron
from dpmodel.mechanisms.spend import valid_step
from dpmodel.numerics.polytopes.entropic_projection import EntropicBody
from dpmodel.numerics.polytopes.polyhedron import Polyhedron
from dpmodel.numerics.polytopes.simplex_form import SimplexForm
from dpmodel.privacy import NoiseSource

# Shares of the budget for selections that are tried; the rest pays for the rows.
_SHARES = np.linspace(0.02, 0.98, 49)[:, None]
# Footprints of the scores take two milliseconds each: they are used in games of at most so many steps.
_EXACT_STEPS = 500
# One drawn number costs as much as reading so many.
_NOISE_WORK, _SELECTION_WORK = 2000, 80


@dataclass(frozen=True)
class NoisyMultiplicativeWeights:
    """A nearly feasible point when coefficients are private: rows are named privately and released with noise.

    Source
        HRRU14, Algorithms 5 (entrywise change) and 6 (change of a column or any 1-norm of rows), Theorems 25, 28,
        31 and 32, with 24 for the constant 12, ln(m/gamma), and the 1-norm in Definition 29. Tightened: unbiased
        Gaussian noise on rows, its mean regret, exact sensitivities, zCDP.
    Privacy
        At step t, given the released x_t, two releases read private values.
        1. The selection. Row i's score is ``a_i'x_t - b_i``. One record moves scores apart by at most R(x_t): for few
           coefficients from the footprint of the scores at x_t (``primal_weights.apart``); else
           ``min(row_l1 ||x||_inf, linf ||x||_1, row_l2 ||x||_2)``, twice if a record reaches several rows, plus the
           same for b. If rows may be absent a score can also jump between 0 and the residual's public bounds.
           Exponential mechanism of scale R(x_t) / epsilon_t.
        2. The named row's private entries, whose change by one record has 2-norm at most
           ``D = min(l2, sqrt(row_l1 linf))`` (and 1-norm ``row_l1``); if rows may be absent, at most the norm of a row.
           Gaussian noise of deviation sigma costs ``D^2 / (2 sigma^2)``; in a pure budget Laplace noise of scale
           row_l1 / epsilon'. Nothing is released when "no row" is named: that is known from 1.
        The costs of T steps add up to the budget; T, the split and the rate come from public facts. Published:
        scale ``2 Delta / epsilon'`` for selections, Laplace noise of scale ``Delta / epsilon'`` on each entry
        (Algorithm 5, Delta entrywise) or on the row (Algorithm 6, Delta the 1-norm); the pure releases are composed
        exactly and a smaller epsilon' taken should the printed one be too large. Rounding of sums enlarges all.
    Utility
        With probability 1 - beta,
        ``error = 2 sqrt(V ln(2d/beta) / T) + (R / epsilon_t) (ln k + q / T)`` with ``V = W^2 / 8 + D_x^2 sigma^2 / 2``
        (proved in ``primal_weights``; D_x the diameter of the simplex, q the (1 - beta/2)-quantile of Gamma(T)).
        Published: the alpha that solves ``12 (Delta / epsilon') ln(2 d T m / beta) = alpha`` with
        ``T = 144 ln d / alpha^2``, in rows scaled to entries in [-1, 1] and points of 1-norm 1.
    Cost
        One product with the private rows, one selection and noise on one row per step.
    """

    cells: ClassVar[tuple[str, ...]] = ("row low", "column low")
    name: str
    source: str
    published: Literal["", "entries", "rows"] = ""
    gaussian_only: bool = False
    takes_tilt: bool = True
    search_steps: int = 5
    counts_rows: bool = False

    @property
    def own_composition(self) -> bool:
        return bool(self.published)

    def eligible(self, model: PrivateLP, request: Request) -> Verdict:
        if not model.form.matrix.nnz:
            return Verdict(False, "serves private coefficients")
        high = refuse_high(model)
        if high is not None:
            return high
        if private_rows(model).relative:
            return Verdict(
                False, "the private rows have no public magnitude; give A and b bounds=[lo, hi], max_l1 or max_linf"
            )
        form = _form(model, public_polyhedron(model))
        if isinstance(form, Verdict):
            return form
        if not self.published:
            return YES
        if model.form.scalar.nnz:
            return Verdict(False, "the published algorithm has public right-hand sides")
        if private_rows(model).absent:
            return Verdict(False, "the published algorithm does not know absent rows")
        if request.delta == 0:
            return Verdict(False, "the published algorithm composes its steps with delta > 0")
        body = public_polyhedron(model)
        if self._printed(model, form, body, request.epsilon, request.delta, request.beta) is None:
            return Verdict(False, f"the published constants ask for more than {MOST_STEPS} steps")
        return YES

    def promise(self, task: Task) -> Promise:
        rows, form = matrix_rows(task.model), _form(task.model, task.body)
        assert isinstance(form, SimplexForm)  # eligible() came first
        if self.published:
            found = self._printed(task.model, form, task.body, task.epsilon, task.delta, task.beta)
            assert found is not None  # eligible() came first, and less budget asks for fewer steps
            plan, error = found
        else:
            plan, error = _tightened(rows, form, task)
        reach = self._range(rows, task.body)
        gaussian = not self.published and task.spend.rho is not None
        return Promise(
            error=error,
            gain=1.0,
            slack_rows=0,
            rows=int(rows.index.size),
            # Some point satisfies every row, and no row differs by more between two points.
            width=form.row_range(rows.rows.lower, rows.rows.upper),
            work=f"{plan.count} products with the {rows.index.size} private rows, noise on one row each",
            noise={
                "steps": plan.count, "range": reach, "selection scale": reach / plan.epsilon,
                "epsilon of a selection": plan.epsilon, "rate": plan.rate, "columns": form.columns, "L": form.total,
                "row noise": {"law": "gaussian" if gaussian else "laplace", "scale": plan.noise},
                "change of a row": {"l1": rows.row_l1, "l2": rows.row_l2, "linf": rows.linf},
            },
            plan=plan,
        )  # fmt: skip

    def point(self, task: Task, promise: Promise, theta: Floats, source: NoiseSource, progress: Progress) -> Point:
        rows, plan = matrix_rows(task.model), promise.plan
        now = rows.now(theta)
        laplace = bool(self.published) or task.spend.rho is None
        most = self._range(rows, task.body)

        def scale(x: Floats) -> float:
            # The range at x itself: x may lie outside the public set by a solver's tolerance. Where no score can
            # move any scale will do; a relative floor keeps the quotient finite.
            if self.published:
                reach = max(most, self._printed_range(rows, *rows.norms(x)))
            else:
                reach = max(rows.reach(x, exact=plan.count <= _EXACT_STEPS), 1e-9 * most)
            return reach / plan.epsilon or 1e-9

        def row(i: int) -> tuple[Integers, Floats]:
            return _noisy_row(rows, now, i, plan.noise, laplace, source)

        x = play(
            plan.form, task.body, now, row, scale,
            tilt=task.tilt, steps=plan.count, rate=plan.rate, source=source, progress=progress,
        )  # fmt: skip
        return finish(task.body, x, rows.rows.norminf)

    def excess(self, task: Task, promise: Promise, x: Floats, theta: Floats) -> float:
        return matrix_rows(task.model).now(theta).worst(x)

    def excess_change(self, task: Task) -> float:
        return matrix_rows(task.model).single_over(task.body)

    def excess_limit(self, promise: Promise) -> float:
        return promise.error

    # ------------------------------------------------------------------ published constants
    def _range(self, rows: MatrixRows, body: Polyhedron) -> float:
        """R of the selections over the public set; published: twice Delta."""
        if not self.published:
            return rows.reach_over(body)
        return self._printed_range(rows, body.l1, math.nan, body.linf)

    def _printed_range(self, rows: MatrixRows, l1: float, _: float, linf: float) -> float:
        delta = rows.linf * l1 if self.published == "entries" else rows.row_l1 * linf
        return 2 * delta + rows.rounding(l1, linf)

    def _printed(
        self, model: PrivateLP, form: SimplexForm, body: Polyhedron, epsilon: float, delta: float, beta: float
    ) -> tuple[Steps, float] | None:
        """The plan and alpha of Theorem 28 or 32, in the units of the rows; None for too many steps."""
        rows = matrix_rows(model)
        d, m = form.columns, rows.candidates
        size = math.log(max(d, 2))
        rho = max(form.total * float(np.abs(form.factor).max()) * rows.rows.norminf, 1e-300)
        moved = rows.linf if self.published == "entries" else rows.row_l1
        per_step = d if self.published == "entries" else 1
        releases = 1 + (rows.row_entries if self.published == "entries" else 1)

        def printed(T: float) -> float:
            return epsilon / (4 * math.sqrt(per_step * T * math.log(1 / delta)))

        def oracle(T: float, each: float) -> float:
            return self._range(rows, body) / each * math.log(2 * d * T * m / beta)

        def noise(T: float, each: float) -> float:
            """Largest effect of the noise on a row's product with a difference of two points."""
            return form.step_limit * 2 * moved / each * math.log(2 * d * T / beta)

        def alpha(T: float) -> float:
            return 12 * rho * math.sqrt(size / T)

        T = longest_game(lambda T: max(oracle(T, printed(T)), noise(T, printed(T))) - alpha(T) / 6)
        if T is None:
            return None
        count = math.ceil(T)
        each = valid_step(printed(count), releases * count, epsilon, delta)
        error = max(alpha(T), alpha(count) / 3 + noise(count, each) + oracle(count, each))
        # Their losses are half of the noisy row over rho.
        rate = math.sqrt(size / count) / (2 * rho)
        return Steps(form, count, rate, each, moved / each), error


def _form(model: PrivateLP, body: Polyhedron) -> SimplexForm | Verdict:
    def build() -> SimplexForm | Verdict:
        rows = private_rows(model)
        return simplex_of(model, body, np.minimum(rows.lower, 0.0), np.maximum(rows.upper, 0.0))

    return model.remember("simplex form of matrix rows", build) if body is public_polyhedron(model) else build()


def _tightened(rows: MatrixRows, form: SimplexForm, task: Task) -> tuple[Steps, float]:
    """The plan of least error, and its error: steps and the share of the selections on a grid."""
    spend = task.spend
    reading = rows.pattern.nnz + rows.rest.nnz + 10 * (rows.candidates + form.columns)
    drawing = _SELECTION_WORK * min(rows.candidates, 2 * math.isqrt(rows.candidates) + 1)
    drawing += _NOISE_WORK * rows.row_entries
    grid = step_grid(reading + drawing + EntropicBody.of(task.body, form).work)
    width = form.row_range(rows.rows.lower, rows.rows.upper)
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
    error = regret + rows.reach_over(task.body) / each * shortfall(rows.candidates, grid, task.beta / 2)
    share, best = np.unravel_index(int(np.argmin(error)), error.shape)
    found = share, best
    plan = Steps(form, int(grid[best]), float(rate[found]), float(each[found]), float(scale[found]))
    return plan, float(error[found])


def _noisy_row(
    rows: MatrixRows, now: PrivateRowsNow, i: int, scale: float, laplace: bool, source: NoiseSource
) -> tuple[Integers, Floats]:
    """Columns and entries of a named row: noise on every private position, the public entries as they are."""
    G = now.parts[0]
    part = slice(G.indptr[i], G.indptr[i + 1])
    exact = G.data[part]
    # A scale of 0 means that no record moves any entry.
    noisy = exact if scale == 0 else source.laplace(exact, scale) if laplace else source.gaussian(exact, scale)
    rest = slice(rows.rest.indptr[i], rows.rest.indptr[i + 1])
    if rest.start == rest.stop:
        return G.indices[part], noisy
    return (
        np.concatenate([G.indices[part], rows.rest.indices[rest]]),
        np.concatenate([noisy, rows.rest.data[rest]]),
    )


NOISY_MULTIPLICATIVE_WEIGHTS = NoisyMultiplicativeWeights(
    "noisy-multiplicative-weights", "HRRU14, Algorithms 5 and 6, with unbiased Gaussian rows and zCDP accounting"
)
ALGORITHM_5 = NoisyMultiplicativeWeights(
    "algorithm-5", "HRRU14, Algorithm 5 and Theorem 28, constants corrected", published="entries"
)
ALGORITHM_6 = NoisyMultiplicativeWeights(
    "algorithm-6", "HRRU14, Algorithm 6 and Theorem 32, constants corrected", published="rows"
)
__all__ = ["ALGORITHM_5", "ALGORITHM_6", "NOISY_MULTIPLICATIVE_WEIGHTS", "NoisyMultiplicativeWeights"]
