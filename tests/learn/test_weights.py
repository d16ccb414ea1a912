"""Weights of records and of classes: the fits of scikit-learn, what is declared, and what is refused."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

import dpmodel as dpm
from dpmodel.errors import NotPrivateWarning, SpecificationError
from dpmodel.learn import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge, PrivateSearchCV, PublicEncoder

N = 4000
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(N, 2))
Z = 2 * X[:, 0] + RNG.normal(size=N)
WEIGHTS = np.where(RNG.random(N) < 0.3, 3.0, 0.5)
Z[WEIGHTS > 1] += 2 * X[WEIGHTS > 1, 1]  # who weighs more is different
RIDGE: dict[str, Any] = {"epsilon": 20.0, "delta": 1e-6, "bounds": (-1, 1), "label_bounds": (-6, 6), "random_state": 0}
LOGISTIC: dict[str, Any] = {"epsilon": 20.0, "delta": 1e-6, "bounds": (-1, 1), "classes": (0, 1), "random_state": 0}


@pytest.mark.parametrize("most", [3.0, "public"])
def test_a_fit_is_that_of_scikit_learn_with_these_weights(most: Any) -> None:
    theirs, plain = Ridge().fit(X, Z, WEIGHTS).coef_, Ridge().fit(X, Z).coef_
    ours = PrivateRidge(**RIDGE, max_weight=most).fit(X, Z, sample_weight=WEIGHTS)
    assert np.abs(ours.coef_ - theirs).max() < 0.1 < np.abs(plain - theirs).max()
    assert ("weights" in ours.guarantee_.record) == (most == 3.0)


def test_weights_beyond_the_largest_count_as_the_largest() -> None:
    wide = np.where(WEIGHTS > 1, 1e300, WEIGHTS)
    both = [PrivateRidge(**RIDGE, max_weight=3).fit(X, Z, sample_weight=each).coef_ for each in (WEIGHTS, wide)]
    np.testing.assert_array_equal(*both)


def test_weights_of_classes_are_those_of_their_records() -> None:
    y = (Z > 1.5).astype(int)
    ours = PrivateLogisticRegression(**LOGISTIC, class_weight={1: 5}).fit(X, y)
    theirs = LogisticRegression(class_weight={1: 5}).fit(X, y)
    assert np.abs(ours.coef_ - theirs.coef_).max() < 0.4 and abs(ours.intercept_[0] - theirs.intercept_[0]) < 0.3
    assert abs(theirs.intercept_[0] - LogisticRegression().fit(X, y).intercept_[0]) > 1
    by_hand = PrivateLogisticRegression(**LOGISTIC, max_weight=5).fit(X, y, sample_weight=np.where(y == 1, 5.0, 1.0))
    np.testing.assert_array_equal(ours.coef_, by_hand.coef_)
    both = PrivateLinearSVC(**LOGISTIC, class_weight={0: 2.0, 1: 0.5}, max_weight="public")
    assert "weights" in both.fit(X, y, sample_weight=WEIGHTS).guarantee_.record  # they tell the label


@pytest.mark.slow
@pytest.mark.parametrize("multi_class", ["multinomial", "ovr"])
def test_weights_of_several_classes(multi_class: str) -> None:
    y = np.digitize(Z, [-1, 1])
    given = LOGISTIC | {"classes": (0, 1, 2), "multi_class": multi_class, "class_weight": {1: 4}}
    ours, plain = PrivateLogisticRegression(**given).fit(X, y), LogisticRegression().fit(X, y)
    assert (ours.predict(X) == 1).mean() > 1.5 * (plain.predict(X) == 1).mean()


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no declaration": (PrivateRidge(**RIDGE), {"sample_weight": WEIGHTS}, "without max_weight"),
    "another word": (PrivateRidge(**RIDGE, max_weight="all"), {"sample_weight": WEIGHTS}, "without max_weight"),
    "nothing": (PrivateRidge(**RIDGE, max_weight=0), {"sample_weight": WEIGHTS}, "without max_weight"),
    "negative": (PrivateRidge(**RIDGE, max_weight=3), {"sample_weight": WEIGHTS - 1}, "a negative one"),
    "missing": (PrivateRidge(**RIDGE, max_weight=3), {"sample_weight": np.where(X[:, 0] > 0.9, np.nan, 1)}, "finite"),
    "too few": (PrivateRidge(**RIDGE, max_weight=3), {"sample_weight": WEIGHTS[1:]}, "vector of 4000"),
    "words": (PrivateRidge(**RIDGE, max_weight=3), {"sample_weight": ["7321"] * (N - 1) + ["x7321"]}, "finite"),
    "balanced": (PrivateLogisticRegression(**LOGISTIC, class_weight="balanced"), {}, r"1/\(K share\)"),
    "other classes": (PrivateLogisticRegression(**LOGISTIC, class_weight={"1": 2}), {}, "of the classes"),
    "negative classes": (PrivateLogisticRegression(**LOGISTIC, class_weight={1: -2}), {}, "of the classes"),
    "words for classes": (PrivateLogisticRegression(**LOGISTIC, class_weight={1: "high"}), {}, "of the classes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_spent(case: str) -> None:
    estimator, given, said = REFUSED[case]
    budget = dpm.Budget(100, 1e-3)
    y = Z if isinstance(estimator, PrivateRidge) else (Z > 0).astype(int)
    with pytest.raises(SpecificationError, match=said) as caught:
        estimator.set_params(budget=budget).fit(X, y, **given)
    assert budget.spent.epsilon == 0 and "7321" not in str(caught.value)


@pytest.mark.parametrize("classes", [("no", "yes"), (0, 1, 2, 3, 4)])
def test_the_refusal_of_balanced_has_an_example_that_runs(classes: tuple[Any, ...]) -> None:
    """With shares of .8, and .2 of all others: the weights of scikit-learn's "balanced" for these."""
    y, given = np.resize(np.array(classes), N), LOGISTIC | {"classes": classes}
    with pytest.raises(SpecificationError) as caught:
        PrivateLogisticRegression(**given, class_weight="balanced").fit(X, y)
    example = re.search(r"class_weight=({.*?})", str(caught.value))
    assert example is not None
    weights, k = eval(example[1]), len(classes)
    shares = [0.8, *[0.2 / (k - 1)] * (k - 1)]
    assert weights == pytest.approx({label: 1 / (k * s) for label, s in zip(classes[:3], shares[:3], strict=False)})
    PrivateLogisticRegression(**given, class_weight=weights).fit(X, y)


def test_weights_in_pipelines_searches_and_of_people() -> None:
    frame, ids = pd.DataFrame(X, columns=["a", "b"]), np.repeat(np.arange(N // 2), 2)
    encoder = PublicEncoder(bounds={"a": (-1, 1), "b": (-1, 1)})
    given = {key: value for key, value in RIDGE.items() if key != "bounds"}
    ridge = PrivateRidge(**given, max_weight=3, mechanism="noisy-descent")
    pipe = make_pipeline(encoder, ridge)
    coefficients = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        warnings.simplefilter("ignore", dpm.errors.CompositionWarning)
        pipe.fit(frame, Z, privateridge__sample_weight=WEIGHTS, privateridge__groups=ids)
        coefficients.append(pipe[-1].coef_)
        with sklearn.config_context(enable_metadata_routing=True):
            routed = make_pipeline(encoder, ridge.set_fit_request(sample_weight=True, groups=True))
            coefficients.append(routed.fit(frame, Z, sample_weight=WEIGHTS, groups=ids)[-1].coef_)
            search = PrivateSearchCV(
                routed, {"privateridge__alpha": [1e5, 1.0]}, epsilon=20.0, delta=1e-6, random_state=0
            )
            search.fit(frame, Z, groups=ids, privateridge__sample_weight=WEIGHTS)
            with pytest.raises(SpecificationError, match="ridge__sample_weight"):
                search.fit(frame, Z, ridge__sample_weight=WEIGHTS)
    np.testing.assert_array_equal(*coefficients)
    assert search.best_params_ == {"privateridge__alpha": 1.0} and "weights" in search.guarantee_.record
    theirs = Ridge().fit(X[::2], Z[::2], WEIGHTS[::2]).coef_
    assert np.abs(search.best_estimator_[-1].coef_ - theirs).max() < 0.3
