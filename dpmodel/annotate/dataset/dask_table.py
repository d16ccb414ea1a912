"""A table of Dask: every question is asked of each partition where it lies, and the answers are added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import narwhals as nw

from dpmodel.annotate.dataset.flags import Flags
from dpmodel.annotate.dataset.reading import WHO, Reading
from dpmodel.annotate.dataset.table import Groups, Table, computed, first_rows, grouped, merged
from dpmodel.annotate.sources.contract import RowSource
from dpmodel.annotate.sources.dask import DaskBlocks


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
