"""Ordinary least squares."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from dpmodel.annotate import Private
from dpmodel.annotate.records import Neighbors
from dpmodel.learn.regressor import PrivateRegressor
from dpmodel.privacy import Budget


class PrivateLinearRegression(PrivateRegressor):
    """Ordinary least squares: minimise ``sum_i (x_i' w + b - y_i)^2``.

    Parameters
    ----------
    all : see ``PrivateLinearModel`` and ``PrivateRegressor``.
    """

    def __init__(
        self,
        *,
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

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        return cp.square(z - y), None, []
