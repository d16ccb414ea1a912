"""Noisy gradient descent itself: one loop for private rows and for simulated ones, and the noise each step needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.regression.rows import Rows
from dpmodel.mechanisms.regression.descent.metric import SEPARABLE, Metric
from dpmodel.mechanisms.regression.public_point import public_point
from dpmodel.mechanisms.spend import Spend
from dpmodel.privacy import NoiseSource, PublicGenerator

_FARTHEST = 1e3  # times the derivative's bound at predictions of the labels' size
# Coordinates end here. Public terms whose derivatives grow fast can throw points to infinity, where 0 times infinity
# tells a row with a zero from others (by an error or a warning); within this every prediction is a finite number.
_EDGE = 1e100


Averaging = Literal["last", "half", "all"]
AVERAGINGS: tuple[Averaging, ...] = ("last", "half", "all")


@dataclass(frozen=True)
class Settings:
    """Public numbers of one descent: ``steps`` T, ``step`` (in the coordinates of the metric, for the gradient of the
    objective), ``momentum`` in [0, 1), ``share`` of the budget that measures the middles (0: derivatives are noised
    whole), what is released: the last point, the mean of the last half, or of all points where gradients were asked;
    and ``clip``, to which derivatives are cut (inf: as the loss has them)."""

    steps: int
    step: float
    momentum: float
    share: float
    averaging: Averaging
    clip: float = math.inf


@dataclass(frozen=True)
class StepNoise:
    """Noise on ``M sum_i omega_i s_i a_i``: what each step needs, and the middles once.

    Privacy
        A step asks at a released point w. The part of the derivative it noises, clipped to ``reach(w)``, is a function
        of record i and of w; one record moves the sums by at most ``sensitivity(reach(w))`` (``Metric.change``), and
        the noise is scaled to exactly that. So whatever was released before, every step is a Gaussian mechanism of the
        same mu (a Laplace mechanism of the same epsilon), which is what adaptive composition asks for: mu^2 (epsilon)
        add up. The scale itself is a function of the released w. ``reach(w) = 0`` means that the part is 0 for all
        rows.
    """

    model: PrivateRegression
    metric: Metric
    spend: Spend
    steps: int
    share: float

    @property
    def order(self) -> float:
        return 1.0 if self.spend.rho is None else 2.0

    def reach(self, w: Floats) -> float:
        """Bound on the part of the derivatives that a step at w noises."""
        model, y = self.model, self.model.row.label_bound
        bound = model.loss.rest_bound if self.share > 0 else model.loss.derivative_bound
        if bound(0.0, y) == bound(math.inf, y):
            return bound(0.0, y)
        if self.metric.exchange is None:
            z = model.row.reach(w) + model.offset_bound
        else:  # sharper, as the constant column has taken the columns' middles
            z = self.metric.row.reach(self.metric.coordinates(w)) + model.offset_bound
        # Predictions are computed with rounding: a little room, so that clipping cuts nothing.
        reach = bound(z * (1 + 1e-9), y)
        # Derivatives may be cut anywhere public: coefficients that noise drove far away must not drive noise to
        # infinity.
        return min(reach, _FARTHEST * bound(max(y, 1.0), y)) if math.isfinite(y) else reach

    def sensitivity(self, reach: float) -> float:
        return self.metric.sensitivity(self.model, reach, self.order)

    def scale(self, reach: float) -> float:
        """Standard deviation (Laplace scale for pure budgets) of the noise on each sum of one step."""
        return self._scale(self.sensitivity(reach), self.spend.part(1 - self.share), self.steps)

    @property
    def middle_scale(self) -> float:
        """The same for the one measurement of the middles."""
        reach = self.model.loss.middle_bound(self.model.row.label_bound)
        return self._scale(self.sensitivity(reach), self.spend.part(self.share), 1) if self.share > 0 else 0.0

    def _scale(self, sensitivity: float, spend: Spend, steps: int) -> float:
        if spend.rho is None:
            return spend.laplace_scale(sensitivity, steps)
        return spend.gaussian_sigma(sensitivity, steps)

    def told(self, settings: Settings) -> dict[str, Any]:
        """What a forecast says of the noise."""
        return {
            "kind": "laplace" if self.order == 1 else "gaussian",
            "steps": settings.steps,
            "step": settings.step,
            "momentum": settings.momentum,
            "released": settings.averaging,
            "derivatives clipped to": settings.clip,
            "scale of each sum in the first step": self.scale(self.reach(public_point(self.model))),
        }

    def draw(self, source: NoiseSource, sums: PrivateArray, scale: float) -> Floats:
        """``sums`` with noise; sums that are 0 for all rows allowed come without."""
        if scale == 0:
            return np.zeros_like(sums)
        return source.laplace(sums, scale) if self.order == 1 else source.gaussian(sums, scale)

    def imagine(self, generator: PublicGenerator, scale: float) -> Floats:
        """(p,) the same noise for simulated rows."""
        if self.order == 1:
            return generator.laplace(0.0, scale, self.model.size)
        return scale * generator.standard_normal(self.model.size)


Gradient = Callable[[Floats], Floats]


def private_gradient(noise: StepNoise, rows: Rows, source: NoiseSource) -> Gradient:
    """w -> noisy gradient of the data part in the metric's coordinates; measures the middles first."""
    model, metric, loss = noise.model, noise.metric, noise.model.loss
    middles, fixed = PrivateArray(np.zeros(rows.count)), np.zeros(model.size)
    if noise.share > 0:
        bound = loss.middle_bound(model.row.label_bound)
        middles = PrivateArray(np.clip(loss.middle(rows.labels), -bound, bound))
        fixed = noise.draw(source, PrivateArray(metric.sums(rows.combine(middles))), noise.middle_scale)

    def gradient(w: Floats) -> Floats:
        reach = noise.reach(w)
        derivatives = np.clip(loss.derivative(rows.predict(w), rows.labels) - middles, -reach, reach)
        sums = PrivateArray(metric.sums(rows.combine(derivatives)))
        return model.scale * (fixed + noise.draw(source, sums, noise.scale(reach)))

    return gradient


def imagined_gradient(noise: StepNoise, gradient: Gradient, generator: PublicGenerator) -> Gradient:
    """The same for a simulated population: ``gradient`` of its data part at w, and noise of the same scale."""
    model, metric = noise.model, noise.metric
    fixed = noise.imagine(generator, noise.middle_scale) if noise.share > 0 else np.zeros(model.size)

    def noisy(w: Floats) -> Floats:
        step = noise.imagine(generator, noise.scale(noise.reach(w)))
        return metric.sums(gradient(w)) + model.scale * (fixed + step)

    return noisy


def descend(
    model: PrivateRegression, metric: Metric, settings: Settings, gradient: Gradient
) -> dict[Averaging, Floats]:
    """Projected descent with Nesterov's momentum from the public point: coefficients, for every way of averaging.

    ``gradient`` : noisy gradient of the data part in the metric's coordinates, at coefficients w. Public terms: the
    quadratic penalty and others by (sub)gradient; the l1 penalty by shrinking where constraints are on single
    coefficients, else by subgradient.
    """
    penalty, domain = model.penalty, model.domain
    shrinks = domain.kind in SEPARABLE and bool(penalty.l1.any())
    projects = domain.kind != "free"
    v = metric.coordinates(public_point(model))
    threshold = settings.step * penalty.l1 * metric.scale
    velocity, requested, reached = np.zeros_like(v), list[Floats](), list[Floats]()
    for _ in range(settings.steps):
        u = v + settings.momentum * velocity
        w = metric.coefficients(u)
        public = penalty.derivative(w) if shrinks else penalty.subgradient(w)
        if shrinks and penalty.other_derivative is not None:
            public = public + penalty.other_derivative(w)
        new = u - settings.step * (gradient(w) + metric.sums(public))
        if shrinks:
            new = np.sign(new) * np.maximum(np.abs(new) - threshold, 0.0)
        new = np.clip(np.where(np.isnan(new), v, new), -_EDGE, _EDGE)
        if projects:
            new = metric.coordinates(domain.project(metric.coefficients(new)))
        velocity, v = new - v, new
        requested.append(u)
        reached.append(v)
    return {name: domain.project(metric.coefficients(end)) for name, end in averages(requested, reached).items()}


def averages(requested: list[Floats], reached: list[Floats]) -> dict[Averaging, Floats]:
    """What may be released of the points where gradients were ``requested`` and those that followed."""
    later = reached[len(reached) // 2 :]
    return {
        "last": reached[-1],
        "half": np.sum(later, axis=0) / len(later),
        "all": np.sum(requested, axis=0) / len(requested),
    }


def curvature(model: PrivateRegression, metric: Metric) -> float:
    """Bound on the second derivative of the objective in the metric's coordinates.

    Where derivatives jump, the second derivative of a mean over many records stands in: jumps of size one spread over
    predictions of the size of the labels (a margin for signs). A choice of step size, no privacy rests on it.
    """
    smoothness = model.loss.smoothness
    if math.isinf(smoothness):
        label = model.row.label_bound
        smoothness = 0.5 if model.loss.labels == "sign" else 2 / label if 0 < label < math.inf else 1.0
    data = model.weight * smoothness * metric.row.norm(2) ** 2
    ridge = model.penalty.ridge
    moved = metric.scale * np.sqrt(ridge)
    public = 2 * float((moved**2).max(initial=0.0))
    if metric.exchange is not None:
        public += 2 * float(ridge[metric.exchange]) * float(np.sum((metric.middle * metric.scale) ** 2))
    return data + public
