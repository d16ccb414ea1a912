"""Linear support vector classification."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from dpmodel.annotate import Private
from dpmodel.annotate.records import Neighbors
from dpmodel.errors import SpecificationError
from dpmodel.learn.classifier import PrivateClassifier
from dpmodel.privacy import Budget


class PrivateLinearSVC(PrivateClassifier):
    """Linear support vectors: minimise ``C sum_i max(0, 1 - y_i (x_i' w + b)) + ||w||^2 / 2`` for labels -1 and 1.

    Parameters
    ----------
    C : as in ``sklearn.linear_model.LinearSVC``, for features mapped to [-1, 1] (rows of norm 1 with ``max_l2``).
    loss : "hinge" (the default: one record's slope is at most 1 whatever w is) or "squared_hinge".
    others : see ``PrivateLinearModel`` and ``PrivateClassifier``. The intercept is not penalised (scikit-learn's is).
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        loss: str = "hinge",
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
        self.loss = loss
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

    def _check(self) -> None:
        self._number("C", strict=True)
        if not isinstance(self.loss, str) or self.loss not in ("hinge", "squared_hinge"):
            raise SpecificationError("PrivateLinearSVC: unknown loss", remedy="loss='hinge' or loss='squared_hinge'")

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        penalty = unit**2 / (2 * self._number("C", strict=True)) * cp.sum_squares(w)
        hinges = cp.pos(1 - cp.multiply(y, z))
        return hinges if self.loss == "hinge" else cp.square(hinges), penalty, []
