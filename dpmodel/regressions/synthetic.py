"""Synthetic regressions drawn from the public bounds, on which mechanisms forecast their error and choose their
settings.

Worst-case bounds choose far too many steps and far too small ones. Drawing data from the public bounds, running the
algorithm on it and keeping the settings that did best is lawful: n, p, bounds, set and budget are all public, so
the choice is a public fact. What it says about other data is a prediction, not a theorem.

Nothing of size n is made: rows are drawn from a distribution with mean ``m`` and covariance ``S``, diagonal or that
plus one common factor, and predictions are known by their distribution (``Populations``). A step costs O(p).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr

from dpmodel._types import Floats, Integers
from dpmodel.numerics.public_facts import cached
from dpmodel.privacy import public_generator
from dpmodel.regressions.features import length
from dpmodel.regressions.losses import sigmoid
from dpmodel.regressions.model import PrivateRegression, public_point, shift_of
from dpmodel.regressions.populations import BALANCE, SIGNAL, ClassPopulations, Labels, Populations, class_truths

_POINTS, _DRAWN = 1024, 1024  # points of the grid; half of them are drawn, from so many
# How many coefficients carry the signal: few or all.
_SUPPORTS = (10, 10_000_000)
# Where numeric labels lie on average, as a share of their range: settings tuned to one level would miss others.
_LEVELS = (0.35, 0.6, 0.5, 0.4, 0.45)
_SHARE = 1 / 3  # standard deviation of a numeric label's signal, as a share of the label's bound
# Standard deviation of what features do not explain, in standard deviations of the signal: little where columns lie at
# the ends of their bounds with a flat spectrum, much where they are uniform and the spectrum falls like 1/k, as in real
# tables.
_LITTLE, _MUCH = 0.3, 1.0
# Correlation of columns that move together, as age and years of work or a column and its square do: what labels depend
# on is then learnt along directions in which columns hardly vary.
_TIED = 0.95
# Ranges of labels are often declared far wider than labels vary, and then columns explain little of such a range: this
# share of the way from the public point to coefficients that fill it.
_WEAK = 0.15


@dataclass(frozen=True)
class SimulatedRisk:
    """The mean loss of one synthetic population, times ``weight``: what the objective's data part would be.

    ``mean`` : (p,) of a row's columns; their covariance is ``diag(variance) + common common'``, (p,) both. ``truth`` :
    (p,) the coefficients labels were made from.
    ``points`` : (k, 2) standard normal, the plane of the predictions of the truth and of w ((k, 2 K) for K scores,
    whose truth is (K p,)); ``coins`` : (k,) standard normal, for labels; ``noise`` : standard deviation of a numeric
    label's noise; ``tied`` : whether columns have a common factor; ``room`` : how many times larger the variance of a
    column could be within its bounds.
    """

    model: PrivateRegression
    mean: Floats
    variance: Floats
    truth: Floats
    points: Floats
    coins: Floats
    noise: float
    common: Floats
    tied: bool = False
    room: float = 1.0

    def covariance(self, w: Floats) -> Floats:
        """(p,) covariance of the columns with the prediction of w."""
        out: Floats = self.variance * w + self.common * float(self.common @ w)
        return out

    def covariance_matrix(self) -> Floats:
        """(p, p)"""
        out: Floats = np.diag(self.variance) + np.outer(self.common, self.common)
        return out

    @cached_property
    def _truth_distribution(self) -> tuple[float, float]:
        own = float(self.truth @ self.covariance(self.truth))
        return float(self.mean @ self.truth), math.sqrt(max(own, 1e-300))

    @cached_property
    def labelled(self) -> tuple[Floats, Floats]:
        """(k,) predictions of the true coefficients and (k,) one draw of labels on the grid."""
        middle, spread = self._truth_distribution
        star = middle + spread * self.points[:, 0]
        low, high = self.model.row.label
        if self.model.loss.labels == "number":
            return star, np.clip(star + self.noise * self.coins, low, high)
        labels: Floats = np.where(ndtr(self.coins) < sigmoid(star), 1.0, self._no)
        return star, labels

    @property
    def _no(self) -> float:
        return -1.0 if self.model.loss.labels == "sign" else 0.0

    @property
    def mixture(self) -> tuple[Labels, ...]:
        """Labels with their weights, (1, k) all: both kinds, where there are two."""
        star, drawn = self.labelled
        if self.model.loss.labels == "number":
            return (Labels(np.ones((1, star.size)), drawn[None]),)
        yes, ones = sigmoid(star)[None], np.ones((1, star.size))
        return Labels(yes, ones), Labels(1 - yes, self._no * ones)

    @cached_property
    def _alone(self) -> Populations:
        return side_by_side([self])

    def value(self, w: Floats) -> float:
        """Data part plus penalty at w."""
        return float(self._alone.values(w[None])[0])

    def gradient(self, w: Floats) -> Floats:
        """(p,) gradient of the data part at w."""
        out: Floats = self._alone.gradients(w[None])[0]
        return out

    def excess(self, w: Floats) -> float:
        """Value above the least that is found."""
        return self.value(w) - self._best

    @cached_property
    def _best(self) -> float:
        return float(self._alone.best[0])

    @cached_property
    def nothing(self) -> float:
        """Excess of the best point that needs no data."""
        return float(self._alone.nothing[0])


def side_by_side(risks: Sequence[SimulatedRisk], labels: Sequence[Floats] | None = None) -> Populations:
    """Populations of one model and grid. ``labels`` : (k,) for each, in place of those that records have by chance."""
    names = ("mean", "variance", "common", "truth")
    taken: dict[str, Any] = {name: np.stack([getattr(risk, name) for risk in risks]) for name in names}
    if risks[0].model.scores > 1:
        return ClassPopulations(risks[0].model, **taken, grid=risks[0].points)
    if labels is not None:
        given: tuple[Labels, ...] = (Labels(np.ones((len(risks), risks[0].points.shape[0])), np.stack(labels)),)
    else:
        kinds = zip(*(risk.mixture for risk in risks), strict=True)
        given = tuple(Labels(np.vstack([e.share for e in kind]), np.vstack([e.value for e in kind])) for kind in kinds)
    along, across = risks[0].points.T
    return Populations(risks[0].model, **taken, along=along, across=across, labels=given)


@cached
def populations_of(model: PrivateRegression) -> Populations:
    """Those of ``simulated_risks``, side by side."""
    return side_by_side(simulated_risks(model))


@cached
def simulated_risks(model: PrivateRegression) -> tuple[SimulatedRisk, ...]:
    """The populations forecasts are averaged over; the same at every call."""
    generator = public_generator(0)
    scores = model.scores
    half = generator.standard_normal((_DRAWN, max(3, 2 * scores)))[: _POINTS // 2]
    grid = np.concatenate([half, -half])  # odd moments vanish
    risks: list[SimulatedRisk] = []
    for decay, share, tied in ((0.0, _LITTLE, False), (1.0, _MUCH, False), (1.0, _MUCH, True)):
        mean, variance = _row_distribution(model, decay)
        room = 3.0 if decay else 1.0  # of a uniform column, up to one at the ends of its bounds
        for support in _SUPPORTS[: 1 if tied else None]:
            order = generator.permutation(model.row.size)
            chosen = _chosen(variance, order, support)
            if tied and not _may_tie(model, chosen):
                continue
            own, common = _tie(variance, chosen if tied else chosen[:0])
            if scores > 1:
                directions = generator.standard_normal((scores, chosen.size))
                truth, points = class_truths(model, mean, own, common, chosen, directions), grid[:, : 2 * scores]
                risks.append(SimulatedRisk(model, mean, own, truth, points, grid[:, 0], 0.0, common, tied))
                continue
            truth = _truth(model, mean, own, common, chosen, order, _LEVELS[len(risks)])
            signal = math.sqrt(float(own @ truth**2) + float(common @ truth) ** 2)
            risks.append(
                SimulatedRisk(model, mean, own, truth, grid[:, :2], grid[:, 2], share * signal, common, tied, room)
            )
    return tuple(risks)


def weak_risk(model: PrivateRegression) -> SimulatedRisk:
    """The first of them with numbers that deviate as much and hardly depend on the columns: what noise costs there."""
    risk, start = simulated_risks(model)[0], public_point(model)
    explained = float(risk.truth @ risk.covariance(risk.truth))
    noise = math.sqrt(risk.noise**2 + (1 - _WEAK**2) * explained)
    return replace(risk, truth=start + _WEAK * (risk.truth - start), noise=noise)


def _chosen(variance: Floats, order: Integers, support: int) -> Integers:
    """The columns that labels depend on."""
    moving = np.flatnonzero(variance > 0)
    out: Integers = moving[np.argsort(order[moving])[:support]]
    return out


def _may_tie(model: PrivateRegression, chosen: Integers) -> bool:
    """Whether these columns can move together: not one alone, nor those of short rows, which exclude each other."""
    sizes = model.row.magnitudes[~model.row.constant]
    # Uniform columns have a third of their largest square on average.
    return chosen.size > 1 and length(sizes) <= math.sqrt(3) * model.row.l2 * (1 + 1e-9)


def _tie(variance: Floats, tied: Integers) -> tuple[Floats, Floats]:
    """(p,) variances of their own and (p,) the common factor of columns of which ``tied`` ones move together."""
    own, common = variance.copy(), np.zeros(variance.size)
    common[tied] = np.sqrt(_TIED * variance[tied])
    own[tied] *= 1 - _TIED
    return own, common


def _row_distribution(model: PrivateRegression, decay: float) -> tuple[Floats, Floats]:
    """Mean and variance of the columns: at the ends of their bounds (no decay) or uniform between them, with a
    spectrum that falls like k^-decay; where the 2-norm does not allow that, mostly zero."""
    row = model.row
    low, high = np.where(np.isfinite(row.lower), row.lower, -1.0), np.where(np.isfinite(row.upper), row.upper, 1.0)
    mean, variance = (low + high) / 2, (high - low) ** 2 / (4 if decay == 0 else 12)
    moving = ~row.constant
    fall = np.where(moving, np.maximum(np.cumsum(moving), 1.0) ** -decay, 0.0)
    square = mean**2 + variance
    if not math.isfinite(row.l2) or float(square[moving].sum()) <= row.l2**2:
        return mean, variance * fall
    # Rows as short as that are sparse, as one-hot rows are: column k is zero except with probability f_k.
    f = np.minimum(fall * row.l2**2 / float((square * fall)[moving].sum()), 1.0)
    return np.where(moving, mean * f, mean), np.where(moving, square * f - (mean * f) ** 2, 0.0)


def _truth(
    model: PrivateRegression,
    mean: Floats,
    variance: Floats,
    common: Floats,
    chosen: Integers,
    order: Integers,
    level: float,
) -> Floats:
    """Coefficients of equal effect on the ``chosen`` columns, as large as labels (or the set) leave room for, and an
    intercept (or coefficients along the columns' means) that puts numbers at ``level`` of their range on average."""
    v = np.zeros(model.size)
    v[chosen] = np.where(order[chosen] % 2 == 0, 1.0, -1.0)
    if common.any():  # of two signs in turn, so that what they do along the factor cancels
        v[chosen] = np.resize([1.0, -1.0], chosen.size) / np.sqrt(variance[chosen])
    constant = (model.row.constant & (model.row.lower != 0)).any()
    numbers, (low, high) = model.loss.labels == "number", model.row.label
    half = (high - low) / 2 if constant else model.row.label_bound
    wanted = (_SHARE * half if math.isfinite(half) else 1.0) if numbers else SIGNAL
    # Without an intercept the mean of a numeric signal is a part of it.
    part = float(mean @ v) if numbers and not constant else 0.0
    size = math.sqrt(max(float(variance @ v**2) + float(common @ v) ** 2 + part**2, 1e-300))
    v = _inside(model, v * wanted / size)
    aim = BALANCE if not numbers else low + level * (high - low) if math.isfinite(high - low) else 0.0
    if not numbers or constant:
        v = v + shift_of(model, mean) * (aim - float(mean @ v))
    return model.domain.project(v)


def _inside(model: PrivateRegression, v: Floats) -> Floats:
    """v scaled towards 0 into the norms of the set, so that projecting does not change its direction."""
    factor = 1.0
    for order in (1.0, 2.0, math.inf):
        limit, size = model.domain.norm(order), float(np.linalg.norm(v, ord=order))
        if math.isfinite(limit) and size > limit:
            factor = min(factor, limit / size)
    return v * factor
