"""Rows as numbers: what each column becomes, what odd values become, and that they change no other row."""

from __future__ import annotations

import itertools
import math
import pickle
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from small_tables import ENGINES, TOWNS, Row, polars, value_of

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset import Dataset

ROWS: list[Row] = [(1, "Bonn", 4.0), (2, "Ulm", 1.0), (3, "Kiel", 9.0), (4, "Ulm", -5.0)]
ODD: list[Row] = [
    (9, "Rome", math.nan),
    (9, None, math.inf),
    (9, "", -math.inf),
    (9, "ulm", None),
    (9, "Ulm ", 1e300),
    (9, "Bonn", -0.0),
]


def dataset(native: Any, **options: Any) -> Dataset:
    return Dataset(native, **{"bounds": {"income": (-1, 8)}, "domain": {"town": TOWNS}, **options})


@pytest.mark.parametrize("engine", ENGINES)
def test_numbers_are_clipped_and_categories_are_one_hot(engine: str) -> None:
    X = dataset(ENGINES[engine](ROWS)).rows(["income", "town"])
    np.testing.assert_array_equal(value_of(X), [[4, 1, 0, 0], [1, 0, 0, 1], [8, 0, 1, 0], [-1, 0, 0, 1]])
    assert X.labels[1] == ("column", ("income", "town=Bonn", "town=Kiel", "town=Ulm"))
    assert X.unit == "row"
    np.testing.assert_array_equal(X.column_range, ([-1, 0, 0, 0], [8, 1, 1, 1]))


def test_codes_scaling_and_interactions() -> None:
    d = dataset(polars(ROWS), domain={"town": TOWNS, "person": [1, 2, 3, 4]})
    X = d.rows(["town", "income", ("income", "person")], ordinal=["town", "person"], scale=True)
    np.testing.assert_allclose(value_of(X)[:, 0], [-1, 1, 0, 1])
    np.testing.assert_allclose(value_of(X)[:, 1], [1 / 9, -5 / 9, 1, -1])
    np.testing.assert_allclose(value_of(X)[:, 2], [-1 / 9, 5 / 27, 1 / 3, -1])
    assert X.labels[1][1] == ("town", "income", "income x person")
    crossed = d.rows([("income", "town")])
    np.testing.assert_array_equal(value_of(crossed), [[4, 0, 0], [0, 0, 1], [0, 8, 0], [0, 0, -1]])
    np.testing.assert_array_equal(crossed.column_range, ([-1] * 3, [8] * 3))
    assert crossed.labels[1][1] == ("income x town=Bonn", "income x town=Kiel", "income x town=Ulm")


def test_one_column_is_a_vector_of_the_same_records() -> None:
    d = dataset(polars(ROWS), domain={"town": ["Ulm", "Bonn"]}, outside="drop")
    X, y, code = d.rows(["income"]), d.rows("income"), d.rows("town")
    assert y.shape == code.shape == (4,) and y.unit == "entry" and X.records is y.records is d.records
    np.testing.assert_array_equal(value_of(y), [4, 1, 8, -1])
    np.testing.assert_array_equal(value_of(code), [1, 0, 0.5, 0])


@pytest.mark.parametrize("odd", ODD[:4])
def test_an_odd_record_is_an_error_without_values_unless_dropped(odd: Row) -> None:
    for ask in (lambda d: d.rows(["income", "town"]), lambda d: d.sum("income", "town")):
        with pytest.raises(SpecificationError) as error:
            ask(dataset(polars([*ROWS, odd])))
        assert "outside='drop'" in str(error.value)
        assert "Rome" not in str(error.value) and "ulm" not in str(error.value)
        assert error.value.__context__ is None


@pytest.mark.parametrize("engine", ENGINES)
def test_row_i_of_one_parameter_is_row_i_of_the_next(engine: str) -> None:
    """DuckDB returns the rows of a window in another order every time."""
    rng = np.random.default_rng(0)
    rows: list[Row] = [(int(i), str(t), float(TOWNS.index(t))) for i, t in enumerate(rng.choice(TOWNS, 50_000))]
    d = dataset(ENGINES[engine]([*rows, *rows]), privacy_id="person", max_rows=1)
    town, income = value_of(d.rows(["town"])), value_of(d.rows("income"))
    assert len(income) == len(rows)
    np.testing.assert_array_equal(town @ np.arange(3), income)


def test_several_rows_a_person_are_refused_or_the_first_is_taken() -> None:
    twice: list[Row] = [(1, "Ulm", 5.0), (1, "Bonn", 1.0), (2, "Kiel", 3.0)]
    with pytest.raises(SpecificationError, match="several rows"):
        dataset(polars(twice), privacy_id="person", max_rows=2).rows(["income"])
    with pytest.raises(SpecificationError, match="several rows"):
        dataset(polars(twice), privacy_id="person").rows(["income"])
    one = dataset(polars(twice), privacy_id="person", max_rows=1, order="income").rows(["income"])
    assert sorted(value_of(one).ravel()) == [1, 3]


@pytest.mark.parametrize("engine", ENGINES)
def test_incidence(engine: str) -> None:
    rows: list[Row] = [(7, "Ulm", 1.0), (7, "Ulm", 2.0), (5, "Bonn", 1.0), (7, "Bonn", 1.0), (6, "Kiel", 0.0)]
    d = dataset(ENGINES[engine](rows), privacy_id="person")
    A = d.incidence("person", "town", items=["Ulm", "Bonn", "Kiel"])
    assert sorted(map(tuple, value_of(A).tolist())) == [(0, 0, 1), (0, 1, 0), (1, 1, 0)]
    assert (
        A.unit == "row" and A.positions == "private" and A.labels == (("person", ()), ("town", ("Ulm", "Bonn", "Kiel")))
    )
    with pytest.raises(SpecificationError, match="no value in the domain"):
        d.incidence("person", "town", items=["Ulm"])
    few = dataset(ENGINES[engine](rows), privacy_id="person", max_rows=1, outside="drop")
    some = value_of(few.incidence("person", "town", items=["Ulm", "Bonn"]))
    assert sorted(map(tuple, some.tolist())) == [(0, 0), (0, 1), (1, 0)]  # the first of the list
    assert few.incidence("person", "town").magnitude["max_l1"] == 1


def test_a_fit_and_a_program_of_a_table() -> None:
    rng = np.random.default_rng(0)
    n = 2_000
    frame = pl.DataFrame({"income": rng.uniform(0, 8, n), "town": rng.choice(TOWNS, n)})
    frame = frame.with_columns(
        ill=(pl.col("income") + rng.normal(size=n) > 4).replace_strict({True: "yes", False: "no"})
    )
    people = Dataset(frame, bounds={"income": (0, 8)}, domain={"town": TOWNS, "ill": ["no", "yes"]})
    X, y = people.rows(["income", "town"], scale=True), people.rows("ill")
    w = cp.Variable(4, name="w")
    losses = cp.logistic(-cp.multiply(2 * y - 1, X @ w))
    problem = dpm.Problem(cp.Minimize(cp.sum(losses) / n), [cp.norm(w) <= 5])
    problem.solve(epsilon=2, delta=1e-6, rng=0)
    assert w.value is not None and w.value[0] > 1  # about 4 without privacy: illness follows income
    demand = people.count("town")
    x = cp.Variable(3, nonneg=True)
    cover = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= demand])
    cover.solve(epsilon=1, rng=0)
    assert x.value is not None and abs(x.value.sum() - n) < 200


def test_two_datasets_are_of_the_same_people_unless_somebody_says_otherwise() -> None:
    """One person is in both tables: what it moves adds up, and rows of the two are not paired."""

    def made(**options: Any) -> Dataset:
        return dataset(polars(ROWS), privacy_id="person", max_rows=1, **options)

    patients = dpm.Records("patients")
    a, b = made(), made()
    treated, staff = made(records=patients), made(records=dpm.Records("staff"))
    alone = dpm.sensitivity(2 * a.count()).l1
    assert dpm.sensitivity(a.count() + b.count()).l1 == alone == 2
    assert dpm.sensitivity(treated.count() + staff.count()).l1 == 1
    assert dpm.sensitivity(staff.count() + made(records=staff.records).count()).l1 == 2
    with pytest.raises(SpecificationError, match="same people"):
        dpm.sensitivity(a.count() + staff.count())
    X, y = a.rows(["income"]), b.rows("income")
    w = cp.Variable(1)
    with pytest.raises(SpecificationError, match="one Dataset"):
        dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.norm(w) <= 1]).plan(1)
    found = dpm.sensitivity(cp.hstack([X[:, 0], y]))
    assert found.l1 == 18  # row i of one and entry j of the other
    again = pickle.loads(pickle.dumps(a.records))
    assert again is a.records and again.people is b.records.people is dpm.marks.DEFAULT_RECORDS


@pytest.mark.parametrize("scale", [True, False])
def test_rows_know_their_norms(scale: bool) -> None:
    """A row has one category of each list, whatever the lists' lengths, and numbers at their ends: attained."""
    values = {"a": list("xyz"), "b": list("uvwrs"), "n": [0.0, 1.0], "m": [0.0, 1.0]}
    table = pd.DataFrame(list(itertools.product(*values.values())), columns=list(values))
    data = dpm.Dataset(table, domain={"a": values["a"], "b": values["b"]}, bounds={"n": (0, 1), "m": (0, 1)})
    private = data.rows(["a", "n", ("a", "b"), "m"], scale=scale)
    matrix = value_of(private)
    assert private.magnitude["max_l1"] == pytest.approx(np.abs(matrix).sum(axis=1).max(), rel=1e-12)
    assert private.magnitude["max_l2"] == pytest.approx(np.linalg.norm(matrix, axis=1).max(), rel=1e-12)
    assert set(np.unique(matrix)) <= {-1.0, 0.0, 1.0}, "and no row is cut"
