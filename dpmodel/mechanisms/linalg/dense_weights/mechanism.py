"""Dense multiplicative weights over private inequalities: a point that satisfies all but few of them, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import YES, Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.exact import cones
from dpmodel.exact.cones import (
    Chosen,
    Draw,
    GridRows,
    forecast_missed,
    grid_direction,
    least_seen,
    projector,
    public_noise,
)
from dpmodel.exact.model import Found, PrivateInequalities
from dpmodel.forecast import Bound, Forecast
from dpmodel.mechanisms.linalg.dense_weights.plan import (
    MOST_ROWS,
    DensePlan,
    candidates,
    proved_missed,
    sum_sensitivity,
)
from dpmodel.mechanisms.lp.dense_weights.measure import DenseMeasure
from dpmodel.privacy import NoiseSource

_FEW_SEEDS, _MANY_SEEDS = 3, 21


@dataclass(frozen=True)
class DenseWeights(Mechanism[PrivateInequalities]):
    """Weights over the private rows, never more than 1/s on one, against the cone's best unit vector for their sum.

    Source
        HRRU14, Algorithms 1 and 2, specialised to the unit ball and a public cone, with idle rows in place of a public
        number of rows.
    Privacy
        Step t releases the point that is best for ``u = sum_i w_i a_i`` plus noise, w the 1/s-dense projection of a
        lazy measure over the n private rows and s idle rows of constant weight; and k = 3 counts are released at the
        end (``CountNoise``). Given the released numbers, the weight of a row before the projection depends on this
        row alone (exactly so: rows and points are on grids), and zero rows never gain.
        *One row more*, of weight A' and vector a'. ``w_j = min(1, c A_j) / s`` adds up to one over all rows and the
        idle ones (they are s, so such a c exists for every n, and n is nowhere used). With the new row c' <= c, so all
        other weights fall, together by ``w' <= 1/s``. So ``u' - u = w' (a' - a_bar)``, a_bar an average of other rows
        and of zeros: at most ``2 r / s`` in the 2-norm, r = ``row_norm``.
        *One row replaced*: at most ``2 r / s`` too (``mechanisms/lp/dense_weights/mechanism.py``, "One row").
        So both relations need the same noise (``sum_sensitivity``). At most ``2^39 / s`` rows are read, the first ones;
        where this cuts, one row more also drops the last one, which is a row replaced.
        *Rounding.* Sums of n terms are off by (n + 8) 2^-53 of the sum of their sizes, at most 1, in weights and in u;
        weights as computed by 2^-40 more. Twice, for two data sets, with ``n s <= 2^39`` and ``s <= 2^24``: less than
        ``2^-11 / s``, inside ``ROUNDING``.
        T steps take 0.9 of rho and the counts 0.1; all noise is Gaussian, composed exactly. delta = 0: Laplace noise by
        1-norms. T, s and the rate are public facts: those of the plan with the best public simulations.
    Utility
        If the promised margin holds and the plan's error is below it, fewer than s rows are missed by the average, with
        ``CountNoise.lost`` for the choice (``dense_weights_plan``). Simulations on planted systems are mostly far below
        that; the forecast is the smaller number.
    Cost
        T products with the rows and their transpose, T projections of n weights, T D noisy numbers (at most 100,000).
    """

    serves: ClassVar[Serves] = Serves(PrivateInequalities)
    name: str = "dense-weights"
    source: str = "HRRU14, Algorithms 1 and 2, over the unit ball and a cone"

    def eligible(self, model: PrivateInequalities, options: Options) -> Verdict:
        if model.expected > MOST_ROWS:
            return Verdict(False, "there are so many rows that rounding of its sums is not covered")
        return cones.cone_eligible(model) or YES

    def at_least(self, model: PrivateInequalities, options: Options) -> tuple[Bound, ...]:
        """The forecast is that of one of ``candidates``: the smaller of what is proved of it and of what its
        simulations count, which is at least ``least_seen``."""
        return cones.hoped(
            model,
            min(
                min(proved_missed(model, options, plan), least_seen(model, steps=plan.steps * 4, seeds=_MANY_SEEDS))
                for plan in candidates(model, options)
            ),
        )

    def forecast(self, model: PrivateInequalities, options: Options) -> Forecast:
        plan = best_plan(model, options)
        proved = proved_missed(model, options, plan)
        median, high = forecast_missed(
            model, options, self.name, lambda rows, weight, seed: _simulate(model, plan, rows, weight, seed),
            steps=plan.steps * 4, seeds=_MANY_SEEDS, nothing=cones.nothing(model, proved),
        )  # fmt: skip
        noise = {
            "kind": plan.kind, "scale of each sum": plan.scale, "sums": model.cone_dimension, "steps": plan.steps,
            "density": plan.density, "rate": plan.rate, "scale of each count": plan.counts.scale,
            "counts": len(cones.NAMES),
            "change by one record": sum_sensitivity(model, plan.density, 1 if plan.kind == "laplace" else 2),
        }  # fmt: skip
        work = f"{plan.steps} steps: two products with the private rows, one projection of weights and noise"
        return cones.cone_forecast(model, options, proved, median, high, noise=noise, work=work)

    def run(
        self, model: PrivateInequalities, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        plan = best_plan(model, options)
        rows = GridRows.of(model.lifted(*model.read_rows())[: plan.rows])
        draw = noise.laplace if plan.kind == "laplace" else noise.gaussian
        return cones.answer(model, _search(rows, model, plan, draw, progress))


def weigh(
    rows: GridRows, model: PrivateInequalities, plan: DensePlan, draw: Draw, progress: Progress
) -> tuple[Floats, ...]:
    """The candidates of T steps; of the rows only what ``draw`` returns is used, but for their own weights."""
    measure = DenseMeasure(rows.count, plan.density, plan.density)
    onto, requested = projector(model.cone), np.empty((plan.steps, rows.size))
    level = plan.level * rows.live
    for step in range(plan.steps):
        if step % 64 == 0:
            progress(f"dense weights, {plan.steps} steps", step / plan.steps)
        requested[step] = grid_direction(onto(draw(np.asarray(rows.rows.T @ measure.projected()), plan.scale)))
        measure.add(plan.rate * (level - rows.values(requested[step])))
    return cones.candidates(requested)


def _search(rows: GridRows, model: PrivateInequalities, plan: DensePlan, draw: Draw, progress: Progress) -> Chosen:
    """Steps and choice, on real rows and synthetic ones alike."""
    points = list(map(cones.finisher(model), weigh(rows, model, plan, draw, progress)))
    return plan.counts.choose(points, draw(cones.missed_counts(rows, points), plan.counts.scale))


def best_plan(model: PrivateInequalities, options: Options) -> DensePlan:
    """The candidate whose few simulated runs miss the least; of those alike, the one with the least proved number."""

    def build() -> DensePlan:
        def score(item: tuple[int, DensePlan]) -> tuple[float, float, float]:
            number, plan = item
            proved = proved_missed(model, options, plan)
            median, high = forecast_missed(
                model, options, f"dense-weights, candidate {number}",
                lambda rows, weight, seed: _simulate(model, plan, rows, weight, seed),
                steps=plan.steps * 20, seeds=_FEW_SEEDS, nothing=cones.nothing(model, proved),
            )  # fmt: skip
            return min(high, proved), proved, median

        return min(enumerate(candidates(model, options)), key=score)[1]

    return model.cached(("dense-weights", options.epsilon, options.delta, options.beta), build)


def _simulate(model: PrivateInequalities, plan: DensePlan, rows: Floats, weight: float, seed: int) -> Floats:
    """(D,) the answer on synthetic rows, each of which stands for ``weight``, with synthetic noise."""
    thinner = replace(plan, density=max(math.ceil(plan.density / weight), 1))
    draw = public_noise(plan.kind, 2_000_003 + seed)
    return _search(GridRows.of(rows, weight), model, thinner, draw, no_progress).y


DENSE_WEIGHTS = DenseWeights()
