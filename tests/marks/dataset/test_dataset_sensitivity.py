"""What one person's rows do to everything that a ``Dataset`` computes: every replacement of them in small tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_tables import TOWNS, Row, polars, value_of

from dpmodel import Private
from dpmodel.marks.dataset import Dataset, table

OTHERS: list[Row] = [(2, "Bonn", 4.0), (2, "Ulm", 1.0), (2, "Ulm", 9.0), (3, "Kiel", 5.0)]
# Ordinary rows and odd ones: beyond the bounds, missing, infinite, in no town of the list.
UNIVERSE: list[tuple[Any, Any]] = [
    ("Bonn", 3.0),
    ("Ulm", -7.0),
    ("Kiel", 1e12),
    ("Bonn", math.nan),
    ("Ulm", math.inf),
    (None, 2.0),
    ("Rome", 2.0),
]
QUERIES: dict[str, Callable[[Dataset], Private]] = {
    "count": lambda d: d.count("town"),
    "distinct": lambda d: d.count("town", distinct=True),
    "people": lambda d: d.count(distinct=True),
    "sum": lambda d: d.sum("income", "town"),
    "total": lambda d: d.sum("income"),
    "mean": lambda d: d.mean("income", "town").ends,
    "mean of all": lambda d: d.mean("income").ends,
    "histogram": lambda d: d.histogram("income", [0, 2, 4, 8]),
    "quantiles": lambda d: d.quantile_counts("income", [1, 3, 5]),
}


def dataset(native: Any, rows: int, neighbors: str, **options: Any) -> Dataset:
    settings = {"outside": "drop", "bounds": {"income": (-1, 8)}, "domain": {"town": TOWNS}, **options}
    return Dataset(native, privacy_id="person", max_rows=rows, neighbors=neighbors, **settings)


def values_of(query: str, rows: int) -> np.ndarray:
    """(choices, entries) what comes out for every choice of up to three rows of person 1, no rows first."""
    out = []
    for count in range(4):
        for mine in itertools.combinations_with_replacement(UNIVERSE, count):
            given = [*OTHERS[:2], *((1, *row) for row in mine), *OTHERS[2:]]
            out.append(value_of(QUERIES[query](dataset(polars(given), rows, "replace-one"))).ravel())
    return np.array(out)


def moved(values: np.ndarray, neighbors: str) -> dict[str, float]:
    """The largest moves between neighbors."""
    pairs = values[:, None] - values[None] if neighbors == "replace-one" else values - values[0]
    orders = (("l1", 1), ("l2", 2), ("linf", np.inf))
    return {name: float(np.linalg.norm(pairs, order, axis=-1).max()) for name, order in orders}


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_no_rows_of_one_person_move_more_than_declared(query: str) -> None:
    values = values_of(query, 2)
    for neighbors in ("replace-one", "add-remove"):
        parameter = QUERIES[query](dataset(polars(OTHERS), 2, neighbors))
        seen = moved(values, neighbors)
        for name, distance in seen.items():
            assert distance <= getattr(parameter, name) * (1 + 1e-9), name
        assert seen["linf"] > 0


def test_rows_that_are_not_bounded_by_person_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin that keeps the first rows of the table instead of each person's: others' rows come back."""

    def broken(frame: Any, most: int, order: Any) -> Any:
        return frame.collect().head(10**9).lazy()

    monkeypatch.setattr(table, "first_rows", broken)
    parameter = QUERIES["count"](dataset(polars(OTHERS), 2, "replace-one"))
    assert moved(values_of("count", 2), "replace-one")["linf"] > parameter.linf


def test_sums_are_exact_whatever_the_others_hold() -> None:
    """In floats, 1e15 + 0.1 - 1e15 is not 0.1: the others would decide how much of a record is seen."""
    rng = np.random.default_rng(0)
    rows: list[Row] = [(i, "Ulm", float(v)) for i, v in enumerate(rng.uniform(-1, 8, 5_000))]
    exact = value_of(dataset(polars(rows), 1, "replace-one").sum("income"))
    shuffled = [rows[i] for i in rng.permutation(len(rows))]
    assert value_of(dataset(polars(shuffled), 1, "replace-one").sum("income")) == exact
    step = 8 / 2**19
    assert exact == np.sum(np.round(np.array([r[2] for r in rows]) / step)) * step


def test_which_rows_count_is_said_by_order() -> None:
    rows: list[Row] = [(1, "Ulm", 5.0), (1, "Bonn", 1.0), (1, "Kiel", 3.0)]
    by_income = dataset(polars(rows), 2, "replace-one", order="income").count("town")
    by_column = dataset(polars(rows), 2, "replace-one").count("town")
    np.testing.assert_array_equal(value_of(by_income), [1, 1, 0])
    np.testing.assert_array_equal(value_of(by_column), [1, 1, 0])
    np.testing.assert_array_equal(
        value_of(dataset(polars(rows), 1, "replace-one", order="income").count("town")), [1, 0, 0]
    )
