"""What the classifiers share: two public classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from dpmodel.errors import SpecificationError
from dpmodel.learn.data import checked
from dpmodel.learn.features import Floats
from dpmodel.learn.linear_model import PrivateLinearModel


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
        X, y = checked(self, X, y, fitting=True)
        classes = self._classes(y)
        signs = np.where(y == classes[1], 1.0, -1.0)
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

    def _check(self) -> None:
        """Refuse impossible parameters."""

    def _classes(self, y: Any) -> Any:
        where = type(self).__name__
        if not isinstance(self.classes, str):
            classes = np.asarray(self.classes)
            if classes.shape != (2,) or classes[0] == classes[1]:
                raise SpecificationError(f"{where}: classes are not two different labels", remedy="classes=(0, 1)")
            if not np.isin(y, classes).all():
                raise SpecificationError(
                    f"{where}: y holds labels that are not among the two classes",
                    why="Only binary classification is supported",
                    remedy="classes=(negative, positive) as they stand in y",
                )
            return classes
        if self.classes != "public":
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # small data under a small budget has no good private model
        return tags
