"""Half-spaces: the right inequality per record, the intercept in the units of the data, the refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from exact_standins import PlainSystem
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpmodel as dpm
from dpmodel.errors import DPModelError, UnsupportedModelError
from dpmodel.learn import HalfspaceClassifier
from dpmodel.learn.exact_classifiers import _rows

TRUE, SHIFT = np.array([3.0, -4.0, 0.0]), 20.0
# scikit-learn copies and fits again and again.
pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.CompositionWarning")
PLAIN: dict[str, Any] = {"epsilon": 1.0, "margin": 0.01, "classes": ("low", "high")}
PLAIN |= {"mechanism": PlainSystem(), "random_state": 0}


def separable(n: int = 300, gap: float = 0.5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows at least ``gap`` away from the hyperplane, far from the origin."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, size=(6 * n, 3))
    distance = (X @ TRUE + SHIFT) / np.linalg.norm(TRUE)
    X, distance = X[np.abs(distance) >= gap][:n], distance[np.abs(distance) >= gap][:n]
    return X, np.where(distance > 0, "high", "low")


# The instance has settings of its own because the class refuses to fit without a margin; scikit-learn clones it.
@parametrize_with_checks(
    [HalfspaceClassifier(margin=0.1, epsilon=1, classes="public", mechanism=PlainSystem(), random_state=0)]
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_matrix, pd.DataFrame])
@pytest.mark.parametrize("scaling", [1.0, 10.0])
def test_all_records_of_separable_data_are_right(form: Any, scaling: float) -> None:
    X, y = separable()
    fitted = HalfspaceClassifier(**PLAIN, intercept_scaling=scaling).fit(form(X), y)
    assert fitted.score(form(X), y) == 1
    assert fitted.coef_.shape == (1, 3) and fitted.intercept_.shape == (1,)
    np.testing.assert_allclose(fitted.decision_function(X), X @ fitted.coef_[0] + fitted.intercept_[0])
    # The hyperplane itself is found, in the units of the data.
    np.testing.assert_allclose(fitted.intercept_ / np.linalg.norm(fitted.coef_), SHIFT / 5, rtol=0.2)
    assert fitted.release_.status == "found" and fitted.release_.mechanism == "plain" == fitted.plan_.chosen.mechanism
    assert fitted.guarantee_.neighbors == "replace-one" and "NOT PRIVATE" in fitted.guarantee_.record
    assert (
        fitted.guarantee_.record.endswith("a record is one row of X with its label")
        and fitted.guarantee_ == fitted.release_.guarantee
    )
    assert fitted.error_forecast_ == 4 / 300 and "at most 4 of about 300 records" in str(fitted.release_)


def test_without_an_intercept() -> None:
    X, _ = separable()
    y = X @ TRUE > 0
    fitted = HalfspaceClassifier(**{**PLAIN, "classes": (False, True)}, fit_intercept=False).fit(X, y)
    assert fitted.intercept_.tolist() == [0.0] and fitted.score(X, y) == 1


def test_rows_are_the_records() -> None:
    """Row i is ``-y_i (x_i, s)`` and depends on record i alone; sparse rows are the same."""
    rng = np.random.default_rng(0)
    X, signs = rng.normal(size=(20, 4)), np.where(rng.random(20) < 0.5, 1.0, -1.0)
    rows = _rows(X, signs, 2.0)
    np.testing.assert_array_equal(rows, -signs[:, None] * np.column_stack([X, np.full(20, 2.0)]))
    np.testing.assert_array_equal(_rows(sp.csr_array(X), signs, 2.0).toarray(), rows)
    assert _rows(X, signs, 0.0).shape == _rows(sp.csr_array(X), signs, 0.0).shape == (20, 4)
    other, flipped = X.copy(), signs.copy()
    other[7], flipped[7] = 1e6, -signs[7]
    changed = (_rows(other, flipped, 2.0) != rows).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [7]


@pytest.mark.parametrize("seed", range(5))
def test_the_margin_of_the_docstring(seed: int) -> None:
    """g / (2 R) with s = R, for the planted hyperplane."""
    X, y = separable(seed=seed)
    reach, gap = float(np.linalg.norm(X, axis=1).max()), 0.5
    assert reach >= SHIFT / 5
    rows = -_rows(X, np.where(y == "high", 1.0, -1.0), reach)
    z = np.append(TRUE, SHIFT / reach)
    least = (rows @ z / np.linalg.norm(rows, axis=1)).min() / np.linalg.norm(z)
    assert least >= gap / (2 * reach)


def test_nothing_found_predicts_the_first_class() -> None:
    X, y = separable()
    fitted = HalfspaceClassifier(**{**PLAIN, "mechanism": PlainSystem(status="nothing")}).fit(X, y)
    assert fitted.release_.status == "nothing" and not fitted.coef_.any() and set(fitted.predict(X)) == {"low"}


X0, Y0 = separable(40)
REFUSED: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "no margin": ({"margin": None}, X0, Y0),
    "margin 2": ({"margin": 2}, X0, Y0),
    "a word as margin": ({"margin": "wide"}, X0, Y0),
    "no classes": ({"classes": None}, X0, Y0),
    "other labels": ({"classes": (0, 1)}, X0, Y0),
    "zero scaling": ({"intercept_scaling": 0}, X0, Y0),
    "zero epsilon": ({"epsilon": 0}, X0, Y0),
    "unknown neighbors": ({"neighbors": "swap"}, X0, Y0),
    "expected 0": ({"expected": 0, "neighbors": "add-remove"}, X0, Y0),
    "beta 0": ({"beta": 0}, X0, Y0),
    "NaN": ({}, np.where(X0 > 9, np.nan, X0), Y0),
    "lengths differ": ({}, X0, Y0[:-1]),
    "no rows": ({}, X0[:0], Y0[:0]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_spent(case: str) -> None:
    given, X, y = REFUSED[case]
    budget = dpm.Budget(10)
    with pytest.raises(DPModelError) as caught:
        HalfspaceClassifier(**{**PLAIN, "budget": budget, **given}).fit(X, y)
    assert budget.spent.epsilon == 0 and caught.value.what


# ------------------------------------------------------------------ with the mechanisms of the package
@pytest.mark.parametrize(
    ("neighbors", "mechanism"),
    [
        ("replace-one", "hinge-descent"),
        ("add-remove", "rescaling-perceptron"),
        pytest.param("replace-one", "auto", marks=pytest.mark.slow),
        pytest.param("add-remove", "auto", marks=pytest.mark.slow),
    ],
)
def test_a_private_half_space(neighbors: Any, mechanism: str) -> None:
    X, y = separable(5_000, gap=2.0)
    fitted = HalfspaceClassifier(
        margin=0.05, epsilon=2.0, delta=1e-6, classes=("low", "high"), neighbors=neighbors, expected=5_000,
        intercept_scaling=17.0, mechanism=mechanism, random_state=0,
    ).fit(X, y)  # fmt: skip
    assert fitted.guarantee_.neighbors == neighbors and fitted.guarantee_.epsilon <= 2
    wrong = round((1 - fitted.score(X, y)) * len(X))
    assert wrong <= fitted.release_.accuracy.slack_rows <= 500


@pytest.mark.slow
def test_too_few_records_are_refused() -> None:
    X, y = separable(3)
    budget = dpm.Budget(1, 1e-5)
    with pytest.raises(UnsupportedModelError, match="too few records"):
        HalfspaceClassifier(
            margin=0.001, epsilon=0.1, delta=1e-9, classes=("low", "high"), budget=budget, random_state=0
        ).fit(X, y)
    assert budget.spent.epsilon == 0
