"""Every clip of a data set: a value just beyond a bound is the bound, whatever comes out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_tables import NATIVE, SOME_SLOW, value_of

from dpmodel.marks.dataset import Dataset

RANGES = [(0.0, 100.0), (-3.0, 7.0), (-5.0, -2.0), (1000.0, 1000.5)]
# What comes out of one column "v", beside the group "g".
COMES_OUT: dict[str, Callable[[Dataset], Any]] = {
    "sum": lambda d: d.sum("v", "g"),
    "total": lambda d: d.sum("v"),
    "means": lambda d: d.mean("v", "g").ends,
    "mean": lambda d: d.mean("v"),
    "vector": lambda d: d.rows("v"),
    "matrix": lambda d: d.rows(["v"]),
    "scaled": lambda d: d.rows(["v"], scale=True),
    "product": lambda d: d.rows([("v", "g")]),
}


def beyond(low: float, high: float) -> dict[float, list[float]]:
    """{bound: values that pass it}: by one unit in the last place, by a little, by the bound itself and far."""
    width = high - low
    up = [math.nextafter(high, math.inf), high + width / 50, high + 0.9 * max(abs(high), width), high + 1e6 * width]
    down = [math.nextafter(low, -math.inf), low - width / 50, low - 0.9 * max(abs(low), width), low - 1e6 * width]
    return {high: up, low: down}


def found(native: Callable[[pl.DataFrame], Any], values: list[float], low: float, high: float, what: str) -> np.ndarray:
    rows = pl.DataFrame({"v": [low, *values, high], "g": ["a", *["b"] * len(values), "a"]})
    people = Dataset(native(rows), bounds={"v": (low, high)}, domain={"g": ["a", "b"]})
    return value_of(COMES_OUT[what](people))


@pytest.mark.parametrize("what", COMES_OUT)
@pytest.mark.parametrize("engine", SOME_SLOW)
def test_a_value_beyond_a_bound_is_the_bound(engine: str, what: str) -> None:
    native = NATIVE[engine]
    for low, high in RANGES if engine == "polars" else RANGES[1:2]:
        at = {end: found(native, [end] * 4, low, high, what) for end in (low, low + (high - low) / 3, high)}
        for bound, values in beyond(low, high).items():
            np.testing.assert_array_equal(found(native, values, low, high, what), at[bound])
        low_end, between, high_end = at.values()
        assert not np.array_equal(low_end, between) and not np.array_equal(between, high_end)
