"""Tables of any engine behind one interface: sums of integers in groups, first rows of persons, blocks of rows."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import narwhals as nw

from dpmodel.errors import SpecificationError, unsaid
from dpmodel.marks.dataset.declared import Declared
from dpmodel.marks.dataset.reading import WHO, Reading, earlier, placed, sorted_by
from dpmodel.marks.domain import Outside
from dpmodel.marks.records import Records
from dpmodel.marks.row_sources import ParquetBlocks, blocks_of
from dpmodel.marks.rows import RowSource

# Places of a group (or keys, numbers and text) -> its number of rows, then one exact sum for each column.
Groups = dict[tuple[Any, ...], tuple[int, ...]]
T = TypeVar("T")
Reasons = Mapping[str, tuple[str, str]]


class Table(ABC):
    """Columns of private records. ``columns`` : their names. Nothing else is public, not even types.

    In a table as given columns are named by their places (``placed``); in one that was read, as ``Reading`` says.
    """

    columns: tuple[str, ...]
    # Whether rows stay on their cluster, however few they are; whether they are not in memory yet.
    stays = False
    lazy = True

    @abstractmethod
    def read(self, reading: Reading) -> Table:
        """The same rows, each cell read by itself."""

    @abstractmethod
    def summed(self, columns: Mapping[str, nw.Expr], by: Sequence[str], sums: Sequence[str]) -> Groups:
        """Numbers of rows and sums of the columns ``sums`` in the groups of ``by``. The former are names of integer
        columns, the latter too or keys of numbers and text; ``columns`` are computed first."""

    @abstractmethod
    def chosen(self, keep: nw.Expr) -> Table:
        """The rows where ``keep`` is true."""

    @abstractmethod
    def distinct(self, columns: Sequence[str]) -> Table:
        """Different rows of these columns."""

    @abstractmethod
    def first_rows(self, most: int, order: Sequence[nw.Expr]) -> Table:
        """At most ``most`` rows of every person, the first in ``order``: a function of the person's own rows alone, as
        rows that are equal in ``order`` are equal in every column that counts."""

    @abstractmethod
    def flagged(self, flags: Flags) -> Table:
        """One row of flags per person, of rows that are distinct pairs of person and item."""

    @abstractmethod
    def blocks(self, columns: Sequence[str]) -> RowSource:
        """These columns of all rows, in blocks that are the same in every pass."""

    @abstractmethod
    def eager(self, columns: Sequence[str]) -> nw.DataFrame[Any]:
        """These columns of all rows in memory."""


class FrameTable(Table):
    """A frame of any engine that narwhals speaks: pandas, polars (eager, lazy), DuckDB, PySpark.

    ``files`` : parquet files that hold exactly the rows of the frame, once ``reading`` has read them. ``failing`` : why
    errors of the engine happen and what to try, by their types.
    """

    def __init__(
        self,
        frame: nw.DataFrame[Any] | nw.LazyFrame[Any],
        columns: Sequence[str],
        files: Sequence[str] = (),
        *,
        lazy: bool = True,
        reading: Reading | None = None,
        failing: Reasons | None = None,
    ) -> None:
        self.frame, self.columns, self.files, self.lazy, self.reading = frame, tuple(columns), files, lazy, reading
        self._engine = type(frame.to_native()).__module__.partition(".")[0].lstrip("_")
        self.stays = self._engine == "pyspark"
        self._failing = failing

    def read(self, reading: Reading) -> Table:
        given = self.frame

        def read() -> nw.LazyFrame[Any]:
            return reading.of(given) if isinstance(given, nw.LazyFrame) else reading.of(given).lazy()

        return self._made(read, self.files, reading)

    def _made(
        self, work: Callable[[], nw.LazyFrame[Any]], files: Sequence[str] = (), reading: Reading | None = None
    ) -> FrameTable:
        # Frames in memory work at once, and the messages of their errors may hold values.
        frame = self._computed(work)
        return FrameTable(frame, self.columns, files, lazy=self.lazy, reading=reading, failing=self._failing)

    def _computed(self, work: Callable[[], T]) -> T:
        return computed(work, self._failing)

    @property
    def _rows(self) -> nw.LazyFrame[Any]:
        return self.frame.lazy()

    def summed(self, columns: Mapping[str, nw.Expr], by: Sequence[str], sums: Sequence[str]) -> Groups:
        return self._computed(lambda: grouped(self._rows, columns, by, sums))

    def chosen(self, keep: nw.Expr) -> Table:
        return self._made(lambda: self._rows.filter(keep))

    def distinct(self, columns: Sequence[str]) -> Table:
        return self._made(lambda: self._rows.select(*columns).unique(list(columns)))

    def first_rows(self, most: int, order: Sequence[nw.Expr]) -> Table:
        return self._made(lambda: first_rows(self._rows, most, order))

    def flagged(self, flags: Flags) -> Table:
        return self._made(lambda: flags.of(self._rows))

    def blocks(self, columns: Sequence[str]) -> RowSource:
        if self.files and self.reading is not None:
            names = dict(zip(placed(len(self.columns)), self.columns, strict=True))
            given = [names[column] for column in self.reading.columns]
            return ParquetBlocks(self.files, columns=given, read=self.reading.block)
        rows = self._rows
        return self._computed(lambda: blocks_of(rows if self.lazy else rows.collect(), columns, self._engine))

    def eager(self, columns: Sequence[str]) -> nw.DataFrame[Any]:
        return self._computed(lambda: self._rows.select(*columns).collect())


def first_rows(frame: nw.LazyFrame[Any], most: int, order: Sequence[nw.Expr]) -> nw.LazyFrame[Any]:
    """At most ``most`` rows of every person in this order. Rows without a person stay, to be refused or dropped."""
    one, place = "one", "place"
    keys = {f"key {i}": given for i, given in enumerate(order)}
    # cum_count of the column of people itself is wrong for pandas (narwhals 2.29).
    ranked = frame.with_columns(nw.lit(1).alias(one), **keys).with_columns(
        nw.col(one).cum_sum().over(WHO, order_by=[*keys] or [one]).alias(place)
    )
    return ranked.filter((nw.col(place) <= most) | nw.col(WHO).is_null()).drop(one, place, *keys)


def grouped(frame: nw.LazyFrame[Any], columns: Mapping[str, nw.Expr], by: Sequence[str], sums: Sequence[str]) -> Groups:
    """``Table.summed`` of one frame."""
    chosen = frame.with_columns(**columns) if columns else frame
    wanted = [nw.len().alias("rows"), *(nw.col(name).sum() for name in sums)]
    found = (chosen.group_by(*by).agg(*wanted) if by else chosen.select(*wanted)).collect()
    # Without any rows a sum is missing.
    return {
        tuple(map(_key, row[: len(by)])): tuple(0 if n is None or n != n else int(n) for n in row[len(by) :])
        for row in found.select(*by, "rows", *sums).iter_rows()
    }


def _key(value: Any) -> Any:
    """An integer where it is one: engines make floats of them."""
    return value if isinstance(value, str) or value % 1 else int(value)


def merged(one: Groups, other: Groups) -> Groups:
    """Sums of two parts of a table, added. Neither is changed: a cluster may add them again."""
    return one | {place: _added(one.get(place), numbers) for place, numbers in other.items()}


def _added(before: tuple[int, ...] | None, numbers: tuple[int, ...]) -> tuple[int, ...]:
    return numbers if before is None else tuple(a + b for a, b in zip(before, numbers, strict=True))


def computed(work: Callable[[], T], reasons: Reasons | None = None) -> T:
    """``work()``; SpecificationError with the type of the engine's error, whose message may hold values.

    ``reasons`` : why, and what to try, by the type of the engine's error.
    """

    def error(failed: str) -> SpecificationError:
        why = "its message may hold values of records, so it is not shown; nothing was charged"
        other = why, "the same query without this package, where you may look at the data"
        why, remedy = (reasons or {}).get(failed, other)
        return SpecificationError(f"Dataset: the engine failed ({failed})", why=why, remedy=remedy)

    return unsaid(work, error)


# ---- Persons and their items as a table of flags, computed in the engine, so that rows can stay there


@dataclass(frozen=True)
class Flags:
    """One column of zeros and ones for each of ``count`` items. ``item`` : the column with their places. ``most`` : how
    many items of a person count, the first in the list (None: all)."""

    item: str
    count: int
    most: int | None

    @property
    def names(self) -> list[str]:
        return [f"item {place}" for place in range(self.count)]

    def of(self, pairs: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """The flags of every person in ``pairs``, distinct rows of person and item. Items that are not listed do not
        count; persons without others have zeros alone."""
        item, one = nw.col(self.item), "one"
        present = pairs.filter(~nw.col(WHO).is_null()).with_columns((item >= 0).cast(nw.Int64).alias(one))
        if self.most is not None:
            present = present.with_columns(nw.col(one).cum_sum().over(WHO, order_by=self.item))
        counts = (nw.col(one) <= self.most) if self.most is not None else nw.lit(True)
        flags = [((item == place) & counts).cast(nw.Int8).alias(name) for place, name in enumerate(self.names)]
        return present.with_columns(*flags).group_by(WHO).agg(*(nw.col(name).max() for name in self.names))

    def none(self, pairs: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """The columns of ``of`` with zeros alone."""
        return pairs.select(WHO, *(nw.lit(0).cast(nw.Int8).alias(name) for name in self.names))

    def numbers(self, block: Any) -> tuple[Any, ...]:
        """The columns of a block of the table, (n,) small integers each."""
        frame = nw.from_native(block, eager_only=True)
        return tuple(frame[name].to_numpy() for name in self.names)


# ---- Whose rows a table holds, which of them count, and what is done with values outside the declarations


_BAD = "outside"


@dataclass(frozen=True)
class People:
    """``given`` : the table as given. ``person`` : the column of persons; None where every row is a record.
    ``max_rows`` : rows of one person that count. ``order`` : columns that decide which come first."""

    given: Table
    declared: Declared
    records: Records
    person: str | None
    max_rows: int | None
    order: tuple[str, ...]
    outside: Outside

    @cached_property
    def table(self) -> Table:
        """The table after reading: declared columns and those of ``order`` alone."""
        return self.given.read(self.declared.reading(self.person, self.order))

    @property
    def _earlier(self) -> list[nw.Expr]:
        """Sort keys of a person's rows: ``order``, then the declared columns from left to right. Rows that are equal in
        all of them are equal in all that counts."""
        out: list[nw.Expr] = []
        for column in dict.fromkeys([*self.order, *self.declared.names]):
            place = self.declared.place(column)
            if column in self.declared.names:
                out.append(earlier(place, self.declared.kind(column)))
            else:
                out += map(nw.col, sorted_by(place))
        return out

    def most(self, what: str) -> int:
        """Rows of one person that count.

        Raises
        ------
        SpecificationError
            Where a person may have any number of rows.
        """
        if self.person is None:
            return 1
        if self.max_rows is None:
            raise SpecificationError(
                f"Dataset.{what}: a person may have any number of rows",
                why="then one person moves the result arbitrarily far",
                remedy="Dataset(..., privacy_id=..., max_rows=5): the first five rows of each person count",
            )
        return int(self.max_rows)

    @property
    def cut_by(self) -> tuple[str, ...]:
        """What may leave rows out (``Private.cut_by``)."""
        most = (f"max_rows={self.max_rows}",) if self.person is not None and self.max_rows is not None else ()
        return (*most, *(("outside='drop'",) if self.outside == "drop" else ()))

    def used(self, columns: Sequence[str]) -> Table:
        """The rows that may count, before people's rows are bounded."""
        if self.outside == "error":
            return self.table
        inside = self._inside(columns)
        return self.table.chosen(nw.all_horizontal(*inside, ignore_nulls=False)) if inside else self.table

    def bounded(self, table: Table, most: int, order: Sequence[nw.Expr] | None = None) -> Table:
        """At most ``most`` rows of every person."""
        if self.person is None:
            return table
        return table.first_rows(most, self._earlier if order is None else order)

    @cached_property
    def one_row_each(self) -> nw.DataFrame[Any]:
        """The declared columns of one row of every record, in memory. Read once: engines return rows in any order, and
        row i of one parameter must be row i of the next. Where values outside drop a row, so does a missing person."""
        return self.bounded(self.used([]), 1).eager(self._wanted)

    @cached_property
    def blocks(self) -> RowSource:
        """The same rows in blocks. One source, so that all parameters of a model are read in one pass."""
        return self.bounded(self.used([]), 1).blocks(self._wanted)

    @property
    def _wanted(self) -> list[str]:
        return [*([] if self.person is None else [WHO]), *map(self.declared.place, self.declared.names)]

    def summed(
        self, table: Table, by: Mapping[str, nw.Expr], values: Mapping[str, nw.Expr], used: Sequence[str]
    ) -> Groups:
        """Numbers of rows and sums of ``values`` in every group of ``by``, which are places of categories or bins.

        Raises
        ------
        SpecificationError
            For rows with a value outside in a column of ``used``, where that is an error.
        """
        columns, sums = {**by, **values}, list(values)
        if self.outside == "drop":
            return table.summed(columns, list(by), sums)
        # Columns to group by need no further check: their places are negative outside.
        checked = self._inside([column for column in used if self.declared.place(column) not in by])
        if checked:
            columns[_BAD] = nw.when(nw.all_horizontal(*checked, ignore_nulls=False)).then(0).otherwise(1)
        groups = table.summed(columns, list(by), [*sums, *([_BAD] if checked else [])])
        if any(min(place, default=0) < 0 for place in groups) or (checked and any(n[-1] for n in groups.values())):
            raise self._outside_error(used)
        return {place: found[: 1 + len(sums)] for place, found in groups.items()}

    def _inside(self, columns: Sequence[str]) -> list[nw.Expr]:
        present = [] if self.person is None else [~nw.col(WHO).is_null()]
        return [*present, *(self.declared.inside(column) for column in columns)]

    def _outside_error(self, names: Sequence[str]) -> SpecificationError:
        missing = [f"no value in the domain or bounds of {', '.join(map(repr, names))}"] * bool(names)
        missing += [f"no {self.person!r}"] * (self.person is not None)
        listed = {column: self.declared.categories(column) for column in names if self.declared.listed(column)}
        coded = [c for c, kinds in listed.items() if kinds == tuple(range(len(kinds)))]
        return SpecificationError(
            f"Dataset: a row has {' or '.join(missing)}",
            why="missing values, text and times are no finite numbers, and what is not in its domain has no cell",
            remedy="".join(f"domain={{{c!r}: [...]}} if it holds others than 0, 1, ...; " for c in coded[:1])
            + "outside='drop' to leave such rows out; or a wider domain for categories (an 'other' category, None "
            "for missing values), a public rule that fills in numbers",
        )


def is_positive(number: Any) -> bool:
    """Whether it is a positive integer."""
    return isinstance(number, numbers.Integral) and not isinstance(number, bool) and int(number) >= 1
