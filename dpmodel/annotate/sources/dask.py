"""Rows of a Dask collection: blocks stay on the workers, and sums come back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dpmodel.annotate.sources._extra import engine
from dpmodel.annotate.sources.contract import RowSource, in_order
from dpmodel.annotate.sources.one_block import Failed, column_names, handed_out, joined, worked
from dpmodel.errors import SourceError, SpecificationError, unsaid

T = TypeVar("T")
_RETRIES = 2
# Sums that one task combines, a power of two: the tree is that of ``in_order`` over all parts, with fewer tasks, each
# of which costs the scheduler a millisecond.
_TOGETHER = 8


class DaskBlocks(RowSource):
    """``collection`` : a Dask data frame, or an array in chunks of whole rows; persist it where a pass should not read
    it anew.

    A partition is a block. Tasks end with a sum or with words, never with an error that carries what a worker holds.
    Sums meet on the workers, in a tree that is the same whatever ends first; a task that is run again on another worker
    takes the place of the first.
    """

    def __init__(self, collection: Any) -> None:
        self._dask, self._distributed = engine("dask", "dask"), engine("distributed", "dask")
        made = getattr(collection, "to_delayed", None)
        if made is None:
            raise SpecificationError(
                f"a collection of type {type(collection).__name__}", remedy="a Dask data frame or array"
            )
        parts = np.asarray(made(), dtype=object)
        if parts.ndim > 1 and parts.size != parts.shape[0]:
            raise SpecificationError(
                "a Dask array in chunks of columns", why="a block holds whole records", remedy="rechunk({1: -1})"
            )
        self._parts = list(parts.ravel())
        self.columns = column_names(collection)
        lengths = self._dask.delayed(_length, pure=False)
        found = self._answer(self._dask.delayed(list)([lengths(part) for part in self._parts]))
        self._sizes = tuple(int(each) for each in found)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self._sizes

    @property
    def trusted(self) -> str:
        return "the Dask workers see the rows, and only sums leave them, which are noised here"

    def map_reduce(self, function: Callable[[Any, int], T], combine: Callable[[T, T], T]) -> T:
        # Names of tasks are drawn anew, so that no scheduler takes an answer for another pass's.
        work, join = (self._dask.delayed(each, pure=False) for each in (_on_worker, _joined_in_order))
        sums = [work(function, part, number, self.columns) for number, part in enumerate(self._parts)]
        while len(sums) > 1:
            sums = [join(combine, sums[start : start + _TOGETHER]) for start in range(0, len(sums), _TOGETHER)]
        found: T | Failed = self._answer(sums[0])
        return handed_out(found)

    def _client(self) -> Any:
        """The client of this thread, or None where Dask computes in this process."""
        try:
            return self._distributed.get_client()
        except ValueError:
            return None

    def _answer(self, task: Any) -> Any:
        def computed() -> Any:
            client = self._client()
            return task.compute() if client is None else client.compute(task, retries=_RETRIES).result()

        return unsaid(
            computed,
            lambda failed: SourceError(
                "the Dask cluster did not answer",
                why=f"it ended with {failed}",
                remedy="its own dashboard and logs, and then another source",
            ),
        )


def _on_worker(function: Callable[[Any, int], T], block: Any, number: int, columns: Any) -> T | Failed:
    return worked(function, partial(_same, block), number, columns)


def _joined_in_order(combine: Callable[[T, T], T], sums: list[T | Failed]) -> T | Failed:
    return in_order(sums, partial(joined, combine))


def _same(block: Any) -> Any:
    return block


def _length(block: Any) -> int:
    return len(block)
