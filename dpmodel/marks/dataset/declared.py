"""Values of a column on a public grid of integers, so that sums are exact in every engine and in any order.

A sum of floats rounds, and how depends on the other records and on the order in which an engine adds: one record may
move it by more than it moves the real sum. Integers add exactly. So every value is clipped to its bounds and rounded,
by itself, to a multiple of a power of two, and the multiples are added.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import narwhals as nw

from dpmodel.errors import SpecificationError
from dpmodel.marks.bounds import read_bounds
from dpmodel.marks.dataset.reading import Categories, Kind, Numbers, Reading, inside, placed
from dpmodel.marks.domain import Domain
from dpmodel.marks.records import Neighbors


@dataclass(frozen=True)
class Grid:
    """``step`` : a power of two, 1 for declared integers within 2^20. ``low``, ``high`` : ends in steps, integers.
    ``integer`` : whether sums are declared integers in the units of the column."""

    step: float
    low: int
    high: int
    integer: bool

    @staticmethod
    def of(low: float, high: float, *, integers: bool) -> Grid:
        """The grid of values in [low, high]; the ends are rounded outwards."""
        largest = max(abs(low), abs(high))
        # A grid of 2^20 steps on the larger side of zero: sums of up to 2^33 rows are integers below 2^53.
        step = math.ldexp(1.0, math.frexp(largest)[1] - 20)
        step = max(step, 1.0) if integers else step
        return Grid(step, math.floor(low / step), math.ceil(high / step), integers)


# ---- How far one person moves what is computed from a table: the sensitivities of ``Dataset``, with their proofs
#
# A person owns at most k rows after contribution bounding, and which rows those are is a function of the person's own
# rows alone. Under "add-remove" a person's rows come or go, under "replace-one" they are replaced by other rows, at
# most k too. What a person contributes to the cells of a table is a vector u; neighbors move the table by u, or by
# u - u'.


@dataclass(frozen=True)
class Move:
    """Bounds on how far one record moves an array, in three norms; they are attained unless said otherwise."""

    l1: float
    l2: float
    linf: float


def of_counts(rows: int, cells: int, neighbors: Neighbors) -> Move:
    """Counts of rows in ``cells`` disjoint cells, k = ``rows`` a person.

    u >= 0 with ||u||_1 <= k, so every norm of u is at most k, which k rows in one cell attain. ||u - u'|| is convex in
    both, so the largest is at vertices k e_i, k e_j: k in linf, and for i != j 2k in l1 and sqrt(2) k in l2.
    """
    return of_sums(rows, 0.0, 1.0, cells, neighbors)


def of_distinct(most: int, cells: int, neighbors: Neighbors) -> Move:
    """Counts of people: a person adds 1 to at most k = ``most`` cells.

    u in {0, 1}^cells with at most k ones; u - u' has entries in {-1, 0, 1}, at most 2k of them not zero, and no more
    than there are cells.
    """
    moved = min(most if neighbors == "add-remove" else 2 * most, cells)
    return Move(moved, math.sqrt(moved), 1.0)


def of_sums(rows: int, low: float, high: float, cells: int, neighbors: Neighbors) -> Move:
    """Sums in ``cells`` disjoint cells of values in [low, high], k = ``rows`` a person.

    With a = min(low, 0) and b = max(high, 0) (a row may be absent), u lies in the convex hull of {k a e_i, k b e_i}.
    Norms are convex, so the largest ||u|| is k max(-a, b), and the largest ||u - u'|| is at vertices: k (b - a) within
    one cell, and with M = max(-a, b) across two cells 2 k M in l1 and sqrt(2) k M in l2.
    """
    a, b = min(low, 0.0), max(high, 0.0)
    largest, within = rows * max(-a, b), rows * (b - a)
    if neighbors == "add-remove":
        return Move(largest, largest, largest)
    if cells == 1:
        return Move(within, within, within)
    return Move(2 * largest, max(math.sqrt(2) * largest, within), within)


def of_thresholds(rows: int, thresholds: int) -> Move:
    """Numbers of rows with a value of at most t, for every threshold t, k = ``rows`` a person.

    Every entry of u is in [0, k], and so every entry of u and of u - u' moves by at most k; k rows below all thresholds
    (against none, or k rows above all) move all of them by k.
    """
    return Move(rows * thresholds, rows * math.sqrt(thresholds), rows)


def of_shares(rows: int, width: float, cells: int, neighbors: Neighbors) -> Move:
    """In each of ``cells`` disjoint cells the sums of v - low and of high - v, for v in bounds of this width, k =
    ``rows`` a person.

    A row adds v - low >= 0 to one entry of its cell and high - v >= 0 to the other, together the width: the
    contributions of a row are the hull of those of a row at the lower and one at the upper end, which are the width
    times a count in one of 2 ``cells`` disjoint cells. Norms are convex, so the largest moves are those of counts,
    attained by rows at the ends.
    """
    return of_sums(rows, 0.0, width, 2 * cells, neighbors)


# ---- What was declared of a table's columns: public, as their names are, and all that is known of what they hold


Bounds = tuple[float, float]


@dataclass(frozen=True)
class Declared:
    """``columns`` : names of all columns. ``bounds`` : (lo, hi) of columns of numbers. ``domain`` : categories of
    others. ``integers`` : columns of ``bounds`` that hold integers. ``decimal`` : "." or "," of numbers in text."""

    columns: tuple[str, ...]
    bounds: Mapping[str, Bounds]
    domain: Domain | None
    integers: frozenset[str] = field(default_factory=frozenset)
    decimal: str = "."

    @staticmethod
    def of(columns: Sequence[str], bounds: Any, domain: Any, integers: Any = (), decimal: str = ".") -> Declared:
        """Check declared ranges and categories.

        Raises
        ------
        SpecificationError
            For columns that the table does not have, bounds that are no finite range, and integers without bounds.
        """
        if bounds is not None and not isinstance(bounds, Mapping):
            raise SpecificationError(
                "Dataset: bounds is not a mapping", remedy="bounds={'age': (0, 100), 'income': (0, 200_000)}"
            )
        told = {column: _range(column, pair) for column, pair in (bounds or {}).items()}
        listed = None if domain is None or (isinstance(domain, Mapping) and not domain) else Domain.of(domain)
        categories = () if listed is None else listed.columns
        integer = names_in(integers, "integers")
        for column in [*told, *categories, *integer]:
            refuse_unknown(column, columns)
        both = [column for column in categories if column in told]
        if both:
            raise SpecificationError(
                f"Dataset: bounds and a domain for {both[0]!r}", remedy="bounds for numbers, a domain for categories"
            )
        unbounded = [column for column in integer if column not in told]
        if unbounded:
            raise SpecificationError(
                f"Dataset: {unbounded[0]!r} is among the integers and has no bounds",
                why="integers is said of columns of numbers, whose sums then have discrete noise",
                remedy=f"bounds={{{unbounded[0]!r}: (lo, hi)}}",
            )
        return Declared(tuple(columns), told, listed, frozenset(integer), decimal)

    @cached_property
    def _places(self) -> dict[str, str]:
        return dict(zip(self.columns, placed(len(self.columns)), strict=True))

    def place(self, column: str) -> str:
        """What a column is called in a table: its place, because engines read patterns and paths into names."""
        return self._places[column]

    def value(self, column: str) -> nw.Expr:
        """A declared column as it is read: a number, or the place of a category."""
        return nw.col(self.place(column))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The declared columns, from left to right."""
        return tuple(c for c in self.columns if c in self.bounds or self.listed(c))

    def kind(self, column: str) -> Kind:
        """How a declared column is read."""
        if column in self.bounds:
            return Numbers(column in self.integers, self.decimal)
        return Categories(self.categories(column), self.decimal)

    def reading(self, person: str | None = None, order: Sequence[str] = ()) -> Reading:
        """How the table is read, with the people of ``person`` and the columns of ``order``."""
        kinds = {self.place(column): self.kind(column) for column in self.names}
        others = tuple(self.place(column) for column in order if column not in self.names)
        return Reading(None if person is None else self.place(person), kinds, others)

    def range(self, column: str, why: str) -> Bounds:
        """The declared bounds of a column.

        Raises
        ------
        SpecificationError
            Where there are none; ``why`` they are needed.
        """
        refuse_unknown(column, self.columns)
        if column in self.bounds:
            return self.bounds[column]
        if self.listed(column):
            raise SpecificationError(
                f"Dataset: {column!r} is a column of categories",
                why="categories are counted; numbers have bounds in place of a domain",
                remedy=f"count(by={column!r}), or a column of numbers",
            )
        raise SpecificationError(
            f"Dataset: {column!r} has no bounds",
            why=why,
            remedy=f"Dataset(..., bounds={{{column!r}: (lo, hi)}}) for numbers, or domain={{{column!r}: [...]}}, the "
            "public list, for categories",
        )

    def categories(self, column: str) -> tuple[Any, ...]:
        """The declared categories of a column.

        Raises
        ------
        SpecificationError
            Where there are none.
        """
        refuse_unknown(column, self.columns)
        if self.domain is None or not self.listed(column):
            raise SpecificationError(
                f"Dataset: {column!r} has no domain",
                why="groups come from a public list: read off the data, they would tell who is in it",
                remedy=f"Dataset(..., domain={{{column!r}: [...]}}), or histogram(column, edges) for a number",
            )
        return self.domain.labels((column,))[0]

    def inside(self, column: str) -> nw.Expr:
        """Whether a row's value of this column is in its domain, or a finite number: a rule for each row by itself."""
        return inside(self.place(column), self.kind(column))

    def listed(self, column: str) -> bool:
        """Whether it is a column of categories."""
        return self.domain is not None and column in self.domain.columns


def refuse_unknown(column: Any, columns: Sequence[str]) -> None:
    """SpecificationError for a column that the table does not have."""
    if not isinstance(column, str):
        raise SpecificationError(f"Dataset: a column called by a {type(column).__name__}", remedy="names as text")
    if column not in columns:
        have = ", ".join(columns[:8]) + (", ..." if len(columns) > 8 else "")
        raise SpecificationError(
            f"Dataset: no column {column!r}",
            why="columns are named as in the table, capitals and spaces too",
            remedy=f"the table has {have}",
        )


def _range(column: Any, pair: Any) -> Bounds:
    low, high = read_bounds(pair, None, None, f"Dataset: bounds of {column!r}")
    ends = [low, high]
    if not all(isinstance(e, numbers.Real) and not isinstance(e, bool) and math.isfinite(float(e)) for e in ends):
        raise SpecificationError(
            f"Dataset: bounds of {column!r} are not two finite numbers",
            why="values beyond are clipped, and how far one record moves a sum follows from them",
            remedy=f"bounds={{{column!r}: (lo, hi)}}",
        )
    if not 1e-100 <= max(abs(float(low)), abs(float(high))) <= 1e100:
        raise SpecificationError(
            f"Dataset: bounds of {column!r} are below 1e-100 or beyond 1e100",
            why="such numbers cannot be squared in floating point",
            remedy="other units for this column",
        )
    if not float(low) < float(high):
        raise SpecificationError(f"Dataset: bounds of {column!r} are not lo < hi", remedy="the lower end first")
    return float(low), float(high)


def names_in(by: str | Iterable[str] | None, said: str = "by") -> tuple[str, ...]:
    """Columns to group by, or of another argument, none twice."""
    names = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    if len(set(names)) != len(names):
        raise SpecificationError(f"Dataset: {said}={list(names)} names a column twice", remedy="every column once")
    return names
