"""The classifiers, and what they share: public classes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from dpmodel._types import Floats, Integers
from dpmodel.errors import SpecificationError
from dpmodel.learn.costs import called
from dpmodel.learn.features import Weights, checked, weights_of
from dpmodel.learn.linear_model import PrivateLinearModel, estimator
from dpmodel.marks import Private
from dpmodel.marks.domain import array_of, elements, key, refuse_united
from dpmodel.text import number


@estimator
class PrivateClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """A classifier. Besides the parameters of ``PrivateLinearModel``:

    Parameters
    ----------
    classes : the labels, (negative, positive) or more, which are public and required; or "public" to say that it is
        public knowledge which labels occur in y, and to read them off there.
    class_weight : {label: weight}, public; 1 for labels that are left out. Not "balanced", which takes private numbers.

    Attributes
    ----------
    classes_ : (K,) the labels. ``coef_`` : (1, p), ``intercept_`` : (1,) for two classes; (K, p), (K,) for more.

    Notes
    -----
    K > 2 classes, each against the rest, are K models fitted within one budget: one release, whose risk is the sum of
    the K risks. Labels become an (n, K) matrix of -1 and 1, whose rows belong to the records as the rows of X do;
    ``regressions/each_output`` has the privacy argument. The multinomial model of
    ``PrivateLogisticRegression`` is one model of all classes: ``regressions/descent``.
    """

    classes: Any = None
    class_weight: Any = None
    _most_classes: ClassVar[float] = math.inf

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> PrivateClassifier:
        """Fit the model to rows X (n, p) and labels y (n,) and charge the budget; see the class for errors.

        ``groups`` : (n,) ids of the people whose rows they are, where people have several: of each the first counts.
        ``sample_weight`` : (n,) weights of the records, as ``max_weight`` declares them.
        """
        self._require_bounds()
        require_classes(self)
        self._check()
        X, y, sample_weight = self._of_people(groups, X, y, sample_weight)
        given = y
        X, y = checked(self, X, y, fitting=True)
        classes, places = classes_and_places(self, given, y, self._most_classes)
        weights = weights_of(sample_weight, self.max_weight, X.shape[0], called(self))
        weights = self._with_those_of_classes(weights, classes, places)
        if len(classes) == 2:
            coefficients, intercept = self._fit(X, 2.0 * places - 1.0, (-1.0, 1.0), weights)
        else:
            coefficients, intercept = self._fit_several(X, places[:, None] == np.arange(len(classes)), weights)
        self.classes_ = classes
        self.coef_: Floats = np.atleast_2d(coefficients.T)
        self.intercept_: Floats = np.atleast_1d(intercept)
        self._say(classes if len(classes) > 2 else classes[1:])
        return self

    def _fit_several(self, X: Any, one_hot: Any, weights: Weights | None) -> tuple[Floats, Floats]:
        """Coefficients (p, K) and intercepts (K,) for labels (n, K), True for the class of a record."""
        return self._fit(X, np.where(one_hot, 1.0, -1.0), (-1.0, 1.0), weights)

    def _with_those_of_classes(self, weights: Weights | None, classes: Any, places: Integers) -> Weights | None:
        """Times those of the records' classes, which are as private as the labels.

        Raises
        ------
        SpecificationError
            For "balanced", classes that are not there, and weights that are not numbers of at least 0.
        """
        given, where = self.class_weight, called(self)
        if given is None:
            return weights
        if not isinstance(given, Mapping):
            k, labels = len(classes), list(elements(classes))[:3]  # an example to be copied, of shares that are made up
            parts = [f"{each!r}: 1 / ({k} * {number(0.2 / (k - 1) if i else 0.8)})" for i, each in enumerate(labels)]
            raise SpecificationError(
                f"{where}: class_weight is no {{label: weight}}",
                why="'balanced' weighs by how many records a class has, and these numbers are private",
                remedy=f"1/(K share) by public shares of the K classes: class_weight={{{', '.join(parts)}}}; or by "
                "noisy numbers that were paid for: dpm.measure(Dataset(frame, domain={'label': classes}).count("
                "by='label'), epsilon=0.1)",
            )
        found = {key(label): weight for label, weight in given.items()}
        unknown = set(found) - {key(label) for label in elements(classes)}
        each = np.array([found.get(key(label), 1.0) for label in elements(classes)])
        if unknown or each.dtype.kind not in "iuf" or not np.isfinite(each).all() or each.min() < 0 or each.max() == 0:
            raise SpecificationError(
                f"{where}: class_weight is no {{label: weight}} of the classes, with numbers of at least 0",
                remedy="a positive number for each class; 1 for those that are left out",
            )
        mine = each[places] * (1.0 if weights is None else weights.each)
        return Weights(mine, float(each.max()) * (1.0 if weights is None else weights.largest))

    def decision_function(self, X: Any) -> Floats:
        """(n,) linear predictions, positive for ``classes_[1]``; of more than two classes (n, K), one of each."""
        scores = self._linear(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Any:
        """(n,) labels."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._most_classes > 2 and self.classes != "public"
        tags.classifier_tags.poor_score = True  # small data under a small budget has no good private model
        return tags


@estimator
class PrivateLogisticRegression(PrivateClassifier):
    """Logistic regression: minimise ``C sum_i ln(1 + exp(-y_i (x_i' w + b))) + ||w||^2 / 2`` for labels -1 and 1.

    Parameters
    ----------
    C : as in ``sklearn.linear_model.LogisticRegression``, for features mapped to [-1, 1] (rows of norm 1 with
        ``max_l2``); the intercept is free.
    multi_class : of more than two classes, "multinomial" (scikit-learn's model): one model of all, which minimises
        ``C sum_i (ln sum_k exp(z_ik) - z_ik[k = y_i]) + ||W||^2 / 2`` with ``z_ik = x_i' w_k + b_k``; or "ovr": each
        against the rest, which more mechanisms serve (see ``PrivateClassifier``). Their risks are of different losses,
        so no plan compares them.
    others : see ``PrivateLinearModel`` and ``PrivateClassifier``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpmodel.learn import PrivateLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(20_000, 2))
    >>> y = np.where(X[:, 0] > 6, "Bonn", np.where(X[:, 1] > 6, "Jena", "Ulm"))
    >>> towns = PrivateLogisticRegression(
    ...     bounds=(0, 10), classes=("Bonn", "Jena", "Ulm"), delta=1e-6, mechanism="noisy-descent"
    ... ).fit(X, y)
    >>> towns.coef_.shape, towns.predict_proba([[9, 1]]).argmax()
    ((3, 2), np.int64(0))
    """

    C: float = 1.0
    multi_class: str = "multinomial"

    def predict_proba(self, X: Any) -> Any:
        """(n, K) probabilities of ``classes_`` under the fitted model; where each of more than two was fitted against
        the rest, divided by their sum."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Any:
        """(n, K) logarithms of the probabilities."""
        z = self.decision_function(X)
        if z.ndim == 1:
            return -np.column_stack([np.logaddexp(0, z), np.logaddexp(0, -z)])
        each = z if self.multi_class == "multinomial" else -np.logaddexp(0, -z)
        return each - logsumexp(each, axis=1, keepdims=True)

    def _check(self) -> None:
        self._number("C", strict=True)
        if not isinstance(self.multi_class, str) or self.multi_class not in ("ovr", "multinomial"):
            raise SpecificationError(
                "PrivateLogisticRegression: unknown multi_class", remedy="multi_class='multinomial' or 'ovr'"
            )

    def _fit_several(self, X: Any, one_hot: Any, weights: Weights | None) -> tuple[Floats, Floats]:
        if self.multi_class == "ovr":
            return super()._fit_several(X, one_hot, weights)
        return self._fit(X, one_hot.astype(np.float64), (0.0, 1.0), weights, max_l1=1.0)

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        penalty = unit**2 / (2 * self.C) * cp.sum_squares(w)
        if z.ndim == 2 and self.multi_class == "multinomial":
            return cp.log_sum_exp(z, axis=1) - cp.sum(cp.multiply(y, z), axis=1), penalty, []
        return cp.logistic(-cp.multiply(y, z)), penalty, []


@estimator
class PrivateLinearSVC(PrivateClassifier):
    """Linear support vectors: minimise ``C sum_i max(0, 1 - y_i (x_i' w + b)) + ||w||^2 / 2`` for labels -1 and 1.

    More than two classes: of each against the rest (see ``PrivateClassifier``).

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


def require_classes(estimator: Any) -> None:
    """Before the data is looked at."""
    if estimator.classes is None:
        raise SpecificationError(
            f"{called(estimator)} has no classes",
            why="a label that only one record has would tell that the record is there",
            remedy="classes=(negative, positive), or classes='public' if it is public which labels occur",
        )


def flat(given: Any) -> Any:
    """(n,) labels, each with its own type."""
    return given if getattr(given, "ndim", 0) == 1 else np.ravel(array_of(given))


def classes_and_places(estimator: Any, given: Any, y: Any, most: float = 2) -> tuple[Any, Integers]:
    """(K,) the classes, at most ``most``, and (n,) the place of each label of ``given`` among them.

    ``y`` : the labels as an array.
    """
    classes = _classes(estimator, y, most)
    labels = flat(given)
    refuse_united(labels, elements(classes), f"{called(estimator)}: y")
    places = places_of(labels, classes)
    if (places < 0).any():
        binary = "Only binary classification is supported" if most == 2 else "each label is looked up in them"
        raise SpecificationError(
            f"{called(estimator)}: y holds labels that are not among the {number(len(classes))} classes",
            why=binary,
            remedy="classes=(negative, positive) as they stand in y" if most == 2 else "classes= all that y may hold",
        )
    return classes, places


def places_of(labels: Any, classes: Any) -> Integers:
    """(n,) the place of each label among the classes, -1 for none: each is looked up by itself."""
    place = {key(label): i for i, label in enumerate(elements(classes))}
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "biuf":
        # The same for equal numbers: each is looked up once.
        found, which = np.unique(labels, return_inverse=True)
        return np.array([place.get(key(label), -1) for label in found.tolist()], dtype=np.int64)[which]
    return np.array([place.get(key(label), -1) for label in elements(labels)], dtype=np.int64)


def _classes(estimator: Any, y: Any, most: float) -> Any:
    """(K,) the public classes; of objects where an array would change one of them."""
    where = called(estimator)
    if not isinstance(estimator.classes, str):
        listed = elements(estimator.classes) if isinstance(estimator.classes, Iterable) else []
        if not 2 <= len(listed) <= most or len({key(label) for label in listed}) < len(listed):
            few = "two different labels" if most == 2 else "two or more different labels"
            raise SpecificationError(f"{where}: classes are not {few}", remedy="classes=(0, 1)")
        classes = np.asarray(listed)
        if classes.ndim != 1 or [key(label) for label in elements(classes)] != [key(label) for label in listed]:
            classes = np.empty(len(listed), dtype=object)
            classes[:] = listed
        return classes
    if estimator.classes != "public":
        raise SpecificationError(f"{where}: classes is neither a list nor 'public'", remedy="classes=(0, 1)")
    kind = type_of_target(y, input_name="y")
    failure = None
    try:
        check_classification_targets(y)
    except ValueError as error:
        failure = str(error).splitlines()[0]
    if failure is not None:
        raise SpecificationError(failure, remedy="classes")
    found = np.unique(y)
    if kind != "binary":
        # One record more of a third class would turn everybody's label into a row of signs.
        raise SpecificationError(
            f"{where}: y holds more than two classes. Only binary classification is supported with classes='public'. "
            f"The type of the target is {kind}.",
            why="what one record holds would decide how all others are read",
            remedy="classes=[...], all that y may hold" if most > 2 else "two classes",
        )
    if found.size < 2:
        raise SpecificationError(
            f"{where}: y holds one class only",
            why="with classes='public' two or more must occur in y",
            remedy="classes=(negative, positive)",
        )
    return found
