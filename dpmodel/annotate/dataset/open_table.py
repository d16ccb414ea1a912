"""Whatever holds a table -> ``Table``: frames of many engines, and files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw

from dpmodel.annotate.dataset.dask_table import DaskTable
from dpmodel.annotate.dataset.table import FrameTable, Table, computed
from dpmodel.annotate.elements import elements
from dpmodel.annotate.sources._extra import engine
from dpmodel.errors import SpecificationError

_ENGINES = "pandas, polars (eager or lazy), pyarrow, DuckDB, Dask and PySpark"


def open_table(table: Any) -> Table:
    """A table from a frame.

    Raises
    ------
    SpecificationError
        For what is no frame, and column names that repeat or are no text.
    """
    if isinstance(table, Mapping):
        raise SpecificationError(
            "Dataset: a dictionary of columns",
            why="a list has no type, and one element could decide how all others are read",
            remedy="a data frame, whose columns have types",
        )
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        _refuse_names(list(table.columns))
        table = table.reset_index(drop=True)  # an index that repeats would align rows with others
    if type(table).__module__.startswith("pyarrow") and hasattr(table, "schema"):
        _refuse_names(list(table.schema.names))
        connection, given = engine("duckdb", "data").connect(), table
        table = computed(lambda: connection.from_arrow(given))
    if type(table).__module__.startswith("dask."):
        return DaskTable(table)
    failed = False
    frame: Any = None
    try:
        frame = nw.from_native(table)
    except TypeError:
        failed = True
    if failed or isinstance(frame, nw.Series):
        raise SpecificationError(
            f"Dataset: {type(table).__name__} is not a table", remedy=f"a frame of {_ENGINES}, or Dataset.scan(path)"
        )
    return computed(lambda: FrameTable(frame.lazy(), lazy=isinstance(frame, nw.LazyFrame)))


def columns_of(table: Any, names: Sequence[str], remedy: str) -> list[list[Any]]:
    """The elements of these columns of a public table: {column: elements}, or a frame of any engine.

    Raises
    ------
    SpecificationError
        For what is no table, and for columns that it does not have; ``remedy`` says what to try.
    """
    opened = None if isinstance(table, Mapping) else open_table(table)
    missing = [name for name in names if name not in (table if opened is None else opened.schema)]
    if missing:
        raise SpecificationError(f"the table has no column {missing[0]!r}", remedy=remedy)
    found = table if opened is None else opened.eager(names)
    return [elements(found[name]) for name in names]


def scan_file(path: Any, types: Mapping[str, str | None], separator: str) -> Table:
    """A parquet or csv file (or many, by a pattern) through embedded DuckDB.

    ``types`` : of the declared columns of a csv file in DuckDB's words, None for text, which all other columns are:
    DuckDB would guess types, quotes and separators from what it finds, and one record could decide how all others are
    read. What is not of the type is a missing value.

    Raises
    ------
    SpecificationError
        For other kinds of files, files that are not there, and csv files of different or other columns.
    """
    said = str(path)
    kind = next((k for k in (".parquet", ".csv", ".csv.gz") if said.endswith(k)), None)
    if kind is None:
        raise SpecificationError(f"Dataset.scan: {Path(said).name}", remedy="files .parquet, .csv or .csv.gz")
    if not isinstance(separator, str) or len(separator) != 1:
        raise SpecificationError("Dataset.scan: separator is not one character", remedy="separator=';'")
    duckdb = engine("duckdb", "data").connect()
    files = computed(lambda: sorted(file for (file,) in duckdb.execute("select file from glob(?)", [said]).fetchall()))
    if not files:
        raise SpecificationError(
            f"Dataset.scan: no file {said}", remedy="the path of a file, or a pattern such as 'a/*.csv'"
        )
    if kind == ".parquet":
        return computed(lambda: FrameTable(nw.from_native(duckdb.read_parquet(said)).lazy(), files))
    settled: dict[str, Any] = {"auto_detect": False, "quotechar": "", "escapechar": ""}

    def first_lines() -> set[str]:
        one: dict[str, Any] = {"columns": {"line": "varchar"}, "delimiter": "\x01", "header": False, **settled}
        return {str(line) for file in files for (line,) in duckdb.read_csv(file, **one).limit(1).fetchall()}

    headers = computed(first_lines)
    if len(headers) != 1:
        raise SpecificationError(
            f"Dataset.scan: {Path(said).name}",
            why="the first lines of the files differ",
            remedy="one first line, with the names of the columns",
        )
    names = next(csv.reader(headers, delimiter=separator))
    absent = [c for c in types if c not in names]
    if absent:
        raise SpecificationError(
            f"Dataset.scan: the first line of {Path(said).name} names no column {absent[0]!r}",
            why="what it holds is not shown, as it may be a record",
            remedy="a first line with the names of the columns, and separator=';' or '\\t' where it is no comma",
        )
    _refuse_names(names)

    def read() -> Table:
        settled.update(columns=dict.fromkeys(names, "varchar"), delimiter=separator, quotechar='"', escapechar='"')
        text = duckdb.read_csv(said, header=True, **settled)
        # Trimmed, because a bare cast is handed to the reader (DuckDB 2.0), where one record fails the whole file.
        casts = [
            f"try_cast(trim({_quoted(c)}) as {types[c]}) as {_quoted(c)}" if types.get(c) else _quoted(c) for c in names
        ]
        return FrameTable(nw.from_native(text.project(", ".join(casts))).lazy())

    return computed(read)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _refuse_names(names: list[Any]) -> None:
    repeated = sorted({str(name) for name in names if names.count(name) > 1})
    if repeated:
        raise SpecificationError(
            f"Dataset: column {repeated[0]!r} is there twice", why="columns are called by name", remedy="rename one"
        )
    if not all(isinstance(name, str) for name in names):
        raise SpecificationError("Dataset: a column without a name as text", remedy="frame.columns = [...]")
