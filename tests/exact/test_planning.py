"""``linalg.plan`` offers what the functions offer, and is the plan that their results carry, given the same facts."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel import linalg
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.linalg import GF, QQ

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
N = 1000
_RNG = np.random.default_rng(3)
ROWS = _RNG.integers(7, size=(N, 3))
UNIT = _RNG.normal(size=(N, 2)) / 4


def vectors(task: str, **more: Any) -> tuple[Any, dict[str, Any]]:
    calls: dict[str, Any] = {
        "span": lambda **k: linalg.span(ROWS, **k),
        "affine span": lambda **k: linalg.affine_span(ROWS, **k),
        "equations": lambda **k: linalg.solve_equations(ROWS, ROWS @ [1, 2, 3] % 7, **k),
    }
    return calls[task], {"task": task, "dimension": 3, "field": GF(7), "neighbors": "add-remove", **more}


def inequalities(sided: bool, **more: Any) -> tuple[Any, dict[str, Any]]:
    b = np.ones(N) if sided else None
    more = {"mechanism": "rescaling-perceptron", "neighbors": "add-remove", **more}
    about = {"task": "inequalities", "dimension": 2, "homogeneous": not sided, **more}
    return lambda **k: linalg.feasible_point(UNIT if sided else -np.abs(UNIT) - 0.1, b, **k), about


def hull(**more: Any) -> tuple[Any, dict[str, Any]]:
    about = {"task": "hull", "dimension": 2, "levels": [7, 13], "neighbors": "add-remove", **more}
    return lambda **k: linalg.point_in_hull(ROWS[:, :2], lower=0, upper=[6, 12], step=1, **k), about


CASES = {
    "span": vectors("span"),
    "span, rank": vectors("span", rank=2),
    "span, replaced": vectors("span", neighbors="replace-one", expected=N),
    "affine span": vectors("affine span", expected=700),
    "a point": vectors("affine span", rank=0),
    "equations": vectors("equations", rank=4),
    "equations, some wrong": vectors("equations", corrupted=0.05),
    "a margin": inequalities(True, margin=0.2),
    "a ball": inequalities(True, margin={"radius": 0.3, "within": 1}, expected=900),
    "a ball of directions": inequalities(False, margin={"radius": 0.3, "within": 1}),
    "public rows": inequalities(True, margin=Fraction(1, 5), public=([[1, 1]], [4]), nonneg=True),
    "directions": inequalities(False, margin=0.3, nonneg=True, neighbors="replace-one", expected=N),
    "hull": hull(),
    "hull, replaced": hull(neighbors="replace-one", expected=N),
}


@pytest.mark.parametrize("case", list(CASES), ids=list(CASES))
def test_the_plan_of_a_result_is_the_plan(case: str) -> None:
    call, about = CASES[case]
    public = {"task", "dimension", "homogeneous", "levels", "expected"}
    given = {name: value for name, value in about.items() if name not in public}
    planned = {name: value for name, value in about.items() if name != "expected"}
    found = call(**given, **BUDGET, expected=about.get("expected"), rng=1)
    plan = linalg.plan(**planned, **BUDGET, records=about.get("expected"))
    assert plan.without_model().to_dict() == found.plan.to_dict()
    assert str(plan.without_model()) == str(found.plan)
    assert plan._forecaster is not None and found.plan._forecaster is None  # private rows are within reach of those
    again = pickle.loads(pickle.dumps(found))
    assert json.dumps(again.to_dict()) == json.dumps(found.to_dict()) and str(again) == str(found)


def test_pure_budgets_and_too_few_public_records_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="delta > 0"):
        linalg.plan("span", dimension=3, epsilon=1.0)
    with pytest.raises(UnsupportedModelError, match=r"10, and at least \d+ are needed"):
        linalg.plan("span", dimension=3, neighbors="replace-one", records=10, **BUDGET)


WRONG: list[dict[str, Any]] = [
    {"task": "spans"},
    {"task": ["span"]},
    {"dimension": 0},
    {"dimension": "3"},
    {"records": 1.5},
    {"neighbors": ["add-remove"]},
    {"field": 7},
    {"rank": 4},
    {"rank": 0},
    {"corrupted": "some"},
    {"corrupted": float("nan")},
    {"corrupted": -1},
    {"epsilon": None},
    {"beta": 1},
    {"mechanism": "no-such"},
    {"mechanism": np.zeros(2)},
    {"task": "inequalities"},
    {"task": "inequalities", "margin": 0},
    {"task": "inequalities", "margin": {"radius": 10**400, "within": 1}},
    {"task": "inequalities", "margin": 0.1, "nonneg": "yes"},
    {"task": "inequalities", "margin": 0.1, "public": ([[1]], [1])},
    {"task": "inequalities", "bound": 10**400},
    {"task": "inequalities", "bound": 2.5},
    {"task": "hull", "rank": 2},
    {"margin": 0.1},
    {"task": "hull", "levels": None},
    {"task": "hull", "levels": 1.5},
    {"task": "hull", "levels": [3]},
    {"task": "hull", "levels": 10**50},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_arguments_are_refused_in_words(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecificationError) as caught:
        linalg.plan(**{"task": "span", "dimension": 3, **BUDGET, **wrong})
    assert caught.value.why and caught.value.remedy


def test_unknown_names_are_answered_with_those_that_fit() -> None:
    with pytest.raises(SpecificationError) as caught:
        linalg.plan("span", dimension=3, mechanism="stable", **BUDGET)
    assert "stable-span" in caught.value.remedy and "laplace-once" not in caught.value.remedy


@pytest.mark.parametrize(
    ("task", "facts", "words"), [("inequalities", {"bound": 2**60}, "bound="), ("hull", {}, "five coordinates")]
)
def test_what_to_try_fits_the_system(task: Any, facts: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        linalg.plan(task, dimension=6, **facts, **BUDGET)
    assert words in caught.value.remedy


def test_sides_may_be_a_column_or_sparse() -> None:
    b = ROWS @ [1, 2, 3] % 7
    ones = np.ones((N, 1))
    for sides, others in ((b[:, None], ones), (sp.csr_array(b[:, None]), sp.csr_array(ones))):
        found = linalg.solve_equations(ROWS, sides, field=GF(7), rng=1, **BUDGET)
        assert found.x is not None and list(found.x) == [1, 2, 3]
        assert linalg.feasible_point(UNIT, others, margin=0.2, mechanism="rescaling-perceptron", rng=1, **BUDGET).found
    with pytest.raises(SpecificationError):
        linalg.solve_equations(ROWS, np.column_stack([b, b]), field=QQ, **BUDGET)


@pytest.mark.parametrize("ball", [(-1, 1), (0, 1), (1, 0), ("a", 1), (1, float("nan")), (10**400, 1)])
def test_margin_of_refuses_what_is_no_ball(ball: tuple[Any, Any]) -> None:
    with pytest.raises(SpecificationError) as caught:
        linalg.margin_of(*ball)
    assert caught.value.why and caught.value.remedy


def test_a_wrong_guess_is_refused_even_where_it_is_not_needed() -> None:
    with pytest.raises(SpecificationError, match="expected"):
        linalg.feasible_point(UNIT, 1, margin=0.2, neighbors="replace-one", expected=-3, **BUDGET)


def test_too_few_positive_examples_are_counted_as_such() -> None:
    learn = pytest.importorskip("dpmodel.learn")
    X, y = np.tile([[1, 2], [3, 5]], (500, 1)), np.tile([1, 0], 500)
    with pytest.raises(UnsupportedModelError, match="guarantee: 20, and at least"):
        learn.AffineSubspaceClassifier(epsilon=1, classes=(0, 1), expected=20).fit(X, y)
