"""A table of Dask: every question is asked of each partition where it lies, and the answers are added."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import narwhals as nw

from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset.reading import WHO, Reading, placed
from dpmodel.marks.dataset.table import Flags, FrameTable, Groups, Table, computed, first_rows, grouped, merged
from dpmodel.marks.domain import elements
from dpmodel.marks.row_sources import DaskBlocks, connected, settled
from dpmodel.marks.rows import RowSource


class DaskTable(Table):
    """``collection`` : a Dask data frame. Rows of one person are brought together before they are bounded."""

    stays = True

    def __init__(self, collection: Any, columns: Sequence[str]) -> None:
        self.collection, self.columns = collection, tuple(columns)

    @cached_property
    def _blocks(self) -> DaskBlocks:
        return DaskBlocks(self.collection)

    def read(self, reading: Reading) -> Table:
        return self._each(partial(_read, reading=reading), computed(lambda: _read(self.collection._meta, reading)))

    def summed(self, columns: Mapping[str, nw.Expr], by: Sequence[str], sums: Sequence[str]) -> Groups:
        ask = partial(_grouped, columns=dict(columns), by=list(by), sums=list(sums))
        return computed(lambda: self._blocks.map_reduce(ask, merged))

    def chosen(self, keep: nw.Expr) -> Table:
        return self._each(partial(_chosen, keep=keep))

    def distinct(self, columns: Sequence[str]) -> Table:
        return DaskTable(self.collection[list(columns)].drop_duplicates(), self.columns)

    def first_rows(self, most: int, order: Sequence[nw.Expr]) -> Table:
        return self._by_person()._each(partial(_first_rows, most=most, order=list(order)))

    def flagged(self, flags: Flags) -> Table:
        made = self._by_person()._each(partial(_flagged, flags=flags), _flagged(self.collection._meta, flags))
        # Kept by the workers: no pass brings people together anew.
        return DaskTable(computed(lambda: made.collection.persist()), self.columns)

    def _by_person(self) -> DaskTable:
        """The same rows, those of one person in one partition."""
        return DaskTable(computed(lambda: self.collection.shuffle(on=[WHO])), self.columns)

    def eager(self, columns: Sequence[str]) -> nw.DataFrame[Any]:
        return computed(lambda: nw.from_native(self.collection[list(columns)].compute().reset_index(drop=True)))

    def blocks(self, columns: Sequence[str]) -> RowSource:
        return computed(lambda: DaskBlocks(self.collection[list(columns)]))

    def _each(self, work: Callable[[Any], Any], meta: Any = None) -> DaskTable:
        shape = self.collection._meta if meta is None else meta
        return DaskTable(computed(lambda: self.collection.map_partitions(work, meta=shape)), self.columns)


def _read(block: Any, reading: Reading) -> Any:
    block = block.reset_index(drop=True)
    if reading.person is not None:
        # Partitions may keep a column in different types, which one record of theirs decides, and people are brought
        # together by hashes: every name is read by itself, as a text.
        who = block[reading.person]
        block = block.assign(**{reading.person: who if who.dtype == object else who.astype("category")})
    return reading.of(nw.from_native(block, eager_only=True)).to_native()


def _grouped(block: Any, number: int, columns: Any, by: Any, sums: Any) -> Groups:
    return grouped(_frame(block), columns, by, sums)


def _chosen(block: Any, keep: nw.Expr) -> Any:
    return _frame(block).filter(keep).collect().to_native()


def _first_rows(block: Any, most: int, order: Sequence[nw.Expr]) -> Any:
    return first_rows(_frame(block), most, order).collect().to_native()


def _flagged(block: Any, flags: Flags) -> Any:
    known = _frame(block).filter(~nw.col(WHO).is_null()).collect()
    # pandas has no groups of no rows.
    return (flags.of(known.lazy()) if len(known) else flags.none(known.lazy())).collect().to_native()


def _frame(block: Any) -> nw.LazyFrame[Any]:
    frame: nw.DataFrame[Any] = nw.from_native(block.reset_index(drop=True), eager_only=True)
    return frame.lazy()


# ---- Whatever holds a table -> ``Table``: frames of many engines, and files


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
            f"Dataset: {type(table).__name__} is not a table",
            why="columns are declared and read by name",
            remedy=f"a frame of {_ENGINES} (pandas.DataFrame(array, columns=[...]) makes one), or Dataset.scan(path)",
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
