"""More than two classes: one multinomial model, or each against the rest, in one release and one budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from walking import assert_no_trace

import dpmodel as dpm
from dpmodel.learn import HalfspaceClassifier, PrivateLinearSVC, PrivateLogisticRegression

N = 20_000
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, size=(N, 2))
# By the side of the square that is nearest to its middle.
TOWNS = np.array(["Bonn", "Jena", "Ulm"])
Y = TOWNS[np.argmax(np.column_stack([X @ [1, 0], X @ [0, 1], 12 - X.sum(axis=1)]), axis=1)]
GIVEN: dict[str, Any] = {
    "bounds": (0, 10),
    "epsilon": 4.0,
    "delta": 1e-6,
    "classes": ("Ulm", "Bonn", "Jena"),
    "mechanism": "noisy-descent",
    "random_state": 0,
}
OVR = {"multi_class": "ovr"}
KINDS = [(PrivateLogisticRegression, {}), (PrivateLogisticRegression, OVR), (PrivateLinearSVC, {})]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "how"), KINDS)
def test_three_classes(kind: Any, how: dict[str, Any]) -> None:
    budget = dpm.Budget(4, 1e-6)
    fitted = kind(**GIVEN | how, budget=budget).fit(pd.DataFrame(X, columns=["east", "north"]), Y)
    frame = pd.DataFrame(X, columns=["east", "north"])
    assert fitted.classes_.tolist() == ["Ulm", "Bonn", "Jena"]  # the declared order
    assert fitted.coef_.shape == (3, 2) and fitted.intercept_.shape == (3,)
    assert fitted.score(frame, Y) > 0.85
    scores = fitted.decision_function(frame)
    assert scores.shape == (N, 3)
    np.testing.assert_allclose(scores, X @ fitted.coef_.T + fitted.intercept_)
    np.testing.assert_array_equal(fitted.predict(frame), fitted.classes_[scores.argmax(axis=1)])
    assert fitted.guarantee_.epsilon == 4 and len(budget.history) == 1
    multinomial = kind is PrivateLogisticRegression and not how
    assert ("all 3 outputs together" in fitted.release_.accuracy.statement) != multinomial
    assert fitted.release_.labels["coef"] == (("class", ("Ulm", "Bonn", "Jena")), ("feature", ("east", "north")))
    assert fitted.release_.to_frame("coef").shape == (6, 3)
    assert_no_trace([vars(fitted)], [X[:5]])
    if kind is PrivateLogisticRegression:
        chances = fitted.predict_proba(frame)
        np.testing.assert_allclose(chances.sum(axis=1), 1)
        np.testing.assert_allclose(np.log(chances), fitted.predict_log_proba(frame), rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(chances.argmax(axis=1), scores.argmax(axis=1))
        each = np.exp(scores) if multinomial else 1 / (1 + np.exp(-scores))
        np.testing.assert_allclose(chances, each / each.sum(axis=1, keepdims=True))


def test_pure_privacy_and_classes_that_are_not_read_off() -> None:
    """One record of a third class would turn everybody's label into a row of signs."""
    fitted = PrivateLogisticRegression(**GIVEN | {"delta": 0.0, "mechanism": "auto"}).fit(X, Y)
    with pytest.raises(dpm.errors.SpecificationError, match="more than two classes"):
        PrivateLogisticRegression(**GIVEN | {"classes": "public"}).fit(X, Y)
    assert set(fitted.classes_) == set(TOWNS) and fitted.guarantee_.delta == 0
    assert fitted.score(X, Y) > 0.7


def test_two_of_three_listed_classes_may_be_absent() -> None:
    """What is listed decides the shapes, not what occurs."""
    fitted = PrivateLogisticRegression(**GIVEN).fit(X, np.full(N, "Ulm"))
    assert fitted.coef_.shape == (3, 2) and (fitted.predict(X) == "Ulm").mean() > 0.9


@pytest.mark.slow
def test_labels_are_looked_up_one_by_one() -> None:
    classes = (1, "1", None)
    labels: list[Any] = [classes[i] for i in np.argmax(np.column_stack([t == Y for t in TOWNS]), axis=1)]
    fitted = PrivateLogisticRegression(**GIVEN | {"classes": classes}).fit(X, labels)
    assert fitted.classes_.tolist() == [1, "1", None]
    numbers = PrivateLogisticRegression(**GIVEN | {"classes": (0, 1, 2)}).fit(X, [classes.index(c) for c in labels])
    np.testing.assert_array_equal(fitted.coef_, numbers.coef_)
    labels[7] = "2"
    with pytest.raises(dpm.errors.SpecificationError, match="not among the 3 classes"):
        clone(fitted).fit(X, labels)


def test_a_half_space_has_two_sides() -> None:
    with pytest.raises(dpm.errors.SpecificationError, match="two different labels"):
        HalfspaceClassifier(margin=0.1, epsilon=1, classes=(0, 1, 2)).fit(X, np.arange(N) % 3)
    with pytest.raises(dpm.errors.SpecificationError, match="Only binary classification"):
        HalfspaceClassifier(margin=0.1, epsilon=1, classes="public").fit(X, np.arange(N) % 3)
