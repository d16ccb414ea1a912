"""Half-spaces: a linear classifier that is right, exactly, on all but a few records of separable data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.learn.classifier import PrivateClassifier, classes_and_places, require_classes
from dpmodel.learn.data import checked
from dpmodel.learn.exact_release import keep_release
from dpmodel.learn.linear_model import _rng
from dpmodel.linalg.feasible_point import feasible_point
from dpmodel.marks.records import Neighbors
from dpmodel.models.exact_rows import checked_margin
from dpmodel.privacy import Budget

_ROW = "one row of A"  # what feasible_point calls a record


class HalfspaceClassifier(PrivateClassifier):
    """Find w and b with ``y_i (x_i'w + b) >= 0`` for nearly all records, for data that a half-space separates.

    Each record, features and label together, is one inequality, and ``linalg.feasible_point`` solves the system
    (KMMST24, sections 2.3 and 4). A record's row ``(x_i, s)`` is divided by its own norm, which depends on that record
    alone, so features need no bounds and nothing is clipped.

    Parameters
    ----------
    margin : rho0 in (0, 1], required: the public promise that some unit vector (w, b / s) has
        ``y_i (x_i'w + b) / ||(x_i, s)|| >= rho0`` for all records. With ``||x_i|| <= R``, a unit w, ``|b| <= R``, every
        record at least g on its side of the hyperplane and s = R, rho0 = g / (2 R) is enough. Where it is broken,
        more records may be on the wrong side than stated; privacy does not depend on it.
    epsilon, delta, neighbors, classes, budget, mechanism, random_state, progress : see ``PrivateLinearModel`` and
        ``PrivateClassifier``. Here the number of rows is private under "add-remove".
    fit_intercept : whether there is a b. ``intercept_scaling`` : s, a public size of the rows.
    expected : a public guess of the number of records, for forecasts under "add-remove".
    beta : probability with which the accuracy statement may fail.

    Attributes
    ----------
    classes_, coef_, intercept_, n_features_in_, feature_names_in_, guarantee_, release_, plan_ : as in
        ``PrivateClassifier``. ``release_.status`` is "nothing" where nothing was found; then all coefficients are zero
        and the first class is predicted everywhere. ``error_forecast_`` : the share of the records that may be
        misclassified by the plan's forecast (nan: no statement).

    Notes
    -----
    Generalisation: a half-space found privately from m examples of a distribution has risk
    L_D <= e^(2 epsilon) (L_S + O(ln(1/delta)) / (epsilon m)) except with probability O(delta) (KMMST24, Theorem 5, with
    the 1/m that the proof of Theorem C uses and the print lacks), where L_S is at most ``error_forecast_``.
    Records exactly on the hyperplane count as
    satisfied and are predicted as the first class; without an intercept so are rows of zeros.

    Raises
    ------
    SpecificationError, UnsupportedModelError, BudgetExceededError
        By ``fit``, before anything is spent: no margin or one outside (0, 1], NaN, wrong shapes, unusable labels, a
        public number of records that is too small for any statement.
    """

    _most_classes = 2

    def __init__(
        self,
        *,
        margin: float | None = None,
        epsilon: float = 1.0,
        delta: float = 0.0,
        classes: Any = None,
        neighbors: Neighbors = "replace-one",
        budget: Budget | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        expected: int | None = None,
        beta: float = 0.05,
        mechanism: Any = "auto",
        random_state: Any = None,
        progress: Any = None,
    ) -> None:
        self.margin = margin
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.neighbors = neighbors
        self.budget = budget
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.expected = expected
        self.beta = beta
        self.mechanism = mechanism
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any) -> HalfspaceClassifier:
        """Fit the model to rows X (n, p) and labels y (n,) and charge the budget; see the class for errors."""
        require_classes(self)
        self._check()
        given = y
        X, y = checked(self, X, y, fitting=True)
        classes, places = classes_and_places(self, given, y)
        signs, count = np.where(places, 1.0, -1.0), X.shape[1]
        with self._counted() as budget:
            point = feasible_point(
                _rows(X, signs, self._scale),
                epsilon=self.epsilon,
                delta=self.delta,
                margin=self.margin,
                neighbors=self.neighbors,
                budget=budget,
                expected=self.expected,
                beta=self.beta,
                mechanism=self.mechanism,
                rng=_rng(self.random_state),
                progress=self.progress,
            )
        w = np.zeros(count + 1)
        if point.x is not None:
            w[: len(point.x)] = point.x
        self.classes_ = classes
        self.coef_: Floats = w[None, :count].copy()
        self.intercept_: Floats = w[count:] * self._scale
        guarantee = replace(point.guarantee, record=point.guarantee.record.replace(_ROW, "one row of X with its label"))
        keep_release(self, replace(point, guarantee=guarantee), {}, point.expected, "records")
        self._say(classes[1:])
        return self

    @property
    def _scale(self) -> float:
        """The entry that stands for the intercept; 0 without one."""
        return float(self.intercept_scaling) if self.fit_intercept else 0.0

    def _check(self) -> None:
        if self.margin is None:
            raise SpecificationError(
                "HalfspaceClassifier has no margin",
                why="without a public promise of room between the classes no number of records is enough",
                remedy="margin=0.1, or another classifier of dpmodel.learn where the data are not separable",
            )
        self._number("intercept_scaling", strict=True)
        checked_margin(self.margin, "HalfspaceClassifier: ")


def _rows(X: Any, signs: Floats, scale: float) -> Any:
    """(n, p) or (n, p + 1): ``-y_i (x_i, scale)``, dense or CSR."""
    if sp.issparse(X):
        rows = sp.csr_array(sp.diags_array(-signs) @ sp.csr_array(X))
        return sp.csr_array(sp.hstack([rows, sp.csr_array(-signs[:, None] * scale)])) if scale else rows
    rows = -signs[:, None] * X
    return np.column_stack([rows, -signs * scale]) if scale else rows
