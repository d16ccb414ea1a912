"""AdaSSP as printed, with its constants checked for the neighbours that the model declares."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast
from dpmodel.privacy import NoiseSource, gaussian_mu
from dpmodel.regressions.excess import excess_forecast
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.sufficient_statistics import (
    ROUGH,
    Normals,
    Population,
    judge_statistics,
    mean_excess,
    minimise,
)


@dataclass(frozen=True)
class Scales:
    """Deviations of the noise in the least eigenvalue, in every entry of X'X and of X'y; ``unit`` is the paper's
    ``sqrt(ln(6 / delta)) / (epsilon / 3)``, enlarged where that is not enough."""

    eigenvalue: float
    matrix: float
    vector: float
    unit: float


@dataclass(frozen=True)
class AdaSSP(Mechanism[PrivateRegression]):
    """A third of the budget on the least eigenvalue of X'X, which decides the ridge, and a third on X'X and X'y each.

    Source
        Wang 2018, Algorithm 2 (Adaptive Sufficient Statistics Perturbation), with rho = .05.
    Privacy
        Three Gaussian releases of standard deviations ``D unit``, unit = ``sqrt(ln(6/delta)) / (epsilon/3)``. Together
        they are ``sqrt(3) / unit``-GDP; that is compared with the exact mu of (epsilon, delta), and unit is enlarged to
        ``sqrt(3) / mu`` where the printed one falls short. The printed D are those of adding or removing a row: R^2 for
        the matrix (upper triangle), R^2 for its least eigenvalue, R Y for X'y, with R and Y the bounds of rows and
        labels. For replaced rows they are ``sqrt(2) R^2`` (``||a a' - b b'||_F^2 <= |a|^4 + |b|^4``), ``R^2`` (the
        eigenvalues of a a' - b b' lie in [-R^2, R^2], Weyl) and ``2 R Y``. Where absent records keep constant columns
        c, ``x x'`` and ``c x'`` change: ``sqrt(|x|^4 + 2 |c|^2 |x|^2)``, and ``RowBounds.change`` for X'y. All times
        the largest weight, plus an allowance for rounding.
    Utility
        The prediction by which plans choose is the mean excess risk over synthetic populations.
    Cost
        As ``SufficientStatistics``, with p^2/2 + p + 1 draws.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, as_printed=True)
    name: str = "adassp-as-printed"
    source: str = "Wang 2018, Algorithm 2"

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        if options.delta == 0:
            return Verdict(False, "Gaussian noise needs delta > 0")
        verdict = judge_statistics(model, options)
        if verdict.eligible and 0 in (model.row.norm(2), model.row.label_bound + model.offset_bound):
            return Verdict(False, "rows or labels that can only be zero: nothing to measure")
        return verdict

    def scales(self, model: PrivateRegression, options: Options) -> Scales:
        """Public facts."""
        row = model.row
        printed = math.sqrt(math.log(6 / options.delta)) / (options.epsilon / 3)
        unit = max(printed, math.sqrt(3) / gaussian_mu(options.epsilon, options.delta))
        whole, moving, fixed = row.norm(2), row.moving(2), row.fixed(2)
        if row.absent:
            matrix = math.sqrt(moving**4 + 2 * (fixed * moving) ** 2)
            eigenvalue = matrix
        else:
            matrix, eigenvalue = math.sqrt(2) * whole**2, whole**2
        rounding = 4 * (model.count + model.size + 4) * 2.0**-53 * model.total * whole**2
        size = row.label_bound + model.offset_bound
        vector = model.gradient_sensitivity(2, size) * (1 + 1e-9)
        if row.absent:  # a (y - o) against (0, c) (0 - o): x (y - o) and c y
            exact = model.largest_weight * math.hypot(moving * size, fixed * row.label_bound)
            vector = exact * (1 + 1e-9) + 4 * (model.count + 4) * 2.0**-53 * model.total * size * whole
        return Scales(
            unit * (model.largest_weight * eigenvalue * (1 + 1e-9) + 8 * model.size * rounding),
            unit * (model.largest_weight * matrix * (1 + 1e-9) + rounding),
            unit * vector,
            unit,
        )

    def ridge(self, scales: Scales, size: int, least: float) -> float:
        """The paper's ridge for a released least eigenvalue."""
        # .05 is the paper's rho: how often its ridge may be too small.
        return max(scales.matrix * math.sqrt(size * math.log(2 * size**2 / 0.05)) - least, 0.0)

    def forecast(self, model: PrivateRegression, options: Options) -> Forecast:
        key = (self, options.epsilon, options.delta, options.beta)
        return model.cached(key, lambda: self._forecast(model, options))

    def _forecast(self, model: PrivateRegression, options: Options) -> Forecast:
        scales = self.scales(model, options)

        def simulate(population: Population, columns: Floats, factor: float, normal: Normals) -> Floats:
            size = population.model.size
            draw = np.triu(normal((size, size)))
            noise = (draw + np.triu(draw, 1).T) * scales.matrix * factor
            exact = float(np.linalg.eigvalsh(population.gram)[0])
            least = self.least(scales, exact + scales.eigenvalue * normal(), options)
            q = population.cross + scales.vector * factor * normal(size)
            P = population.gram + noise + self.ridge(scales, model.size, least) * np.eye(size)
            scale = population.model.scale
            return minimise(population.model, scale * P, scale * q, ROUGH)

        return excess_forecast(
            model,
            options,
            predicted=mean_excess(model, simulate),
            work=f"one pass over X, {model.size * (model.size + 3) // 2 + 1} numbers measured once, one program",
            noise={
                "distribution": "gaussian",
                "eigenvalue": scales.eigenvalue,
                "matrix": scales.matrix,
                "vector": scales.vector,
            },
        )

    @staticmethod
    def least(scales: Scales, released: float, options: Options) -> float:
        """The paper's lower bound on the least eigenvalue: ``max(0, released - deviation sqrt(ln(6 / delta)))``."""
        return max(released - scales.eigenvalue * math.sqrt(math.log(6 / options.delta)), 0.0)

    def run(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        scales = self.scales(model, options)
        progress("summing", 0.1)
        gram, cross = sums(model.read_rows(), model.row.label_bound + model.offset_bound)
        progress("measuring", 0.4)
        exact = PrivateArray(np.asarray(np.linalg.eigvalsh(gram)[:1], dtype=np.float64))
        released = float(noise.gaussian(exact, scales.eigenvalue)[0])
        upper = np.triu_indices(model.size)
        P = np.zeros((model.size, model.size))
        P[upper] = noise.gaussian(gram[upper], scales.matrix)
        P = P + np.triu(P, 1).T
        q = noise.gaussian(cross, scales.vector)
        progress("solving the released program", 0.7)
        start = time.perf_counter()
        P = P + self.ridge(scales, model.size, self.least(scales, released, options)) * np.eye(model.size)
        w = minimise(model, model.scale * P, model.scale * q)
        return Outcome("optimal", w, None, None, seconds=time.perf_counter() - start)


def sums(rows: Rows, largest: float) -> tuple[PrivateArray, PrivateArray]:
    """(p, p) sum omega a a' and (p,) sum omega a (y - o), residual labels cut to ``largest``."""
    residual = rows.labels if rows.offset is None else rows.labels - rows.offset
    return PrivateArray(rows.gram()), PrivateArray(rows.combine(np.clip(residual, -largest, largest)))


ADASSP_AS_PRINTED = AdaSSP()
