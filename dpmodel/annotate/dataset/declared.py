"""What was declared of a table's columns: public, as their names are, and all that is known of what they hold."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import narwhals as nw

from dpmodel.annotate.dataset.reading import Categories, Kind, Numbers, Reading, inside, placed
from dpmodel.annotate.declared_bounds import read_bounds
from dpmodel.annotate.domain import Domain
from dpmodel.errors import SpecificationError

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
        listed = None if domain is None else Domain.of(domain)
        categories = () if listed is None else listed.columns
        whole = names_in(integers, "integers")
        for column in [*told, *categories, *whole]:
            refuse_unknown(column, columns)
        both = [column for column in categories if column in told]
        if both:
            raise SpecificationError(
                f"Dataset: bounds and a domain for {both[0]!r}", remedy="bounds for numbers, a domain for categories"
            )
        unbounded = [column for column in whole if column not in told]
        if unbounded:
            raise SpecificationError(
                f"Dataset: {unbounded[0]!r} is among the integers and has no bounds",
                why="integers is said of columns of numbers, whose sums then have discrete noise",
                remedy=f"bounds={{{unbounded[0]!r}: (lo, hi)}}",
            )
        return Declared(tuple(columns), told, listed, frozenset(whole), decimal)

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
        raise SpecificationError(
            f"Dataset: {column!r} {'is a column of categories' if self.listed(column) else 'has no bounds'}",
            why=why,
            remedy=f"Dataset(..., bounds={{{column!r}: (lo, hi)}})",
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
        raise SpecificationError(f"Dataset: no column {column!r}", remedy=f"the table has {have}")


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
