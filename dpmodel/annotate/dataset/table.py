"""A table behind one face: whatever engine holds it, what is asked of it are sums of integers in groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import narwhals as nw

from dpmodel.annotate.dataset.blocks import blocks_of
from dpmodel.annotate.dataset.flags import Flags
from dpmodel.annotate.dataset.reading import WHO, Reading, placed
from dpmodel.annotate.sources.contract import RowSource
from dpmodel.annotate.sources.parquet import ParquetBlocks
from dpmodel.errors import SpecificationError, unsaid

# Places of a group, and one exact integer for every expression that was summed in it.
Groups = dict[tuple[int, ...], tuple[int, ...]]
T = TypeVar("T")
Told = Mapping[str, tuple[str, str]]


class Table(ABC):
    """Columns of private records. ``columns`` : their names, which are public; nothing else is, types least of all.

    As it was given its columns are called by their places (``placed``), and once it is read as ``Reading`` says.
    """

    columns: tuple[str, ...]
    # Whether rows stay where they are, on a cluster, however few they are; and whether they are not in memory yet.
    stays = False
    lazy = True

    @abstractmethod
    def read(self, reading: Reading) -> Table:
        """The same rows, every cell read by itself."""

    @abstractmethod
    def summed(self, columns: Mapping[str, nw.Expr], by: Sequence[str], sums: Sequence[str]) -> Groups:
        """Numbers of rows, and sums of the columns ``sums``, in the groups of ``by``, integers all, among ``columns``,
        which are computed first."""

    @abstractmethod
    def chosen(self, keep: nw.Expr) -> Table:
        """The rows where ``keep`` is true."""

    @abstractmethod
    def distinct(self, columns: Sequence[str]) -> Table:
        """Different rows of these columns."""

    @abstractmethod
    def first_rows(self, most: int, order: Sequence[nw.Expr]) -> Table:
        """At most ``most`` rows of every person, the first in ``order``: a function of the person's own rows alone, up
        to rows that are equal in all of ``order``, which holds every column that is read."""

    @abstractmethod
    def flagged(self, flags: Flags) -> Table:
        """One row of flags per person, of rows that are distinct pairs of person and item."""

    @abstractmethod
    def blocks(self, columns: Sequence[str]) -> RowSource:
        """These columns of all rows, in blocks of the same rows every time."""

    @abstractmethod
    def eager(self, columns: Sequence[str]) -> nw.DataFrame[Any]:
        """These columns of all rows in memory."""


class FrameTable(Table):
    """A frame of any engine that narwhals speaks: pandas, polars (eager, lazy), DuckDB, PySpark.

    ``files`` : parquet files whose rows, all of them, the frame is, as ``reading`` reads them. ``failing`` : what is
    said of errors of the engine, by their types.
    """

    def __init__(
        self,
        frame: nw.DataFrame[Any] | nw.LazyFrame[Any],
        columns: Sequence[str],
        files: Sequence[str] = (),
        *,
        lazy: bool = True,
        reading: Reading | None = None,
        failing: Told | None = None,
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
        # Frames in memory work at once, and what they say when they fail may hold values.
        frame = self._told(work)
        return FrameTable(frame, self.columns, files, lazy=self.lazy, reading=reading, failing=self._failing)

    def _told(self, work: Callable[[], T]) -> T:
        return computed(work, self._failing)

    @property
    def _rows(self) -> nw.LazyFrame[Any]:
        return self.frame.lazy()

    def summed(self, columns: Mapping[str, nw.Expr], by: Sequence[str], sums: Sequence[str]) -> Groups:
        return self._told(lambda: grouped(self._rows, columns, by, sums))

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
        return self._told(lambda: blocks_of(rows if self.lazy else rows.collect(), columns, self._engine))

    def eager(self, columns: Sequence[str]) -> nw.DataFrame[Any]:
        return self._told(lambda: self._rows.select(*columns).collect())


def first_rows(frame: nw.LazyFrame[Any], most: int, order: Sequence[nw.Expr]) -> nw.LazyFrame[Any]:
    """At most ``most`` rows of every person in this order; rows of nobody stay, to be refused or dropped."""
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
    # No rows at all: a sum is missing.
    return {
        tuple(map(int, row[: len(by)])): tuple(0 if n is None or n != n else int(n) for n in row[len(by) :])
        for row in found.select(*by, "rows", *sums).iter_rows()
    }


def merged(one: Groups, other: Groups) -> Groups:
    """Sums of two parts of a table, added. Both stay as they are: a cluster may add them again."""
    return one | {place: _added(one.get(place), numbers) for place, numbers in other.items()}


def _added(known: tuple[int, ...] | None, numbers: tuple[int, ...]) -> tuple[int, ...]:
    return numbers if known is None else tuple(a + b for a, b in zip(known, numbers, strict=True))


def computed(work: Callable[[], T], known: Told | None = None) -> T:
    """``work()``; SpecificationError with the type of the engine's error, whose message may hold values.

    ``known`` : why and what to try, for types of errors.
    """

    def told(failed: str) -> SpecificationError:
        why = "its message may hold values of records, so it is not shown; nothing was charged"
        other = why, "the same query without this package, where you may look at the data"
        why, remedy = (known or {}).get(failed, other)
        return SpecificationError(f"Dataset: the engine failed ({failed})", why=why, remedy=remedy)

    return unsaid(work, told)
