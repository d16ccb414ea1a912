"""HRRU14's Algorithm 5 with the constants of Theorem 28, corrected; its class serves Algorithm 6 too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.contract import YES, Options, Verdict
from dpmodel.mechanisms.lp.engines.contract import Task
from dpmodel.mechanisms.lp.multiplicative_weights.coefficients import NoisyMultiplicativeWeights
from dpmodel.mechanisms.lp.multiplicative_weights.game import MOST_STEPS, Shape, Steps, longest_game
from dpmodel.mechanisms.lp.multiplicative_weights.matrix_rows import MatrixRows, matrix_rows
from dpmodel.mechanisms.lp.private_rows import private_rows, public_polyhedron
from dpmodel.mechanisms.spend import valid_step
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.simplex_form import SimplexForm


@dataclass(frozen=True)
class Algorithm5(NoisyMultiplicativeWeights):
    """``noisy-multiplicative-weights`` with the printed steps, rate and noise, Delta the change of an entry.

    Source
        HRRU14, Algorithm 5, Theorems 25 and 28, with 24 for the constant 12 and ln(m/gamma).
    Privacy
        What is read is that of ``noisy-multiplicative-weights``. Selections have scale ``2 Delta |x| / epsilon'``, and
        each entry of a named row gets Laplace noise of scale ``Delta / epsilon'``: 1 + d pure releases a step,
        composed exactly; a smaller epsilon' is taken should the printed one be too large.
    Utility
        The alpha that solves ``12 (Delta / epsilon') ln(2 d T m / beta) = alpha`` with ``T = 144 ln d / alpha^2``, in
        rows scaled to entries in [-1, 1] and points of 1-norm 1.
    Cost
        As ``noisy-multiplicative-weights``; at most 5,000 steps are planned.
    """

    as_printed: ClassVar[bool] = True
    name = "algorithm-5"
    source = "HRRU14, Algorithm 5 and Theorem 28, constants corrected"
    own_composition = True

    def eligible(self, model: PrivateLP, options: Options) -> Verdict:
        verdict = super().eligible(model, options)
        if not verdict.eligible:
            return verdict
        if model.form.scalar.nnz:
            return Verdict(False, "the printed algorithm has public right-hand sides")
        if private_rows(model).absent:
            return Verdict(False, "the printed algorithm does not know absent rows")
        if options.delta == 0:
            return Verdict(False, "the printed algorithm composes its steps with delta > 0")
        polytope = public_polyhedron(model)
        shape = self.shape(model, polytope)
        if isinstance(shape, Verdict):
            return shape
        if (
            self._printed(matrix_rows(model), shape.form, polytope, options.epsilon, options.delta, options.beta)
            is None
        ):
            return Verdict(False, f"the printed constants ask for more than {MOST_STEPS} steps")
        return YES

    # ------------------------------------------------------------------ what differs in Algorithm 6
    def _moved(self, rows: MatrixRows) -> float:
        """Delta."""
        return rows.linf

    def _score_sensitivity(self, rows: MatrixRows, l1: float, linf: float) -> float:
        """How far one record moves a score at points of these norms."""
        return rows.linf * l1

    def _releases(self, rows: MatrixRows, columns: int) -> tuple[int, int]:
        """Pure releases with noise in a step: as the printed epsilon' counts them, and as they are."""
        return columns, rows.row_entries

    # ------------------------------------------------------------------ the printed constants
    def pure(self, task: Task) -> bool:
        return True

    def _reach(self, rows: MatrixRows, l1: float, linf: float) -> float:
        return 2 * self._score_sensitivity(rows, l1, linf) + rows.rounding(l1, linf)

    def range_of(self, rows: MatrixRows, polytope: Polyhedron) -> float:
        return self._reach(rows, polytope.l1, polytope.linf)

    def range_at(self, rows: MatrixRows, task: Task, plan: Steps, x: Floats) -> float:
        l1, _, linf = rows.norms(x)
        return max(self.range_of(rows, task.polytope), self._reach(rows, l1, linf))

    def plan(self, rows: MatrixRows, shape: Shape, task: Task) -> tuple[Steps, float]:
        found = self._printed(rows, shape.form, task.polytope, task.epsilon, task.delta, task.beta)
        assert found is not None  # eligible() came first, and less budget asks for fewer steps
        return found

    def _printed(
        self, rows: MatrixRows, form: SimplexForm, polytope: Polyhedron, epsilon: float, delta: float, beta: float
    ) -> tuple[Steps, float] | None:
        """The plan and alpha, in the units of the rows; None for too many steps."""
        d, m, moved = form.columns, rows.candidates, self._moved(rows)
        size = math.log(max(d, 2))
        rho = max(form.total * float(np.abs(form.factor).max()) * rows.rows.norminf, 1e-300)
        per_step, noised = self._releases(rows, d)

        def printed(T: float) -> float:
            return epsilon / (4 * math.sqrt(per_step * T * math.log(1 / delta)))

        def oracle(T: float, each: float) -> float:
            return self.range_of(rows, polytope) / each * math.log(2 * d * T * m / beta)

        def noise(T: float, each: float) -> float:
            """Largest effect of the noise on a row's product with a difference of two points."""
            return form.step_limit * 2 * moved / each * math.log(2 * d * T / beta)

        def alpha(T: float) -> float:
            return 12 * rho * math.sqrt(size / T)

        T = longest_game(lambda T: max(oracle(T, printed(T)), noise(T, printed(T))) - alpha(T) / 6)
        if T is None:
            return None
        count = math.ceil(T)
        each = valid_step(printed(count), (1 + noised) * count, epsilon, delta)
        error = max(alpha(T), alpha(count) / 3 + noise(count, each) + oracle(count, each))
        # Their losses are half of the noisy row over rho.
        return Steps(form, count, math.sqrt(size / count) / (2 * rho), each, moved / each), error


ALGORITHM_5 = Algorithm5()
