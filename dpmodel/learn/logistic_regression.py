"""Logistic regression for two classes."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
from scipy.special import expit

from dpmodel.annotate import Private
from dpmodel.annotate.records import Neighbors
from dpmodel.learn.classifier import PrivateClassifier
from dpmodel.privacy import Budget


class PrivateLogisticRegression(PrivateClassifier):
    """Logistic regression: minimise ``C sum_i ln(1 + exp(-y_i (x_i' w + b))) + ||w||^2 / 2`` for labels -1 and 1.

    Parameters
    ----------
    C : as in ``sklearn.linear_model.LogisticRegression``, for features mapped to [-1, 1] (rows of norm 1 with
        ``max_l2``); the intercept is free.
    others : see ``PrivateLinearModel`` and ``PrivateClassifier``.
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        epsilon: float = 1.0,
        delta: float = 0.0,
        bounds: Any = None,
        max_l2: float | None = None,
        classes: Any = None,
        neighbors: Neighbors = "replace-one",
        budget: Budget | None = None,
        fit_intercept: bool = True,
        mechanism: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.max_l2 = max_l2
        self.classes = classes
        self.neighbors = neighbors
        self.budget = budget
        self.fit_intercept = fit_intercept
        self.mechanism = mechanism
        self.random_state = random_state

    def predict_proba(self, X: Any) -> Any:
        """(n, 2) probabilities of ``classes_`` under the fitted model."""
        positive = expit(self.decision_function(X))
        return np.column_stack([1 - positive, positive])

    def predict_log_proba(self, X: Any) -> Any:
        """(n, 2) logarithms of the probabilities."""
        z = self.decision_function(X)
        return -np.column_stack([np.logaddexp(0, z), np.logaddexp(0, -z)])

    def _check(self) -> None:
        self._number("C", strict=True)

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        penalty = unit**2 / (2 * self._number("C", strict=True)) * cp.sum_squares(w)
        return cp.logistic(-cp.multiply(y, z)), penalty, []
