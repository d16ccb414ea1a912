"""Forecasts in the units of the label, releases in those of the data, and names from any frame to the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpmodel.learn import (
    HalfspaceClassifier,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
)

N = 4000
RNG = np.random.default_rng(0)
X = RNG.uniform([0, 0, -1], [100, 1, 1], size=(N, 3))
Y = X @ [0.05, 2.0, -3.0] + 1.0 + 0.2 * RNG.normal(size=N)
NAMES = ["age", "share", "sensitivity"]
PAIRS = {"age": (0, 100), "share": (0, 1), "sensitivity": (-1, 1)}
BOUNDS = np.array(list(PAIRS.values()), dtype=float).T
pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.CompositionWarning")


def fitted(kind: Any, unit: float = 1.0, **given: Any) -> Any:
    own = {"epsilon": 2.0, "delta": 1e-6, "random_state": 0, "label_bounds": (-3 * unit, 11 * unit)} | given
    return kind(bounds=tuple(BOUNDS), **own).fit(X, Y * unit)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "degree", "mechanism"),
    [
        (PrivateRidge, 2, "sufficient-statistics"),
        (PrivateLasso, 2, "frank-wolfe"),
        (PrivateHuberRegressor, 2, "noisy-descent"),
        (PrivateQuantileRegressor, 1, "noisy-descent"),
    ],
)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_risk_in_units_of_the_label(kind: Any, degree: int, mechanism: str, fit_intercept: bool) -> None:
    given = {"mechanism": mechanism, "fit_intercept": fit_intercept}
    one, other = fitted(kind, **given), fitted(kind, 1000.0, **given)
    # The same fit in thousandths of the unit: seeded noise repeats.
    np.testing.assert_allclose(other.coef_, 1000 * one.coef_, rtol=1e-6)
    np.testing.assert_allclose(other.intercept_, 1000 * one.intercept_, rtol=1e-6)
    errors = [each.plan_.chosen.forecast.error.predicted for each in (one, other)]
    assert errors[1] == pytest.approx(1000**degree * errors[0], rel=1e-2)


def test_the_forecast_is_about_the_mean_squared_error() -> None:
    ridge = fitted(PrivateRidge, 1000.0, mechanism="sufficient-statistics", alpha=0.0)
    design = np.column_stack([X, np.ones(N)])
    best = np.mean((design @ np.linalg.lstsq(design, 1000 * Y, rcond=None)[0] - 1000 * Y) ** 2)
    excess = np.mean((ridge.predict(X) - 1000 * Y) ** 2) - best
    # Up to what synthetic data is off by; in units of the mapped labels it would be 5e7 times less.
    assert 0.01 < excess / ridge.plan_.chosen.forecast.error.predicted < 100


@pytest.mark.parametrize("form", ["pandas", "polars", "pyarrow"])
def test_names_from_any_frame_to_the_release(form: str) -> None:
    plain = pd.DataFrame(X, columns=NAMES)
    frame = {"pandas": lambda f: f, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}[form](plain)
    y = {"pandas": pd.Series, "polars": pl.Series, "pyarrow": lambda v: pa.chunked_array([v])}[form](Y)
    ridge = PrivateRidge(
        epsilon=1, bounds=PAIRS, label_bounds=(-3, 11), mechanism="sufficient-statistics", random_state=0
    )
    ridge.fit(frame, y)
    assert ridge.feature_names_in_.tolist() == NAMES
    np.testing.assert_allclose(ridge.predict(frame), ridge.predict(plain), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(ridge.release_.variables["coef"], ridge.coef_)
    assert ridge.release_.variables["intercept"] == ridge.intercept_
    table = ridge.release_.to_frame("coef")
    assert table["feature"].tolist() == NAMES and table["value"].tolist() == ridge.coef_.tolist()
    assert "age" in str(ridge.release_)
    labels = np.where(Y > 4, "high", "low")
    said = {"pandas": pd.Series, "polars": pl.Series, "pyarrow": lambda v: pa.chunked_array([v.tolist()])}[form](labels)
    logistic = PrivateLogisticRegression(
        epsilon=1, bounds=PAIRS, classes=("low", "high"), mechanism="noisy-descent", random_state=0
    )
    logistic.fit(frame, said)
    assert logistic.release_.labels["coef"] == (("class", ("high",)), ("feature", tuple(NAMES)))
    assert set(logistic.predict(frame)) <= {"low", "high"} and logistic.score(frame, labels) > 0.8


def test_without_names_there_are_none() -> None:
    ridge = fitted(PrivateRidge, mechanism="sufficient-statistics")
    assert ridge.release_.to_frame("coef").shape == (3, 2)
    half = HalfspaceClassifier(margin=0.3, epsilon=20, classes=(False, True), random_state=0).fit(X, X[:, 2] > 0)
    np.testing.assert_array_equal(half.release_.variables["coef"], half.coef_)
    assert half.release_.labels["coef"] == (("class", (True,)), ("feature", ()))
