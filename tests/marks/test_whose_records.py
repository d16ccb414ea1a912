"""Whose records: one default for every face, people that are told apart or joined, and what guarantees say of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from blocks import features_of, labels_of, table

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.marks import DEFAULT_RECORDS, Records
from dpmodel.marks.row_sources import MemoryBlocks
from dpmodel.marks.rows import SourceRows

FRAME = pd.DataFrame({"town": ["Ulm", "Bonn", "Ulm"], "age": [30, 40, 50]})
ROWS = 6


def dataset(records: Records | None = None, **more: Any) -> dpm.Dataset:
    domain = {"town": ["Bonn", "Ulm"]}
    return dpm.Dataset(FRAME, domain=domain, bounds={"age": (0, 99)}, neighbors="add-remove", records=records, **more)


def counts(records: Records | None, name: str = "q") -> dpm.Private:
    return dpm.Private([3.0, 4.0], name=name, unit="all", l1=1, records=records)


# ------------------------------------------------------------------ every face, of two parameters' Records
Face = Callable[[Any, Any, dpm.Budget], Any]


def measured(one: Any, two: Any, budget: dpm.Budget) -> Any:
    return dpm.measure(cp.hstack([counts(one, "p"), counts(two)]), 1, budget=budget)


def measured_of_a_dataset(one: Any, two: Any, budget: dpm.Budget) -> Any:
    return dpm.measure(cp.hstack([dataset(one).count(by="town"), counts(two)]), 1, budget=budget)


def sensitivity(one: Any, two: Any, budget: dpm.Budget) -> Any:
    return dpm.sensitivity(counts(one, "p") + counts(two))


def solved(objective: Any, constraints: list[Any], budget: dpm.Budget, mechanism: str = "laplace-once") -> Any:
    problem = dpm.Problem(objective, constraints)
    problem.solve(1, 0.0 if mechanism == "laplace-once" else 1e-6, mechanism=mechanism, budget=budget)
    return problem.release


def right_hand_sides(one: Any, two: Any, budget: dpm.Budget) -> Any:
    x = cp.Variable(2, nonneg=True)
    return solved(cp.Minimize(cp.sum(x)), [x >= counts(one, "p"), x <= 50 + counts(two)], budget)


def objective_and_sides(one: Any, two: Any, budget: dpm.Budget) -> Any:
    x = cp.Variable(2, bounds=[0, 9])
    return solved(cp.Minimize(counts(one, "p") @ x), [x >= counts(two)], budget)


def coefficients(one: Any, two: Any, budget: dpm.Budget) -> Any:
    x = cp.Variable(2, bounds=[0, 9])
    A = dpm.Private(np.ones((3, 2)), name="p", unit="row", bounds=[0, 2], records=one)
    return solved(cp.Minimize(-cp.sum(x)), [A @ x <= 20 + cp.sum(counts(two))], budget)


def regression(one: Any, two: Any, budget: dpm.Budget) -> Any:
    X = dpm.Private(np.eye(ROWS)[:, :2], name="p", unit="row", bounds=[0, 1], records=one)
    y = dpm.Private(np.ones(ROWS), name="q", unit="entry", bounds=[0, 1], records=two)
    w = cp.Variable(2)
    return solved(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.norm(w) <= 1], budget, "sufficient-statistics")


def outputs(one: Any, two: Any, budget: dpm.Budget) -> Any:
    X, Z = (
        dpm.Private(np.eye(ROWS)[:, :2], name=name, unit="row", bounds=[0, 1], records=records)
        for name, records in (("p", one), ("q", two))
    )
    W, goal = cp.Variable((2, 2)), np.linspace(0, 1, ROWS)
    loss = cp.sum_squares(X @ W[:, 0] - goal) + cp.sum_squares(Z @ W[:, 1] - goal[::-1])
    return solved(cp.Minimize(loss), [cp.norm(W[:, 0]) <= 1, cp.norm(W[:, 1]) <= 1], budget, "sufficient-statistics")


def rows_in_blocks(one: Any, two: Any, budget: dpm.Budget) -> Any:
    source, x = MemoryBlocks(np.array_split(np.abs(table(60)), 3)), cp.Variable(3, bounds=[0, 1])
    A = dpm.Private(SourceRows(source, features_of, 3), name="p", unit="row", bounds=[0, 1], records=one)
    b = dpm.Private(SourceRows(source, labels_of, None), name="q", unit="entry", bounds=[0, 1], records=two)
    return solved(cp.Minimize(0), [A @ x <= b], budget, "noisy-hinge-descent")


FACES: dict[str, Face] = {
    face.__name__: face
    for face in (
        measured, measured_of_a_dataset, sensitivity, right_hand_sides, objective_and_sides, coefficients, regression,
        outputs, rows_in_blocks,
    )
}  # fmt: skip

# Each a function, so that every face gets Records of its own.
DOUBTFUL: dict[str, Callable[[], tuple[Any, Any]]] = {
    "named, default": lambda: (Records("a"), None),
    "default, named": lambda: (None, Records("a")),
    "default, Records of no name": lambda: (None, Records()),
    "two Records of no name": lambda: (Records(), Records()),
    "no name, named": lambda: (Records(), Records("a")),
    "two of one name": lambda: (Records("a"), Records("a")),
    "a table of nobody's, named": lambda: (Records.of_table("a", "replace-one", None), Records("a")),
    "a named table, default": lambda: (Records.of_table(None, "replace-one", Records("a")), None),
}


@pytest.mark.parametrize("pair", DOUBTFUL)
@pytest.mark.parametrize("face", FACES)
def test_people_that_may_be_the_same_are_refused_before_any_charge(face: str, pair: str, unread: None) -> None:
    budget = dpm.Budget(1, 1e-6)
    with pytest.raises(SpecificationError, match="Records"):
        FACES[face](*DOUBTFUL[pair](), budget)
    assert budget.spent.epsilon == 0


@pytest.mark.parametrize("face", sorted(FACES.keys() - {"regression", "rows_in_blocks"}))
def test_a_name_each_tells_them_apart(face: str) -> None:
    FACES[face](Records("a"), Records("b"), dpm.Budget(1, 1e-6))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("records", [None, Records(), Records("a")], ids=["default", "no name", "named"])
def test_the_same_records_join_them(face: str, records: Records | None) -> None:
    FACES[face](records, records, dpm.Budget(1, 1e-6))


def test_the_error_says_how_to_tell_them_apart_and_how_to_join_them() -> None:
    with pytest.raises(SpecificationError) as caught:
        measured(Records("staff"), None, dpm.Budget(1))
    assert caught.value.what == "p is of Records('staff'), q of no Records of a name: are these the same people?"
    assert "records=people for both" in caught.value.remedy and "Records('b')" in caught.value.remedy
    with pytest.raises(SpecificationError, match=r"p is of Records\('a'\), q of another Records\('a'\)"):
        measured(Records("a"), Records("a"), dpm.Budget(1))


# ------------------------------------------------------------------ what is charged
def test_one_default_for_the_whole_package() -> None:
    """One person may be in a data set, a parameter of one's own, a tree and a table of ``query_release`` at once."""
    tree = dpm.released.tree_query(2)
    counted, made = dataset().count(by="town"), tree.private([3, 4], neighbors="add-remove")
    release = dpm.query_release({"a": [0, 1]}, domain={"a": 2}, marginals=[("a",)], neighbors="add-remove")
    (cells,) = [p for p in release.problem.parameters() if isinstance(p, dpm.Private)]
    every = [counted, made, counts(None), cells]
    assert all(parameter.records.people is DEFAULT_RECORDS for parameter in every)
    alone = [dpm.sensitivity(parameter).l1 for parameter in every]
    assert dpm.sensitivity(cp.hstack(every)).l1 == sum(alone) == 1 + 2 + 1 + 1


@pytest.mark.parametrize(("pair", "scale"), [((None, None), 2), (("a", "a"), 2), (("a", "b"), 1)])
def test_what_one_person_moves_is_charged(pair: Any, scale: float) -> None:
    people = {name: Records(name) for name in ("a", "b")}
    one, two = (people.get(name) for name in pair)
    for face in (measured, measured_of_a_dataset):
        assert face(one, two, dpm.Budget(1)).noise.scale == pytest.approx(scale, rel=1e-6)


# ------------------------------------------------------------------ what guarantees say
def mixed(one: Any, two: Any) -> dpm.Problem:
    x = cp.Variable(3, nonneg=True, name="x")
    b = dpm.Private([1.0, 2, 3], name="beds", unit="entry", linf=1, bounds=[0, 9], records=one)
    s = dpm.Private(5.0, name="staff", linf=1, records=two)
    c = dpm.Private([1.0, 2, 3], name="costs", l1=1, bounds=[0, 9], records=two)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b, cp.sum(x) <= 99 + s, x <= 50 + c])


OWNS, MOVES = "owns one entry of beds (which one is public)", "may move every entry of costs and moves staff"
SAID = {
    f"a record {OWNS} and {MOVES}": (None, None),
    f"a record of a {OWNS} and {MOVES}": "aa",
    f"a record of a {OWNS}; or a record of b {MOVES}": "ab",
}


@pytest.mark.parametrize("words", SAID)
def test_plan_and_release_say_whose_records_and_what_they_own(words: str) -> None:
    people = {"a": Records("a"), "b": Records("b")}
    problem = mixed(*(people.get(name) for name in SAID[words]))
    plan = problem.plan(1)
    problem.solve(1)
    assert sorted(plan.protects.split("; or ")) == sorted(words.split("; or "))
    assert problem.release.guarantee.record == plan.protects
    assert f"protects: {plan.protects[:40]}" in str(plan)
    assert dpm.Plan.from_json(plan.to_json()).protects == plan.protects


def test_tables_are_named_after_their_people() -> None:
    staff = Records("staff")
    record = dpm.measure(dataset(staff, name="shifts").count(by="town"), 1).record
    assert record == "a record of staff may move every entry of count by town"
    assert dpm.measure(dataset(name="shifts").count(by="town"), 1).record.startswith("a record of shifts ")
    both = cp.hstack([dataset(name=name).count(by="town", name=name) for name in ("shifts", "visits")])
    assert dpm.measure(both, 1).record == "a record may move every entry of shifts and visits"
