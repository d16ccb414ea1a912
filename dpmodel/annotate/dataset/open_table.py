"""Whatever holds a table -> ``Table``: frames of many engines, and files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw

from dpmodel.annotate.dataset.dask_table import DaskTable
from dpmodel.annotate.dataset.reading import placed
from dpmodel.annotate.dataset.table import FrameTable, Table, computed
from dpmodel.annotate.elements import elements
from dpmodel.annotate.sources.spilled import connected, settled
from dpmodel.errors import SpecificationError

# What may be the matter with a csv file, whatever the engine says, which may hold lines of it.
_CSV = {
    "InvalidInputException": (
        "a csv file has as many values in every line as in the first, closes the quotes that it opens, ends all lines "
        "alike, and is in the encoding that was said; what a line holds is not shown",
        "dos2unix for line ends of two kinds, encoding='latin-1' for text of older programs",
    )
}
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
    native = type(table).__module__.partition(".")[0].lstrip("_")
    if native == "pyarrow" and hasattr(table, "schema"):
        names = _named(table.schema.names)
        given = table.rename_columns(placed(len(names)))
        return FrameTable(nw.from_native(computed(lambda: connected().from_arrow(given))), names, lazy=False)
    if native == "duckdb" and hasattr(table, "columns"):
        names = _named(table.columns)
        return FrameTable(nw.from_native(computed(lambda: _renamed(settled(table), names))), names)
    if native == "dask" and hasattr(table, "columns"):
        names = _named(table.columns)
        return DaskTable(table.rename(columns=dict(zip(names, placed(len(names)), strict=True))), names)
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        names = _named(table.columns)
        table = table.set_axis(placed(len(names)), axis=1).reset_index(drop=True)  # labels that repeat would align rows
        return FrameTable(nw.from_native(table, eager_only=True), names, lazy=False)
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
    names = _named(computed(frame.collect_schema).names())
    renamed = computed(lambda: frame.rename(dict(zip(names, placed(len(names)), strict=True))))
    return FrameTable(renamed, names, lazy=isinstance(frame, nw.LazyFrame))


def columns_of(table: Any, names: Sequence[str], remedy: str) -> list[list[Any]]:
    """The elements of these columns of a public table: {column: elements}, or a frame of any engine.

    Raises
    ------
    SpecificationError
        For what is no table, and for columns that it does not have; ``remedy`` says what to try.
    """
    opened = None if isinstance(table, Mapping) else open_table(table)
    missing = [name for name in names if name not in (table if opened is None else opened.columns)]
    if missing:
        raise SpecificationError(f"the table has no column {missing[0]!r}", remedy=remedy)
    if opened is None:
        return [elements(table[name]) for name in names]
    places = [placed(len(opened.columns))[opened.columns.index(name)] for name in names]
    found = opened.eager(places)
    return [elements(found[place]) for place in places]


def scan_file(path: Any, needed: Sequence[str], separator: str, encoding: str) -> Table:
    """A parquet or csv file (or many, by a pattern) through embedded DuckDB.

    ``needed`` : columns that are declared. All columns of a csv file are text here: DuckDB would guess types, quotes
    and separators from what it finds, and one record could decide how all others are read.

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
    if encoding not in ("utf-8", "latin-1"):
        raise SpecificationError(
            "Dataset.scan: encoding is neither 'utf-8' nor 'latin-1'",
            why="DuckDB reads these without an extension",
            remedy="iconv -f ENCODING -t UTF-8 on the file first",
        )
    duckdb = connected()
    files = computed(lambda: sorted(file for (file,) in duckdb.execute("select file from glob(?)", [said]).fetchall()))
    if not files:
        raise SpecificationError(
            f"Dataset.scan: no file {said}", remedy="the path of a file, or a pattern such as 'a/*.csv'"
        )
    if kind == ".parquet":
        table = computed(lambda: duckdb.read_parquet(said))
        names = _named(table.columns)
        return FrameTable(nw.from_native(computed(lambda: _renamed(table, names))), names, files)

    def first_lines() -> set[str]:
        texts = [_csv(file, ["line"], "\x01", "", False, encoding) for file in files]
        return {str(line) for text in texts for (line,) in duckdb.sql(f"{text} limit 1").fetchall()}

    headers = computed(first_lines, _CSV)
    if len(headers) != 1:
        raise SpecificationError(
            f"Dataset.scan: {Path(said).name}",
            why="the first lines of the files differ" if headers else "it is empty",
            remedy="one first line, with the names of the columns",
        )
    names = list(next(csv.reader(headers, delimiter=separator)))
    absent = [column for column in needed if column not in names]
    if absent:
        raise SpecificationError(
            f"Dataset.scan: the first line of {Path(said).name} names no column {absent[0]!r}",
            why="what it holds is not shown, as it may be a record",
            remedy="a first line with the names of the columns, and separator=';' or '\\t' where it is no comma",
        )
    _named(names)
    text = computed(lambda: duckdb.sql(_csv(said, placed(len(names)), separator, '"', True, encoding)), _CSV)
    return FrameTable(nw.from_native(text), names, failing=_CSV)


def _csv(path: str, columns: list[str], separator: str, quote: str, header: bool, encoding: str) -> str:
    """The query of a csv file's columns as text; of the relation's own methods, none takes an encoding."""
    named = ", ".join(f"{_string(column)}: 'varchar'" for column in columns)
    return (
        f"from read_csv({_string(path)}, auto_detect=false, header={header}, delim={_string(separator)}, "
        f"quote={_string(quote)}, escape={_string(quote)}, encoding={_string(encoding)}, columns={{{named}}})"
    )


def _renamed(relation: Any, names: list[str]) -> Any:
    """Columns called by their places."""
    return relation.project(", ".join(f"{_quoted(n)} as {p}" for n, p in zip(names, placed(len(names)), strict=True)))


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _named(given: Any) -> list[str]:
    """Names of columns; SpecificationError for those that repeat or are no text."""
    names = list(given)
    repeated = sorted({str(name) for name in names if names.count(name) > 1})
    if repeated:
        raise SpecificationError(
            f"Dataset: column {repeated[0]!r} is there twice", why="columns are called by name", remedy="rename one"
        )
    if not all(isinstance(name, str) for name in names):
        raise SpecificationError("Dataset: a column without a name as text", remedy="frame.columns = [...]")
    return names
