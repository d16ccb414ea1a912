"""A private multinomial regression: K linear scores of a record, and one loss of them all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression


@dataclass(frozen=True)
class PrivateMultinomial(PrivateRegression):
    """minimise ``scale * sum_i omega_i loss(W a_i, y_i) + penalty(W)`` over W in ``domain``, loss ``losses.Softmax``.

    As ``PrivateRegression``, for W (K, p) as the vector of its rows, (K p,): so are ``domain`` and ``penalty``, while
    ``row`` bounds the p features that all scores share. Derivatives are vectors (K,), their size is a norm; what
    stands for the size of predictions, on which the derivative depends, is the largest difference of two scores.
    """

    @property
    def scores(self) -> int:
        return self.loss.scores

    @cached_property
    def prediction_bound(self) -> float:
        """Largest difference of two scores over the set and the rows allowed; inf where the set is unbounded."""
        norms = (self.domain.norm(order) for order in (1.0, 2.0, math.inf))
        return 2 * self.row.prediction_bound(*norms)

    def reaches(self, w: Floats) -> Floats:
        return self.row.spreads(w.reshape(-1, self.scores, self.row.size))

    @cached_property
    def derivative_bound(self) -> float:
        """Largest 2-norm of the derivative: less than sqrt(2)."""
        return self.loss.derivative_bound(self.prediction_bound, 1.0)

    def gradient_sensitivity(self, order: float, reach: float | None = None) -> float:
        """How far one record moves ``sum_i omega_i s_i a_i'``, as the vector of its entries, for s_i (K,) of norm at
        most ``reach`` in the same order (default: the loss's derivative)."""
        if reach is None:
            reach = self.loss.measured(order).derivative_bound(self.prediction_bound, 1.0)
        return super().gradient_sensitivity(order, reach)
