"""HRRU14's Algorithms 4, 5 and 6 with the constants of their proofs (Theorems 22, 28 and 32), as yardsticks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq

from dpmodel._types import Floats
from dpmodel.contract import YES, Options, Serves, Verdict
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.simplex_form import SimplexForm
from dpmodel.privacy.accounting import valid_step
from dpmodel.programs.goals import Task
from dpmodel.programs.model import Program
from dpmodel.programs.rows import public_polyhedron
from dpmodel.programs.weights import (
    MOST_STEPS,
    Game,
    NoisyMultiplicativeWeights,
    ScalarMultiplicativeWeights,
    Shape,
    Steps,
)
from dpmodel.programs.weights_rows import GameRows, game_rows


class _AsPrinted(Game):
    """A game with the printed number of steps, the root of one equation."""

    own_composition = True

    def suits(self, model: Program, options: Options) -> Verdict:
        verdict = super().suits(model, options)
        if not verdict.eligible:
            return verdict
        if options.delta == 0:
            return Verdict(False, "the printed algorithm composes its steps with delta > 0")
        polytope = public_polyhedron(model)
        shape = self.shape(model, polytope)
        if isinstance(shape, Verdict):
            return shape
        facts = game_rows(model), shape.form, polytope
        if self._printed(*facts, options.epsilon, options.delta, options.beta) is None:
            return Verdict(False, f"the printed constants ask for more than {MOST_STEPS} steps")
        return YES

    def plan(self, rows: GameRows, shape: Shape, task: Task) -> tuple[Steps, float]:
        found = self._printed(rows, shape.form, task.polytope, task.epsilon, task.delta, task.beta)
        assert found is not None  # eligible() came first, and less budget asks for fewer steps
        return found

    def _printed(
        self, rows: GameRows, form: SimplexForm, polytope: Polyhedron, epsilon: float, delta: float, beta: float
    ) -> tuple[Steps, float] | None:
        """The plan, and alpha in the units of the rows; None for too many steps."""
        raise NotImplementedError


def _steps_at_balance(gap: Callable[[float], float]) -> float | None:
    """The T >= 1 at which the increasing ``gap`` vanishes (1 if it does so below 1); None beyond ``MOST_STEPS``."""
    if gap(MOST_STEPS) < 0:
        return None
    return 1.0 if gap(1.0) >= 0 else math.exp(float(brentq(lambda t: gap(math.exp(t)), 0.0, math.log(MOST_STEPS))))


@dataclass(frozen=True)
class Algorithm4(_AsPrinted, ScalarMultiplicativeWeights):
    """``multiplicative-weights`` with the printed steps, rate and selections.

    Source
        HRRU14, Algorithm 4 and Theorem 22: ``T = 9 rho^2 ln d / alpha^2``, rate ``sqrt(ln d / T)`` and
        ``epsilon' = epsilon / sqrt(8 T ln(1/delta))``.
    Privacy
        It reads what ``multiplicative-weights`` reads. Every selection has scale ``2 linf / epsilon'``, so it is
        epsilon'-DP, and T of them are (epsilon, delta)-DP by the exact composition of T pure steps. Where the printed
        epsilon' is too large for that, a smaller one is taken (``valid_step``).
    Utility
        With probability 1 - beta the alpha that solves
        ``alpha = 6 Delta sqrt(8 T ln(1/delta)) ln(m T / beta) / epsilon``.
    Cost
        As ``multiplicative-weights``; at most 5,000 steps are planned.
    """

    name = "algorithm-4"
    serves: ClassVar[Serves] = replace(ScalarMultiplicativeWeights.serves, as_printed=True)
    source = "HRRU14, Algorithm 4 and Theorem 22, as printed"

    def range_of(self, rows: GameRows, polytope: Polyhedron) -> float:
        return 2 * rows.single_over(polytope)

    def range_at(self, rows: GameRows, task: Task, plan: Steps, x: Floats) -> float:
        return self.range_of(rows, task.polytope)

    def _printed(
        self, rows: GameRows, form: SimplexForm, polytope: Polyhedron, epsilon: float, delta: float, beta: float
    ) -> tuple[Steps, float] | None:
        """As in Theorem 22's proof."""
        pulled = form.pull_rows(rows.rest)
        rho = form.total * float(abs(pulled).max()) if pulled.nnz else 0.0
        size = math.log(max(form.columns, 2))

        def printed(T: float) -> float:
            return epsilon / math.sqrt(8 * T * math.log(1 / delta))

        def oracle(T: float, each: float) -> float:
            return self.range_of(rows, polytope) / each * math.log(rows.candidates * T / beta)

        def regret(T: float) -> float:
            return rho * math.sqrt(size / T)

        # alpha / 3 = regret = oracle.
        T = _steps_at_balance(lambda T: oracle(T, printed(T)) - regret(T))
        if T is None:
            return None
        count = math.ceil(T)
        each = valid_step(printed(count), count, epsilon, delta)
        # Rounding T up hardly changes the sum of 2 alpha / 3 (regret) and alpha / 3 (oracle); the larger is stated.
        error = max(3 * regret(T), 2 * regret(count) + oracle(count, each))
        return Steps(form, count, math.sqrt(size / count) / max(rho, 1e-300), each), error


ALGORITHM_4 = Algorithm4()


@dataclass(frozen=True)
class Algorithm5(_AsPrinted, NoisyMultiplicativeWeights):
    """``noisy-multiplicative-weights`` with the printed steps, rate and noise, Delta the change of an entry.

    Source
        HRRU14, Algorithm 5, Theorems 25 and 28, with 24 for the constant 12 and ln(m/gamma).
    Privacy
        It reads what ``noisy-multiplicative-weights`` reads. Selections have scale ``2 Delta |x| / epsilon'``, and each
        private entry of the row drawn gets Laplace noise of scale ``Delta / epsilon'``: at most 1 + k pure releases a
        step, k the most private entries of a row, composed exactly. Where epsilon' is too large, a smaller one is
        taken.
    Utility
        The alpha that solves ``12 (Delta / epsilon') ln(2 d T m / beta) = alpha`` with ``T = 144 ln d / alpha^2``, in
        rows scaled to entries in [-1, 1] and points of 1-norm 1.
    Cost
        As ``noisy-multiplicative-weights``; at most 5,000 steps are planned.
    """

    serves: ClassVar[Serves] = replace(NoisyMultiplicativeWeights.serves, as_printed=True)
    name = "algorithm-5"
    source = "HRRU14, Algorithm 5 and Theorem 28, constants corrected"

    def suits(self, model: Program, options: Options) -> Verdict:
        verdict = NoisyMultiplicativeWeights.suits(self, model, options)
        if not verdict.eligible:
            return verdict
        if model.form.scalar.nnz:
            return Verdict(False, "the printed algorithm has public right-hand sides")
        if game_rows(model).absent:
            return Verdict(False, "the printed algorithm does not know absent rows")
        return super().suits(model, options)

    # ------------------------------------------------------------------ what differs in Algorithm 6
    def _delta(self, rows: GameRows) -> float:
        """Delta: how far one record moves an entry."""
        return rows.linf

    def _score_sensitivity(self, rows: GameRows, l1: float, linf: float) -> float:
        """How far one record moves a score at points of these norms."""
        return rows.linf * l1

    def _releases(self, rows: GameRows, columns: int) -> tuple[int, int]:
        """Noisy numbers of a step: as many as the printed epsilon' counts, and the most that there are."""
        return columns, rows.row_entries

    # ------------------------------------------------------------------ the printed constants
    def pure(self, task: Task) -> bool:
        return True

    def _score_range(self, rows: GameRows, l1: float, linf: float) -> float:
        return 2 * self._score_sensitivity(rows, l1, linf) + rows.rounding(l1, linf)

    def range_of(self, rows: GameRows, polytope: Polyhedron) -> float:
        return self._score_range(rows, polytope.l1, polytope.linf)

    def range_at(self, rows: GameRows, task: Task, plan: Steps, x: Floats) -> float:
        l1, _, linf = rows.norms(x)
        return max(self.range_of(rows, task.polytope), self._score_range(rows, l1, linf))

    def _printed(
        self, rows: GameRows, form: SimplexForm, polytope: Polyhedron, epsilon: float, delta: float, beta: float
    ) -> tuple[Steps, float] | None:
        d, m, change = form.columns, rows.candidates, self._delta(rows)
        size = math.log(max(d, 2))
        rho = max(form.total * float(np.abs(form.factor).max()) * rows.rows.norminf, 1e-300)
        counted, noised = self._releases(rows, d)

        def printed(T: float) -> float:
            return epsilon / (4 * math.sqrt(counted * T * math.log(1 / delta)))

        def oracle(T: float, each: float) -> float:
            return self.range_of(rows, polytope) / each * math.log(2 * d * T * m / beta)

        def noise(T: float, each: float) -> float:
            """Largest effect of the noise on a row's product with a difference of two points."""
            return form.step_limit * 2 * change / each * math.log(2 * d * T / beta)

        def alpha(T: float) -> float:
            return 12 * rho * math.sqrt(size / T)

        T = _steps_at_balance(lambda T: max(oracle(T, printed(T)), noise(T, printed(T))) - alpha(T) / 6)
        if T is None:
            return None
        count = math.ceil(T)
        each = valid_step(printed(count), (1 + noised) * count, epsilon, delta)
        error = max(alpha(T), alpha(count) / 3 + noise(count, each) + oracle(count, each))
        # The losses are half of the noisy row over rho.
        return Steps(form, count, math.sqrt(size / count) / (2 * rho), each, change / each), error


ALGORITHM_5 = Algorithm5()


@dataclass(frozen=True)
class Algorithm6(Algorithm5):
    """``algorithm-5`` with Delta the 1-norm of the change of a row.

    Source
        HRRU14, Algorithm 6, Theorems 31 and 32, with 24 for the constant 12, ln(m/gamma), and the 1-norm in
        Definition 29.
    Privacy
        As ``algorithm-5``, but Laplace noise of scale ``Delta / epsilon'`` on the row drawn hides the change of all its
        entries: two pure releases a step.
    Utility
        As ``algorithm-5``, with this Delta.
    Cost
        As ``algorithm-5``.
    """

    serves: ClassVar[Serves] = replace(NoisyMultiplicativeWeights.serves, as_printed=True)
    name = "algorithm-6"
    source = "HRRU14, Algorithm 6 and Theorem 32, constants corrected"

    def _delta(self, rows: GameRows) -> float:
        return rows.row_l1

    def _score_sensitivity(self, rows: GameRows, l1: float, linf: float) -> float:
        return rows.row_l1 * linf

    def _releases(self, rows: GameRows, columns: int) -> tuple[int, int]:
        return 1, 1


ALGORITHM_6 = Algorithm6()
