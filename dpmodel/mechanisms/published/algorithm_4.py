"""HRRU14's Algorithm 4 with the constants of Theorem 22 as printed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpmodel.classify.private_lp import PrivateLP
from dpmodel.contract import YES, Options, Verdict
from dpmodel.mechanisms.lp.engines.contract import Task
from dpmodel.mechanisms.lp.multiplicative_weights.game import MOST_STEPS, Shape, Steps, longest_game
from dpmodel.mechanisms.lp.multiplicative_weights.right_hand_sides import (
    ScalarMultiplicativeWeights,
    ScalarRows,
    scalar_rows,
)
from dpmodel.mechanisms.lp.private_rows import public_polyhedron
from dpmodel.mechanisms.spend import valid_step
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.simplex_form import SimplexForm


@dataclass(frozen=True)
class Algorithm4(ScalarMultiplicativeWeights):
    """``multiplicative-weights`` with the printed steps, rate and selections.

    Source
        HRRU14, Algorithm 4 and Theorem 22: ``T = 9 rho^2 ln d / alpha^2``, rate ``sqrt(ln d / T)`` and
        ``epsilon' = epsilon / sqrt(8 T ln(1/delta))``.
    Privacy
        What is read is that of ``multiplicative-weights``. Every selection has scale ``2 linf / epsilon'``, so it is
        epsilon'-DP, and T of them are (epsilon, delta)-DP by the exact composition of T pure steps; should the printed
        epsilon' be too large for that, the largest valid one is taken.
    Utility
        With probability 1 - beta the alpha that solves
        ``alpha = 6 Delta sqrt(8 T ln(1/delta)) ln(m T / beta) / epsilon``.
    Cost
        As ``multiplicative-weights``; at most 5,000 steps are planned.
    """

    name = "algorithm-4"
    as_printed: ClassVar[bool] = True
    source = "HRRU14, Algorithm 4 and Theorem 22, as printed"
    own_composition = True

    def eligible(self, model: PrivateLP, options: Options) -> Verdict:
        verdict = super().eligible(model, options)
        if not verdict.eligible:
            return verdict
        if options.delta == 0:
            return Verdict(False, "the printed algorithm composes its selections with delta > 0")
        shape = self.shape(model, public_polyhedron(model))
        if isinstance(shape, Verdict):
            return shape
        if self._printed(scalar_rows(model), shape.form, options.epsilon, options.delta, options.beta) is None:
            return Verdict(False, f"the printed constants ask for more than {MOST_STEPS} steps")
        return YES

    def range_of(self, rows: ScalarRows, polytope: Polyhedron) -> float:
        return 2 * rows.sensitivity

    def plan(self, rows: ScalarRows, shape: Shape, task: Task) -> tuple[Steps, float]:
        found = self._printed(rows, shape.form, task.epsilon, task.delta, task.beta)
        assert found is not None  # eligible() came first, and less budget asks for fewer steps
        return found

    def _printed(
        self, rows: ScalarRows, form: SimplexForm, epsilon: float, delta: float, beta: float
    ) -> tuple[Steps, float] | None:
        """The plan and alpha of Theorem 22's proof, in the units of the rows; None for too many steps."""
        pulled = form.pull_rows(rows.matrix)
        rho = form.total * float(abs(pulled).max()) if pulled.nnz else 0.0
        size = math.log(max(form.columns, 2))

        def printed(T: float) -> float:
            return epsilon / math.sqrt(8 * T * math.log(1 / delta))

        def oracle(T: float, each: float) -> float:
            return 2 * rows.sensitivity / each * math.log(rows.candidates * T / beta)

        def regret(T: float) -> float:
            return rho * math.sqrt(size / T)

        # alpha / 3 = regret = oracle.
        T = longest_game(lambda T: oracle(T, printed(T)) - regret(T))
        if T is None:
            return None
        count = math.ceil(T)
        each = valid_step(printed(count), count, epsilon, delta)
        # Rounding T up leaves the sum of 2 alpha / 3 and alpha / 3 all but unchanged; the larger is stated.
        error = max(3 * regret(T), 2 * regret(count) + oracle(count, each))
        return Steps(form, count, math.sqrt(size / count) / max(rho, 1e-300), each), error


ALGORITHM_4 = Algorithm4()
