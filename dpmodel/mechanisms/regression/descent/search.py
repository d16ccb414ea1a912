"""What descents search their settings with: simulations of many side by side, and the populations they run on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr, ndtri

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.regression.descent.steps import Averaging, Gradient, Settings, StepNoise
from dpmodel.mechanisms.regression.populations import Populations, simulated_reaches
from dpmodel.mechanisms.regression.synthetic import (
    SimulatedRisk,
    populations_of,
    side_by_side,
    simulated_risks,
    weak_risk,
)
from dpmodel.numerics.public_facts import cached
from dpmodel.privacy import public_generator

# (B, p) coefficients for every way of averaging, from populations side by side and a noisy gradient.
Run = Callable[[Populations, Gradient], Mapping[Averaging, Floats]]

# Settings are compared on a coarser grid of predictions than forecasts are made on.
_COARSE = 256
# Derivatives without a bound of their own are tried clipped at these shares of their bound at the labels' size.
_CLIPPED_LOSSES = ("squared", "huber", "squared_hinge")
_CLIPS = (1 / 2, 1 / 4, 1 / 8)
# Populations in which there is less than this share of the others' to be gained do not choose.
_MATTERS = 0.05
_MANY = 1000  # columns up to which other labels are tried on


@cached
def choosing_risks(model: PrivateRegression) -> tuple[SimulatedRisk, ...]:
    """The populations that choose, on a coarse grid. For numeric labels the first (flat spectrum, few true
    coefficients) and the last (falling, all) that matter, each also with skewed noise, which tells what clipped
    derivatives cost, and off the middle of the labels' range; where losses have kinks, also with most labels at the end
    of their range, as counts with many zeros are; and the one of columns that move together."""
    risks = simulated_risks(model)
    nothing = populations_of(model).nothing
    matters = nothing >= _MATTERS * nothing.max() if nothing.max() > 0 else np.isfinite(nothing) | True
    useful = [risk for risk, does in zip(risks, matters, strict=True) if does]
    numeric, out = model.loss.labels == "number", []
    if numeric:
        plain = [risk for risk in useful if not risk.tied] or useful
        useful = [plain[0], *plain[1:][-1:], *(risk for risk in useful if risk.tied and risk is not plain[0])]
    for risk in useful:
        coarse = coarsened(risk)
        out.append(coarse)
        if numeric and not risk.tied and model.size <= _MANY:
            # The same quantiles of an exponential distribution, less its mean; labels in the lower half of their range.
            skewed = -log_ndtr(-coarse.coins)
            low, high = model.row.label
            truth = moved(model, coarse.truth, (3 * low + high) / 4)  # a quarter of the way up their range
            out.append(replace(coarse, coins=skewed - skewed.mean(), truth=truth))
            if math.isinf(model.loss.smoothness):
                out.append(_at_the_end(coarse))
    return tuple(out)


@cached
def choosers(model: PrivateRegression) -> Populations:
    """The same side by side; of numeric labels the last one hardly depends on the columns."""
    weak = [coarsened(weak_risk(model))] if model.loss.labels == "number" else []
    return side_by_side([*choosing_risks(model), *weak])


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


@dataclass(frozen=True)
class Trial:
    """Settings to be simulated, with the noise that they need."""

    noise: StepNoise
    settings: Settings


def simulated(
    trials: Sequence[Trial], populations: Populations, seeds: Sequence[int], run: Run
) -> dict[Averaging, Floats]:
    """(trials, populations) mean excess risk over the seeds of what ``run`` finds, for every way of averaging.

    All descents take the same number of steps and go side by side. Noise is drawn once for each seed, in units of its
    scale: trials and populations are compared under the same noise.
    """
    shape = len(trials), len(seeds), populations.count
    model, metric = populations.model, trials[0].noise.metric
    rows = populations.at(np.tile(np.arange(populations.count), shape[0] * shape[1]))
    each = shape[1] * shape[2]

    def per_row(values: Sequence[float]) -> Floats:
        """(rows, 1)"""
        return np.repeat(np.array(values, dtype=np.float64), each)[:, None]

    laplace = trials[0].noise.order == 1
    sources = [(g.laplace if laplace else g.standard_normal) for g in map(public_generator, seeds)]

    def noise(scale: Floats) -> Floats:
        """(rows, p) noise of these scales (rows, 1), the same for all trials and populations but for that."""
        one = np.array([source(size=model.size) for source in sources])
        out: Floats = scale.reshape(*shape, 1) * one[None, :, None, :]
        return out.reshape(-1, model.size)

    clip = per_row([trial.noise.model.loss.clip for trial in trials])
    scale = model.scale * per_row([trial.noise.simulated_scale for trial in trials])
    middle = model.scale * per_row([trial.noise.middle_scale for trial in trials])
    fixed: Floats | float = noise(middle) if middle.any() else 0.0
    kinds: dict[tuple[float, bool], Callable[[float], float]] = {}  # of the same one the same table

    reaches = simulated_reaches(
        [trial.noise.fixed_reach for trial in trials],
        [kinds.setdefault((each.model.loss.clip, each.share > 0), each.reach_at) for each in (t.noise for t in trials)],
        max(model.row.label_bound, 1.0),
        trials[0].noise.predictions,
    )

    def gradient(w: Floats) -> Floats:
        return metric.sums(rows.gradients(w, clip)) + (fixed + noise(scale * reaches(w)))

    with np.errstate(over="ignore", invalid="ignore"):
        found = {kind: rows.excess(point) for kind, point in run(rows, gradient).items()}
    means = {kind: value.reshape(shape).mean(axis=1) for kind, value in found.items()}
    return {kind: np.where(np.isfinite(value), value, math.inf) for kind, value in means.items()}
