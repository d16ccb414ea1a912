"""Affine subspaces: the row of a record, exact membership, the refusals."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from exact_standins import PlainSystem
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from walking import assert_no_trace

import dpmodel as dpm
from dpmodel.errors import DPModelError, SpecificationError, UnsupportedModelError
from dpmodel.exact.fields import GF, QQ
from dpmodel.learn import AffineSubspaceClassifier

# scikit-learn copies and fits again and again.
pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.CompositionWarning")

PLAIN: dict[str, Any] = {"epsilon": 1.0, "classes": ("out", "in"), "mechanism": PlainSystem(), "random_state": 0}


def planted(n: int = 200, p: int = 5, k: int = 2, q: int | None = None, seed: int = 0) -> tuple[Any, Any]:
    """Half of the points in an affine subspace of dimension k of QQ^p or GF(q)^p, the others (nearly all) outside."""
    rng = np.random.default_rng(seed)
    base, frame = rng.integers(-9, 9, size=p), rng.integers(-9, 9, size=(k, p))
    inside = base + rng.integers(-50, 50, size=(n // 2, k)) @ frame
    X = np.vstack([inside, rng.integers(-500, 500, size=(n - n // 2, p))])
    X = X if q is None else X % q
    mixed = rng.permutation(n)
    lifted = np.column_stack([X, np.ones(n, dtype=np.int64)])
    field: Any = QQ if q is None else GF(q)
    spanned = field.echelon(lifted[: n // 2])
    y = np.where(spanned.contains(lifted), "in", "out")
    return X[mixed], y[mixed]


@parametrize_with_checks(
    [AffineSubspaceClassifier(epsilon=1, grid="0.0001", classes="public", mechanism=PlainSystem(), random_state=0)]
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(("field", "q"), [("QQ", None), (QQ, None), ("GF(7)", 7), ("GF(2)", 2), (GF(101), 101)])
def test_membership_is_exact(field: Any, q: int | None) -> None:
    X, y = planted(q=q)
    fitted = AffineSubspaceClassifier(**PLAIN, field=field).fit(X, y)
    assert fitted.score(X, y) == 1 and fitted.classes_.tolist() == ["out", "in"]
    assert fitted.dimension_ <= 2 and fitted.subspace_.homogeneous.dimension == fitted.dimension_ + 1
    assert fitted.release_.status == "found" and fitted.release_.mechanism == fitted.plan_.chosen.mechanism
    assert fitted.error_forecast_ == 4 / 200 and "of about 200 positive examples" in str(fitted.release_)
    assert "a record is one row of X with its label" in fitted.guarantee_.record
    # A step of one off the subspace is off the subspace.
    moved = X[y == "in"][:5] + np.eye(5, dtype=np.int64)
    assert (fitted.predict(moved % q if q else moved) == "out").sum() >= (1 if q else 4)


def test_forms_and_grids() -> None:
    X, y = planted()
    whole = AffineSubspaceClassifier(**PLAIN).fit(X, y)
    names = [f"c{i}" for i in range(5)]
    for form in (X.astype(float), sp.csr_array(X), X.tolist(), pd.DataFrame(X, columns=names)):
        assert AffineSubspaceClassifier(**PLAIN).fit(form, y).subspace_.homogeneous == whole.subspace_.homogeneous
    cents = AffineSubspaceClassifier(**PLAIN, grid="0.01").fit(X / 100, y)
    assert cents.score(X / 100, y) == 1
    # The same subspace in units of a hundredth: the coordinate that is 1 counts a hundred times.
    scaled = cents.subspace_.homogeneous.field.exact_rows(np.column_stack([X[:50], np.full(50, 100)]))
    assert (cents.subspace_.homogeneous.contains(scaled) == (y[:50] == "in")).all()
    noisy = X / 100 + np.random.default_rng(0).uniform(-0.004, 0.004, size=X.shape)
    assert (cents.predict(noisy) == y).all()
    assert Fraction(1) in cents.subspace_.homogeneous.rows.ravel()


def test_negative_examples_are_rows_of_zeros() -> None:
    """So that either neighbor relation on examples is the same relation on the rows that the mechanism sees."""
    X, y = planted()
    seen: list[Any] = []

    class Watching(PlainSystem):
        def run(self, model: Any, *rest: Any) -> Any:
            seen.append((model, model.read_rows().copy()))
            return super().run(model, *rest)

    given = {**PLAIN, "mechanism": Watching()}
    AffineSubspaceClassifier(**given).fit(X, y)
    other, labels = X.copy(), y.copy()
    other[3], labels[3] = 7, "in" if y[3] == "out" else "out"
    AffineSubspaceClassifier(**given).fit(other, labels)
    AffineSubspaceClassifier(**given, neighbors="add-remove", expected=77).fit(X[1:], y[1:])
    (model, rows), (_, replaced), (hidden, fewer) = seen[:3]
    assert rows.shape == (200, 6) and ((rows == 0).all(axis=1) == (y == "out")).all()
    assert np.flatnonzero((rows != replaced).any(axis=1)).tolist() == [3]
    assert (fewer == rows[1:]).all()
    assert (model.records, model.expected, hidden.records, hidden.expected) == (200, 200, None, 77)
    AffineSubspaceClassifier(**given, neighbors="add-remove").fit(X, y)
    AffineSubspaceClassifier(**given, expected=77).fit(X, y)
    assert [each.expected for each, _ in seen[3:]] == [0, 77]
    assert model.task == "affine span" and model.rank == model.dimension == 6


def test_a_public_rank() -> None:
    X, y = planted()
    seen: list[int] = []

    class Watching(PlainSystem):
        def forecast(self, model: Any, options: Any) -> Any:
            seen.append(model.rank)
            return super().forecast(model, options)

    for rank in (0, 2, 9):
        AffineSubspaceClassifier(**{**PLAIN, "mechanism": Watching()}, rank=rank).fit(X, y)
    assert seen == [1, 3, 6]


def test_a_fit_holds_no_record_and_survives_pickling() -> None:
    X, y = planted()
    X = X * 3_000_017
    answer = QQ.echelon(QQ.exact_rows([[1, 0, 0, 0, 0, 1]]))
    fitted = AffineSubspaceClassifier(**{**PLAIN, "mechanism": PlainSystem(answer)}).fit(X, y)
    assert_no_trace([vars(fitted)], [X[:5].astype(float)])
    again = pickle.loads(pickle.dumps(AffineSubspaceClassifier(**PLAIN).fit(X, y)))
    assert again.score(X, y) == 1


def test_a_budget_is_charged_by_every_fit_and_shared_by_clones() -> None:
    X, y = planted()
    budget = dpm.Budget(2.5, 1e-5)
    estimator = AffineSubspaceClassifier(**PLAIN, budget=budget).fit(X, y)
    clone(estimator).fit(X, y)
    assert budget.spent.epsilon == 2
    with pytest.raises(dpm.errors.BudgetExceededError):
        estimator.fit(X, y)


X0, Y0 = planted(40)
SECRET = 7321.25
REFUSED: dict[str, tuple[dict[str, Any], Any]] = {
    "fractions without a grid": ({}, X0 + SECRET),
    "fractions over a finite field": ({"field": "GF(7)"}, X0 + SECRET),
    "a grid over a finite field": ({"field": "GF(7)", "grid": "0.1"}, X0),
    "an element that GF(4) does not have": ({"field": "GF(4)"}, X0),
    "above 2^53": ({}, X0 * 1e20),
    "NaN": ({}, np.where(X0 > 100, np.nan, X0)),
    "words": ({}, np.full(X0.shape, f"secret {SECRET}", dtype=object)),
    "a float as grid": ({"grid": 0.1}, X0),
    "unknown field": ({"field": "RR"}, X0),
    "no field": ({"field": 7}, X0),
    "GF(6)": ({"field": "GF(6)"}, X0),
    "no classes": ({"classes": None}, X0),
    "other labels": ({"classes": (0, 1)}, X0),
    "corrupted 1": ({"corrupted": 1.0}, X0),
    "negative rank": ({"rank": -1}, X0),
    "zero epsilon": ({"epsilon": 0}, X0),
    "beta 1": ({"beta": 1}, X0),
    "unknown neighbors": ({"neighbors": "swap"}, X0),
    "expected 0": ({"expected": 0}, X0),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_spent(case: str) -> None:
    given, X = REFUSED[case]
    budget = dpm.Budget(10, 1e-3)
    with pytest.raises(DPModelError) as caught:
        AffineSubspaceClassifier(**{**PLAIN, "budget": budget, **given}).fit(X, Y0)
    assert budget.spent.epsilon == 0 and caught.value.what and "7321" not in str(caught.value)


def test_points_off_the_grid_of_whole_numbers_cannot_be_asked_about() -> None:
    fitted = AffineSubspaceClassifier(**PLAIN).fit(X0, Y0)
    with pytest.raises(SpecificationError, match="not whole"):
        fitted.predict(X0 + 0.5)


# ------------------------------------------------------------------ with the mechanisms of the package
@pytest.mark.parametrize(("field", "q"), [("QQ", None), ("GF(7)", 7)])
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_a_private_subspace(field: str, q: int | None, neighbors: Any) -> None:
    X, y = planted(2_000, q=q)
    fitted = AffineSubspaceClassifier(
        field=field, epsilon=1.0, delta=1e-6, classes=("out", "in"), neighbors=neighbors, expected=1_000, random_state=0
    ).fit(X, y)
    assert fitted.dimension_ == 2 and fitted.score(X, y) == 1
    assert fitted.release_.accuracy.proved and 0 < fitted.error_forecast_ < 1
    assert fitted.guarantee_.neighbors == neighbors and fitted.guarantee_.delta <= 1e-6


def test_too_few_records_are_refused_with_the_number_needed() -> None:
    budget = dpm.Budget(1, 1e-5)
    with pytest.raises(UnsupportedModelError, match="too few records"):
        AffineSubspaceClassifier(epsilon=0.1, classes=("out", "in"), budget=budget).fit(X0, Y0)
    assert budget.spent.epsilon == 0
