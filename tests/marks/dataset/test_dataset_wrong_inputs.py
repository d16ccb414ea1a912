"""What people get wrong: each its own error, from public facts where they tell, and never with values."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from small_tables import value_of

from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.marks.dataset import Dataset

FRAME = pd.DataFrame(
    {
        "who": [1, 1, 2],
        "town": ["Ulm", "Bonn", "Ulm"],
        "age": [30.0, 40.0, 50.0],
        "seen": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03"]).tz_localize("Europe/Berlin"),
        "fit": [True, False, True],
    },
    index=[0, 0, 0],
)
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"bounds": {"wage": (0, 1)}}, "no column 'wage'"),
    ({"bounds": {"age": (1, 0)}}, "not lo < hi"),
    ({"bounds": {"age": (0, np.inf)}}, "two finite numbers"),
    ({"bounds": {"age": (0, 5e-324)}}, "below 1e-100"),
    ({"bounds": {"age": (-1.7e308, 1.7e308)}}, "beyond 1e100"),
    ({"integers": ["wage"]}, "no column 'wage'"),
    ({"integers": ["age"]}, "'age' is among the integers and has no bounds"),
    ({"integers": ["age", "age"], "bounds": {"age": (0, 1)}}, "integers=.* names a column twice"),
    ({"decimal": "'"}, "decimal"),
    ({"bounds": [(0, 1)]}, "not a mapping"),
    ({"domain": {"city": ["Ulm"]}}, "no column 'city'"),
    ({"domain": {"town": "Ulm"}}, "domain"),
    ({"domain": {"age": [30.0]}, "bounds": {"age": (0, 1)}}, "bounds and a domain"),
    ({"privacy_id": "name"}, "no column 'name'"),
    ({"max_rows": 3}, "without privacy_id"),
    ({"privacy_id": "who", "max_rows": 0}, "positive integer"),
    ({"privacy_id": "who", "max_rows": 1.5}, "positive integer"),
    ({"outside": "ignore"}, "outside"),
    ({"neighbors": "swap"}, "neighbors"),
]


@pytest.mark.parametrize(("settings", "said"), WRONG)
def test_declarations(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecificationError, match=said):
        Dataset(FRAME, **settings)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda d: d.count(), "number of rows is public"),
        (lambda d: d.count("age"), "has no domain"),
        (lambda d: d.count(["town", "town"]), "names a column twice"),
        (lambda d: d.count("town", distinct=True), "distinct without privacy_id"),
        (lambda d: d.sum("town"), "column of categories"),
        (lambda d: d.sum("who"), "has no bounds"),
        (lambda d: d.mean("age", "age"), "has no domain"),
        (lambda d: d.mean("town"), "column of categories"),
        (lambda d: np.asarray(d.mean("age", "town")), "as an array or in an expression"),
        (lambda d: d.histogram("age", [3]), "increasing"),
        (lambda d: d.histogram("age", [3, 1]), "increasing"),
        (lambda d: d.histogram("age", "ab"), "increasing"),
        (lambda d: d.quantile_counts("age", []), "increasing"),
        (lambda d: d.rows([]), "no columns"),
        (lambda d: d.rows(["age", "age"]), "twice"),
        (lambda d: d.rows(["age"], ordinal=["town"]), "not among"),
        (lambda d: d.rows("town"), "no vector"),
        (lambda d: d.rows(["seen"]), "has no bounds"),
        (lambda d: d.incidence("who", "town"), "every row of the table is one"),
        (lambda d: d.incidence("nobody", "town"), "no column"),
    ],
)
def test_questions(ask: Any, said: str) -> None:
    people = Dataset(FRAME, bounds={"age": (0, 100)}, domain={"town": ["Bonn", "Ulm", "Kiel"]})
    with pytest.raises(DPModelError, match=said):
        ask(people)


def test_any_number_of_rows_a_person_is_refused() -> None:
    people = Dataset(FRAME, privacy_id="who", bounds={"age": (0, 100)}, domain={"town": ["Bonn", "Ulm"]})
    for ask in (lambda: people.count("town"), lambda: people.sum("age"), lambda: people.histogram("age", [0, 1])):
        with pytest.raises(SpecificationError, match="any number of rows"):
            ask()


@pytest.mark.parametrize("null", [None, float("nan")])
def test_a_null_privacy_id_is_an_error_or_dropped(null: Any) -> None:
    frame = pl.DataFrame({"who": [1.0, null, 2.0, None], "town": ["Ulm", "Ulm", "Bonn", "Ulm"]}, strict=False)
    settings: dict[str, Any] = {"privacy_id": "who", "max_rows": 1, "domain": {"town": ["Bonn", "Ulm"]}}
    with pytest.raises(SpecificationError, match="no 'who'"):
        Dataset(frame, **settings).count("town")
    np.testing.assert_array_equal(value_of(Dataset(frame, **settings, outside="drop").count("town")), [1, 1])


def test_what_is_no_table() -> None:
    for given in ([1, 2], np.zeros((2, 2)), {"a": [1]}, "people.csv", None, pd.Series([1])):
        with pytest.raises(SpecificationError):
            Dataset(given)
    with pytest.raises(SpecificationError, match="there twice"):
        Dataset(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(SpecificationError, match="name as text"):
        Dataset(pd.DataFrame([[1, 2]]))


def test_times_with_zones_are_categories() -> None:
    days = [datetime.datetime(2024, 1, d, tzinfo=datetime.timezone(datetime.timedelta(hours=1))) for d in (1, 2)]
    np.testing.assert_array_equal(value_of(Dataset(FRAME, domain={"seen": days}, outside="drop").count("seen")), [1, 1])


def test_an_index_that_repeats_does_not_align_rows() -> None:
    people = Dataset(FRAME, bounds={"age": (0, 100)})
    np.testing.assert_array_equal(value_of(people.rows("age")), [30, 40, 50])
    assert value_of(Dataset(FRAME, domain={"fit": [False, True]}).count("fit"))[1] == 2


@pytest.mark.parametrize(
    "declared", [{"bounds": {"seen": (0, 1)}}, {"bounds": {"town": (0, 1)}}, {"domain": {"town": 3}}]
)
def test_columns_that_hold_nothing_of_what_was_declared(declared: dict[str, Any]) -> None:
    """No error of types, which others decide: a refusal by ``outside``."""
    people, (column,) = Dataset(FRAME, **declared), [c for each in declared.values() for c in each]
    with pytest.raises(SpecificationError, match=f"no value in the domain or bounds of '{column}'"):
        people.count(column) if "domain" in declared else people.sum(column)


def test_engine_errors_hold_no_values() -> None:
    pytest.importorskip("duckdb")
    import duckdb

    secret = duckdb.connect().sql(
        "select case when i = 3 then error('secret ' || i) else i end as age from range(5) t(i)"
    )
    with pytest.raises(SpecificationError) as error:
        Dataset(secret, bounds={"age": (0, 100)}).sum("age")
    assert "secret" not in str(error.value) and error.value.__context__ is None


def test_files(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    frame = pl.DataFrame({"who": [1, 1, 2], "town": ["Ulm", "Bonn", "Ulm"], "age": [30.5, 40.0, 50.0], "n": [1, 2, 2]})
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_csv(tmp_path / "a.csv")
    for path in ("a.parquet", "a.csv"):
        people = Dataset.scan(tmp_path / path, bounds={"age": (0, 100)}, domain={"town": ["Bonn", "Ulm"], "n": [1, 2]})
        np.testing.assert_array_equal(value_of(people.crosstab("n", "town")), [[0, 1], [1, 1]])
        np.testing.assert_allclose(value_of(people.sum("age", "town")), [40, 80.5], atol=1e-3)
    # One odd record in a csv file decides nothing for the others: it is missing.
    (tmp_path / "b.csv").write_text((tmp_path / "a.csv").read_text() + "x,Ulm,forty,3\n")
    odd = Dataset.scan(tmp_path / "b.csv", bounds={"age": (0, 100)}, domain={"town": ["Bonn", "Ulm"]}, outside="drop")
    np.testing.assert_array_equal(value_of(odd.count("town")), [1, 3])
    np.testing.assert_allclose(value_of(odd.sum("age")), 120.5, atol=1e-3)
    with pytest.raises(SpecificationError, match="outside='drop'"):
        Dataset.scan(tmp_path / "b.csv", bounds={"age": (0, 100)}).sum("age")
    with pytest.raises(SpecificationError, match="files"):
        Dataset.scan(tmp_path / "a.xlsx")
    with pytest.raises(SpecificationError):
        Dataset.scan(tmp_path / "nothing.parquet")


def test_codes_where_text_was_declared_as_a_size() -> None:
    people = Dataset(pd.DataFrame({"sex": ["f", "m", "m"]}), domain={"sex": 2})
    with pytest.raises(SpecificationError, match=r"domain=\{'sex': \[...\]\} if it holds others than 0, 1"):
        value_of(people.count("sex"))
    with pytest.raises(SpecificationError, match="private keys without epsilon"):
        Dataset(pd.DataFrame({"sex": ["f", "m", "m"]}), domain={}).count("sex", keys="private")
