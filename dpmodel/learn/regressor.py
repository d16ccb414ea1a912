"""The regressors, and what they share: labels with declared bounds."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
from sklearn.base import RegressorMixin

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.learn.features import checked, pair_of
from dpmodel.learn.linear_model import PrivateLinearModel, estimator
from dpmodel.marks import Private


@estimator
class PrivateRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """A regressor. Besides the parameters of ``PrivateLinearModel``:

    Parameters
    ----------
    label_bounds : (lo, hi) range of the labels, public and required; labels beyond are clipped.

    Notes
    -----
    Labels are mapped to [-1, 1] (without an intercept: divided by their largest size) and the fit is mapped back.
    """

    label_bounds: Any = None

    def fit(self, X: Any, y: Any) -> PrivateRegressor:
        """Fit the model to rows X (n, p) and labels y (n,) and charge the budget; see the class for errors."""
        self._require_bounds()
        low, high = self._label_range()
        self._check()
        X, y = checked(self, X, y, fitting=True, numeric_y=True)
        middle = low / 2 + high / 2 if self.fit_intercept else 0.0
        mapped = (np.clip(np.asarray(y, dtype=np.float64), low, high) - middle) / self._label_half
        labels = (low - middle) / self._label_half, (high - middle) / self._label_half
        coefficients, intercept = self._fit(X, mapped, labels, self._label_half**self._degree)
        self.coef_: Floats = coefficients * self._label_half
        self.intercept_: float = float(intercept) * self._label_half + middle if self.fit_intercept else 0.0
        self._say()
        return self

    def predict(self, X: Any) -> Floats:
        """(n,) predictions."""
        return self._linear(X)

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

    @property
    def _degree(self) -> int:
        """By which power the loss of small residuals grows with the unit of the label."""
        return 2

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # small data under a small budget has no good private model
        return tags


@estimator
class PrivateLinearRegression(PrivateRegressor):
    """Ordinary least squares: minimise ``sum_i (x_i' w + b - y_i)^2``.

    Parameters
    ----------
    all : see ``PrivateLinearModel`` and ``PrivateRegressor``.
    """

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        return cp.square(z - y), None, []


@estimator
class PrivateRidge(PrivateRegressor):
    """Least squares with a squared penalty: minimise ``sum_i (x_i' w + b - y_i)^2 + alpha ||w||^2``.

    Parameters
    ----------
    alpha : as in ``sklearn.linear_model.Ridge``, for features mapped to [-1, 1]; the intercept is free.
    others : see ``PrivateLinearModel`` and ``PrivateRegressor``.
    """

    alpha: float = 1.0

    def _check(self) -> None:
        self._number("alpha")

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        return cp.square(z - y), self.alpha * unit**2 * cp.sum_squares(w), []


@estimator
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

    radius: float | None = None

    def _check(self) -> None:
        if self.radius is not None:
            self._number("radius", strict=True)

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        radius = self._label_half if self.radius is None else self.radius
        ball = [cp.norm1(w) <= radius / self._label_half / unit]
        # A bounded set has vertices, among which the best private solvers for many features choose.
        return cp.square(z - y), None, ball if b is None else [*ball, b >= -1, b <= 1]


@estimator
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

    threshold: float | None = None
    alpha: float = 0.0001

    def _check(self) -> None:
        self._number("alpha")
        if self.threshold is not None:
            self._number("threshold", strict=True)

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        low, high = self._label_range()
        threshold = (high - low) / 10 if self.threshold is None else self.threshold
        penalty = self.alpha * unit**2 * cp.sum_squares(w)
        return cp.huber(z - y, threshold / self._label_half), penalty, []


@estimator
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

    quantile: float = 0.5
    alpha: float = 0.0

    @property
    def _degree(self) -> int:
        return 1

    def _check(self) -> None:
        self._number("alpha")
        if not 0 < self._number("quantile") < 1:
            raise SpecificationError("PrivateQuantileRegressor: quantile is not in (0, 1)", remedy="quantile=0.5")

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        r = y - z
        penalty = self.alpha * y.shape[0] * unit * cp.norm1(w) if self.alpha else None
        return cp.maximum(self.quantile * r, (self.quantile - 1) * r), penalty, []
