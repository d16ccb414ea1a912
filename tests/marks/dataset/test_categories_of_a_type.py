"""A category is met by the values that equal it, whatever type it is written in: the same in counts and in rows."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_tables import NATIVE, value_of

from dpmodel.marks.dataset import Dataset

DAY, NOON = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 12)
MIDNIGHT, LATER = datetime.datetime(2020, 1, 1), datetime.date(2020, 1, 2)
# Values, categories, how often each is met.
CASES: dict[str, tuple[list[Any], Any, list[int]]] = {
    "truth as codes": ([True, False, True], 2, [1, 2]),
    "truth as numbers": ([True, False, True], [1, 0], [2, 1]),
    "integers as truth": ([1, 0, 1], [False, True], [1, 2]),
    "integers as floats": ([1, 2, 2], [1.0, 1.5, 2.0, np.inf], [1, 0, 2, 0]),
    "integers of more bits": ([1, 2, 2], [1, 2, 2**70, -(2**70)], [1, 2, 0, 0]),
    "floats as integers": ([1.0, 2.0, 2.0], [1, 2], [1, 2]),
    "floats as codes": ([1.0, 2.0, 2.0], 3, [0, 1, 2]),
    "days": ([DAY, DAY, LATER], [DAY, LATER], [2, 1]),
    "days as instants": ([DAY, DAY, LATER], [MIDNIGHT, NOON], [2, 0]),
    "instants as days": ([MIDNIGHT, MIDNIGHT, NOON], [DAY, LATER], [2, 0]),
    "instants of NumPy": ([MIDNIGHT, MIDNIGHT, NOON], np.array(["2020-01-01", "2020-01-01T12"], "M8[s]"), [2, 1]),
    "instants with a zone": ([MIDNIGHT] * 3, [MIDNIGHT.replace(tzinfo=datetime.UTC), MIDNIGHT], [0, 3]),
}


@pytest.mark.parametrize("engine", NATIVE)
@pytest.mark.parametrize("case", CASES)
def test_counts_and_rows_agree(case: str, engine: str) -> None:
    values, categories, met = CASES[case]
    native = NATIVE[engine](pl.DataFrame({"c": values}))
    for outside in ("error", "drop"):
        if outside == "error" and sum(met) < len(values):
            continue
        people = Dataset(native, domain={"c": categories}, outside=outside)  # type: ignore[arg-type]
        np.testing.assert_array_equal(value_of(people.count("c")), met)
        np.testing.assert_array_equal(value_of(people.rows(["c"])).sum(axis=0), met)
