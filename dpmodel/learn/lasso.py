"""Least squares in a 1-norm ball."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from dpmodel.annotate import Private
from dpmodel.annotate.records import Neighbors
from dpmodel.learn.regressor import PrivateRegressor
from dpmodel.privacy import Budget


class PrivateLasso(PrivateRegressor):
    """Least squares with the 1-norm of the coefficients at most ``radius``: few features count.

    minimise ``(1/n) sum_i (x_i' w + b - y_i)^2`` subject to ``||w||_1 <= radius``.

    The intercept is kept where the prediction for the middle of the features' bounds lies within ``label_bounds``.

    The ball, not a penalty: over it the error of private fits grows with the logarithm of the number of features only
    (Talwar, Thakurta and Zhang 2015, "Nearly Optimal Private LASSO"), and which penalty belongs to which ball depends
    on the data.

    Parameters
    ----------
    radius : in units of the label, for features mapped to [-1, 1]: how far all features together can move a prediction
        from the intercept. None: half the width of ``label_bounds`` (the largest size, without an intercept).
    others : see ``PrivateLinearModel`` and ``PrivateRegressor``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpmodel.learn import PrivateLasso
    >>> lasso = PrivateLasso(epsilon=1.0, bounds=(0, 100), label_bounds=(0, 10), radius=5)
    """

    def __init__(
        self,
        *,
        radius: float | None = None,
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
        self.radius = radius
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
        if self.radius is not None:
            self._number("radius", strict=True)

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        radius = self._label_half if self.radius is None else self._number("radius", strict=True)
        ball = [cp.norm1(w) <= radius / self._label_half / unit]
        # A bounded set has vertices, among which the best private solvers for many features choose.
        return cp.square(z - y), None, ball if b is None else [*ball, b >= -1, b <= 1]
