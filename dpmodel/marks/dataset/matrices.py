"""Rows of a table as private matrices: features of a regression, and incidences of persons and items.

Public declarations alone decide which numbers a row becomes, each row by itself (``Reading``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import narwhals as nw
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset.declared import Bounds, Declared, refuse_unknown
from dpmodel.marks.dataset.reading import WHO
from dpmodel.marks.dataset.table import Flags, People, computed
from dpmodel.marks.domain import elements, key
from dpmodel.marks.layout import Lists
from dpmodel.marks.private import Private
from dpmodel.marks.rows import SourceRows
from dpmodel.marks.values import Handed

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
    """A number clipped to its bounds; ``scaled``: mapped to [-1, 1]. Missing and infinite ones become the middle."""

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
    """The number 0, 1, ... of a category in its list; the middle for other values."""

    def _numbers(self, column: nw.Series[Any]) -> Floats:
        codes = column.to_numpy()
        return np.where(codes < 0, np.nan, codes)


@dataclass(frozen=True)
class OneHot:
    """One column per category, 1 where a row has it; zeros alone for other values."""

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
        listed = np.flatnonzero(codes >= 0)
        out[listed, codes[listed]] = 1.0
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
    """``parts`` side by side: a public function of one row. It pickles, so that it can run where the rows are."""

    parts: tuple[Part, ...]

    @staticmethod
    def of(declared: Declared, terms: Sequence[Term], ordinal: Sequence[str], *, scale: bool) -> Encoder:
        """The encoding of ``terms``: numbers by their bounds, categories one-hot, or as codes where ``ordinal``.

        Raises
        ------
        SpecificationError
            For no columns, columns that repeat or have neither bounds nor domain, and ``ordinal`` ones that are not
            among them or have one category.
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
        """Largest 1-norm and 2-norm of an encoded row: a row has at most one category of each list."""
        one, two = zip(*(part.norms for part in self.parts), strict=True)
        return sum(one), math.hypot(*two)

    @property
    def lists(self) -> Lists:
        """The columns of each part that has several: (first, end, largest 1-norm)."""
        widths = [len(part.names) for part in self.parts]
        ends = np.cumsum(widths).tolist()
        each = zip(self.parts, widths, ends, strict=True)
        return tuple((end - width, end, part.norms[0]) for part, width, end in each if width > 1)

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
        """(n,) the only column of ``matrix``."""
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


# ------------------------------------------------------------------ the matrices


# Lazy tables with more numbers than this (half a gigabyte) are read in blocks.
_IN_MEMORY = 1 << 26


def rows(
    people: People,
    columns: str | Iterable[Term],
    ordinal: str | Sequence[str],
    *,
    scale: bool,
    first: bool,
    in_blocks: bool | None,
    name: str | None,
) -> Private:
    """``Dataset.rows``."""
    _check_in_blocks(in_blocks, "rows")
    terms = [columns] if isinstance(columns, str) else list(columns)
    named = (ordinal,) if isinstance(ordinal, str) else tuple(ordinal)
    if isinstance(columns, str) and columns not in named and people.declared.listed(columns):
        named = (columns,) if len(people.declared.categories(columns)) == 2 else named
    encoder = Encoder.of(people.declared, terms, named, scale=scale)
    if isinstance(columns, str) and len(encoder.names) > 1:
        raise SpecificationError(
            f"Dataset.rows: {columns!r} has {len(encoder.names)} categories, which are no vector of numbers",
            remedy=f"rows([{columns!r}]) for a matrix with a column per category, or ordinal={columns!r} for codes",
        )
    if people.person is not None and people.max_rows != 1 and not first:
        raise SpecificationError(
            "Dataset.rows: a person may have several rows",
            why="a regression protects a row, and a person must own no more than one",
            remedy="rows(..., first=True): the first row of each person in the order of order=; or one row a person",
        )
    used = list(dict.fromkeys(c for term in terms for c in ([term] if isinstance(term, str) else term)))
    # Refuses values outside the declarations, where that is an error. The number of rows is public.
    counted = people.summed(people.bounded(people.used([]), 1), {}, {}, used)
    count = sum(found[0] for found in counted.values())
    low, high = encoder.ranges
    called = name or (columns if isinstance(columns, str) else "rows")
    large = people.table.lazy and count * len(people.declared.columns) > _IN_MEMORY
    width = None if isinstance(columns, str) else len(encoder.names)
    numbers = encoder.vector if width is None else encoder.matrix
    value: Any
    if people.table.stays or (large if in_blocks is None else in_blocks):
        value = SourceRows(people.blocks, numbers, width)
    else:
        block = nw.to_native(people.one_row_each)
        value = computed(lambda: numbers(block)).view(Handed)
    if width is None:
        return Private(value, name=called, unit="entry", bounds=[low[0], high[0]], records=people.records)
    norms: dict[str, Any] = {"lists": encoder.lists}
    if max(-low.min(), high.max()) <= 1:  # else columns have units of their own, which norms would hide
        one, two = encoder.norms
        norms |= {"max_l1": one, "max_l2": two} if two < math.sqrt(len(encoder.names)) else {}
    private = Private(value, name=called, unit="row", bounds=[low, high], records=people.records, **norms)
    private.labels = ((None, ()), ("column", encoder.names))
    return private


def incidence(
    people: People, person: str, item: str, items: Sequence[Any] | None, *, in_blocks: bool | None, name: str | None
) -> Private:
    """``Dataset.incidence``."""
    _check_in_blocks(in_blocks, "incidence")
    for column in (person, item):
        refuse_unknown(column, people.declared.columns)
    if people.person != person:
        raise SpecificationError(
            f"Dataset.incidence: rows of {person!r}, but privacy_id is {people.person!r}",
            why="a row of the matrix must be a record"
            + ", and every row of the table is one" * (people.person is None),
            remedy=f"Dataset(..., privacy_id={person!r})",
        )
    listed = people.declared.categories(item) if items is None else tuple(elements(items))
    named = Declared.of(people.declared.columns, None, {item: listed}, decimal=people.declared.decimal)
    by_item = replace(people, declared=named, order=())
    place = named.place(item)
    visits = by_item.used([item])
    by_item.summed(visits, {}, {}, [item])
    visits = visits.distinct([WHO, place])
    declared: dict[str, Any] = {"unit": "row", "bounds": [0.0, 1.0], "max_l1": people.max_rows}
    declared |= {"name": name or f"{person} x {item}", "records": people.records}
    if people.table.stays if in_blocks is None else in_blocks:
        flags = Flags(place, len(listed), people.max_rows)
        # Of every person, also of those without items.
        source = by_item.used([]).distinct([WHO, place]).flagged(flags).blocks(flags.names)
        private = Private(SourceRows(source, flags.numbers, len(listed)), **declared)
        return _with_labels(private, people, person, item, listed)
    if people.max_rows is not None:
        visits = by_item.bounded(visits, people.max_rows)
    pairs = visits.eager([WHO, place])
    # Who is there at all is public under replace-one, and a row of zeros tells nothing else. The order is that
    # of ``rows``: row i of both has to belong to the same person.
    count, number = computed(lambda: _numbering(people.one_row_each[WHO]))
    places = computed(lambda: (number(pairs[WHO]), pairs[place].to_numpy()))
    matrix = sp.csr_array((np.ones(len(pairs)), places), shape=(count, len(listed)))
    return _with_labels(Private(matrix, positions="private", **declared), people, person, item, listed)


def _with_labels(private: Private, people: People, person: str, item: str, listed: tuple[Any, ...]) -> Private:
    private.labels, private.cut_by = ((person, ()), (item, listed)), people.cut_by
    return private


def _check_in_blocks(in_blocks: Any, method: str) -> None:
    if in_blocks not in (None, True, False):
        raise SpecificationError(f"Dataset.{method}: in_blocks is not True, False or None", remedy="in_blocks=True")


def _numbering(column: nw.Series[Any]) -> tuple[int, Callable[[nw.Series[Any]], Integers]]:
    """How many values there are, all different, and a function from values to their places."""
    if column.dtype.is_numeric():
        values = column.to_numpy()
        order = np.argsort(values)
        return values.size, lambda given: order[np.searchsorted(values, given.to_numpy(), sorter=order)]
    place = {value: i for i, value in enumerate(key(v) for v in elements(column))}
    return len(place), lambda given: np.array([place[key(v)] for v in elements(given)], dtype=np.int64)
