"""Sums over private rows that lie in blocks elsewhere: each block is read in parts, and no block counts twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from dpmodel._types import Integers, PrivateArray
from dpmodel.errors import SourceError
from dpmodel.marks.rows import Limits, RowSource

T = TypeVar("T")
R = TypeVar("R", covariant=True)


class PartReader(Protocol[R]):
    """What a block of rows is for a model, from public facts alone; it travels to where the block lies."""

    def parts(self, block: Any, number: int, step: int | None) -> Iterator[R]:
        """One part at least, each of at most ``step`` rows (None: as many as fit into a processor's cache)."""
        ...


@dataclass(frozen=True)
class HeldNumbers:
    """The numbers of every private parameter of a block, within their bounds.

    ``numbers``, ``limits`` : one each per parameter: what a block gives, and the bounds it is held to. ``firsts`` :
    number of each block's first row, and of the row after the last.
    """

    numbers: tuple[Callable[[Any], Any], ...]
    limits: tuple[Limits, ...]
    firsts: Integers

    def parts(self, block: Any, number: int, step: int) -> Iterator[tuple[list[PrivateArray], int]]:
        """Parts of at most ``step`` rows and the number of their first, made when they are asked for; one at least.
        They lie in the same memory, one after the other: memory that is asked for anew costs more than the sums."""
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
        step = min(step, max(count, 1))
        room = [np.empty((step, each.shape[1]), order="F") for each in raw]
        for at in range(0, max(count, 1), step):
            triples = zip(raw, self.limits, room, strict=True)
            yield [limit.hold(each[at : at + step], out) for each, limit, out in triples], start + at


def firsts_of(source: RowSource) -> Integers:
    """(blocks + 1,) number of each block's first row, and of all rows."""
    return np.concatenate([[0], np.cumsum(source.sizes, dtype=np.int64)])


def summed(
    source: RowSource,
    reader: PartReader[R],
    function: Callable[[R], T],
    combine: Callable[[T, T], T],
    step: int | None = None,
) -> T:
    """``function`` of every part of the rows, combined, in one pass.

    Sensitivity rests on every record being in a sum once: a sum that says otherwise is not handed out.
    """
    found: Counted[T] = source.map_reduce(
        partial(_of_block, reader, function, combine, step), partial(_together, combine)
    )
    if found.blocks != (1 << len(source.sizes)) - 1:
        raise SourceError("blocks are missing from a sum", why="the source left them out", remedy="another source")
    return found.value


@dataclass(frozen=True)
class Counted(Generic[T]):
    """A sum and what it is a sum of: bit k of ``blocks`` says that block k is in it."""

    value: T
    blocks: int


def _of_block(
    reader: PartReader[R],
    function: Callable[[R], T],
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


def held_numbers(private: Sequence[Any], sealed: Sequence[Any]) -> HeldNumbers:
    """Of parameters ``in_blocks`` and what is sealed of each."""
    return HeldNumbers(
        tuple(rows.numbers for rows in sealed), tuple(p.limits for p in private), firsts_of(sealed[0].source)
    )
