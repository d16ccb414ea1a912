"""HRRU14's Algorithm 2 as printed, with its constants corrected where they do not hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpmodel.contract import YES, Options, Progress, Serves, Verdict
from dpmodel.errors import UnsupportedModelError
from dpmodel.kernels.direct_measurement import ROUNDING
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.privacy import NoiseSource
from dpmodel.privacy.accounting import valid_step
from dpmodel.programs.dense_oracles import Selection, selections
from dpmodel.programs.dense_weights import Plan, caveats, covered, descend, most_density, work
from dpmodel.programs.goals import Point, Promise, Task
from dpmodel.programs.model import PrivateNumbers, Program
from dpmodel.programs.nearly_feasible import LeavesRowsOut
from dpmodel.programs.rows import PrivateRows, private_rows, public_polyhedron

# Steps beyond these are not planned, so that a run ends in reasonable time.
MOST_STEPS = 100_000


@dataclass(frozen=True)
class Algorithm2(LeavesRowsOut):
    """HRRU14's Algorithm 2 with its own constants, corrected where they do not hold.

    Source
        HRRU14, Algorithms 1 and 2, Theorems 11, 12 and 15.
    Privacy
        As for ``dense-multiplicative-weights``, with selection among vertices only. The score of v is ``y'(G v - h)``
        up to its sign; one record moves it by at most ``Delta = share * max |residual_i(v) - residual_j(v)|``
        (Lemma 14 with its 3 replaced by 1), so the scores' range is at most 2 Delta, and every selection with
        scale ``2 Delta / epsilon'`` is epsilon'-DP. ``epsilon' = epsilon / sqrt(8 T ln(1/delta))`` as in Theorem 12 if
        T such steps really are (epsilon, delta)-DP by the optimal composition theorem, else the largest that is.
        The measure is lazy; the paper's text projects it in place, for which Lemma 13 does not hold.
    Utility
        Theorem 11: for alpha <= 3 rho (9 rho in the paper; the rate is at most 1/2 then), ``T = 36 rho^2 ln m /
        alpha^2`` and ``rate = sqrt(ln m / T)``, the regret is 2 alpha / 3. Every selection errs by at most
        ``(2 Delta / epsilon') ln(k T / beta)`` over k vertices with probability 1 - beta / T; this is alpha / 3 for
        ``s = 6 r W ln(k T / beta) / (alpha epsilon')``. rho bounds the size of residuals, W the length of their range.
        Fewer than s rows are left out. s follows from alpha (``violation``) or alpha from s (``slack_rows``), or both
        are chosen by ``alpha + width s / m``. Where s exceeds m, nothing is promised; weights are uniform then.
    Cost
        As for ``dense-multiplicative-weights``; at most 100,000 steps are planned.
    """

    serves: ClassVar[Serves] = Serves(Program, ("scalar low", "row low", "row high"), as_printed=True, leaves_out=True)
    name = "algorithm-2"
    source = "HRRU14, Algorithm 2, Theorems 11, 12 and 15, with corrected constants"
    takes_tilt = False
    search_steps = 0
    own_composition = True
    vertices: Any = field(default=None, compare=False, repr=False)

    def suits(self, model: Program, options: Options) -> Verdict:
        verdict = covered(model)
        if not verdict.eligible:
            return verdict
        if options.delta == 0:
            return Verdict(False, "HRRU14, Theorem 12, needs delta > 0")
        if "objective" in model.private_parts():
            return Verdict(False, "HRRU14, section 3, takes the objective as public")
        rows, polytope = private_rows(model), public_polyhedron(model)
        if options.target is not None:
            polytope = polytope.with_row(model.form.c0, options.target - model.form.d0)
        if polytope.empty:
            return Verdict(False, "no public point reaches the target")
        if selections(rows, polytope, options.vertices) is None:
            return Verdict(
                False, "HRRU14 chooses among vertices: the public set is no product of scaled simplices and boxes; "
                "give its vertices: mechanisms.DenseMultiplicativeWeights(vertices=[...])"
            )  # fmt: skip
        if options.violation is not None and options.slack_rows is None:
            steps = _printed_steps(rows, _largest(rows, polytope), options.violation)
            if steps > MOST_STEPS:
                return Verdict(
                    False, f"HRRU14, Theorem 11, asks for {steps:.3g} steps for this violation (at most "
                    f"{MOST_STEPS} are run)"
                )  # fmt: skip
        return YES

    def promise(self, task: Task) -> Promise:
        rows = private_rows(task.model)
        low, high = rows.residual_range(task.polytope)
        largest, most = max(high, -low), most_density(rows, task)
        oracle = _vertices(rows, task)
        sensitivity = high - low + ROUNDING * oracle.size  # Delta for s = 1
        finest = 6 * largest * math.sqrt(_log(rows) / MOST_STEPS) * (1 + 1e-9)

        def needed(alpha: float) -> float:
            """s for alpha, by the theorems; a real number."""
            steps = _printed_steps(rows, largest, alpha)
            each = _printed_epsilon(task, steps)
            logs = oracle.log_count + math.log(steps / task.beta)
            return 6 * rows.per_record * sensitivity * logs / (alpha * each)

        grid = np.geomspace(finest, 3 * largest, 200) if largest > 0 else np.array([1.0])
        if task.slack_rows is not None:
            requested = task.slack_rows + 1
            alpha = float(next((a for a in grid if needed(float(a)) <= requested), grid[-1]))
        elif task.violation is not None:
            alpha = float(np.clip(task.violation, grid[0], grid[-1]))
        else:
            reached = [float(a) for a in grid if needed(float(a)) <= most] or [float(grid[-1])]
            alpha = min(reached, key=lambda a: a + high * needed(a) / rows.count)
        steps = _printed_steps(rows, largest, alpha)
        wanted = max(math.ceil(needed(alpha)), 1)
        holds = wanted <= most
        density = min(max(wanted, 1 if task.slack_rows is None else task.slack_rows + 1), most)
        share = min(rows.per_record / density, 1.0)
        plan = Plan(
            density, steps, math.sqrt(_log(rows) / steps) / (2 * largest) if largest > 0 else 0.0, 0, oracle.name,
            2 * share * sensitivity, _printed_epsilon(task, steps),
        )  # fmt: skip
        return Promise(
            error=min(alpha, high) if holds else high,
            gain=1.0,
            slack_rows=density - 1 if holds else rows.count,
            rows=rows.count,
            width=high,
            work=work(steps, oracle),
            noise={"steps": steps, "density": density, "oracle": oracle.name, "range": plan.range_bound,
                   "epsilon of a step": plan.step_epsilon, "s by Theorem 15": wanted},
            caveats=caveats(oracle),
            plan=plan,
        )  # fmt: skip

    def point(
        self, task: Task, promise: Promise, theta: PrivateNumbers, source: NoiseSource, progress: Progress
    ) -> Point:
        rows, plan = private_rows(task.model), promise.plan
        minimise = partial(
            _vertices(rows, task).select,
            tilt=np.zeros(task.polytope.size),
            range_bound=plan.range_bound,
            epsilon=plan.step_epsilon,
            source=source,
        )
        return descend(rows, task.polytope, plan, minimise, theta, progress)


def _vertices(rows: PrivateRows, task: Task) -> Selection:
    found = selections(rows, task.polytope, task.vertices)
    if found is None:
        raise UnsupportedModelError(
            "Algorithm 2 chooses among the vertices of the public set",
            why="this set is no product of scaled simplices and boxes",
            remedy="give its vertices as vertices=[...]",
        )
    return found


def _log(rows: PrivateRows) -> float:
    return math.log(max(rows.count, 2))


def _largest(rows: PrivateRows, polytope: Polyhedron) -> float:
    """rho of the paper: bound on the size of residuals."""
    return max(abs(end) for end in rows.residual_range(polytope))


def _printed_steps(rows: PrivateRows, largest: float, alpha: float) -> int:
    """T of Theorem 11."""
    # Beyond 1e100 widths in alpha it is too many in any case, and squares would overflow.
    return max(1, math.ceil(36 * min(largest / max(alpha, 1e-300), 1e100) ** 2 * _log(rows))) if largest > 0 else 1


def _printed_epsilon(task: Task, steps: int) -> float:
    """Theorem 12's epsilon', or the largest valid one where that is not."""
    formula = task.epsilon / math.sqrt(8 * steps * math.log(1 / task.delta))
    return valid_step(formula, steps, task.epsilon, task.delta)


ALGORITHM_2 = Algorithm2()
