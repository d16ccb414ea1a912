"""Blocks that an engine hands out one after the other, so that only one of them is in memory."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from dpmodel.annotate.sources._extra import engine
from dpmodel.annotate.sources.contract import RowSource, in_order
from dpmodel.annotate.sources.one_block import handed_out, joined, worked
from dpmodel.annotate.sources.passes import numbers
from dpmodel.errors import SourceError

T = TypeVar("T")
# Rows of a block: tens of megabytes for tens of columns.
ROWS = 1 << 18


class StreamedBlocks(RowSource):
    """Record batches of an engine, cut to blocks of the declared sizes: pyarrow tables."""

    @abstractmethod
    def _open(self) -> Iterator[Any]:
        """Record batches of all rows, in the same order every time."""

    def map_reduce(self, function: Callable[[Any, int], T], combine: Callable[[T, T], T]) -> T:
        stream = _Stream(self._open, self.sizes)
        each = (worked(function, partial(stream.block, number), number) for number in numbers(len(self.sizes)))
        return handed_out(in_order(each, partial(joined, combine)))


class _Stream:
    """The blocks in order; a block that is asked for again is read anew, from the first row on."""

    def __init__(self, opened: Callable[[], Iterator[Any]], sizes: Sequence[int]) -> None:
        self._opened, self._sizes = opened, sizes
        self._blocks: Iterator[Any] = iter(())
        self._next = len(sizes)

    def block(self, number: int) -> Any:
        if self._next != number:
            self._blocks, self._next = cut(self._opened(), self._sizes), 0
        while self._next < number:
            next(self._blocks)
            self._next += 1
        self._next = len(self._sizes)  # if what follows fails, nothing is known of the stream
        block: Any = next(self._blocks)
        self._next = number + 1
        return block


def cut(batches: Iterator[Any], sizes: Sequence[int]) -> Iterator[Any]:
    """Tables of these sizes out of record batches of any."""
    pyarrow = engine("pyarrow", "data")
    waiting: list[Any] = []
    for place, size in enumerate(sizes):
        while sum(len(each) for each in waiting) < size:
            batch = next(batches, None)
            if batch is None:
                raise _changed("fewer")
            waiting.append(batch)
        whole = pyarrow.Table.from_batches(waiting)
        waiting = whole.slice(size).to_batches()
        if place + 1 == len(sizes) and any(map(len, itertools.chain(waiting, batches))):
            raise _changed("more")
        yield whole.slice(0, size)
        del whole


def _changed(how: str) -> SourceError:
    return SourceError(
        f"{how} rows than when the source was made",
        why="the number of rows is public, and the same in every pass",
        remedy="the Dataset made anew, of a file that nobody writes to",
    )
