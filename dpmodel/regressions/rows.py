"""The private rows themselves: features and labels, as a mechanism's ``run`` sees them.

A mechanism asks a ``Table`` for sums over its rows, ``map_reduce``, and sees a part of them at a time (``Rows``). So it
is the same mechanism whether the rows lie in memory (one ``Rows``) or in blocks elsewhere (``BlockTable``). ``reader``
is the one way from a recognised regression to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray
from dpmodel.compile.form import require_private_values
from dpmodel.compile.rows import HeldNumbers, added, cached_rows, held_numbers, summed
from dpmodel.marks import vault
from dpmodel.marks.private import Private
from dpmodel.marks.rows import RowSource
from dpmodel.regressions.features import Features, Label, through

if TYPE_CHECKING:
    from dpmodel.regressions.read import Recognised

WHOLE = 1 << 62  # rows in a part: all that lie together
T = TypeVar("T")


class Table(Protocol):
    """``count`` rows of ``size`` features, of which nothing is known but sums over them."""

    @property
    def count(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def in_memory(self) -> Rows | None:
        """All rows, where they lie in memory."""

    def map_reduce(
        self, function: Callable[[Rows], T], combine: Callable[[T, T], T] = added, step: int | None = None
    ) -> T:
        """``function`` of every part of the rows, combined, in one pass.

        ``function``, like ``combine``, is pure and can be pickled: it may run elsewhere, and again if it fails there.
        ``step`` : most rows in a part; None: what fits into a processor's cache.
        """
        ...


@dataclass(frozen=True)
class Rows:
    """Features in blocks, so that neither an intercept nor a sparse block is copied into one dense matrix.

    ``blocks`` : (matrix, start): (n, k) dense or CSR features of the coefficients start .. start + k;
    ``labels`` : (n,), or (n, K) where a record has K predictions, each with p coefficients of its own, which follow one
    another in w (K p,); ``offset`` : (n,) public part of the predictions, or None; ``weights`` : (n,), or None.
    ``first`` : number of the first row in the table. ``own`` : whether the matrices are copies made for one call, which
    may overwrite them.
    """

    blocks: tuple[tuple[Any, int], ...]
    labels: PrivateArray
    size: int
    offset: Floats | None = None
    weights: Floats | None = None
    first: int = 0
    own: bool = False

    @property
    def in_memory(self) -> Rows:
        return self

    @property
    def count(self) -> int:
        return int(self.labels.shape[0])

    def part(self, which: Any) -> Rows:
        """The rows of these numbers (or of a slice)."""
        return Rows(
            tuple((matrix[which], start) for matrix, start in self.blocks),
            PrivateArray(self.labels[which]),
            self.size,
            None if self.offset is None else self.offset[which],
            None if self.weights is None else self.weights[which],
            self.first + (which.start or 0) if isinstance(which, slice) else self.first,
        )

    def map_reduce(
        self, function: Callable[[Rows], T], combine: Callable[[T, T], T] = added, step: int | None = None
    ) -> T:
        """As ``Table`` has it. Views; by default sparse rows in one part, others so that two products with a part read
        memory once."""
        if step is None:
            return reduce(combine, map(function, self._cached_parts))
        slices = (slice(at, at + step) for at in range(0, max(self.count, 1), step))
        return reduce(combine, (function(self.part(each)) for each in slices))

    @cached_property
    def _cached_parts(self) -> tuple[Rows, ...]:
        if any(sp.issparse(matrix) for matrix, _ in self.blocks):
            return (self,)
        step = cached_rows(sum(matrix.shape[1] for matrix, _ in self.blocks))
        return tuple(self.part(slice(start, start + step)) for start in range(0, max(self.count, 1), step))

    @property
    def still(self) -> Rows:
        """The same without the offset."""
        return self if self.offset is None else replace(self, offset=None)

    def predict(self, w: Floats) -> PrivateArray:
        """(n,) predictions a_i' w (+ offset), or (n, K). One pass over the features."""
        if self.labels.ndim == 2:
            w = w.reshape(-1, self.size).T
        # Each of K predictions lies in one piece: what is done to a record's K numbers is then done to long arrays.
        z: Any = np.zeros((*w.shape[1:], self.count)).T if w.ndim == 2 else 0.0
        z = z if self.offset is None else self.offset.copy()
        for matrix, start in self.blocks:
            own = w[start : start + matrix.shape[1]]
            # A column times a number: an intercept's takes half as long as a product of matrices does.
            z += matrix[:, 0] * own[0] if own.shape == (1,) and isinstance(matrix, np.ndarray) else matrix @ own
        return PrivateArray(z)

    def combine(self, coefficients: Floats) -> PrivateArray:
        """(p,) sum_i coefficients_i weights_i a_i, or (K p,) for coefficients (n, K). One pass over the features."""
        if self.weights is not None:
            coefficients = (coefficients.T * self.weights).T
        out = np.zeros((self.size, *coefficients.shape[1:]))
        for matrix, start in self.blocks:
            out[start : start + matrix.shape[1]] = matrix.T @ coefficients
        return PrivateArray(out.T.ravel())

    def gram(self) -> PrivateArray:
        """(p, p) sum_i weights_i a_i a_i'."""
        out = np.zeros((self.size, self.size))
        for matrix, start in self.blocks:
            weighted = matrix if self.weights is None else _scaled(matrix, self.weights)
            for other, first in self.blocks:
                if first > start:
                    continue
                part = weighted.T @ other
                part = part.toarray() if sp.issparse(part) else np.asarray(part)
                out[start : start + matrix.shape[1], first : first + other.shape[1]] = part
                out[first : first + other.shape[1], start : start + matrix.shape[1]] = part.T
        return PrivateArray(out)


def _scaled(matrix: Any, weights: Floats) -> Any:
    return sp.diags_array(weights) @ matrix if sp.issparse(matrix) else matrix * weights[:, None]


Reader = Callable[[], Table]


def divided(table: Table, units: Floats) -> Table:
    """The rows with every column divided by a public number of ``units`` (p,)."""
    if isinstance(table, BlockTable):
        return replace(table, units=units)
    assert isinstance(table, Rows)
    return _divided(table, units)


def _divided(rows: Rows, units: Floats) -> Rows:
    blocks = tuple((_columns_times(m, 1 / units[start : start + m.shape[1]]), start) for m, start in rows.blocks)
    return replace(rows, blocks=blocks)


def _columns_times(matrix: Any, factors: Floats) -> Any:
    return sp.csr_array(matrix @ sp.diags_array(factors)) if sp.issparse(matrix) else matrix * factors


def _of_divided(part: Rows, function: Callable[[Rows], T], units: Floats) -> T:
    return function(_divided(part, units))


# ------------------------------------------------------------------ rows in blocks elsewhere


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
    """A ``Table`` whose rows lie in ``source``, divided by ``units`` (p,) if any. What leaves a block is what
    ``function`` makes of it, added up."""

    source: RowSource
    reader: BlockReader
    units: Floats | None = None

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
        if self.units is not None:
            function = partial(_of_divided, function=function, units=self.units)
        return summed(self.source, self.reader, function, combine, step)


# ------------------------------------------------------------------ from a recognised regression to its rows


def reader(recognised: Recognised) -> Reader:
    """A function that reads the rows, for a mechanism's ``run`` only; MissingValueError where a value is missing."""
    read = reader_of_all([recognised])
    return lambda: read()[0]


def reader_of_all(parts: Sequence[Recognised]) -> Callable[[], tuple[Table, ...]]:
    """The same for regressions over the same records: every parameter is read once."""

    def read() -> tuple[Table, ...]:
        private = {id(p): p for part in parts for p in part.private}
        require_private_values(private.values())
        if any(p.in_blocks for p in private.values()):
            return tuple(map(_block_table, parts))
        owned = {key: _owned(parameter) for key, parameter in private.items()}
        return tuple(_rows(part, owned) for part in parts)

    return read


def _rows(recognised: Recognised, owned: dict[int, Any]) -> Rows:
    """The rows, made of the sealed numbers: a view of what is sealed where all entries are stored, public numbers as
    they are."""

    def matrix(features: Any) -> Any:
        return features.rows(owned[id(features.parameter)]) if isinstance(features, Features) else features

    blocks = tuple((matrix(features), start) for features, start in recognised.blocks)
    label: Any = recognised.label
    if label is None:
        label = np.ones(recognised.count)
    elif isinstance(label, Label):
        # What was sealed is within the declared bounds; the range of the labels follows from them up to rounding.
        label = np.clip(label.of(owned[id(label.parameter)]), *label.range)
    weights = recognised.weights
    if isinstance(weights, Label):
        weights = PrivateArray(np.clip(weights.of(owned[id(weights.parameter)]), 0.0, 1.0))
    return Rows(blocks, PrivateArray(label), recognised.size, recognised.offset, weights)


def _block_table(recognised: Recognised) -> BlockTable:
    """The same of rows in blocks; public tables have the same row for all records."""
    private = recognised.private
    sealed: list[Any] = [vault.unseal(p) for p in private]
    place = {id(p): k for k, p in enumerate(private)}
    blocks = tuple(
        (place[id(f.parameter)], f.map, start) if isinstance(f, Features) else (None, _first_row(f), start)
        for f, start in recognised.blocks
    )
    label: Any = recognised.label
    if isinstance(label, Label):
        features, ends = label.features, (float(label.scale), float(label.shift))
        label = (place[id(features.parameter)], features.map, *ends, *label.range)
    else:
        label = 1.0 if label is None else float(label[0])
    reader = BlockReader(
        held=held_numbers(private, sealed),
        blocks=blocks,
        label=label,
        offset=0.0 if recognised.offset is None else float(recognised.offset[0]),
        size=recognised.size,
    )
    return BlockTable(sealed[0].source, reader)


def _first_row(table: Any) -> Floats:
    """(k,) the first row."""
    row = table[:1]
    return np.asarray(row.toarray() if sp.issparse(row) else row, dtype=np.float64).ravel()


def _owned(parameter: Private) -> Any:
    """What is sealed, in the shape of the parameter (a column for a vector), dense or CSR."""
    entries: Any = vault.unseal(parameter)
    if sp.issparse(entries):
        return entries
    shape = tuple(parameter.shape) if parameter.ndim == 2 else (int(parameter.size), 1)
    layout = parameter.layout
    if layout.size == parameter.size and parameter.sparse_idx is None:
        return entries.reshape(shape, order="F")
    return sp.csr_array((entries, (layout.rows, layout.columns)), shape=shape)
