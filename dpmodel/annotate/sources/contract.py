"""Rows in blocks: the one way in which anything reads private rows that do not lie in one array."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from dpmodel._types import PrivateArray
from dpmodel.errors import SpecificationError

T = TypeVar("T")
# Sums of blocks are added in a tree: a number of one block passes at most twice the logarithm of this many additions.
MOST_BLOCKS = 2**20


class RowSource(ABC):
    """A table of private records in blocks. The number of blocks and the rows in each are public.

    A block is an eager data frame (pandas, polars, pyarrow) or an (n, k) array, with the columns of the table. Only the
    functions given to ``map_reduce`` see it.
    """

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Rows in each block, in order."""

    @abstractmethod
    def map_reduce(self, function: Callable[[Any, int], T], combine: Callable[[T, T], T]) -> T:
        """``function(block, number)`` of every block, combined as ``in_order`` does, whatever finishes first.

        ``function`` is pure and can be pickled (by cloudpickle): a block that fails is tried again, and none counts
        twice.

        Raises
        ------
        SourceError
            When a block cannot be read; the message holds no values.
        """

    @property
    def trusted(self) -> str:
        """Who sees rows besides this process, in words for the guarantee; "" for nobody."""
        return ""

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(self.sizes)


@dataclass(frozen=True)
class SourceRows:
    """Numbers computed from the rows of a source, one row at a time: what a ``Private`` of unit "row" is given.

    ``numbers`` : block -> (rows, width) float array, or a tuple of ``width`` columns (rows,), of which no copy is made;
    or (rows,) where ``width`` is None. Row i is a function of record i alone, and finite. It can be pickled where the
    source's workers are other processes.
    """

    source: RowSource
    numbers: Callable[[Any], PrivateArray | tuple[Any, ...]]
    width: int | None

    def __post_init__(self) -> None:
        blocks = len(self.source.sizes)
        if not 0 < blocks <= MOST_BLOCKS:
            raise SpecificationError(
                f"a source of {blocks} blocks",
                why=f"its sums are rounded as those of 1 to {MOST_BLOCKS} blocks",
                remedy="larger blocks" if blocks else "at least one row",
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.source.count,) if self.width is None else (self.source.count, self.width)


def in_order(parts: Iterable[T], combine: Callable[[T, T], T]) -> T:
    """All ``parts`` combined in a tree that depends on their number alone.

    Neighbours of equal size meet as soon as both are there, so that at most ``log2 n`` of n parts are kept, and a part
    goes through at most ``2 log2 n + 1`` combinations: what sums may lose to rounding.
    """
    waiting: list[tuple[int, T]] = []
    for part in parts:
        size, whole = 1, part
        while waiting and waiting[-1][0] == size:
            whole = combine(waiting.pop()[1], whole)
            size *= 2
        waiting.append((size, whole))
    out = waiting.pop()[1]
    while waiting:
        out = combine(waiting.pop()[1], out)
    return out
