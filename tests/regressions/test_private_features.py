"""Rows and labels behind public maps: every spelling against brute force over neighbours, and norms of mixed rows."""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from regression_spellings import SPELLINGS, Leaves, N

from dpmodel.errors import SpecificationError
from dpmodel.marks import Private, Records
from dpmodel.regressions import build as regression_model
from dpmodel.regressions.build import private_regression
from dpmodel.regressions.features import Features, tidy
from dpmodel.regressions.model import PrivateRegression, lasso_lower_bound
from dpmodel.regressions.read import recognise

ORDERS = (1.0, 2.0, math.inf)


def model_of(objective: Any) -> PrivateRegression:
    found = recognise(cp.Problem(cp.Minimize(objective)))
    assert found is not None
    return private_regression(found)


def table(rows: Any) -> np.ndarray:
    out = np.zeros((rows.count, rows.size))
    for matrix, start in rows.blocks:
        out[:, start : start + matrix.shape[1]] = matrix.toarray() if sp.issparse(matrix) else matrix
    return out


def check(model: PrivateRegression, rng: np.random.Generator, draws: int) -> None:
    """Wild values of all, then of one record again: rows, labels, derivatives and gradients stay within the claims."""
    row, remove = model.row, model.private[0].records.neighbors == "add-remove"
    slack = 1 + 1e-12
    for _ in range(draws):
        values = [
            rng.choice([-9.0, 0.0, 9.0], size=p.shape) * rng.random(p.shape) ** rng.integers(3) for p in model.private
        ]
        victim, w = int(rng.integers(N)), rng.normal(size=model.size) * rng.integers(0, 2, size=model.size)
        bound = model.loss.derivative_bound(row.largest_prediction(w) + model.offset_bound, row.label_bound)
        sums = []
        for turn in range(2):
            for parameter, value in zip(model.private, values, strict=True):
                parameter.value = np.abs(value) if parameter.attributes["nonneg"] else value
                owned = value[:, victim] if parameter.unit == "column" else value[victim : victim + 1]
                owned[...] = 0.0 if remove else rng.choice([-9.0, 9.0], size=owned.shape)
            rows = model.read_rows()
            a = table(rows)
            assert (row.lower <= a).all() and (a <= row.upper).all()
            for order in ORDERS:
                assert (
                    np.linalg.norm(a[:, ~row.constant], ord=order, axis=1).max(initial=0) <= row.moving(order) * slack
                )
            assert row.label[0] <= rows.labels.min() and rows.labels.max() <= row.label[1]
            if turn and row.absent:
                assert not a[victim, ~row.constant].any() and not (rows.labels[victim] and model.private[-1].ndim == 1)
            derivatives = model.loss.derivative(rows.predict(w), rows.labels)
            assert np.abs(derivatives).max() <= bound * (1 + 1e-9)
            sums.append(rows.combine(derivatives))
        for order in ORDERS:
            assert np.linalg.norm(sums[1] - sums[0], ord=order) <= model.gradient_sensitivity(order, bound * (1 + 1e-9))


def some_slow(names: Any) -> list[Any]:
    """Every other pair of them, so that both relations are there."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (k % 4 > 1)) for k, name in enumerate(names)]


@pytest.mark.parametrize("name", some_slow(SPELLINGS))
def test_no_record_moves_the_gradient_of_a_spelling_further_than_claimed(name: str) -> None:
    """Both relations in turn: every other spelling of a kind has the other one."""
    relation: Any = ("replace-one", "add-remove")[list(SPELLINGS).index(name) % 2]
    m = Leaves(Records("people", neighbors=relation))
    check(model_of(SPELLINGS[name][2](m)), np.random.default_rng(8), 4)


BROKEN: dict[str, tuple[Any, str, Any]] = {
    "norms of what is owned": (Features, "norms", property(lambda f: (f.owned, math.sqrt(f.owned), 1.0))),
    "columns of what is owned": (
        Features,
        "column_range",
        property(lambda f: tuple(e[: f.size] for e in f.owned_range)),
    ),
    "labels as declared": (regression_model, "_label_range", lambda r: tuple(float(e[0]) for e in y_range(r))),
}


def y_range(found: Any) -> Any:
    return found.label.features.owned_range


@pytest.mark.parametrize("name", BROKEN)
def test_broken_twins_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    people = Records("people")
    X = Private(shape=(N, 3), name="X", unit="row", bounds=[-1, 1], records=people)
    y = Private(shape=N, name="y", unit="entry", bounds=[-1, 1], records=people)
    objective = cp.sum_squares((X @ np.array([[3.0, 0], [1, 2], [0, 1]])) @ cp.Variable(2) - 2 * y)
    check(model_of(objective), np.random.default_rng(2), 20)
    monkeypatch.setattr(*BROKEN[name])
    with pytest.raises(AssertionError):
        check(model_of(objective), np.random.default_rng(2), 20)


# ------------------------------------------------------------------------------------ norms of mixed rows
def extremes(declared: dict[str, Any], p: int, M: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(m, p) owned rows: signs and vertices, singular vectors, and random ones, within the declaration."""
    x = np.vstack([rng.choice([-1.0, 1.0], size=(64, p)), np.eye(p), rng.normal(size=(64, p)), np.linalg.svd(M.T)[2]])
    x = np.vstack([x, np.sign(M.T), M.T])
    if "bounds" in declared:
        low, high = declared["bounds"]
        return np.vstack([np.where(x > 0, high, low), np.clip(x, low, high)])
    [(key, limit)] = declared.items()
    order = {"max_l1": 1, "max_l2": 2, "max_linf": math.inf}[key]
    return limit * x / np.maximum(np.linalg.norm(x, ord=order, axis=1, keepdims=True), 1e-9)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.data())
def test_norms_of_mixed_rows_hold_and_are_near(data: st.DataObject) -> None:
    p, k = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    M = rng.normal(size=(p, k)) * rng.integers(0, 2, size=(p, k))
    declared = data.draw(
        st.sampled_from(
            [{"max_l1": 2.0}, {"max_l2": 0.5}, {"max_linf": 3.0}, {"bounds": [-np.arange(1.0, p + 1), np.ones(p)]}]
        )
    )
    turned = data.draw(st.booleans()) and "bounds" not in declared
    shape = (p, N) if turned else (N, p)
    features = Features(Private(shape=shape, unit="column" if turned else "row", **declared), tidy(M), turned)
    mixed = extremes(declared, p, M, rng) @ M
    low, high = features.column_range
    assert (low - 1e-12 <= mixed).all() and (mixed <= high + 1e-12).all()
    found = dict(zip(ORDERS, features.norms, strict=True))
    for order, bound in found.items():
        furthest = float(np.linalg.norm(mixed, ord=order, axis=1).max())
        assert furthest <= bound * (1 + 1e-12) + 1e-15
    assert np.abs(mixed).max() >= found[math.inf] * (1 - 1e-9) - 1e-12  # columns are exact
    if "max_l2" in declared:
        assert np.linalg.norm(mixed, axis=1).max() >= found[2.0] * (1 - 1e-6)


def test_picked_columns_keep_the_bounds_of_their_own_and_need_no_others() -> None:
    low, high = np.array([18.0, -np.inf, -2]), np.array([90.0, np.inf, -1])
    X = Private(shape=(N, 3), name="X", unit="row", bounds=[low, high])
    y = Private(shape=N, name="y", unit="entry", bounds=[-1, 1])
    row = model_of(cp.norm1(X[:, [2, 0]] @ cp.Variable(2) - y / 2)).row
    assert row.lower.tolist() == [-2, 18] and row.upper.tolist() == [-1, 90] and row.label == (-0.5, 0.5)
    assert (row.l1, row.linf) == (92, 90) and row.l2 == pytest.approx(math.hypot(2, 90))
    unit = Private(shape=(N, 3), name="X", unit="row", max_l2=1)
    assert model_of(cp.norm1(unit[:, :2] @ cp.Variable(2) - y)).row.l2 == 1


def test_lower_bounds_do_not_rest_on_rows_that_cannot_occur() -> None:
    X = Private(shape=(N, 3), name="X", unit="row", bounds=[-1, 1])
    y = Private(shape=N, name="y", unit="entry", bounds=[-1, 1])
    w = cp.Variable(2)
    for columns, mixed in ((X[:, :2], False), (X[:, [0, 0]], True), (X @ (np.eye(3)[:, [2, 1]] / 2), False)):
        found = recognise(cp.Problem(cp.Minimize(cp.sum_squares(columns @ w - y)), [cp.norm1(w) <= 1]))
        assert found is not None
        lower_bound = lasso_lower_bound(private_regression(found), 0.1, 0.0)
        assert lower_bound is not None and ("rows bounded entry by entry alone" in lower_bound.unmet) == mixed


def test_columns_of_one_table_are_one_row() -> None:
    """Blocks of the same owned numbers share their norm: it does not count once for each block."""
    X = Private(shape=(N, 4), name="X", unit="row", max_l2=1)
    v, u = cp.Variable(2), cp.Variable(2)
    found = recognise(cp.Problem(cp.Minimize(cp.sum(cp.pos(1 - X[:, :2] @ v - X[:, 2:] @ u)))))
    assert found is not None and len(found.blocks) == 1
    assert private_regression(found).row.l2 == 1
    more = recognise(cp.Problem(cp.Minimize(cp.sum(cp.pos(1 - X[:, :3] @ cp.Variable(3) - X[:, 2:] @ u)))))
    assert more is not None and more.size == 4
    assert private_regression(more).row.l2 == 1


@pytest.mark.parametrize("size", [1e-110, 1e110])
def test_sizes_that_cannot_be_squared_are_refused(size: float) -> None:
    """What public factors make of declared numbers must stay where norms and noise can be computed."""
    m = Leaves()
    for objective in (cp.norm1((m.X @ np.full((3, 2), size)) @ m.v - m.y), cp.norm1(m.X @ m.w - size * m.y)):
        with pytest.raises(SpecificationError, match="squared"):
            model_of(objective)


def test_recoded_labels_of_absent_records_are_not_zero() -> None:
    m = Leaves(Records("people", neighbors="add-remove"))
    assert model_of(cp.sum_squares(m.X @ m.w - 2 * m.t)).row.absent
    assert not model_of(cp.sum(cp.logistic(cp.multiply(1 - 2 * m.t, m.X @ m.w)))).row.absent


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_predictions_are_those_of_the_rows(turned: bool, sparse: bool, mapped: bool, several: bool) -> None:
    rng = np.random.default_rng(0)
    parameter = Private(shape=(3, 5) if turned else (5, 3), unit="column" if turned else "row", bounds=[-1, 1])
    owned: Any = rng.uniform(size=parameter.shape)
    owned = sp.csc_array(owned) if sparse else owned
    features = Features(parameter, tidy(rng.normal(size=(3, 4))) if mapped else None, turned)
    w = rng.normal(size=(features.size, 2) if several else features.size)
    assert np.allclose(features.predict(owned, w), features.rows(owned) @ w, rtol=1e-13)
