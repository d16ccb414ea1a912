"""Made-up regressions drawn from the public bounds, on which mechanisms forecast their error and choose their settings.

Worst-case bounds choose far too many steps and far too small ones. Drawing data from the public bounds, running the
algorithm on it and keeping the settings that did best is lawful: n, p, bounds, set and budget are all public, so
the choice is a public fact. What it says about other data is a prediction, not a theorem.

Nothing of size n is made: rows are drawn from a law with mean ``m`` and diagonal covariance ``S``; predictions at w
and at the true coefficients v are then (nearly) jointly normal, and Stein's identity gives the gradient of the
mean loss, ``E[phi'(z, y) a] = m E[phi'] + S (alpha w + beta v)``, from the moments of phi' over a fixed grid of a
few thousand points of that plane. A step costs O(p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.affine_map import Floats, Integers
from dpmodel.privacy import public_generator

_POINTS = 2048
# Shares of the spectrum of features: flat, and falling like 1/k, as real tables do.
_DECAYS = (0.0, 1.0)
# How many coefficients carry the signal: few or all.
_SUPPORTS = (10, 10_000_000)
_SIGNAL = 2.0  # deviation of the log-odds of binary labels under the true coefficients
_SHARE = 1 / 3  # deviation of a numeric label's signal, as a share of the label's bound
_NOISE = 1.0  # deviation of what features do not explain, in deviations of the signal


@dataclass(frozen=True)
class SimulatedRisk:
    """The mean loss of one made-up population, times ``weight``: what the objective's data part would be.

    ``mean``, ``variance`` : (p,) of a row's columns; ``truth`` : (p,) the coefficients labels were made from.
    ``z``, ``labels`` : the plane's standard normal points (k, 2) and a label maker.
    """

    model: PrivateRegression
    mean: Floats
    variance: Floats
    truth: Floats
    points: Floats
    coins: Floats
    noise: float

    @property
    def weight(self) -> float:
        return self.model.weight

    @cached_property
    def _truth_law(self) -> tuple[float, float]:
        return float(self.mean @ self.truth), math.sqrt(max(float(self.variance @ self.truth**2), 1e-300))

    @cached_property
    def _labelled(self) -> tuple[Floats, Floats]:
        """(k,) predictions of the true coefficients and (k,) labels on the grid."""
        middle, spread = self._truth_law
        star = middle + spread * self.points[:, 0]
        low, high = self.model.row.label
        if self.model.loss.labels == "number":
            return star, np.clip(star + self.noise * self.coins, low, high)
        sigmoid: Floats = 0.5 * (1 + np.tanh(0.5 * star))
        hit = _normal_cdf(self.coins) < sigmoid
        labels: Floats = np.where(hit, 1.0, -1.0 if self.model.loss.labels == "sign" else 0.0)
        return star, labels

    def _plane(self, w: Floats) -> tuple[Floats, float, float, float]:
        """(k,) predictions of w on the grid, its mean, and its covariances with the truth and with itself."""
        _, spread = self._truth_law
        middle = float(self.mean @ w)
        both, own = float(self.variance @ (w * self.truth)), float(self.variance @ (w * w))
        along = both / spread
        across = math.sqrt(max(own - along * along, 0.0))
        return middle + along * self.points[:, 0] + across * self.points[:, 1], middle, both, own

    def value(self, w: Floats) -> float:
        """Data part plus penalty at w."""
        z, *_ = self._plane(w)
        _, y = self._labelled
        return self.weight * float(self.model.loss.value(z, y).mean()) + self.model.penalty.value(w)

    def gradient(self, w: Floats) -> Floats:
        """(p,) gradient of the data part at w."""
        z, middle, _, own = self._plane(w)
        star, y = self._labelled
        slope = self.model.loss.slope(z, y)
        center, spread = self._truth_law
        both = float(self.variance @ (w * self.truth))
        # Least squares of phi' on (z, z*): Stein's identity in a form that needs no derivative of phi'.
        target = np.array([float((slope * (z - middle)).mean()), float((slope * (star - center)).mean())])
        matrix = np.array([[own, both], [both, spread * spread]])
        alpha, beta = np.linalg.pinv(matrix, rcond=1e-9) @ target
        out: Floats = self.weight * (self.mean * float(slope.mean()) + self.variance * (alpha * w + beta * self.truth))
        return out

    def excess(self, w: Floats) -> float:
        """Value above the least along the ray of the true coefficients."""
        return self.value(w) - self._best

    @cached_property
    def _best(self) -> float:
        # The truth is not the minimiser of every loss (margins grow on, medians move), but nearly along its ray.
        ray = (self.model.domain.project(t * self.truth) for t in (1.0, *np.geomspace(0.01, 10, 41)))
        return min(self.value(w) for w in ray)

    @cached_property
    def nothing(self) -> float:
        """Excess of the best point that needs no data: the set's centre."""
        return self.excess(self.model.domain.center())


def simulated_risks(model: PrivateRegression) -> tuple[SimulatedRisk, ...]:
    """The populations forecasts are averaged over; the same at every call."""
    return model.remember("simulated risks", lambda: _draw(model))


def _draw(model: PrivateRegression) -> tuple[SimulatedRisk, ...]:
    generator = public_generator(0)
    half = generator.standard_normal((_POINTS // 2, 3))
    grid = np.concatenate([half, -half])  # odd moments vanish
    risks = []
    for decay in _DECAYS:
        mean, variance = _row_law(model, decay)
        for support in _SUPPORTS:
            truth = _truth(model, mean, variance, support, generator.permutation(model.size))
            signal = math.sqrt(float(variance @ truth**2))
            risks.append(SimulatedRisk(model, mean, variance, truth, grid[:, :2], grid[:, 2], _NOISE * signal))
    return tuple(risks)


def _row_law(model: PrivateRegression, decay: float) -> tuple[Floats, Floats]:
    """Mean and variance of the columns: uniform between their bounds, within the declared norms, and with a
    spectrum that falls like k^-decay."""
    row = model.row
    low, high = np.where(np.isfinite(row.lower), row.lower, -1.0), np.where(np.isfinite(row.upper), row.upper, 1.0)
    mean, variance = (low + high) / 2, (high - low) ** 2 / 12
    moving = ~row.constant
    order = np.cumsum(moving)
    variance = variance * np.where(moving, np.maximum(order, 1.0) ** -decay, 0.0)
    second = float((mean[moving] ** 2 + variance[moving]).sum())
    if math.isfinite(row.l2) and second > row.l2**2:
        shrink = row.l2 / math.sqrt(second)
        mean, variance = np.where(moving, mean * shrink, mean), variance * shrink**2
    return mean, variance


def _truth(model: PrivateRegression, mean: Floats, variance: Floats, support: int, order: Integers) -> Floats:
    """Coefficients of equal effect on ``support`` columns, as large as labels (or the set) leave room for."""
    moving = np.flatnonzero(variance > 0)
    chosen = moving[np.argsort(order[moving])[:support]]
    v = np.zeros(model.size)
    v[chosen] = np.where(order[chosen] % 2 == 0, 1.0, -1.0)
    # An intercept takes the mean of the signal away; without one it is part of the signal.
    constant = np.flatnonzero(model.row.constant & (model.row.lower != 0))
    if constant.size:
        v[constant[0]] = -float(mean @ v) / model.row.lower[constant[0]]
    spread = math.sqrt(max(float(variance @ v**2) + float(mean @ v) ** 2, 1e-300))
    if model.loss.labels == "number":
        bound = model.row.label_bound
        wanted = _SHARE * bound if math.isfinite(bound) else 1.0
    else:
        wanted = _SIGNAL
    v *= wanted / spread
    return model.domain.project(_inside(model, v))


def _inside(model: PrivateRegression, v: Floats) -> Floats:
    """v scaled towards 0 into the norms of the set, so that projecting does not change its direction."""
    factor = 1.0
    for order in (1.0, 2.0, math.inf):
        limit, size = model.domain.norm(order), float(np.linalg.norm(v, ord=order))
        if math.isfinite(limit) and size > limit:
            factor = min(factor, limit / size)
    return v * factor


def _normal_cdf(t: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(t))
