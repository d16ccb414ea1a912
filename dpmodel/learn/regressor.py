"""What the regressors share: labels with declared bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.learn.data import checked
from dpmodel.learn.features import pair_of
from dpmodel.learn.linear_model import PrivateLinearModel


class PrivateRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """A regressor. Besides the parameters of ``PrivateLinearModel``:

    Parameters
    ----------
    label_bounds : (lo, hi) range of the labels, public and required; labels beyond are clipped.

    Notes
    -----
    Labels are mapped to [-1, 1] (without an intercept: divided by their largest size) and the fit is mapped back.
    """

    def fit(self, X: Any, y: Any) -> PrivateRegressor:
        """Fit the model to rows X (n, p) and labels y (n,) and charge the budget; see the class for errors."""
        self._require_bounds()
        low, high = self._label_range()
        self._check()
        X, y = checked(self, X, y, fitting=True, numeric_y=True)
        middle = low / 2 + high / 2 if self.fit_intercept else 0.0
        mapped = (np.clip(np.asarray(y, dtype=np.float64), low, high) - middle) / self._label_half
        labels = (low - middle) / self._label_half, (high - middle) / self._label_half
        coefficients, intercept = self._fit(X, mapped, labels)
        self.coef_: Floats = coefficients * self._label_half
        self.intercept_: float = intercept * self._label_half + middle if self.fit_intercept else 0.0
        return self

    def predict(self, X: Any) -> Floats:
        """(n,) predictions."""
        return self._linear(X)

    def _check(self) -> None:
        """Refuse impossible parameters."""

    def _label_range(self) -> tuple[float, float]:
        where = type(self).__name__
        if self.label_bounds is None:
            raise SpecificationError(
                f"{where} has no label_bounds",
                why="how far one label moves the fit must be known without looking at the data",
                remedy="label_bounds=(lo, hi)",
            )
        return pair_of(self.label_bounds, "label_bounds", where)

    @property
    def _label_half(self) -> float:
        """What a label of size 1 in the fitted model stands for."""
        low, high = self._label_range()
        return high / 2 - low / 2 if self.fit_intercept else max(abs(low), abs(high))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # small data under a small budget has no good private model
        return tags
