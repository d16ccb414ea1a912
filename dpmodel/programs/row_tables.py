"""Private rows ``G x <= h`` as a mechanism's ``run`` sees them: a part at a time, wherever they lie.

A mechanism asks a ``RowTable`` for sums over the rows, ``map_reduce``, and is the same whether they lie in memory (one
part) or in blocks elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray
from dpmodel.compile.rows import BlockRows, MemoryRows, RecordRows, added, summed

T = TypeVar("T")
# Relative rows whose own width is below this (their numbers are zero or nearly subnormal) read ``0 <= 0``.
_TINY = 1e-290


@dataclass(frozen=True)
class RowPart:
    """Some of the rows.

    ``blocks`` : (matrix (k, w), factor, start): G has ``factor * matrix`` in the columns start .. start + w; matrices
    are dense or CSR. ``shared`` (n,) : public numbers added to every row of G, or None. ``h`` (k,). ``here`` (k,) : 0
    for absent rows, which read ``0 <= 0``, 1 for others; None: all are there.
    """

    blocks: tuple[tuple[Any, float, int], ...]
    h: PrivateArray
    size: int
    shared: Floats | None = None
    here: Floats | None = None

    @property
    def count(self) -> int:
        return int(self.h.size)

    def residual(self, x: Floats) -> PrivateArray:
        """(k,) ``G x - h``. One product with the rows."""
        products = [matrix @ (factor * x[start : start + matrix.shape[1]]) for matrix, factor, start in self.blocks]
        out = products[0] if products else np.zeros(self.count)
        for other in products[1:]:
            out += other
        out -= self.h
        if self.shared is not None:
            out += float(self.shared @ x)
        if self.here is not None:
            out *= self.here
        return PrivateArray(out)

    def pull(self, weights: Floats) -> PrivateArray:
        """(n,) ``G' weights``. One product with the rows."""
        if self.here is not None:
            weights = weights * self.here
        out = np.zeros(self.size) if self.shared is None else self.shared * float(weights.sum())
        for (matrix, factor, start), turned in zip(self.blocks, self._turned, strict=True):
            out[start : start + matrix.shape[1]] += factor * (turned @ weights)
        return PrivateArray(out)

    @cached_property
    def _turned(self) -> tuple[Any, ...]:
        """Views: the matrices turned, made once."""
        return tuple(matrix.T for matrix, _, _ in self.blocks)

    def matrix(self) -> sp.csr_array:
        """(k, n) G."""
        out = sp.csr_array((self.count, self.size))
        for each, factor, start in self.blocks:
            entries = sp.coo_array(each)
            place = entries.row, entries.col + start
            out = out + sp.csr_array((factor * entries.data, place), shape=out.shape)
        if self.shared is not None:
            out = out + sp.csr_array(np.ones((self.count, 1))) @ sp.csr_array(self.shared[None])
        return sp.csr_array(out if self.here is None else sp.diags_array(self.here) @ out)


@dataclass(frozen=True)
class Widths:
    """How wide a row without public bounds is, by which it is divided: ``scale`` (n,) times its entries, of which the
    sum counts, or the largest (``by_norm``), plus its side."""

    scale: Floats
    by_norm: bool

    def shares(self, G: sp.csr_array, h: PrivateArray) -> tuple[sp.csr_array, PrivateArray]:
        """The rows divided by their own widths."""
        size = abs(G)
        largest = size.max(axis=1).toarray().ravel() * float(self.scale[0]) if self.by_norm else size @ self.scale
        width = np.asarray(largest).ravel() + np.abs(h)
        sized = np.isfinite(width) & (width > _TINY)
        factor = np.divide(1.0, width, out=np.zeros_like(width), where=sized)
        G.data[np.repeat(~sized, np.diff(G.indptr))] = 0.0
        # Columns that the public set fixes at zero are outside the width, and say nothing.
        G = sp.csr_array(sp.diags_array(factor) @ G @ sp.diags_array((self.scale > 0).astype(float)))
        return G, PrivateArray(np.where(sized, h, 0.0) * factor)


@dataclass(frozen=True)
class Treatment:
    """What makes inequalities with bounds of the rows of records; public, and it travels to where blocks lie.

    ``equalities`` : per kind of row; these stand twice, with both signs. ``absent`` : rows whose private numbers are
    all zero read ``0 <= 0``. ``widths`` : of rows without public bounds, else None.
    """

    equalities: tuple[bool, ...]
    size: int
    absent: bool
    widths: Widths | None

    def parts(self, rows: RecordRows) -> Iterator[RowPart]:
        with np.errstate(over="ignore", invalid="ignore"):  # a warning would tell of an odd record
            part = RowPart(rows.blocks, rows.sides, self.size, rows.shared, _here(rows) if self.absent else None)
            for sign in (1.0, -1.0) if self.equalities[rows.kind] else (1.0,):
                yield self._shared(_signed(part, sign))

    def _shared(self, part: RowPart) -> RowPart:
        if self.widths is None:
            # An absent row is met with equality.
            return part
        h = part.h if part.here is None else PrivateArray(part.h * part.here)
        G, h = self.widths.shares(part.matrix(), h)
        return RowPart(((G, 1.0, 0),), h, self.size)


class RowTable(Protocol):
    """The private rows of a program, of which sums can be asked."""

    @property
    def in_memory(self) -> tuple[RowPart, ...] | None:
        """All rows, where they lie in memory."""
        ...

    def map_reduce(self, function: Callable[[RowPart], T], combine: Callable[[T, T], T] = added) -> T:
        """``function`` of every part, combined, in one pass. Both are pure and can be pickled: they may run elsewhere,
        and again if they fail there."""
        ...


@dataclass(frozen=True)
class RowsHere:
    """All rows in memory."""

    in_memory: tuple[RowPart, ...]

    def map_reduce(self, function: Callable[[RowPart], T], combine: Callable[[T, T], T] = added) -> T:
        return reduce(combine, map(function, self.in_memory))


@dataclass(frozen=True)
class RowsElsewhere:
    """``rows`` in blocks, as inequalities."""

    rows: BlockRows
    treatment: Treatment

    @property
    def in_memory(self) -> None:
        return None

    def map_reduce(self, function: Callable[[RowPart], T], combine: Callable[[T, T], T] = added) -> T:
        return summed(self.rows.source, self.rows, partial(_treated, self.treatment, function, combine), combine)


def row_table(rows: BlockRows | MemoryRows, treatment: Treatment) -> RowTable:
    if isinstance(rows, BlockRows):
        return RowsElsewhere(rows, treatment)
    return RowsHere(tuple(part for each in rows.all() for part in treatment.parts(each)))


def _treated(
    treatment: Treatment, function: Callable[[RowPart], T], combine: Callable[[T, T], T], rows: RecordRows
) -> T:
    return reduce(combine, map(function, treatment.parts(rows)))


def _signed(part: RowPart, sign: float) -> RowPart:
    if sign > 0:
        return part
    blocks = tuple((matrix, -factor, start) for matrix, factor, start in part.blocks)
    shared = None if part.shared is None else -part.shared
    return RowPart(blocks, PrivateArray(-part.h), part.size, shared, part.here)


def _here(rows: RecordRows) -> Floats:
    """(k,) private: 1 for rows with a private number that is not zero."""
    out = np.zeros(rows.sides.size, dtype=bool)
    for numbers in rows.numbers:
        out |= np.diff(numbers.indptr) > 0 if sp.issparse(numbers) else (numbers != 0).any(axis=1)
    return out.astype(np.float64)
