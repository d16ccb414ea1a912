"""Private rows of a regression that lie in blocks elsewhere: what is done to one block, and the sums over all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.compile.regression.features import through
from dpmodel.compile.regression.rows import Rows, added, cached_rows
from dpmodel.compile.rows import HeldNumbers, summed
from dpmodel.marks.rows import RowSource

T = TypeVar("T")


@dataclass(frozen=True)
class BlockReader:
    """The rows of one block, from public facts alone; it travels to where the block lies.

    ``held`` : the numbers of every private parameter. ``blocks`` : (parameter, map, first coefficient), or (None, a row
    that all records share, first coefficient). ``label`` : (parameter, map, scale, shift, lowest, highest), or the one
    label of all records. ``offset`` : public, of all predictions. ``size`` : coefficients.
    """

    held: HeldNumbers
    blocks: tuple[tuple[int | None, Any, int], ...]
    label: tuple[int, Any, float, float, float, float] | float
    offset: float
    size: int

    def parts(self, block: Any, number: int, step: int | None) -> Iterator[Rows]:
        """As ``HeldNumbers`` has them."""
        for owned, first in self.held.parts(block, number, cached_rows(self.size) if step is None else step):
            yield self._rows(owned, first)

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
        # Several blocks may be views of one array.
        return Rows(blocks, PrivateArray(label), self.size, offset, None, first, own=len(blocks) == 1)


@dataclass(frozen=True)
class BlockTable:
    """A ``Table`` whose rows lie in ``source``. What leaves a block is what ``function`` makes of it, added up."""

    source: RowSource
    reader: BlockReader

    @property
    def count(self) -> int:
        return int(self.reader.held.firsts[-1])

    @property
    def size(self) -> int:
        return self.reader.size

    @property
    def in_memory(self) -> None:
        return None

    def map_reduce(
        self, function: Callable[[Rows], T], combine: Callable[[T, T], T] = added, step: int | None = None
    ) -> T:
        """As ``Table`` has it."""
        return summed(self.source, self.reader, function, combine, step)
