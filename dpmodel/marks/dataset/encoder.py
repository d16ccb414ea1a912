"""Rows of a table that was read (``Reading``) as numbers, by public declarations alone: each row by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import narwhals as nw
import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset.declared import Bounds, Declared

# A column's name, or several: the products of their encodings.
Term = str | tuple[str, ...]


class Part(Protocol):
    """Some columns of the encoded matrix."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def ranges(self) -> tuple[Bounds, ...]: ...

    @property
    def norms(self) -> tuple[float, float]:
        """Largest 1-norm and 2-norm of a row of these columns."""

    def of(self, frame: nw.DataFrame[Any]) -> Floats:
        """(n, len(names))."""


@dataclass(frozen=True)
class Number:
    """A number clipped to its bounds; ``scaled``: to [-1, 1]. Missing and infinite ones are the middle."""

    column: str
    place: str
    bounds: Bounds
    scaled: bool

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def ranges(self) -> tuple[Bounds, ...]:
        return ((-1.0, 1.0),) if self.scaled else (self.bounds,)

    @property
    def norms(self) -> tuple[float, float]:
        size = max(map(abs, self.ranges[0]))
        return size, size

    def of(self, frame: nw.DataFrame[Any]) -> Floats:
        low, high = self.bounds
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        given = self._numbers(frame[self.place])
        given = np.clip(np.where(np.isfinite(given), given, middle), low, high)
        return ((given - middle) / half if self.scaled else given)[:, None]

    def _numbers(self, column: nw.Series[Any]) -> Floats:
        return np.array(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


@dataclass(frozen=True)
class Codes(Number):
    """The number 0, 1, ... of a category in its list; the middle for what is in none."""

    def _numbers(self, column: nw.Series[Any]) -> Floats:
        codes = column.to_numpy()
        return np.where(codes < 0, np.nan, codes)


@dataclass(frozen=True)
class OneHot:
    """One column per category, 1 where a row has it; all zeros for what is not in the list."""

    column: str
    place: str
    categories: tuple[Any, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.column}={category}" for category in self.categories)

    @property
    def ranges(self) -> tuple[Bounds, ...]:
        return ((0.0, 1.0),) * len(self.categories)

    @property
    def norms(self) -> tuple[float, float]:
        return 1.0, 1.0

    def of(self, frame: nw.DataFrame[Any]) -> Floats:
        codes = frame[self.place].to_numpy()
        out = np.zeros((codes.size, len(self.categories)))
        known = np.flatnonzero(codes >= 0)
        out[known, codes[known]] = 1.0
        return out


@dataclass(frozen=True)
class Product:
    """All products of one column of each part: an interaction."""

    parts: tuple[Part, ...]

    @property
    def names(self) -> tuple[str, ...]:
        names: tuple[str, ...] = ("",)
        for part in self.parts:
            names = tuple(f"{a} x {b}" if a else b for a in names for b in part.names)
        return names

    @property
    def ranges(self) -> tuple[Bounds, ...]:
        ranges: tuple[Bounds, ...] = ((1.0, 1.0),)
        for part in self.parts:
            ranges = tuple(_product(a, b) for a in ranges for b in part.ranges)
        return ranges

    @property
    def norms(self) -> tuple[float, float]:
        one, two = zip(*(part.norms for part in self.parts), strict=True)
        return math.prod(one), math.prod(two)

    def of(self, frame: nw.DataFrame[Any]) -> Floats:
        out = np.ones((len(frame), 1))
        for part in self.parts:
            out = (out[:, :, None] * part.of(frame)[:, None, :]).reshape(len(frame), -1)
        return out


@dataclass(frozen=True)
class Encoder:
    """``parts`` side by side. A public function of one row; it pickles, so that it runs where the rows are."""

    parts: tuple[Part, ...]

    @staticmethod
    def of(declared: Declared, terms: Sequence[Term], ordinal: Sequence[str], *, scale: bool) -> Encoder:
        """The encoding of ``terms``: numbers by their bounds, categories one-hot, or as codes where ``ordinal``.

        Raises
        ------
        SpecificationError
            For columns without bounds or domain, columns that repeat, and no columns at all.
        """
        if not terms:
            raise SpecificationError("Dataset.rows: no columns", remedy="rows(['age', 'income', 'town'])")
        if len(set(terms)) != len(terms):
            raise SpecificationError("Dataset.rows: a column twice", remedy="every column once")
        unused = [c for c in ordinal if c not in {n for t in terms for n in ([t] if isinstance(t, str) else t)}]
        if unused:
            raise SpecificationError(f"Dataset.rows: ordinal={unused[0]!r} is not among the columns", remedy="add it")
        few = [c for c in ordinal if len(declared.categories(c)) < 2]
        if few:
            raise SpecificationError(
                f"Dataset.rows: {few[0]!r} has one category", remedy="leave it out: it is constant"
            )
        return Encoder(tuple(_part(declared, term, ordinal, scale) for term in terms))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.names)

    @property
    def ranges(self) -> tuple[Floats, Floats]:
        """(p,), (p,): public ends of every encoded column."""
        low, high = zip(*(pair for part in self.parts for pair in part.ranges), strict=True)
        return np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)

    @property
    def norms(self) -> tuple[float, float]:
        """Largest 1-norm and 2-norm of an encoded row: a row has one category of each list, and any number."""
        one, two = zip(*(part.norms for part in self.parts), strict=True)
        return sum(one), math.hypot(*two)

    def matrix(self, block: Any) -> PrivateArray:
        """(n, p) numbers of a block of rows as ``Reading`` reads them, in Fortran order."""
        frame = nw.from_native(block, eager_only=True)
        out = np.empty((len(frame), len(self.names)), order="F")
        start = 0
        for part in self.parts:
            width = len(part.names)
            out[:, start : start + width] = part.of(frame)
            start += width
        return PrivateArray(out)

    def vector(self, block: Any) -> PrivateArray:
        """(n,) the same of one column."""
        return PrivateArray(self.matrix(block)[:, 0])


def _part(declared: Declared, term: Term, ordinal: Sequence[str], scale: bool) -> Part:
    if not isinstance(term, str):
        return Product(tuple(_part(declared, column, ordinal, scale) for column in term))
    if declared.listed(term):
        categories = declared.categories(term)
        last = float(len(categories) - 1)
        place = declared.place(term)
        return Codes(term, place, (0.0, last), scale) if term in ordinal else OneHot(term, place, categories)
    why = "how far one record moves a fit follows from the ranges of its numbers"
    bounds = declared.range(term, why)
    return Number(term, declared.place(term), bounds, scale)


def _product(a: Bounds, b: Bounds) -> Bounds:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)
