"""Blocks in this process's memory: frames that were read already, or an array in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from dpmodel.annotate.sources.contract import RowSource, in_order
from dpmodel.annotate.sources.one_block import column_names, handed_out, joined, worked
from dpmodel.annotate.sources.passes import numbers
from dpmodel.errors import SpecificationError

T = TypeVar("T")


class MemoryBlocks(RowSource):
    """``blocks`` : eager data frames of the same columns, or arrays of the same width."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        self.blocks = list(blocks)
        if not self.blocks:
            raise SpecificationError("no blocks", why="a table has at least one", remedy="a list of data frames")
        self.columns = column_names(self.blocks[0])
        for number, block in enumerate(self.blocks):
            if column_names(block) != self.columns or block.shape[1:] != self.blocks[0].shape[1:]:
                raise SpecificationError(
                    f"block {number} has other columns than the first",
                    why="a table has the same columns throughout",
                    remedy="frames of the same columns in the same order",
                )

    @classmethod
    def of(cls, table: Any, rows: int) -> MemoryBlocks:
        """An array or frame in parts of so many ``rows``."""
        return cls([table[at : at + rows] for at in range(0, len(table), rows)])

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self.blocks))

    def map_reduce(self, function: Callable[[Any, int], T], combine: Callable[[T, T], T]) -> T:
        each = (
            worked(function, lambda number=number: self.blocks[number], number, tries=1)  # type: ignore[misc]
            for number in numbers(len(self.blocks))
        )
        return handed_out(in_order(each, partial(joined, combine)))
