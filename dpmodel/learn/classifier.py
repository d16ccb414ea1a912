"""The classifiers, and what they share: two public classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from dpmodel._types import Floats
from dpmodel.annotate import Private
from dpmodel.annotate.elements import array_of, elements, key, refuse_united
from dpmodel.errors import SpecificationError
from dpmodel.learn.data import checked
from dpmodel.learn.linear_model import PrivateLinearModel, estimator


@estimator
class PrivateClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """A classifier for two classes. Besides the parameters of ``PrivateLinearModel``:

    Parameters
    ----------
    classes : the two labels (negative, positive), which are public and required; or "public" to say that it is
        public knowledge which two labels occur in y, and to read them off there.

    Attributes
    ----------
    classes_ : (2,) the labels. ``coef_`` : (1, p), ``intercept_`` : (1,).
    """

    classes: Any = None

    def fit(self, X: Any, y: Any) -> PrivateClassifier:
        """Fit the model to rows X (n, p) and labels y (n,) and charge the budget; see the class for errors."""
        self._require_bounds()
        if self.classes is None:
            raise SpecificationError(
                f"{type(self).__name__} has no classes",
                why="a label that only one record has would tell that the record is there",
                remedy="classes=(negative, positive), or classes='public' if it is public which labels occur",
            )
        self._check()
        given = y
        X, y = checked(self, X, y, fitting=True)
        classes, signs = classes_and_signs(self, given, y)
        coefficients, intercept = self._fit(X, signs, (-1.0, 1.0))
        self.classes_ = classes
        self.coef_: Floats = coefficients[None, :]
        self.intercept_: Floats = np.array([intercept])
        return self

    def decision_function(self, X: Any) -> Floats:
        """(n,) linear predictions; positive for ``classes_[1]``."""
        return self._linear(X)

    def predict(self, X: Any) -> Any:
        """(n,) labels."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(np.intp)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # small data under a small budget has no good private model
        return tags


@estimator
class PrivateLogisticRegression(PrivateClassifier):
    """Logistic regression: minimise ``C sum_i ln(1 + exp(-y_i (x_i' w + b))) + ||w||^2 / 2`` for labels -1 and 1.

    Parameters
    ----------
    C : as in ``sklearn.linear_model.LogisticRegression``, for features mapped to [-1, 1] (rows of norm 1 with
        ``max_l2``); the intercept is free.
    others : see ``PrivateLinearModel`` and ``PrivateClassifier``.
    """

    C: float = 1.0

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
        penalty = unit**2 / (2 * self.C) * cp.sum_squares(w)
        return cp.logistic(-cp.multiply(y, z)), penalty, []


@estimator
class PrivateLinearSVC(PrivateClassifier):
    """Linear support vectors: minimise ``C sum_i max(0, 1 - y_i (x_i' w + b)) + ||w||^2 / 2`` for labels -1 and 1.

    Parameters
    ----------
    C : as in ``sklearn.linear_model.LinearSVC``, for features mapped to [-1, 1] (rows of norm 1 with ``max_l2``).
    loss : "hinge" (the default: one record's derivative is at most 1 whatever w is) or "squared_hinge".
    others : see ``PrivateLinearModel`` and ``PrivateClassifier``. The intercept is not penalised (scikit-learn's is).
    """

    C: float = 1.0
    loss: str = "hinge"

    def _check(self) -> None:
        self._number("C", strict=True)
        if not isinstance(self.loss, str) or self.loss not in ("hinge", "squared_hinge"):
            raise SpecificationError("PrivateLinearSVC: unknown loss", remedy="loss='hinge' or loss='squared_hinge'")

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        penalty = unit**2 / (2 * self.C) * cp.sum_squares(w)
        hinges = cp.pos(1 - cp.multiply(y, z))
        return hinges if self.loss == "hinge" else cp.square(hinges), penalty, []


def classes_and_signs(estimator: Any, given: Any, y: Any) -> tuple[Any, Floats]:
    """(2,) the classes, and (n,) -1 or 1 for each label of ``given``, looked up by itself; ``y``: as an array."""
    classes = _two_classes(estimator, y)
    number = {key(classes[0]): -1.0, key(classes[1]): 1.0}
    labels = given if getattr(given, "ndim", 0) == 1 else np.ravel(array_of(given))
    refuse_united(labels, elements(classes), f"{type(estimator).__name__}: y")
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "biuf":
        # The same for equal numbers: each is looked up once.
        found, which = np.unique(labels, return_inverse=True)
        signs = np.array([number.get(key(label), 0.0) for label in found.tolist()])[which]
    else:
        signs = np.array([number.get(key(label), 0.0) for label in elements(labels)])
    if (signs == 0).any():
        raise SpecificationError(
            f"{type(estimator).__name__}: y holds labels that are not among the two classes",
            why="Only binary classification is supported",
            remedy="classes=(negative, positive) as they stand in y",
        )
    return classes, signs


def _two_classes(estimator: Any, y: Any) -> Any:
    """(2,) the public classes; of objects where an array would change one of them."""
    where = type(estimator).__name__
    if not isinstance(estimator.classes, str):
        both = elements(estimator.classes) if isinstance(estimator.classes, Iterable) else []
        if len(both) != 2 or key(both[0]) == key(both[1]):
            raise SpecificationError(f"{where}: classes are not two different labels", remedy="classes=(0, 1)")
        classes = np.asarray(both)
        if [key(label) for label in elements(classes)] != [key(label) for label in both]:
            classes = np.empty(2, dtype=object)
            classes[:] = both
        return classes
    if estimator.classes != "public":
        raise SpecificationError(f"{where}: classes is neither a pair nor 'public'", remedy="classes=(0, 1)")
    kind = type_of_target(y, input_name="y")
    failure = None
    try:
        check_classification_targets(y)
    except ValueError as error:
        failure = str(error).splitlines()[0]
    if failure is not None:
        raise SpecificationError(failure, remedy="two classes")
    found = np.unique(y)
    if kind != "binary":
        raise SpecificationError(
            f"{where}: y holds more than two classes. Only binary classification is supported. "
            f"The type of the target is {kind}.",
            why="the losses are of one prediction per record",
            remedy="two classes: one against the rest, each with a share of the budget",
        )
    if found.size < 2:
        raise SpecificationError(
            f"{where}: y holds one class only",
            why="with classes='public' both must occur in y",
            remedy="classes=(negative, positive)",
        )
    return found
