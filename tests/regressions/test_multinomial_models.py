"""Multinomial regressions on the user's tree: spellings, what constrains and penalises classes, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.regressions.descent import NoisyDescent
from dpmodel.regressions.model import PrivateRegression

N, P, K = 40, 2, 3
RNG = np.random.default_rng(0)
TABLE, PLACES = RNG.uniform(-1, 1, (N, P)), RNG.integers(K, size=N)
ONE_HOT, OMEGA = np.eye(K)[PLACES], np.linspace(0.5, 1.5, N)


class Leaves:
    """Parameters and variables of one model, and its usual scores Z."""

    def __init__(self, **labels: Any) -> None:
        people = dpm.Records("people")
        given = {"unit": "row", "bounds": [0, 1], "max_l1": 1, "records": people} | labels
        self.X = dpm.Private(TABLE, name="X", unit="row", bounds=[-1, 1], records=people)
        self.Y = dpm.Private(ONE_HOT, name="Y", **given)
        self.W, self.U = cp.Variable((P, K), name="W"), cp.Variable((P, K), name="U")
        self.b = cp.Variable(K, name="b")
        self.Z = self.X @ self.W + self.b


def lse(scores: Any, **how: Any) -> Any:
    return cp.log_sum_exp(scores, axis=1, **how)


def dot(labels: Any, scores: Any) -> Any:
    return cp.sum(cp.multiply(labels, scores), axis=1)


# name -> objective
SPELLINGS: dict[str, Callable[[Leaves], Any]] = {
    "sums": lambda m: cp.Minimize(cp.sum(lse(m.Z)) - cp.sum(cp.multiply(m.Y, m.Z))),
    "of each record": lambda m: cp.Minimize(cp.sum(lse(m.Z) - dot(m.Y, m.Z))),
    "kept dimensions": lambda m: cp.Minimize(cp.sum(lse(m.Z, keepdims=True)) - cp.sum(cp.multiply(m.Z, m.Y))),
    "mean": lambda m: cp.Minimize(cp.mean(lse(m.Z) - dot(m.Y, m.Z)) + cp.norm1(m.W)),
    "over n": lambda m: cp.Minimize(cp.sum((lse(m.Z) - dot(m.Y, m.Z)) / N) + cp.sum_squares(m.W) / 2),
    "maximised": lambda m: cp.Maximize(cp.sum(dot(m.Y, m.Z) - lse(m.Z)) / 2 - cp.sum_squares(m.W)),
    "weights": lambda m: cp.Minimize(OMEGA @ lse(m.Z) - OMEGA @ dot(m.Y, m.Z)),
    "weights of the difference": lambda m: cp.Minimize(cp.sum(cp.multiply(OMEGA, lse(m.Z) - dot(m.Y, m.Z)))),
    "public labels": lambda m: cp.Minimize(cp.sum(lse(m.Z)) - cp.sum(cp.multiply(ONE_HOT, m.Z))),
    "no intercept": lambda m: cp.Minimize(cp.sum(lse(m.X @ m.W)) - cp.sum(cp.multiply(m.Y, m.X @ m.W))),
    "turned": lambda m: cp.Minimize(cp.sum(lse(-2 * m.Z)) + 2 * cp.sum(cp.multiply(m.Y, m.Z))),
    "two blocks": lambda m: cp.Minimize(
        cp.sum(lse(m.X @ m.W + TABLE @ m.U)) - cp.sum(cp.multiply(m.Y, m.X @ m.W + TABLE @ m.U))
    ),
    "tied classes": lambda m: cp.Minimize(cp.sum(lse(m.Z)) - cp.sum(cp.multiply(m.Y, m.Z)) + cp.mixed_norm(m.W, 2, 1)),
}


def model_of(problem: dpm.Problem) -> PrivateRegression:
    model = problem._model(None)
    assert isinstance(model, PrivateRegression)
    return model


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_model_has_the_values_that_were_written(name: str) -> None:
    """Read with the private numbers, the recognised objective is the user's own at any coefficients."""
    m = Leaves()
    problem = dpm.Problem(SPELLINGS[name](m))
    model, rng = model_of(problem), np.random.default_rng(1)
    assert model.scores == K and model.size == K * model.row.size and model.domain.kind == "free"
    w = rng.normal(size=model.size)
    rows = model.read_rows()
    losses = model.loss.value(rows.predict(w), rows.labels) * (1 if rows.weights is None else rows.weights)
    mine = model.scale * losses.sum() + model.penalty.value(w)
    assert model.public is not None
    for variable, value in model.public.complete(w).items():
        variable.value = value
    swap = {id(m.X): cp.Constant(TABLE), id(m.Y): cp.Constant(ONE_HOT)}
    sign = -1 if name == "maximised" else 1
    assert sign * problem.objective.args[0].tree_copy(swap).value == pytest.approx(mine)
    assert problem.is_dp() and "softmax loss" in str(problem.classify()) and "3 classes" in str(problem.classify())
    assert "softmax loss" in str(problem.explain())


@pytest.mark.parametrize(
    ("constrain", "kind"),
    [
        (lambda m: m.W[:, 0] == 0, "box"),
        pytest.param(lambda m: cp.sum(m.W, axis=1) == 0, "polyhedron", marks=pytest.mark.slow),
        (lambda m: cp.norm1(m.W) <= 2, "l1"),
        (lambda m: cp.norm(m.W, "fro") <= 2, "l2"),
    ],
)
def test_constraints_that_tie_classes_hold(constrain: Any, kind: str) -> None:
    m = Leaves()
    limit = constrain(m)
    problem = dpm.Problem(cp.Minimize(cp.sum(lse(m.X @ m.W)) - cp.sum(cp.multiply(m.Y, m.X @ m.W))), [limit])
    assert model_of(problem).domain.kind == kind
    problem.solve(50, 1e-3, mechanism=NoisyDescent(steps=2), rng=0)
    assert np.max(limit.violation()) < 1e-6 and m.W.value.any()


# name -> (objective, words of the message)
TRAPS: dict[str, tuple[Callable[[Leaves], Any], str]] = {
    "half the labels": (lambda m: cp.sum(lse(m.Z)) - cp.sum(cp.multiply(m.Y, m.Z)) / 2, "labels times the same scores"),
    "no labels": (lambda m: cp.sum(lse(m.Z)), "labels times the same scores"),
    "other scores": (lambda m: cp.sum(lse(m.Z)) - cp.sum(cp.multiply(m.Y, m.X @ m.U)), "the same scores"),
    "beside a logistic loss": (
        lambda m: cp.sum(lse(m.Z)) - cp.sum(cp.multiply(m.Y, m.Z)) + cp.sum(cp.logistic(m.Z)),
        "the same scores",
    ),
    "turned alone": (lambda m: cp.sum(lse(-m.Z)) - cp.sum(cp.multiply(1 - m.Y, m.Z)), "the same scores"),
    "one class": (
        lambda m: cp.sum(lse(m.X @ cp.Variable((P, 1)))) - cp.sum(cp.multiply(m.Y[:, :1], m.X @ cp.Variable((P, 1)))),
        "classes need two or more",
    ),
    "labels of two parameters": (
        lambda m: cp.sum(lse(m.Z)) - cp.sum(cp.multiply(cp.hstack([m.Y[:, :2], m.X[:, :1]]), m.Z)),
        "columns of one Private",
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_what_does_not_fit_is_named_with_what_would(name: str) -> None:
    write, words = TRAPS[name]
    with pytest.raises(UnsupportedModelError, match=words) as error:
        dpm.Problem(cp.Minimize(write(Leaves()))).classify()
    assert "log_sum_exp" in error.value.what and "one-hot" in str(error.value)


DECLARED: list[tuple[dict[str, Any], str]] = [
    ({"max_l1": None}, "not declared as one-hot"),
    ({"max_l1": 2}, "not declared as one-hot"),
    ({"bounds": [-1, 1]}, "within \\[0, 1\\]"),
    ({"bounds": None, "max_l1": None}, "within \\[0, 1\\]"),
    ({"records": dpm.Records("others")}, "is of Records"),
    ({"unit": "entry", "max_l1": None}, "unit='entry'"),
]


@pytest.mark.parametrize(("declared", "words"), DECLARED)
def test_labels_declared_otherwise_are_refused_before_the_charge(declared: dict[str, Any], words: str) -> None:
    m, budget = Leaves(**declared), dpm.Budget(1.0)
    problem = dpm.Problem(SPELLINGS["sums"](m))
    with pytest.raises(SpecificationError, match=words):
        problem.solve(1.0, budget=budget)
    assert budget.spent.epsilon == 0


def test_where_no_record_owns_a_row_it_is_a_program() -> None:
    b, Z = dpm.Private(np.ones((3, 4)), name="b", unit="entry", linf=0.1), cp.Variable((3, 4), nonneg=True)
    cells = dpm.Problem(cp.Minimize(cp.sum(lse(Z - b))), [cp.sum(Z) == 1]).classify().cells
    assert [(cell.part, cell.level) for cell in cells] == [("scalar", "low")]


def test_a_record_may_own_a_column_and_be_absent() -> None:
    people = dpm.Records("people", neighbors="add-remove")
    X = dpm.Private(TABLE.T, name="X", unit="column", bounds=[-1, 1], records=people)
    m = Leaves(records=people)
    problem = dpm.Problem(cp.Minimize(cp.sum(lse(X.T @ m.W + m.b)) - cp.sum(cp.multiply(m.Y, X.T @ m.W + m.b))))
    model = model_of(problem)
    assert model.row.absent and model.derivative_bound == pytest.approx(np.sqrt(2))
    np.testing.assert_array_equal(model.read_rows().blocks[0][0], TABLE)
    reach = {order: model.loss.measured(order).derivative_bound(np.inf, 1.0) for order in (1.0, 2.0)}
    for order, size in reach.items():
        moved = model.row.sensitivity(size, order)
        assert model.gradient_sensitivity(order) == pytest.approx(moved) and moved > 0


def test_public_labels_and_clips_are_checked_too() -> None:
    m = Leaves()
    with pytest.raises(SpecificationError, match="public labels"):
        dpm.Problem(cp.Minimize(cp.sum(lse(m.Z)) - cp.sum(cp.multiply(np.ones((N, K)), m.Z)))).classify()
    with pytest.raises(SpecificationError, match="sqrt"):
        dpm.Problem(SPELLINGS["sums"](m), clip=1.0).classify()


def test_one_hot_columns_of_a_data_set_are_labels() -> None:
    table = {"a": TABLE[:, 0], "b": TABLE[:, 1], "town": np.array(["Bonn", "Jena", "Ulm"])[PLACES]}
    pd = pytest.importorskip("pandas")
    people = dpm.Dataset(
        pd.DataFrame(table), bounds={"a": (-1, 1), "b": (-1, 1)}, domain={"town": ["Ulm", "Jena", "Bonn"]}
    )
    X, Y, W = people.rows(["a", "b"]), people.rows(["town"]), cp.Variable((P, K))
    problem = dpm.Problem(cp.Minimize(cp.sum(lse(X @ W)) - cp.sum(cp.multiply(Y, X @ W))))
    np.testing.assert_array_equal(model_of(problem).read_rows().labels, np.eye(K)[2 - PLACES])
    assert people.rows(["a", "town"]).magnitude["max_l1"] == 2
