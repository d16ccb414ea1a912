"""What one fit's guarantee leaves out is said: fits of copies, and steps that learn beside it."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from exact_standins import PlainSystem
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)

import dpmodel as dpm
from dpmodel.errors import CompositionWarning
from dpmodel.learn import HalfspaceClassifier, PrivateLogisticRegression, PrivateRidge, PrivateSearchCV
from dpmodel.learn.costs import learners
from dpmodel.regressions.sufficient_statistics import SufficientStatistics

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(200, 3))
Y = X[:, 0] + 0.1
RIDGE: dict[str, Any] = {
    "epsilon": 1.0,
    "bounds": (-1, 1),
    "label_bounds": (-2, 2),
    "mechanism": "sufficient-statistics",
    "random_state": 0,
}


def said(work: Callable[[], Any]) -> list[str]:
    """The messages of all warnings of this kind."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(each.message) for each in caught if each.category is CompositionWarning]


def test_one_fit_says_nothing_and_a_grid_search_says_what_it_costs() -> None:
    ridge = PrivateRidge(**RIDGE)
    search = GridSearchCV(ridge, {"alpha": [0.1, 1.0]}, cv=5)
    words = said(lambda: search.fit(X, Y))
    # Ten fits and a refit, of which all but the first are said, each with its own total.
    assert len(words) == 10 and len(set(words)) == 10
    assert "this is fit 2 " in words[0] and "epsilon = 2 together" in words[0]
    assert "this is fit 11 " in words[-1] and "epsilon = 11 together" in words[-1] and "delta" not in words[-1]
    assert search.best_estimator_.guarantee_.epsilon == 1.0
    assert said(lambda: PrivateRidge(**RIDGE).fit(X, Y)) == []


def test_totals_are_of_what_was_spent() -> None:
    first = PrivateRidge(**RIDGE | {"epsilon": 0.5, "delta": 1e-6})
    copies = [clone(first), clone(clone(first)), copy.copy(first), copy.deepcopy(clone(first))]
    words = said(lambda: [each.fit(X, Y) for each in [first, *copies]])
    spent = [each.guarantee_ for each in [first, *copies]]
    # Before a fit is known what it may spend; what it did spend may be less.
    total, delta = sum(g.epsilon for g in spent[:-1]) + 0.5, sum(g.delta for g in spent[:-1]) + 1e-6
    assert len(words) == 4
    assert f"epsilon = {total:g}" in words[-1] and f"delta = {delta:g}".replace("e-0", "e-") in words[-1]
    assert {g.epsilon for g in spent} == {0.5}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_of_what_was_never_fitted_are_counted_together(copied: Any) -> None:
    first = PrivateRidge(**RIDGE)
    second = copied(first)
    assert type(second) is PrivateRidge and second.get_params() == first.get_params() and second is not first
    words = said(lambda: [each.fit(X, Y) for each in (second, first)])
    assert len(words) == 1 and "this is fit 2 " in words[0] and "epsilon = 2 together" in words[0]
    again = copied(first)
    np.testing.assert_array_equal(again.coef_, first.coef_)
    assert (again.coef_ is first.coef_) == (copied is copy.copy)


def test_the_same_estimator_fitted_twice_is_counted() -> None:
    ridge = PrivateRidge(**RIDGE).fit(X, Y)
    assert "fit 2 " in said(lambda: ridge.fit(X, Y))[0]


def test_cross_validation_and_meta_estimators() -> None:
    assert "epsilon = 4 " in said(lambda: cross_val_score(PrivateRidge(**RIDGE), X, Y, cv=4))[-1]
    given = {"epsilon": 1, "bounds": (-1, 1), "classes": (0, 1), "mechanism": "noisy-descent", "random_state": 0}
    logistic, halfspace = (
        PrivateLogisticRegression(**given),
        HalfspaceClassifier(margin=0.1, epsilon=1, classes=(0, 1), mechanism=PlainSystem(), random_state=0),
    )
    for each in (logistic, halfspace):
        assert "epsilon = 3 " in said(lambda: OneVsRestClassifier(each).fit(X, np.arange(200) % 3))[-1]  # noqa: B023


def test_refused_fits_are_not_counted() -> None:
    ridge = PrivateRidge(**RIDGE)
    for wrong in ({"mechanism": "magic"}, {"epsilon": 0}, {"alpha": -1}):
        with pytest.raises(dpm.DPModelError):
            clone(ridge).set_params(**wrong).fit(X, Y)
    assert said(lambda: clone(ridge).fit(X, Y)) == []


def test_fits_that_fail_after_their_charge_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **named: Any) -> None:
        raise ValueError

    one = PrivateRidge(**RIDGE)
    search = PrivateSearchCV(PrivateRidge(**RIDGE), {"alpha": [0.1, 1.0]}, epsilon=3.0, random_state=0)
    with monkeypatch.context() as patched:
        patched.setattr(SufficientStatistics, "run", broken)
        for each in (one, search):
            with pytest.raises(dpm.DPModelError):
                each.fit(X, Y)
    assert "epsilon = 2 together" in said(lambda: one.fit(X, Y))[0]
    assert "epsilon = 6 together" in said(lambda: search.fit(X, Y))[0]


def test_as_an_error_it_comes_before_anything_is_spent() -> None:
    ridge = PrivateRidge(**RIDGE).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompositionWarning)
        second = clone(ridge)
        with pytest.raises(CompositionWarning):
            second.fit(X, Y)
    assert not hasattr(second, "guarantee_") and "fit 2 " in said(lambda: second.fit(X, Y))[0]


def test_a_copy_in_another_process_says_that_it_knows_nothing_of_the_others() -> None:
    one, _ = PrivateRidge(**RIDGE), None
    copies = [pickle.loads(pickle.dumps(clone(one))) for _ in range(2)]
    for each in copies:
        (words,) = said(lambda: each.fit(X, Y))  # noqa: B023
        assert "another process" in words
    alone = pickle.loads(pickle.dumps(PrivateRidge(**RIDGE)))
    assert said(lambda: alone.fit(X, Y)) == []


class Untold(TransformerMixin):
    """A transformer of somebody else's, without tags."""

    def fit(self, X: Any, y: Any = None) -> Untold:
        return self

    def transform(self, X: Any) -> Any:
        return X


LEARN: dict[str, tuple[Any, list[str]]] = {
    "a scaler": (StandardScaler(), ["StandardScaler"]),
    "an imputer": (SimpleImputer(), ["SimpleImputer"]),
    "directions": (PCA(2), ["PCA"]),
    "in a column transformer": (
        ColumnTransformer([("s", StandardScaler(), [0]), ("k", "passthrough", [1])], remainder=SimpleImputer()),
        ["StandardScaler", "SimpleImputer"],
    ),
    "in a union": (FeatureUnion([("a", PCA(1)), ("b", FunctionTransformer())]), ["PCA"]),
    "in a pipeline": (make_pipeline(Normalizer(), StandardScaler()), ["StandardScaler"]),
    "categories": (OneHotEncoder(), ["OneHotEncoder"]),
    "listed categories": (OneHotEncoder(categories=[["a", "b"]], drop="first"), []),
    "listed codes": (OrdinalEncoder(categories=[["a", "b"], [1, 2]]), []),
    "the rarer of listed categories": (OneHotEncoder(categories=[["a", "b"]], min_frequency=2), ["OneHotEncoder"]),
    "a few of listed codes": (OrdinalEncoder(categories=[["a", "b"]], max_categories=2), ["OrdinalEncoder"]),
    "a number for what is missing": (SimpleImputer(strategy="constant", fill_value=3, keep_empty_features=True), []),
    "which columns are empty": (SimpleImputer(strategy="constant", fill_value=3), ["SimpleImputer"]),
    "where something is missing": (
        SimpleImputer(strategy="constant", keep_empty_features=True, add_indicator=True),
        ["SimpleImputer"],
    ),
    "listed beside learnt": (
        ColumnTransformer([("a", OneHotEncoder(categories=[["a"]]), [0]), ("b", StandardScaler(), [1])]),
        ["StandardScaler"],
    ),
    "without tags": (Untold(), ["Untold"]),
    "a function": (FunctionTransformer(np.abs), []),
    "row by row": (Normalizer(), []),
    "products": (PolynomialFeatures(2), []),
    "fitted elsewhere": (FrozenEstimator(StandardScaler().fit(RNG.normal(size=(9, 3)))), []),
    "nothing": ("passthrough", []),
    "none": (None, []),
}


@pytest.mark.parametrize("case", LEARN)
def test_which_steps_learn(case: str) -> None:
    step, names = LEARN[case]
    assert learners(step) == names


@pytest.mark.parametrize("step", [StandardScaler(), Normalizer(), PCA(3), PolynomialFeatures(1)])
def test_a_step_that_learns_before_a_private_estimator_is_said(step: Any) -> None:
    budget = dpm.Budget(10)  # does not count what a step learns
    words = said(lambda: make_pipeline(step, PrivateRidge(**RIDGE, budget=budget)).fit(X, Y))
    expected = learners(step)
    assert len(words) == len(expected)
    assert not expected or (expected[0] in words[0] and "nor" in words[0] and "PublicEncoder" in words[0])


def test_once_for_all_steps_and_the_total() -> None:
    inner = Pipeline([("pca", PCA(2)), ("ridge", PrivateRidge(**RIDGE))])
    outer = Pipeline([("impute", SimpleImputer()), ("scale", StandardScaler()), ("rest", inner)])
    (first,) = said(lambda: outer.fit(X, Y))
    assert all(name in first for name in ("PCA", "SimpleImputer", "StandardScaler")) and "together" not in first
    words = said(lambda: cross_val_score(outer, X, Y, cv=2))
    assert len(words) == 2 and "epsilon = 3 together" in words[-1] and "PCA" in words[-1]


def test_learnt_labels_are_said() -> None:
    target = TransformedTargetRegressor(PrivateRidge(**RIDGE), transformer=StandardScaler())
    assert "StandardScaler" in said(lambda: target.fit(X, Y))[0]
    assert said(lambda: TransformedTargetRegressor(PrivateRidge(**RIDGE)).fit(X, Y)) == []


def test_an_estimator_that_is_not_in_the_pipeline_is_not_told_of_it() -> None:
    make_pipeline(StandardScaler(), BaseEstimator())
    assert said(lambda: PrivateRidge(**RIDGE).fit(StandardScaler().fit_transform(X), Y)) == []
