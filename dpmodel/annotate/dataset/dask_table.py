"""A table of Dask: every question is asked of each partition where it lies, and the answers are added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import narwhals as nw

from dpmodel.annotate.dataset.flags import Flags
from dpmodel.annotate.dataset.table import Groups, Table, computed, first_rows, grouped, merged
from dpmodel.annotate.sources.contract import RowSource
from dpmodel.annotate.sources.dask import DaskBlocks
from dpmodel.errors import SpecificationError


class DaskTable(Table):
    """``collection`` : a Dask data frame. Rows of one person are brought together before they are bounded."""

    stays = True

    def __init__(self, collection: Any) -> None:
        self.collection = collection
        self.schema = dict(nw.from_native(collection._meta, eager_only=True).schema)

    @cached_property
    def _blocks(self) -> DaskBlocks:
        return DaskBlocks(self.collection)

    def summed(self, columns: Mapping[str, nw.Expr], by: Sequence[str], sums: Sequence[str]) -> Groups:
        ask = partial(_grouped, columns=dict(columns), by=list(by), sums=list(sums))
        return computed(lambda: self._blocks.map_reduce(ask, merged))

    def chosen(self, keep: nw.Expr) -> Table:
        return self._each(partial(_chosen, keep=keep))

    def distinct(self, columns: Sequence[str]) -> Table:
        return DaskTable(self.collection[list(columns)].drop_duplicates())

    def first_rows(self, person: str, most: int, order: Sequence[str]) -> Table:
        return self._by_person(person)._each(partial(_first_rows, person=person, most=most, order=list(order)))

    def flagged(self, flags: Flags) -> Table:
        together = self._by_person(flags.person)
        made = together._each(partial(_flagged, flags=flags), _flagged(self.collection._meta, flags))
        # Kept by the workers: no pass brings people together anew.
        return DaskTable(computed(lambda: made.collection.persist()))

    def _by_person(self, person: str) -> DaskTable:
        """The same rows, those of one person in one partition."""
        if self.collection._meta[person].dtype == object:
            raise SpecificationError(
                f"Dataset: people of a Dask frame are told apart by {person!r}, a column of Python objects",
                why="equal objects of two types, as 1 and 1.0, may come to two workers: one person would count twice",
                remedy="astype('int64') or astype('string') on the frame first",
            )
        return DaskTable(computed(lambda: self.collection.shuffle(on=[person])))

    def eager(self, columns: Sequence[str]) -> nw.DataFrame[Any]:
        return computed(lambda: nw.from_native(self.collection[list(columns)].compute().reset_index(drop=True)))

    def blocks(self, columns: Sequence[str]) -> RowSource:
        return computed(lambda: DaskBlocks(self.collection[list(columns)]))

    def _each(self, work: Callable[[Any], Any], meta: Any = None) -> DaskTable:
        shape = self.collection._meta if meta is None else meta
        return DaskTable(computed(lambda: self.collection.map_partitions(work, meta=shape)))


def _grouped(block: Any, number: int, columns: Any, by: Any, sums: Any) -> Groups:
    return grouped(_frame(block), columns, by, sums)


def _chosen(block: Any, keep: nw.Expr) -> Any:
    return _frame(block).filter(keep).collect().to_native()


def _first_rows(block: Any, person: str, most: int, order: Sequence[str]) -> Any:
    return first_rows(_frame(block), person, most, order).collect().to_native()


def _flagged(block: Any, flags: Flags) -> Any:
    known = _frame(block).filter(~nw.col(flags.person).is_null()).collect()
    # pandas has no groups of no rows.
    return (flags.of(known.lazy()) if len(known) else flags.none(known.lazy())).collect().to_native()


def _frame(block: Any) -> nw.LazyFrame[Any]:
    frame: nw.DataFrame[Any] = nw.from_native(block.reset_index(drop=True), eager_only=True)
    return frame.lazy()
