"""Whatever is wrong is said before any budget is spent, and no entry of the data is shown."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

import dpmodel as dpm
from dpmodel.errors import BudgetExceededError, DPModelError, SpecificationError
from dpmodel.learn import (
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
    PublicEncoder,
)

X = np.random.default_rng(0).uniform(-1, 1, size=(30, 3))
Y = X[:, 0] + 0.1
LABELS = np.where(Y > 0, 1, -1)
SECRET = 7321.4375

REGRESSION: dict[str, Any] = {"epsilon": 1.0, "bounds": (-1, 1), "label_bounds": (-2, 2), "random_state": 0}
CLASSIFICATION: dict[str, Any] = {"epsilon": 1.0, "bounds": (-1, 1), "classes": (-1, 1), "random_state": 0}


def with_nan() -> np.ndarray:
    out = X.copy()
    out[3, 1] = np.nan
    return out


def with_word() -> np.ndarray:
    out = X.astype(object)
    out[3, 1] = str(SECRET)
    out[4, 1] = f"secret {SECRET}"
    return out


BAD_DATA: dict[str, tuple[Any, Any]] = {
    "NaN": (with_nan(), Y),
    "infinite": (np.where(np.isnan(with_nan()), np.inf, X), Y),
    "NaN label": (X, np.where(np.arange(30) == 4, np.nan, Y)),
    "words": (with_word(), Y),
    "words as labels": (X, [f"secret {SECRET}"] * 30),
    "complex": (X * (1 + SECRET * 1j), Y),
    "one-dimensional": (np.full(30, SECRET), Y),
    "three-dimensional": (X[:, :, None], Y),
    "lengths differ": (X, Y[:-1]),
    "labels of two columns": (X, np.column_stack([Y, Y])),
    "no rows": (X[:0], Y[:0]),
    "no columns": (X[:, :0], Y),
    "no labels": (X, None),
    "column of NaN in a frame": (pd.DataFrame({"a": X[:, 0], "b": np.nan}), Y),
    "dates in a frame": (pd.DataFrame({"a": X[:, 0], "b": pd.Timestamp("2020-01-01")}), Y),
    "days": (np.full((30, 3), np.datetime64("1970-01-01")), Y),
    "durations": (np.full((30, 3), np.timedelta64(1, "h")), Y),
    "durations as labels": (X, np.full(30, np.timedelta64(1, "D"))),
    "sparse NaN": (sp.csr_array(with_nan()), Y),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_spends_nothing_and_is_not_shown(case: str) -> None:
    budget = dpm.Budget(10, 1e-3)
    with pytest.raises((SpecificationError, TypeError)) as caught:
        PrivateRidge(**REGRESSION, budget=budget).fit(*BAD_DATA[case])
    assert budget.spent.epsilon == 0
    assert "7321" not in str(caught.value) and "2020" not in str(caught.value)
    assert caught.value.__context__ is None


BAD_PARAMETERS: dict[str, Any] = {
    "no bounds": PrivateRidge(epsilon=1, label_bounds=(-2, 2)),
    "no label bounds": PrivateRidge(epsilon=1, bounds=(-1, 1)),
    "negative alpha": PrivateRidge(**REGRESSION, alpha=-1),
    "NaN alpha": PrivateHuberRegressor(**REGRESSION, alpha=np.nan),
    "zero radius": PrivateLasso(**REGRESSION, radius=0),
    "words as radius": PrivateLasso(**REGRESSION, radius="1"),
    "zero threshold": PrivateHuberRegressor(**REGRESSION, threshold=0),
    "quantile 1": PrivateQuantileRegressor(**REGRESSION, quantile=1),
    "quantile alpha": PrivateQuantileRegressor(**REGRESSION, alpha=-0.1),
    "no epsilon": PrivateRidge(**REGRESSION | {"epsilon": None}),
    "zero epsilon": PrivateRidge(**REGRESSION | {"epsilon": 0}),
    "delta 1": PrivateRidge(**REGRESSION, delta=1.0),
    "unknown neighbors": PrivateRidge(**REGRESSION, neighbors="swap"),
    "unknown mechanism": PrivateLinearRegression(**REGRESSION, mechanism="magic"),
    "a number as budget": PrivateLinearRegression(**REGRESSION, budget=1.0),
}


@pytest.mark.parametrize("case", BAD_PARAMETERS)
def test_bad_parameters(case: str) -> None:
    estimator = BAD_PARAMETERS[case]
    budget = dpm.Budget(10, 1e-3)
    if case != "a number as budget":
        estimator.set_params(budget=budget)
    with pytest.raises(DPModelError) as caught:
        estimator.fit(X, Y)
    assert budget.spent.epsilon == 0 and caught.value.what
    with pytest.raises(NotFittedError):
        estimator.predict(X)


BAD_CLASSES: dict[str, tuple[dict[str, Any], Any]] = {
    "no classes": ({"classes": None}, LABELS),
    "three kinds, two declared": ({}, np.arange(30) % 3 - 1),
    "one kind": ({"classes": "public"}, np.ones(30)),
    "measurements": ({"classes": "public"}, Y),
    "others than declared": ({}, np.where(LABELS > 0, SECRET, -1)),
    "one class declared": ({"classes": (1, 1)}, LABELS),
    "others than the three declared": ({"classes": (0, 1, 2)}, LABELS),
    "three classes declared, two alike": ({"classes": (-1, 1, 1.0)}, LABELS),
    "another word": ({"classes": "binary"}, LABELS),
    "zero C": ({"C": 0}, LABELS),
}


@pytest.mark.parametrize("case", BAD_CLASSES)
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_bad_classes(kind: Any, case: str) -> None:
    given, y = BAD_CLASSES[case]
    budget = dpm.Budget(10)
    with pytest.raises(SpecificationError) as caught:
        kind(**{**CLASSIFICATION, "budget": budget, **given}).fit(X, y)
    assert budget.spent.epsilon == 0 and "7321" not in str(caught.value)
    assert caught.value.__context__ is None


def test_unknown_loss() -> None:
    with pytest.raises(SpecificationError, match="loss"):
        PrivateLinearSVC(**CLASSIFICATION, loss="logistic").fit(X, LABELS)


def test_an_exhausted_budget_is_refused_before_the_data_is_read() -> None:
    budget = dpm.Budget(50)
    estimator = PrivateRidge(**REGRESSION | {"epsilon": 100.0}, budget=budget, mechanism="sufficient-statistics")
    with pytest.raises(BudgetExceededError):
        estimator.fit(X, Y)
    assert budget.spent.epsilon == 0 and not hasattr(estimator, "coef_")


def test_messages_speak_of_the_step_and_of_what_stands_before_it() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    cases = {
        "step 'last' of the pipeline, after 'first'": (PrivateRidge(epsilon=1, label_bounds=(-2, 2)), X),
        "step 'last'.* contains NaN": (PrivateRidge(**REGRESSION), with_nan()),
        "step 'last'.*for 3 columns": (PrivateRidge(**REGRESSION | {"bounds": ([0, 0], [1, 1])}), X),
        "step 'last'.* no epsilon": (PrivateRidge(**REGRESSION | {"epsilon": None}), X),
    }
    for said, (ridge, rows) in cases.items():
        with pytest.raises(SpecificationError, match=said):
            Pipeline([("first", FunctionTransformer()), ("last", ridge)]).fit(rows, Y)
    repeated = frame.set_axis(["a", "b", "a"], axis=1)
    for each in (PublicEncoder(bounds={"a": (0, 1)}), PrivateRidge(**REGRESSION)):
        with pytest.raises(SpecificationError, match="column 'a' is there twice"):
            each.fit(repeated, Y)
    with pytest.raises(SpecificationError, match="PublicEncoder") as caught:
        PrivateRidge(**REGRESSION).fit(with_nan(), Y)
    assert caught.value.what == "PrivateRidge: Input X contains NaN"


@pytest.mark.parametrize("scale", [True, False])
def test_right_after_a_public_encoder_its_bounds_are_the_bounds(scale: bool) -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    encoder = PublicEncoder(bounds={"a": (-1, 1), "b": (-3, 1)}, scale=scale)
    ridge = PrivateRidge(epsilon=1.0, label_bounds=(-2, 2), random_state=0, mechanism="sufficient-statistics")
    found = make_pipeline(encoder, ridge).fit(frame, Y)[-1]
    by_hand = clone(ridge).set_params(bounds=encoder.bounds_)
    np.testing.assert_array_equal(found.coef_, make_pipeline(encoder, by_hand).fit(frame, Y)[-1].coef_)
    with pytest.raises(SpecificationError, match="neither bounds"):
        make_pipeline(encoder, FunctionTransformer(), clone(ridge)).fit(frame, Y)


def test_sparse_rows_need_bounds_that_hold_zero() -> None:
    with pytest.raises(SpecificationError, match="exclude 0"):
        PrivateRidge(epsilon=1, bounds=(1, 2), label_bounds=(-2, 2)).fit(sp.csr_array(X), Y)


def test_scikit_learn_is_imported_late_and_its_extra_named_where_it_is_missing() -> None:
    code = (
        "import dpmodel, sys; print('sklearn' in sys.modules)\n"
        "sys.modules['sklearn'] = sys.modules['sklearn.utils.validation'] = None\n"
        "try:\n    dpmodel.learn\nexcept dpmodel.errors.MissingExtraError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False") and 'pip install ".[learn]"' in done.stdout
