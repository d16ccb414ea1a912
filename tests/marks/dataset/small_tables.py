"""The same small table in every engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

from dpmodel import Private
from dpmodel.marks import vault

# person, town, income
Row = tuple[Any, Any, Any]
SCHEMA = {"person": pl.Int64, "town": pl.String, "income": pl.Float64}
TOWNS = ["Bonn", "Kiel", "Ulm"]


def polars(rows: Iterable[Row]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def duckdb(frame: pl.DataFrame) -> Any:
    import duckdb

    return duckdb.connect().from_arrow(frame.to_arrow())


# A polars frame in every engine.
NATIVE: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame,
    "polars lazy": lambda frame: frame.lazy(),
    "pandas": lambda frame: frame.to_pandas(),
    "pyarrow": lambda frame: frame.to_arrow(),
    "duckdb": duckdb,
}
if importlib.util.find_spec("duckdb") is None or importlib.util.find_spec("pyarrow") is None:
    for name in ("pyarrow", "duckdb", "pandas"):
        del NATIVE[name]
# Polars in the default tests, the other engines in the slow ones.
SOME_SLOW = [pytest.param(name, marks=() if name == "polars" else pytest.mark.slow) for name in NATIVE]
ENGINES: dict[str, Callable[[Iterable[Row]], Any]] = {
    name: lambda rows, native=native: native(polars(rows)) for name, native in NATIVE.items()
}


def value_of(parameter: Private) -> np.ndarray:
    """What was sealed."""
    entries = vault.unseal(parameter)
    return entries.toarray() if sp.issparse(entries) else entries.reshape(parameter.shape, order="F")
