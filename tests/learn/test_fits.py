"""Fits on synthetic data: they find what is there, in the units of the data, and carry their guarantee."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from walking import assert_no_trace

import dpmodel as dpm
from dpmodel.learn import (
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
)

N = 20_000
TRUE = np.array([0.05, 2.0, -3.0])
LOW, HIGH = np.array([0.0, 0.0, -1.0]), np.array([100.0, 1.0, 1.0])
PAIRS = np.column_stack([LOW, HIGH]).tolist()
BOUNDS = dict(enumerate(PAIRS))


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Columns (0, 100), (0, 1) and (-1, 1); labels between -3 and 11."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(LOW, HIGH, size=(N, 3))
    return X, X @ TRUE + 1.0 + 0.2 * rng.normal(size=N)


FIT: dict[str, Any] = {"bounds": BOUNDS, "epsilon": 2.0, "delta": 1e-6, "random_state": 0}
PLANNED: dict[str, Any] = FIT | {"label_bounds": (-3, 11)}
# Without a comparison of all mechanisms, where the plan is not what is tested.
REGRESSION = PLANNED | {"mechanism": "sufficient-statistics"}
slow = pytest.mark.slow


@pytest.mark.parametrize(
    "estimator",
    [
        PrivateRidge(**PLANNED),
        pytest.param(PrivateLasso(**PLANNED, radius=7.0), marks=slow),
        pytest.param(PrivateLinearRegression(**PLANNED), marks=slow),
        pytest.param(PrivateQuantileRegressor(**PLANNED), marks=slow),
        pytest.param(PrivateHuberRegressor(**PLANNED), marks=slow),
    ],
    ids=lambda each: type(each).__name__,
)
def test_regressors_find_what_is_there_in_any_units(estimator: Any) -> None:
    X, y = table()
    fitted = clone(estimator).fit(X, y)
    assert fitted.coef_.shape == (3,) and isinstance(fitted.intercept_, float)
    assert fitted.score(X, y) > 0.9
    assert fitted.guarantee_.epsilon <= 2.0 and fitted.guarantee_.delta <= 1e-6
    assert fitted.guarantee_.neighbors == "replace-one" and "NOT PRIVATE" in fitted.guarantee_.record
    assert fitted.release_.mechanism == fitted.plan_.chosen.mechanism
    assert fitted.plan_._forecaster is None  # private rows are within reach of those
    assert_no_trace([vars(fitted)], [X[:5], y[:5]])


@pytest.mark.parametrize(
    "kind", [PrivateLogisticRegression, pytest.param(PrivateLinearSVC, marks=slow)], ids=lambda kind: kind.__name__
)
def test_classifiers_find_what_is_there(kind: Any) -> None:
    X, y = table()
    labels = np.where(y > 4, "high", "low")
    fitted = kind(**FIT, classes=("low", "high")).fit(X, labels)
    assert fitted.classes_.tolist() == ["low", "high"]  # the declared order: the second is positive
    assert fitted.coef_.shape == (1, 3) and fitted.intercept_.shape == (1,)
    assert fitted.score(X, labels) > 0.85
    assert (fitted.predict(X) == np.where(fitted.decision_function(X) > 0, "high", "low")).all()
    if kind is PrivateLinearSVC:
        return
    chances = fitted.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), chances, rtol=1e-6, atol=1e-12)
    assert ((chances[:, 1] > 0.5) == (fitted.predict(X) == "high")).all()


def test_frames_and_names() -> None:
    X, y = table()
    names = ["age", "share", "sensitivity"]
    bounds = dict(zip(names, PAIRS, strict=True))
    by_name = {**REGRESSION, "bounds": dict(reversed(bounds.items()))}
    plain = PrivateRidge(**REGRESSION).fit(X, y)
    for frame, labels in (
        (pd.DataFrame(X, columns=names), pd.Series(y)),
        (pl.DataFrame(X, schema=names), pl.Series(y)),
    ):
        fitted = PrivateRidge(**by_name).fit(frame, labels)
        assert fitted.feature_names_in_.tolist() == names and fitted.n_features_in_ == 3
        np.testing.assert_array_equal(fitted.coef_, plain.coef_)
        np.testing.assert_allclose(fitted.predict(frame), plain.predict(X), rtol=1e-12, atol=1e-12)
        with pytest.raises(dpm.errors.SpecificationError, match="feature names"):
            fitted.predict(frame[names[::-1]])


def test_a_budget_is_charged_by_every_fit_and_shared_by_clones() -> None:
    X, y = table()
    budget = dpm.Budget(4.5, 1e-5)
    estimator = PrivateLinearRegression(**REGRESSION, budget=budget)
    estimator.fit(X, y)
    clone(estimator).fit(X, y)
    assert 0 < budget.spent.epsilon <= 4 and len(budget.history) == 2
    with pytest.raises(dpm.errors.BudgetExceededError):
        estimator.fit(X, y)


def test_noise_of_a_seed_repeats_and_says_that_it_is_not_private() -> None:
    X, y = table()
    with pytest.warns(dpm.errors.NotPrivateWarning):
        one = PrivateRidge(**REGRESSION).fit(X, y)
    two = PrivateRidge(**REGRESSION).fit(X, y)
    other = PrivateRidge(**{**REGRESSION, "random_state": np.random.RandomState(5)}).fit(X, y)
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert (one.coef_ != other.coef_).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpm.errors.NotPrivateWarning)
        secure = PrivateRidge(**{**REGRESSION, "random_state": None})
        first, second = secure.fit(X, y).coef_, secure.fit(X, y).coef_
    assert (first != second).any() and "NOT PRIVATE" not in str(secure.guarantee_)


def test_pickles_carry_no_data() -> None:
    X, y = table()
    fitted = PrivateRidge(**REGRESSION).fit(X, y)
    data = pickle.dumps(fitted)
    assert len(data) < 100_000 and not any(number.tobytes() in data for number in X[:50].ravel())
    np.testing.assert_array_equal(pickle.loads(data).predict(X), fitted.predict(X))


def test_rows_of_bounded_norm() -> None:
    X, y = table()
    rows = (X - LOW) / (HIGH - LOW) / 3
    given = {**REGRESSION, "bounds": None, "max_l2": 0.6}
    assert PrivateRidge(**given).fit(rows, y).score(rows, y) > 0.8
    given = {**FIT, "bounds": None, "max_l2": 0.6, "mechanism": "objective-perturbation"}
    assert PrivateLogisticRegression(**given, classes=(False, True)).fit(rows, y > 4).score(rows, y > 4) > 0.8


def test_sparse_rows_give_the_fit_of_dense_ones() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 5, size=(5_000, 8)) * (rng.random((5_000, 8)) < 0.3)
    y = X @ np.linspace(-1, 1, 8) + 0.1 * rng.normal(size=5_000)
    given = {**REGRESSION, "bounds": (-5, 5), "label_bounds": (-10, 10)}
    dense = PrivateRidge(**given).fit(X, y)
    for form in (sp.csr_array, sp.csc_matrix):
        fitted = PrivateRidge(**given).fit(form(X), y)
        np.testing.assert_allclose(fitted.coef_, dense.coef_, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(fitted.predict(form(X)), dense.predict(X), rtol=1e-6, atol=1e-9)


@slow
def test_the_radius_speaks_of_predictions() -> None:
    X, y = table()
    fitted = PrivateLasso(**PLANNED, radius=1.0).fit(X, y)
    reach = np.abs(fitted.coef_) * (HIGH - LOW) / 2
    assert reach.sum() <= 1.0 + 1e-9
    middle = fitted.intercept_ + fitted.coef_ @ ((LOW + HIGH) / 2)
    assert np.abs(fitted.predict(X) - middle).max() <= 1.0 + 1e-9


def test_a_forced_mechanism_and_pure_privacy() -> None:
    X, y = table()
    for name in ("sufficient-statistics", "adassp-as-printed"):
        assert PrivateRidge(**{**REGRESSION, "mechanism": name}).fit(X, y).release_.mechanism == name
    pure = PrivateRidge(**{**REGRESSION, "delta": 0.0}).fit(X, y)
    assert pure.guarantee_.delta == 0 and pure.score(X, y) > 0.5
