"""Quantile regression."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from dpmodel.annotate import Private
from dpmodel.annotate.records import Neighbors
from dpmodel.errors import SpecificationError
from dpmodel.learn.regressor import PrivateRegressor
from dpmodel.privacy import Budget


class PrivateQuantileRegressor(PrivateRegressor):
    """Quantile regression: minimise ``(1/n) sum_i pinball(y_i - x_i' w - b) + alpha ||w||_1``.

    ``pinball(r) = quantile * max(r, 0) + (1 - quantile) * max(-r, 0)``; the median's is half the absolute value.

    Parameters
    ----------
    quantile : in (0, 1).
    alpha : as in ``sklearn.linear_model.QuantileRegressor``, for features mapped to [-1, 1]. The default is 0 and not
        scikit-learn's 1, which sets all coefficients of features of this size to zero.
    others : see ``PrivateLinearModel`` and ``PrivateRegressor``.
    """

    def __init__(
        self,
        *,
        quantile: float = 0.5,
        alpha: float = 0.0,
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
        self.quantile = quantile
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
        if not 0 < self._number("quantile") < 1:
            raise SpecificationError("PrivateQuantileRegressor: quantile is not in (0, 1)", remedy="quantile=0.5")

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        r = y - z
        alpha = self._number("alpha")
        penalty = alpha * y.shape[0] * unit * cp.norm1(w) if alpha else None
        return cp.maximum(self.quantile * r, (self.quantile - 1) * r), penalty, []
