"""Whose rows a table holds, which of them count, and what is done with rows outside what was declared."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals as nw

from dpmodel.annotate.dataset.declared import Declared
from dpmodel.annotate.dataset.reading import WHO, earlier, sorted_by
from dpmodel.annotate.dataset.table import Groups, Table
from dpmodel.annotate.domain import Outside
from dpmodel.annotate.records import Records
from dpmodel.annotate.sources.contract import RowSource
from dpmodel.errors import SpecificationError

_BAD = "outside"


@dataclass(frozen=True)
class People:
    """``given`` : the table as it came. ``person`` : the column that says whose row it is, or None where every row is a
    record. ``max_rows`` : of one person. ``order`` : columns that say which rows of a person come first."""

    given: Table
    declared: Declared
    records: Records
    person: str | None
    max_rows: int | None
    order: tuple[str, ...]
    outside: Outside

    @cached_property
    def table(self) -> Table:
        """The table as it is read: declared columns and those of ``order`` alone."""
        return self.given.read(self.declared.reading(self.person, self.order))

    @property
    def _earlier(self) -> list[nw.Expr]:
        """What rows of a person are sorted by: ``order``, then the declared columns from left to right, so that rows
        that are equal in all of it are equal in all that counts."""
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
            Where it may be any number.
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
        row i of one parameter must be row i of the next. Where rows outside are dropped, rows of nobody are."""
        return self.bounded(self.used([]), 1).eager(self._wanted)

    @cached_property
    def blocks(self) -> RowSource:
        """The same rows where they are; one source, so that all parameters of a model are read in one pass."""
        return self.bounded(self.used([]), 1).blocks(self._wanted)

    @property
    def _wanted(self) -> list[str]:
        return [*([] if self.person is None else [WHO]), *map(self.declared.place, self.declared.names)]

    def summed(
        self, table: Table, by: Mapping[str, nw.Expr], values: Mapping[str, nw.Expr], used: Sequence[str]
    ) -> Groups:
        """Numbers of rows, and sums of ``values``, in every group of ``by``, which are places of categories or bins.

        Raises
        ------
        SpecificationError
            For rows with a value outside in a column of ``used``, where that is an error.
        """
        columns, sums = {**by, **values}, list(values)
        if self.outside == "drop":
            return table.summed(columns, list(by), sums)
        # Of columns that are grouped by, the places tell, without another look at every row.
        checked = self._inside([column for column in used if self.declared.place(column) not in by])
        if checked:
            columns[_BAD] = nw.when(nw.all_horizontal(*checked, ignore_nulls=False)).then(0).otherwise(1)
        groups = table.summed(columns, list(by), [*sums, *([_BAD] if checked else [])])
        if any(min(place, default=0) < 0 for place in groups) or (checked and any(n[-1] for n in groups.values())):
            raise self._outside_error(used)
        return {place: found[: 1 + len(sums)] for place, found in groups.items()}

    def _inside(self, columns: Sequence[str]) -> list[nw.Expr]:
        known = [] if self.person is None else [~nw.col(WHO).is_null()]
        return [*known, *(self.declared.inside(column) for column in columns)]

    def _outside_error(self, names: Sequence[str]) -> SpecificationError:
        missing = [f"no value in the domain or bounds of {', '.join(map(repr, names))}"] * bool(names)
        missing += [f"no {self.person!r}"] * (self.person is not None)
        return SpecificationError(
            f"Dataset: a row has {' or '.join(missing)}",
            why="what is no finite number (times are none) or no declared category belongs to no cell",
            remedy="a wider domain (an 'other' category, None for missing values), or outside='drop' to leave them out",
        )


def positive(number: Any) -> bool:
    """Whether it is a positive integer."""
    return isinstance(number, numbers.Integral) and not isinstance(number, bool) and int(number) >= 1
