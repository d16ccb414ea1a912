"""A table behind one face: whatever engine holds it, what is asked of it are sums of integers in groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import narwhals as nw

from dpmodel.annotate.dataset.blocks import blocks_of
from dpmodel.annotate.dataset.flags import Flags
from dpmodel.annotate.elements import key
from dpmodel.annotate.sources.contract import RowSource
from dpmodel.annotate.sources.parquet import ParquetBlocks
from dpmodel.errors import SpecificationError, unsaid

# Keys of a group, and one exact integer for every expression that was summed in it.
Groups = dict[tuple[Any, ...], tuple[int, ...]]
T = TypeVar("T")


class Table(ABC):
    """Columns of private records. ``schema`` : names and types, which are public; nothing else is."""

    schema: Mapping[str, Any]
    # Whether rows stay where they are, on a cluster, however few they are; and whether they are not in memory yet.
    stays = False
    lazy = True

    @abstractmethod
    def summed(self, columns: Mapping[str, nw.Expr], by: Sequence[str], sums: Sequence[str]) -> Groups:
        """Numbers of rows, and sums of the columns ``sums``, in the groups of ``by``, all among ``columns``, which are
        computed first.

        Keys as ``elements.key`` writes them, so that equal values are one group in every engine.
        """

    @abstractmethod
    def chosen(self, keep: nw.Expr) -> Table:
        """The rows where ``keep`` is true."""

    @abstractmethod
    def distinct(self, columns: Sequence[str]) -> Table:
        """Different rows of these columns."""

    @abstractmethod
    def first_rows(self, person: str, most: int, order: Sequence[str]) -> Table:
        """At most ``most`` rows of every ``person``, the first in ``order``: a function of the person's own rows alone
        where ``order`` holds every column."""

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

    ``files`` : parquet files whose rows, all of them, the frame is.
    """

    def __init__(self, frame: nw.LazyFrame[Any], files: Sequence[str] = (), *, lazy: bool = True) -> None:
        self.frame, self.files, self.lazy = frame, files, lazy
        self._engine = type(frame.to_native()).__module__.partition(".")[0].lstrip("_")
        self.stays = self._engine == "pyspark"
        self.schema = dict(frame.collect_schema())

    def summed(self, columns: Mapping[str, nw.Expr], by: Sequence[str], sums: Sequence[str]) -> Groups:
        return computed(lambda: grouped(self.frame, columns, by, sums))

    # Frames in memory work at once, and what they say when they fail may hold values.
    def chosen(self, keep: nw.Expr) -> Table:
        return computed(lambda: FrameTable(self.frame.filter(keep), lazy=self.lazy))

    def distinct(self, columns: Sequence[str]) -> Table:
        return computed(
            lambda: FrameTable(self.frame.select(*map(self._united, columns)).unique(list(columns)), lazy=self.lazy)
        )

    def _united(self, column: str) -> nw.Expr:
        """Equal values as one: engines tell NaN from a missing number, and ``elements.key`` does not."""
        given = nw.col(column)
        if not self.schema[column].is_float():
            return given
        return nw.when(~given.is_nan()).then(given).alias(column)

    def first_rows(self, person: str, most: int, order: Sequence[str]) -> Table:
        return computed(lambda: FrameTable(first_rows(self.frame, person, most, order), lazy=self.lazy))

    def flagged(self, flags: Flags) -> Table:
        return computed(lambda: FrameTable(flags.of(self.frame), lazy=self.lazy))

    def blocks(self, columns: Sequence[str]) -> RowSource:
        if self.files:
            return ParquetBlocks(self.files, columns=columns)
        return computed(lambda: blocks_of(self.frame if self.lazy else self.frame.collect(), columns, self._engine))

    def eager(self, columns: Sequence[str]) -> nw.DataFrame[Any]:
        return computed(lambda: self.frame.select(*columns).collect())


def first_rows(frame: nw.LazyFrame[Any], person: str, most: int, order: Sequence[str]) -> nw.LazyFrame[Any]:
    """At most ``most`` rows of every ``person`` in this order; rows of nobody stay, to be refused or dropped."""
    schema = frame.collect_schema()
    one, place, text = (_unused(name, schema) for name in ("one", "place", "text"))
    # Categories sort by their place in a list that may be read off the data: other people's rows would decide.
    listed = {c: f"{text}{i}" for i, c in enumerate(order) if schema[c] in (nw.Categorical, nw.Enum)}
    # cum_count of the column of people itself is wrong for pandas (narwhals 2.29).
    ranked = frame.with_columns(
        nw.lit(1).alias(one), *(nw.col(c).cast(nw.String).alias(name) for c, name in listed.items())
    ).with_columns(nw.col(one).cum_sum().over(person, order_by=[listed.get(c, c) for c in order]).alias(place))
    return ranked.filter((nw.col(place) <= most) | nw.col(person).is_null()).drop(one, place, *listed.values())


def grouped(frame: nw.LazyFrame[Any], columns: Mapping[str, nw.Expr], by: Sequence[str], sums: Sequence[str]) -> Groups:
    """``Table.summed`` of one frame."""
    chosen = frame.with_columns(**columns) if columns else frame
    count = _unused("rows", [*columns, *by])
    wanted = [nw.len().alias(count), *(nw.col(name).sum() for name in sums)]
    found = (chosen.group_by(*by).agg(*wanted) if by else chosen.select(*wanted)).collect()
    out: Groups = {}
    for row in found.select(*by, count, *sums).iter_rows():
        # No rows at all: a sum is missing.
        numbers = tuple(0 if n is None or n != n else int(n) for n in row[len(by) :])
        place = tuple(key(value) for value in row[: len(by)])
        out[place] = _added(out.get(place), numbers)
    return out


def merged(one: Groups, other: Groups) -> Groups:
    """Sums of two parts of a table, added. Both stay as they are: a cluster may add them again."""
    return one | {place: _added(one.get(place), numbers) for place, numbers in other.items()}


def _added(known: tuple[int, ...] | None, numbers: tuple[int, ...]) -> tuple[int, ...]:
    return numbers if known is None else tuple(a + b for a, b in zip(known, numbers, strict=True))


def computed(work: Callable[[], T]) -> T:
    """``work()``; SpecificationError with the type of the engine's error, whose message may hold values."""
    return unsaid(
        work,
        lambda failed: SpecificationError(
            f"Dataset: the engine failed ({failed})",
            why="its message may hold values of records, so it is not shown; nothing was charged",
            remedy="the same query without this package, where you may look at the data",
        ),
    )


def _unused(name: str, taken: Any) -> str:
    while name in taken:
        name = f"_{name}"
    return name
