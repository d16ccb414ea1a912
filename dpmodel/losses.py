"""The losses that private regressions are solved for, each as the CVXPY expression that is read as it.

``cp.Minimize(dpm.losses.logistic(X @ w + b, y) + cp.norm1(w))`` is the model of
``cp.Minimize(cp.sum(cp.logistic(-cp.multiply(y, X @ w + b))) + cp.norm1(w))``. Other spellings of a loss
are read too; who writes these need not know any.

All are sums over the records of one loss each. ``prediction`` : (n,) affine in the variables, ``X @ w + b``; ``labels``
: (n,) a ``Private`` of unit "entry", a column of a private table, or public numbers; ``weights`` : (n,) public and
non-negative, one number (``1 / n`` for the mean), or a ``Private`` of unit "entry" with ``bounds=[0, W]``.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.errors import SpecificationError

__all__ = [
    "absolute",
    "binary_logistic",
    "hinge",
    "huber",
    "logistic",
    "quantile",
    "softmax",
    "squared",
    "squared_hinge",
]


def squared(prediction: Any, labels: Any, weights: Any = 1.0) -> cp.Expression:
    """``sum_i weights_i (prediction_i - labels_i)^2``: least squares."""
    return _summed(cp.square(_residual(prediction, labels)), weights)


def absolute(prediction: Any, labels: Any, weights: Any = 1.0) -> cp.Expression:
    """``sum_i weights_i |prediction_i - labels_i|``: the median of what is left."""
    return _summed(cp.abs(_residual(prediction, labels)), weights)


def huber(prediction: Any, labels: Any, threshold: float = 1.0, weights: Any = 1.0) -> cp.Expression:
    """``sum_i weights_i h(r_i)`` of the residuals r: ``r^2`` up to the threshold M, ``2 M |r| - M^2`` beyond.

    CVXPY's, which is twice scikit-learn's.
    """
    if not threshold > 0:
        raise SpecificationError(
            f"threshold={threshold:g}", why="Huber's threshold is positive", remedy="threshold=1.0"
        )
    return _summed(cp.huber(_residual(prediction, labels), threshold), weights)


def quantile(prediction: Any, labels: Any, level: float = 0.5, weights: Any = 1.0) -> cp.Expression:
    """``sum_i weights_i max(level u_i, (level - 1) u_i)`` of ``u = labels - prediction``: the loss of quantiles.

    At ``level=0.5`` it is half the absolute loss.
    """
    if not 0 < level < 1:
        raise SpecificationError(f"level={level:g}", why="a quantile's level lies in (0, 1)", remedy="level=0.5")
    below = -_residual(prediction, labels)
    return _summed(cp.maximum(level * below, (level - 1) * below), weights)


def logistic(prediction: Any, labels: Any, weights: Any = 1.0) -> cp.Expression:
    """``sum_i weights_i ln(1 + e^(-labels_i prediction_i))`` for labels -1 and 1."""
    return _summed(cp.logistic(-_margin(prediction, labels)), weights)


def binary_logistic(prediction: Any, labels: Any, weights: Any = 1.0) -> cp.Expression:
    """``sum_i weights_i (ln(1 + e^prediction_i) - labels_i prediction_i)`` for labels 0 and 1, or chances between."""
    return _summed(cp.logistic(prediction) - _margin(prediction, labels), weights)


def hinge(prediction: Any, labels: Any, weights: Any = 1.0) -> cp.Expression:
    """``sum_i weights_i max(0, 1 - labels_i prediction_i)`` for labels -1 and 1."""
    return _summed(cp.pos(1 - _margin(prediction, labels)), weights)


def squared_hinge(prediction: Any, labels: Any, weights: Any = 1.0) -> cp.Expression:
    """``sum_i weights_i max(0, 1 - labels_i prediction_i)^2`` for labels -1 and 1."""
    return _summed(cp.square(cp.pos(1 - _margin(prediction, labels))), weights)


def softmax(scores: Any, labels: Any, weights: Any = 1.0) -> cp.Expression:
    """``sum_i weights_i (ln sum_k e^scores_ik - <labels_i, scores_i>)``: the multinomial loss of K classes.

    ``scores`` : (n, K), ``X @ W + b`` with a column of W and an entry of b for each class. ``labels`` : (n, K) one-hot
    rows, a ``Private`` of unit "row".
    """
    if scores.ndim != 2 or tuple(labels.shape) != tuple(scores.shape):
        raise _shapes(scores, labels, "scores of K classes and one-hot rows of labels are (n, K) each")
    number = _weights(weights, scores.shape[0])
    if number.ndim == 0:
        return number * (cp.sum(cp.log_sum_exp(scores, axis=1)) - cp.sum(cp.multiply(labels, scores)))
    return number @ cp.log_sum_exp(scores, axis=1) - number @ cp.sum(cp.multiply(labels, scores), axis=1)


def _residual(prediction: Any, labels: Any) -> Any:
    return prediction - _fitting(prediction, labels)


def _margin(prediction: Any, labels: Any) -> Any:
    return cp.multiply(_fitting(prediction, labels), prediction)


def _fitting(prediction: Any, labels: Any) -> Any:
    """The labels; SpecificationError where CVXPY would broadcast them: (n, 1) with (n,) is (n, n)."""
    labels = labels if isinstance(labels, cp.Expression) else np.asarray(labels, dtype=np.float64)
    if tuple(labels.shape) != tuple(prediction.shape):
        raise _shapes(prediction, labels, "each record has one prediction and one label")
    return labels


def _shapes(prediction: Any, labels: Any, why: str) -> SpecificationError:
    return SpecificationError(
        f"predictions of shape {tuple(prediction.shape)} and labels of shape {tuple(labels.shape)}",
        why=why,
        remedy="X @ w with w (p,) beside labels (n,), or W (p, 1) beside labels (n, 1)",
    )


def _summed(losses: Any, weights: Any) -> cp.Expression:
    number = _weights(weights, losses.size)
    if number.ndim == 0:
        return number * cp.sum(losses)
    return number @ (losses if losses.ndim == 1 else cp.reshape(losses, (losses.size,), order="F"))


def _weights(weights: Any, count: int) -> Any:
    number = weights if isinstance(weights, cp.Expression) else np.asarray(weights, dtype=np.float64)
    if number.ndim > 1 or number.size not in (1, count):
        raise SpecificationError(
            f"weights of shape {tuple(number.shape)} for {count} records",
            why="weights are one number for each record, or one for all",
            remedy=f"shape ({count},), or 1 / {count} for the mean",
        )
    return number.reshape(()) if isinstance(number, np.ndarray) and number.size == 1 else number
