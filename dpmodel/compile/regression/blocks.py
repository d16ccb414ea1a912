"""Private rows that lie in blocks elsewhere: what is done to one block, and the sums over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Generic, TypeVar

import numpy as np

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.annotate.sources.contract import RowSource
from dpmodel.annotate.sources.limits import Limits
from dpmodel.compile.regression.features import through
from dpmodel.compile.regression.rows import Rows, added, cached_rows
from dpmodel.errors import SourceError

T = TypeVar("T")


@dataclass(frozen=True)
class BlockReader:
    """The rows of one block, from public facts alone; it travels to where the block lies.

    ``numbers``, ``limits`` : one each per private parameter: what a block gives, and the bounds it is held to.
    ``blocks`` : (parameter, map, first coefficient), or (None, a row that all records share, first coefficient).
    ``label`` : (parameter, map, scale, shift, lowest, highest), or the one label of all records. ``offset`` : public,
    of all predictions. ``size`` : coefficients. ``firsts`` : number of each block's first row.
    """

    numbers: tuple[Callable[[Any], Any], ...]
    limits: tuple[Limits, ...]
    blocks: tuple[tuple[int | None, Any, int], ...]
    label: tuple[int, Any, float, float, float, float] | float
    offset: float
    size: int
    firsts: Integers

    def parts(self, block: Any, number: int, step: int | None) -> Iterator[Rows]:
        """Parts of at most ``step`` rows, made when they are asked for; one at least. They lie in the same memory, one
        after the other: memory that is asked for anew costs more than the sums."""
        start, stop = int(self.firsts[number]), int(self.firsts[number + 1])
        count = len(block)
        if count != stop - start:
            raise SourceError(
                f"block {number} has another number of rows than when the source was made",
                why="sizes of blocks are public and fixed",
                remedy="a source made anew, of data that stay as they are",
            )
        pairs = list(zip(self.numbers, self.limits, strict=True))
        with np.errstate(all="ignore"):  # a warning would tell of an odd record
            raw = [limit.checked(numbers(block) if count else limit.none, count, number) for numbers, limit in pairs]
        step = cached_rows(self.size) if step is None else min(step, max(count, 1))
        room = [np.empty((step, each.shape[1]), order="F") for each in raw]
        for at in range(0, max(count, 1), step):
            triples = zip(raw, self.limits, room, strict=True)
            owned = [limit.hold(each[at : at + step], out) for each, limit, out in triples]
            yield self._rows(owned, start + at)

    def _rows(self, owned: list[PrivateArray], first: int) -> Rows:
        count = owned[0].shape[0]
        blocks = tuple(
            (np.broadcast_to(what, (count, what.size)).copy() if which is None else through(what, owned[which]), start)
            for which, what, start in self.blocks
        )
        if isinstance(self.label, float):
            label: Floats = np.full(count, self.label)
        else:
            which, what, scale, shift, low, high = self.label
            values = np.asarray(through(what, owned[which]))
            values = values.ravel() if values.shape[1] == 1 else values
            label = np.clip(scale * values + shift, low, high)
        offset = np.full(count, self.offset) if self.offset else None
        return Rows(blocks, PrivateArray(label), self.size, offset, None, first)


@dataclass(frozen=True)
class Counted(Generic[T]):
    """A sum and what it is a sum of: bit k of ``blocks`` says that block k is in it."""

    value: T
    blocks: int


@dataclass(frozen=True)
class BlockTable:
    """A ``Table`` whose rows lie in ``source``. What leaves a block is what ``function`` makes of it, added up."""

    source: RowSource
    reader: BlockReader

    @property
    def count(self) -> int:
        return int(self.reader.firsts[-1])

    @property
    def size(self) -> int:
        return self.reader.size

    @property
    def in_memory(self) -> None:
        return None

    def map_reduce(
        self, function: Callable[[Rows], T], combine: Callable[[T, T], T] = added, step: int | None = None
    ) -> T:
        """As ``Table`` has it.

        Sensitivity rests on every record being in a sum once: a sum that says otherwise is not handed out.
        """
        found: Counted[T] = self.source.map_reduce(
            partial(_of_block, self.reader, function, combine, step), partial(_together, combine)
        )
        if found.blocks != (1 << len(self.source.sizes)) - 1:
            raise SourceError("blocks are missing from a sum", why="the source left them out", remedy="another source")
        return found.value


def _of_block(
    reader: BlockReader,
    function: Callable[[Rows], T],
    combine: Callable[[T, T], T],
    step: int | None,
    block: Any,
    number: int,
) -> Counted[T]:
    return Counted(reduce(combine, map(function, reader.parts(block, number, step))), 1 << number)


def _together(combine: Callable[[T, T], T], a: Counted[T], b: Counted[T]) -> Counted[T]:
    if a.blocks & b.blocks:
        raise SourceError("a block counted twice", why="then one record would move a sum twice as far")
    return Counted(combine(a.value, b.value), a.blocks | b.blocks)
