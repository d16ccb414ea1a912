"""The best point that needs no data: what regressions start from, are compared with, and fall back to."""

from __future__ import annotations

import math

import numpy as np

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.numerics.public_facts import cached

_TRIED = 21  # points between the set's centre and the best constant prediction


def public_point(model: PrivateRegression) -> Floats:
    """(p,) the point of the set whose objective can be largest by the least, of those between the set's centre and the
    one that predicts the best constant. Public facts only.

    The best constant c minimises the largest loss over labels in [lo, hi]: their middle for losses of ``|z - y|``,
    ``tau hi + (1 - tau) lo`` for quantiles (there ``tau (hi - c) = (1 - tau)(c - lo)``), 0 for two classes or more. An
    intercept predicts it, or else coefficients along the middles of the columns.
    """
    return _search(model).copy()


def public_excess(model: PrivateRegression) -> float:
    """What the public point can lose against the best of the set, on any data that the declarations allow; inf where
    linear or other penalties leave no least one. Losses are not negative, nor are ridge and l1 terms."""
    penalty = model.penalty
    if penalty.linear.any() or penalty.other is not None:
        return math.inf
    return _worst(model, public_point(model)) - penalty.constant


def objective_range(model: PrivateRegression) -> float:
    """What any point of the set can lose: the largest objective less the least; inf where no bound is known."""
    penalty, reach = model.penalty, model.prediction_bound
    if not math.isfinite(reach) or penalty.linear.any() or penalty.other is not None:
        return math.inf
    public = float(penalty.ridge.max(initial=0.0)) * model.domain.norm(2.0) ** 2 if penalty.ridge.any() else 0.0
    public += float(penalty.l1.max(initial=0.0)) * model.domain.norm(1.0) if penalty.l1.any() else 0.0
    return model.weight * _largest_loss(model, -reach, reach) + public


def shift_of(model: PrivateRegression, mean: Floats) -> Floats:
    """(p,) what adds 1 to the prediction of a row of these columns: the intercept, or else coefficients along it."""
    anchors, out = np.flatnonzero(model.row.constant & (model.row.lower != 0)), np.zeros(model.row.size)
    if anchors.size:
        out[anchors[0]] = 1.0 / model.row.lower[anchors[0]]
    elif mean.any():
        size = float(np.abs(mean).max())  # so that squares neither overflow nor vanish
        unit = mean / size
        out = unit / float(unit @ unit) / size
    return out


@cached
def _search(model: PrivateRegression) -> Floats:
    center = np.asarray(model.domain.center(), dtype=np.float64)
    if model.scores > 1:
        return center  # equal chances of all classes, where the set allows them
    low, high = model.row.lower, model.row.upper
    middle = np.where(np.isfinite(low) & np.isfinite(high), low / 2 + high / 2, 0.0)
    with np.errstate(all="ignore"):
        moved = center + shift_of(model, middle) * (_best_constant(model) - float(middle @ center))
        if not np.isfinite(moved).all() or (moved == center).all():
            return center
        moved = model.domain.project(moved)
        points = [center + t * (moved - center) for t in np.linspace(0.0, 1.0, _TRIED)[1:-1]]
        # The centre where nothing is gained; rounding must not move it either.
        best, least = center, _worst(model, center) * (1 - 1e-9)
        for point in (*points, moved):
            if (worst := _worst(model, point)) < least:
                best, least = point, worst
    return best


def _best_constant(model: PrivateRegression) -> float:
    (low, high), (least, most) = model.row.label, model.offset_range
    low, high = low - most, high - least  # of what is left to predict
    if model.loss.labels != "number" or not math.isfinite(high - low):
        return 0.0
    share = model.loss.parameter if model.loss.name == "quantile" else 0.5
    return share * high + (1 - share) * low


def _worst(model: PrivateRegression, w: Floats) -> float:
    """Largest objective at w over the rows and labels allowed."""
    return model.weight * _largest_loss(model, *_predictions(model, w)) + model.penalty.value(w)


def _predictions(model: PrivateRegression, w: Floats) -> tuple[float, float]:
    """Lowest and highest prediction of w over the rows and offsets allowed (missing records only move a zero row)."""
    row, fixed = model.row, model.row.constant
    if model.scores > 1:
        spread = float(model.reaches(w[None])[0])
        return -spread, spread
    base, u = float(row.lower[fixed] @ w[fixed]), w[~fixed]
    with np.errstate(invalid="ignore"):
        ends = np.stack([np.where(u == 0, 0.0, row.lower[~fixed] * u), np.where(u == 0, 0.0, row.upper[~fixed] * u)])
    moving = np.where(fixed, 0.0, w)
    reach = row.reach(moving)  # by the norms of rows, where these say more than columns
    low, high = max(float(ends.min(axis=0).sum()), -reach), min(float(ends.max(axis=0).sum()), reach)
    return base + low + model.offset_range[0], base + high + model.offset_range[1]


def _largest_loss(model: PrivateRegression, low: float, high: float) -> float:
    """Largest loss of a prediction in [low, high]."""
    return model.loss.largest(low, high, model.row.label)
