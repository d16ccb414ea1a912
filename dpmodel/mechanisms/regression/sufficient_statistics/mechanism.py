"""Least squares by sufficient statistics: measure the second moments once with noise, then solve a public program."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.contract import YES, Outcome, Progress, Request, Verdict
from dpmodel.mechanisms.forecast import Forecast
from dpmodel.mechanisms.regression.excess import excess_forecast
from dpmodel.mechanisms.regression.pure_too import PureToo
from dpmodel.mechanisms.regression.sufficient_statistics.forecast import (
    Normals,
    Population,
    in_units,
    mean_excess,
    noised,
    proved_loss,
    quick_minimise,
    shrink_cap,
)
from dpmodel.mechanisms.regression.sufficient_statistics.layout import Layout, layout_of
from dpmodel.mechanisms.regression.sufficient_statistics.measure import (
    Spread,
    Statistics,
    from_vector,
    summed,
    to_vector,
)
from dpmodel.mechanisms.regression.sufficient_statistics.rule import Quadratic, quadratic, shrunk
from dpmodel.mechanisms.regression.sufficient_statistics.solve import minimise, solvable
from dpmodel.mechanisms.spend import Spend
from dpmodel.privacy import NoiseSource

# Beyond this the matrices (128 MiB each), their eigenvectors (a minute) and 8 million draws (minutes)
# are too much for one machine.
MOST_COLUMNS = 4000


def judge_statistics(model: PrivateRegression, request: Request) -> Verdict:
    """Whether statistics of bounded size determine the objective; no, and why, elsewhere."""
    if model.loss.name != "squared":
        return Verdict(False, f"the {model.loss.name} loss has no sufficient statistics of bounded size")
    if math.isfinite(model.loss.clip) or request.clip is not None:
        return Verdict(False, "clipped residuals asked for: sums of squares and products cannot clip them")
    if model.size > MOST_COLUMNS:
        return Verdict(False, f"{model.size} coefficients: more than {MOST_COLUMNS}, whose matrix would not fit")
    if not math.isfinite(model.row.label_bound):
        return Verdict(False, "labels without a bound")
    if not math.isfinite(model.offset_bound):
        return Verdict(False, "offsets without a bound")
    if not math.isfinite(model.row.l2):
        return Verdict(False, "rows without a bound")
    if not solvable(model):
        return Verdict(False, "no solver for this set together with this penalty")
    return YES if model.total > 0 else Verdict(False, "weights that sum to zero")


@dataclass(frozen=True)
class SufficientStatistics(PureToo):
    """Measure sum a a' and sum a (y - o) once with noise; everything else is post-processing.

    Source
        Vu and Slavkovic 2009; Dwork, Talwar, Thakurta and Zhang 2014; Wang, Revisiting differentially private
        linear regression (UAI 2018), whose adaptive ridge is replaced by ``rule.py``.
    Privacy
        One release of one vector, ``(G, alpha g, beta t, gamma h)`` of ``layout.py``, with Gaussian noise of standard
        deviation ``D_2 / mu`` (mu-GDP with the largest mu that is (epsilon, delta)-DP, Balle and Wang 2018) or Laplace
        noise of scale ``D_1 / epsilon``. ``D`` is the exact largest move of the joint vector by one record over the
        ball (proof in ``sensitivity_l2``; ``sensitivity_l1`` bounds it), with the largest weight and an allowance for
        rounding. The number of rows and their weights are public. No budget is spent on the least eigenvalue.
    Utility
        For bounded sets a bound on the loss in objective for any data (proof in ``proved_loss``); the prediction by
        which plans choose is the mean excess risk over synthetic populations.
    Cost
        One pass over X that forms its Gram matrix (sparse X stays sparse where its columns need little centring),
        p^2 / 2 draws, one eigendecomposition, one convex program of p variables.
    """

    reads_blocks: ClassVar[bool] = True
    name: str = "sufficient-statistics"
    source: str = "Vu and Slavkovic 2009; Wang 2018 (AdaSSP), tightened"

    def eligible(self, model: PrivateRegression, request: Request) -> Verdict:
        return judge_statistics(model, request)

    def forecast_as_requested(self, model: PrivateRegression, request: Request) -> Forecast:
        key = (self, request.epsilon, request.delta, request.beta)
        return model.cached(key, lambda: self._simulated(model, request))

    def _simulated(self, model: PrivateRegression, request: Request) -> Forecast:
        layout, sigma = self.noise(model, request)
        spread = spread_of(layout, sigma)
        cap = shrink_cap(model, layout, spread)

        def simulate(population: Population, columns: Floats, factor: float, normal: Normals) -> Floats:
            small = layout if factor == 1 else _restricted(layout, columns)
            own = spread.times(factor)
            s = noised(small, in_units(small, population), spread, factor, normal)
            got = _program(population.model, small, s, own, cap * factor)
            return quick_minimise(population.model, got.P, got.q)

        predicted = mean_excess(model, simulate)
        bound = proved_loss(model, layout, spread, request.beta)
        if model.penalty.absent and math.isfinite(model.prediction_bound):
            bound = min(bound, model.weight * (model.prediction_bound + model.row.label_bound) ** 2)
        return excess_forecast(
            model,
            request,
            predicted=predicted,
            at_most=bound,
            work=f"one pass over X, {layout.entries} numbers measured once, one program of {model.size} coefficients",
            noise={
                "distribution": "laplace" if layout.pure else "gaussian",
                "scale": sigma,
                "sensitivity": layout.sensitivity,
                "entries": layout.entries,
                "weights": {"cross": layout.beta, "first": layout.alpha, "labels": layout.gamma},
            },
        )

    def noise(self, model: PrivateRegression, request: Request) -> tuple[Layout, float]:
        """The layout and the scale of the noise on each measured number; public facts."""
        layout = layout_of(model, request.delta == 0)
        assert layout is not None  # eligible() asks for bounds
        spend = Spend.of(request.epsilon, request.delta, gaussian_only=True)
        scale = spend.laplace_scale(layout.sensitivity) if layout.pure else spend.gaussian_sigma(layout.sensitivity)
        return layout, scale

    def run_as_requested(
        self, model: PrivateRegression, request: Request, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        layout, scale = self.noise(model, request)
        progress("summing", 0.1)
        exact = PrivateArray(to_vector(layout, summed(layout, model.read_table())))
        progress("measuring", 0.4)
        released = noise.laplace(exact, scale) if layout.pure else noise.gaussian(exact, scale)
        spread = spread_of(layout, scale)
        progress("solving the released program", 0.7)
        start = time.perf_counter()
        s = from_vector(layout, released, model.total)
        got = _program(model, layout, s, spread, shrink_cap(model, layout, spread))
        w = minimise(model, got.P, got.q)
        return Outcome("optimal", w, None, None, seconds=time.perf_counter() - start)


def spread_of(layout: Layout, scale: float) -> Spread:
    """Deviations of the released statistics for this scale of the noise; Laplace noise deviates by sqrt 2 scales."""
    return Spread.of(layout, scale * math.sqrt(2) if layout.pure else scale)


def _program(model: PrivateRegression, layout: Layout, s: Statistics, spread: Spread, cap: float) -> Quadratic:
    """The public program's quadratic, in the units of the objective."""
    inverse = layout.label_width / layout.width
    ridge = model.penalty.ridge[layout.moving] * inverse**2 / (model.scale * layout.label_width**2)
    got = quadratic(layout, s, shrunk(layout, s, spread, ridge, cap))
    return Quadratic(model.scale * got.P, model.scale * got.q)


def _restricted(layout: Layout, columns: Floats) -> Layout:
    """The layout of a share of the columns, in the same units."""
    kept = np.isin(layout.moving, columns)
    place = np.searchsorted(columns, layout.moving[kept])
    fixed = np.isin(layout.fixed, columns)
    return replace(
        layout,
        size=int(columns.size),
        moving=place,
        fixed=np.searchsorted(columns, layout.fixed[fixed]),
        middle=layout.middle[kept],
        width=layout.width[kept],
        constant=layout.constant[fixed],
    )


SUFFICIENT_STATISTICS = SufficientStatistics()
