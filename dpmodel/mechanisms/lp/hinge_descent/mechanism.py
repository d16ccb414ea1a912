"""Noisy gradient descent on the mean hinge of violations: a nearly feasible point of a covering or packing program."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.classify.private_lp import PrivateLP, PrivateNumbers
from dpmodel.contract import YES, Options, Progress, Verdict
from dpmodel.forecast import Bound, Violation
from dpmodel.mechanisms.lp.engines.contract import CountingEngine, Point, Promise, Task, bound_of
from dpmodel.mechanisms.lp.hinge_descent.forecast import DescentPlan, noise_alone, plan_descent, sum_sensitivity
from dpmodel.mechanisms.lp.private_rows import plain_linear, private_rows
from dpmodel.mechanisms.lp.row_tables import RowPart, RowTable
from dpmodel.privacy import NoiseSource


@dataclass(frozen=True)
class NoisyHingeDescent(CountingEngine):
    """Minimise ``w'x + (1/k) sum_i max(G_i x - h_i, 0)`` over the public set by noisy dual averaging.

    Source
        Noisy gradient descent: Bassily, Smith and Thakurta 2014; dual averaging: Nesterov 2009, Xiao 2010. HRRU14,
        section 3.1, poses the problem (private rows, some of them given up) and solves it by dense multiplicative
        weights; the bounds here are proved in ``forecast.py``.
    Privacy
        Private values enter only through the d sums ``sum_i p(u_i) G_i`` of each step, d the columns that private
        rows reach. Given the released numbers, which fix the point x_t, p(u_i) in [0, 1] is a function of
        row i alone, so one record moves the sums by at most ``sum_sensitivity`` (proof there; products are computed
        row by row, hence what one record does not own is computed alike in both databases, in memory and in blocks).
        Every step adds Gaussian noise calibrated to its 2-norm (Laplace and 1-norm for pure budgets), T steps with a
        public T, adaptively composed by ``Spend``. Everything else is a function of the noisy sums and of public facts.
    Utility
        V is the mean hinge. ``forecast.py`` proves w.p. 1 - beta ``w'x + V(x) <= w'x* + error``. If more than s rows
        were violated by more than ``a = k v / (s + 1)``, V would exceed ``a (s + 1) / k = v``: ``gain = k / (s + 1)``.
        s is what was asked for; or the least that keeps ``gain * error`` below the violation asked for; or the one that
        minimises ``alpha + width s / k``. Asked for s or the violation, it runs what proves most: the accelerated
        method where the rows are so many that it proves an error below 2 % of the width. Else it runs the settings that
        do best on synthetic databases (``simulated_settings``), mostly of the plain method set for practice: tight and
        met rows are given a say (c in ``forecast.py``), the rate is high and only the last half of the iterates is
        averaged. The statement is always that of the settings that are run, and mostly gives no guarantee then.
    Cost
        T products with G and its transpose (of rows in blocks T passes), T projections (exact for a box with one row),
        T d noisy numbers; T at most 2,000, fewer when d or G is large.
    """

    cells: ClassVar[tuple[str, ...]] = ("scalar low", "row low", "row high")
    name = "noisy-hinge-descent"
    source = "Bassily, Smith and Thakurta 2014; Nesterov 2009 (dual averaging on the mean violation)"
    gaussian_only = True
    reads_blocks = True

    def eligible(self, model: PrivateLP, options: Options) -> Verdict:
        return plain_linear(model) or YES

    def promise(self, task: Task) -> Promise:
        plans = (self._promise(task, error, plan) for error, plan in plan_descent(task))
        return replace(next(plans), others=cache(lambda: tuple(plans)))

    def least(self, task: Task) -> Iterator[Bound]:
        """First what its noise alone costs: ``k error / (s + 1) + width s / k >= 2 sqrt(error width) - width / k``."""
        if task.slack_rows is None and task.violation is None:
            (error, width), k = noise_alone(task), max(private_rows(task.model).count, 1)
            rank = max(2 * math.sqrt(error * width) - width / k, 0.0)
            yield Bound(Violation(violation=rank, private_rows=k, width=width))
        yield bound_of(self._promise(task, *next(plan_descent(task))))

    def _promise(self, task: Task, error: float, plan: DescentPlan) -> Promise:
        rows = private_rows(task.model)
        width = max(rows.residual_range(task.polytope)[1], 0.0)
        slack = _slack(task, rows.count, error, width)
        words = f"{plan.steps} steps: a product with the private rows, a projection and noise on {plan.live.size} sums"
        noise = {
            "kind": plan.kind,
            "scale of each sum": plan.scale,
            "sums": int(plan.live.size),
            "steps": plan.steps,
            "change by one record": sum_sensitivity(task, 1 if plan.kind == "laplace" else 2),
        }
        return Promise(
            error, rows.count / (slack + 1), slack, rows.count, width, words,
            noise=noise, caveats=("the released point is usually far better than the proved bound",), plan=plan,
        )  # fmt: skip

    def point(
        self, task: Task, promise: Promise, theta: PrivateNumbers | RowTable, source: NoiseSource, progress: Progress
    ) -> Point:
        plan: DescentPlan = promise.plan
        rows = private_rows(task.model)
        table = rows.table(theta)
        k, total = max(rows.count, 1), np.zeros(task.polytope.size)
        z = task.polytope.project(plan.start)
        x, weight = np.zeros(task.polytope.size), 0.0
        for step in range(plan.steps):
            if step % max(plan.steps // 20, 1) == 0:
                progress(f"descent on the violations, {plan.steps} steps", step / plan.steps)
            a = step + 1.0 if plan.accelerated else 1.0
            requested = (weight * x + a * z) / (weight + a) if plan.accelerated else z
            total += a * task.tilt
            if plan.live.size:  # else no private entry counts, and there is nothing to ask for
                sums = table.map_reduce(partial(_sums, requested, plan))
                draw = source.laplace if plan.kind == "laplace" else source.gaussian
                total[plan.live] += a * draw(sums, plan.scale) / k
            after = task.polytope.project(plan.start - plan.rate * total)
            if step >= plan.steps - plan.kept:
                x, weight = (weight * x + a * (after if plan.accelerated else z)) / (weight + a), weight + a
            z = after
        return Point(task.polytope.nearest(x))


def _sums(x: Floats, plan: DescentPlan, part: RowPart) -> PrivateArray:
    """(d,) ``sum_i p(u_i) G_i`` over the rows of a part, at the point x."""
    return PrivateArray(part.pull(say(part.residual(x), plan))[plan.live])


def say(residual: PrivateArray, plan: DescentPlan) -> PrivateArray:
    """(k,) p(u) of ``forecast.py``, in [0, 1], row by row; in the memory of ``residual``."""
    if plan.accelerated:
        residual /= 2 * plan.say
        residual += 1
        np.clip(residual, 0.0, 1.0, out=residual)
    else:
        np.negative(residual, out=residual)
        np.maximum(residual, plan.say, out=residual)
        np.divide(plan.say, residual, out=residual)
    return residual


def _slack(task: Task, rows: int, error: float, width: float) -> int:
    """Rows to leave out."""
    if task.slack_rows is not None:
        return task.slack_rows
    if task.violation is not None and task.violation > 0:
        # rows error / (s + 1) <= violation.
        return math.ceil(min(max(rows * error / max(task.violation, 1e-300) - 1, 0.0), rows))
    # alpha + width s / rows = rows error / (s + 1) + width s / rows is least at s + 1 = rows sqrt(error / width).
    return min(rows, max(round(rows * math.sqrt(error / width)) - 1, 0)) if width > 0 else 0


NOISY_HINGE_DESCENT = NoisyHingeDescent()
