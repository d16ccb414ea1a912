"""Least squares near the fit, absolute values far from it."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from dpmodel.annotate import Private
from dpmodel.annotate.records import Neighbors
from dpmodel.learn.regressor import PrivateRegressor
from dpmodel.privacy import Budget


class PrivateHuberRegressor(PrivateRegressor):
    """Robust regression: minimise ``sum_i huber(x_i' w + b - y_i) + alpha ||w||^2``.

    ``huber(r) = r^2`` up to ``threshold`` and ``2 threshold |r| - threshold^2`` beyond.

    Parameters
    ----------
    threshold : in units of the label; ``epsilon`` is the privacy parameter here and not the threshold, as it is in
        ``sklearn.linear_model.HuberRegressor``, and no scale is estimated. None: a tenth of the width of
        ``label_bounds``.
    alpha : as in scikit-learn, for features mapped to [-1, 1].
    others : see ``PrivateLinearModel`` and ``PrivateRegressor``.
    """

    def __init__(
        self,
        *,
        threshold: float | None = None,
        alpha: float = 0.0001,
        epsilon: float = 1.0,
        delta: float = 0.0,
        bounds: Any = None,
        max_l2: float | None = None,
        label_bounds: Any = None,
        neighbors: Neighbors = "replace-one",
        budget: Budget | None = None,
        fit_intercept: bool = True,
        mechanism: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.threshold = threshold
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.max_l2 = max_l2
        self.label_bounds = label_bounds
        self.neighbors = neighbors
        self.budget = budget
        self.fit_intercept = fit_intercept
        self.mechanism = mechanism
        self.random_state = random_state

    def _check(self) -> None:
        self._number("alpha")
        if self.threshold is not None:
            self._number("threshold", strict=True)

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        low, high = self._label_range()
        threshold = (high - low) / 10 if self.threshold is None else self._number("threshold", strict=True)
        penalty = self._number("alpha") * unit**2 * cp.sum_squares(w)
        return cp.huber(z - y, threshold / self._label_half), penalty, []
