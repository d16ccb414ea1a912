"""What one record holds decides neither how others are read, nor what is said, nor where others stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from small_tables import ENGINES, Row, polars, value_of

from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset import Dataset

CATEGORIES: dict[str, Callable[[pd.Series], pd.Series]] = {
    "unordered": lambda town: town.astype(pd.CategoricalDtype(list(dict.fromkeys(town)))),
    "ordered": lambda town: town.astype(pd.CategoricalDtype(list(dict.fromkeys(town)), ordered=True)),
    "text": lambda town: town,
}


@pytest.mark.parametrize("kind", CATEGORIES)
def test_the_list_of_categories_does_not_decide_which_rows_count(kind: str) -> None:
    """Person 9 comes first, and so does what person 9 has in a list of categories in the order of the data."""
    for first in ("Bonn", "Ulm"):
        frame = pd.DataFrame({"person": [9, 1, 1, 2, 2], "town": [first, "Ulm", "Bonn", "Ulm", "Bonn"]})
        frame["town"] = CATEGORIES[kind](frame["town"])
        people = Dataset(frame, privacy_id="person", max_rows=1, domain={"town": ["Bonn", "Ulm"]})
        np.testing.assert_array_equal(value_of(people.count("town")), [2 + (first == "Bonn"), first == "Ulm"])


def test_objects_that_no_order_holds() -> None:
    frame = pd.DataFrame({"who": [1, 2], "odd": pd.Series([["secret"], 1], dtype=object), "fit": [True, False]})
    people = Dataset(frame, privacy_id="who", max_rows=1, order="odd", domain={"fit": [False, True]})
    np.testing.assert_array_equal(value_of(people.count("fit")), [1, 1])


def test_csv_files_say_how_they_are_written(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    declared: dict[str, Any] = {"domain": {"to;wn": ["a", "b"], "n": [1, 2]}, "outside": "drop"}
    (tmp_path / "a.csv").write_bytes(b'"to;wn";n\r\n"a";1\r\nb;2\r\nb;1.5\r\n')
    people = Dataset.scan(tmp_path / "a.csv", separator=";", **declared)
    np.testing.assert_array_equal(value_of(people.count("to;wn")), [1, 2])
    np.testing.assert_array_equal(value_of(people.count("n")), [1, 1])  # 1.5 is no 2
    with pytest.raises(SpecificationError, match="one character"):
        Dataset.scan(tmp_path / "a.csv", separator=";;", **declared)
    (tmp_path / "c.csv").write_text("1,secret\n2,b\n")
    with pytest.raises(SpecificationError, match="separator") as error:
        Dataset.scan(tmp_path / "c.csv", **declared)
    assert "secret" not in str(error.value)
    (tmp_path / "b.csv").write_text("n;to;wn\n1;a\n")
    with pytest.raises(SpecificationError, match="first lines"):
        Dataset.scan(tmp_path / "*.csv", separator=";", **declared)


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_and_incidence_are_in_one_order(engine: str) -> None:
    """Row i of one is taken for the same person's as row i of the other."""
    rows: list[Row] = [(7, "Ulm", 1.0), (5, "Bonn", 2.0), (6, "Kiel", 3.0), (7, "Ulm", 1.0)]
    in_order(ENGINES[engine](rows))


def in_order(native: Any) -> None:
    """Of a table in which the town tells the income."""
    towns = ["Ulm", "Bonn", "Kiel"]
    people = Dataset(native, privacy_id="person", max_rows=1, bounds={"income": (0, 8)}, domain={"town": towns})
    income = value_of(people.rows("income"))
    for _ in range(2):
        np.testing.assert_array_equal(value_of(people.incidence("person", "town")) @ [1, 2, 3], income)


def test_the_rows_of_nobody_are_dropped_from_rows_too() -> None:
    rows: list[Row] = [(1, "Ulm", 1.0), (None, "Ulm", 2.0), (None, "Bonn", 3.0), (2, "Ulm", 4.0)]
    people = Dataset(polars(rows), privacy_id="person", max_rows=1, bounds={"income": (0, 8)}, outside="drop")
    np.testing.assert_array_equal(np.sort(value_of(people.rows("income"))), [1, 4])


@pytest.mark.parametrize(("low", "high"), [(0.0, 100.0), (1000.0, 1000.001), (-3.0, 7.0)])
def test_the_rounding_of_a_mean_is_within_its_sensitivity(low: float, high: float) -> None:
    """A row moves the mean of many rows by so little that the last bits of the mean are no small part of it."""
    rng, found = np.random.default_rng(0), []
    values = np.concatenate([[low], rng.uniform(low, high, 200_000)])
    for k in range(40):
        values[1] = rng.uniform(low, high)
        values[0] = low if k % 2 else high
        found.append(Dataset(pl.DataFrame({"v": values}), bounds={"v": (low, high)}).mean("v"))
        values[0] = high if k % 2 else low
        found.append(Dataset(pl.DataFrame({"v": values}), bounds={"v": (low, high)}).mean("v"))
    means = np.array([float(value_of(parameter)) for parameter in found])
    assert np.abs(means[1::2] - means[::2]).max() <= found[0].linf
