"""What descents search their settings with: a line search of few trials, and the populations it runs on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from scipy.special import log_ndtr, ndtri

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.regression.descent.steps import Averaging, Gradient, Settings, StepNoise, imagined_gradient
from dpmodel.mechanisms.regression.synthetic import SimulatedRisk, simulated_risks
from dpmodel.numerics.public_facts import cached
from dpmodel.privacy import public_generator

# Coefficients for every way of averaging, from settings and a noisy gradient.
Descend = Callable[[Settings, Gradient], Mapping[Averaging, Floats]]

# Settings are compared on a coarser grid of predictions than forecasts are made on.
_COARSE = 512
# Derivatives without a bound of their own are tried clipped at these shares of their bound at the labels' size.
_CLIPPED_LOSSES = ("squared", "huber", "squared_hinge")
_CLIPS = (1 / 2, 1 / 4, 1 / 8)
# Populations in which there is less than this share of the others' to be gained do not choose.
_MATTERS = 0.05


def line_search(risk: Callable[[float], float], start: float, moves: int = 8) -> float:
    """A local minimum of ``risk`` among start times powers of two: by factors of 4, then one of 2.

    About six trials. Values that are not numbers count as infinite.
    """
    best, value = start, risk(start)
    for factor in (0.25, 4.0):
        moved = False
        for _ in range(moves):
            other = risk(best * factor)
            if not other < value:
                break
            best, value, moved = best * factor, other, True
        if moved:
            break
    for factor in (0.5, 2.0):
        if (other := risk(best * factor)) < value:
            return best * factor
    return best


@cached
def choosing_risks(model: PrivateRegression) -> tuple[SimulatedRisk, ...]:
    """The populations that choose, on a coarse grid. For numeric labels the first (flat spectrum, few true
    coefficients) and the last (falling, all) that matter, each also with skewed noise, which tells what clipped
    derivatives cost, and off the middle of the labels' range; where losses have kinks, also with most labels at the end
    of their range, as counts with many zeros are; and the one of columns that move together."""
    risks = simulated_risks(model)
    most = max(risk.nothing for risk in risks)
    useful = [risk for risk in risks if risk.nothing >= _MATTERS * most] if most > 0 else list(risks)
    numeric, out = model.loss.labels == "number", []
    if numeric:
        plain = [risk for risk in useful if not risk.tied] or useful
        useful = [plain[0], *plain[1:][-1:], *(risk for risk in useful if risk.tied and risk is not plain[0])]
    for risk in useful:
        coarse = coarsened(risk)
        out.append(coarse)
        if numeric and not risk.tied:
            # The same quantiles of an exponential distribution, less its mean; labels in the lower half of their range.
            skewed = -log_ndtr(-coarse.coins)
            low, high = model.row.label
            truth = moved(model, coarse.truth, (3 * low + high) / 4)  # a quarter of the way up their range
            out.append(replace(coarse, coins=skewed - skewed.mean(), truth=truth))
            if math.isinf(model.loss.smoothness):
                out.append(_at_the_end(coarse))
    return tuple(out)


def extreme_risks(model: PrivateRegression) -> tuple[SimulatedRisk, ...]:
    """The first of them with columns at the ends of their bounds, three times the variance, where norms allow it:
    the largest curvature that steps may meet."""
    risk = choosing_risks(model)[0]
    second = float((risk.mean**2 + 3 * (risk.variance + risk.common**2))[~model.row.constant].sum())
    wider = replace(risk, variance=3 * risk.variance, common=math.sqrt(3) * risk.common)
    return (wider,) if second <= model.row.l2**2 * (1 + 1e-9) else ()


def coarsened(risk: SimulatedRisk) -> SimulatedRisk:
    """The population on a coarser grid."""
    half = risk.points.shape[0] // 2
    part = np.r_[0 : _COARSE // 2, half : half + _COARSE // 2]
    return replace(risk, points=risk.points[part], coins=risk.coins[part])


def _at_the_end(risk: SimulatedRisk) -> SimulatedRisk:
    """Labels moved down until so many are cut to the lowest that the quantile asked for is one of them. There the loss
    is not flat at its least point, and noise in the coefficients costs much more than elsewhere."""
    model, share = risk.model, risk.model.loss.parameter if risk.model.loss.name == "quantile" else 0.5
    spread = math.sqrt(float(risk.truth @ risk.covariance(risk.truth)) + risk.noise**2)
    aim = model.row.label[0] - float(ndtri((1 + share) / 2)) * spread
    return replace(risk, truth=moved(model, risk.truth, aim - float(risk.mean @ risk.truth)))


def moved(model: PrivateRegression, truth: Floats, by: float) -> Floats:
    """``truth`` with predictions moved, where an intercept can do that."""
    anchors = np.flatnonzero(model.row.constant & (model.row.lower != 0))
    if not anchors.size or not math.isfinite(by):
        return truth
    moved = truth.copy()
    moved[anchors[0]] += by / model.row.lower[anchors[0]]
    return model.domain.project(moved)


def clips(model: PrivateRegression) -> list[float]:
    """Sizes to try cutting derivatives to."""
    label = model.row.label_bound
    if model.loss.name not in _CLIPPED_LOSSES or not 0 < label < math.inf:
        return []
    bound = model.loss.derivative_bound(min(model.prediction_bound, label), label)
    return [share * bound for share in _CLIPS]


def clipped(model: PrivateRegression, clip: float) -> PrivateRegression:
    """The same model under the loss with derivatives cut to ``clip``."""
    if clip >= model.loss.clip:
        return model
    return replace(model, loss=replace(model.loss, clip=clip), _memo={})


def simulated_excess(
    noise: StepNoise, settings: Settings, risk: SimulatedRisk, seed: int, descend: Descend
) -> dict[Averaging, float]:
    """Excess risk on a population of what ``descend`` finds under this noise, for every way of averaging."""
    seen = risk if noise.model.loss is risk.model.loss else replace(risk, model=noise.model)
    gradient = imagined_gradient(noise, seen.gradient, public_generator(seed))
    with np.errstate(over="ignore", invalid="ignore"):
        found = {kind: risk.excess(point) for kind, point in descend(settings, gradient).items()}
    return {kind: value if math.isfinite(value) else math.inf for kind, value in found.items()}
