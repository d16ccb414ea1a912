"""What was declared of a table's columns, held against their types: both are public."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw

from dpmodel.annotate.dataset.held import held
from dpmodel.annotate.declared_bounds import read_bounds
from dpmodel.annotate.domain import Domain
from dpmodel.annotate.elements import key, refuse_types
from dpmodel.errors import SpecificationError

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Declared:
    """``bounds`` : (lo, hi) of columns of numbers. ``domain`` : categories of others. ``schema`` : types."""

    schema: Mapping[str, Any]
    bounds: Mapping[str, Bounds]
    domain: Domain | None

    @staticmethod
    def of(schema: Mapping[str, Any], bounds: Any, domain: Any) -> Declared:
        """Check declared ranges and categories.

        Raises
        ------
        SpecificationError
            For columns that the table does not have, bounds that are no finite range, and columns of a type that cannot
            hold what was declared.
        """
        if bounds is not None and not isinstance(bounds, Mapping):
            raise SpecificationError(
                "Dataset: bounds is not a mapping", remedy="bounds={'age': (0, 100), 'income': (0, 200_000)}"
            )
        told = {column: _range(column, pair) for column, pair in (bounds or {}).items()}
        listed = None if domain is None else Domain.of(domain)
        categories = () if listed is None else listed.columns
        for column in [*told, *categories]:
            refuse_unknown(column, schema)
        both = [column for column in categories if column in told]
        if both:
            raise SpecificationError(
                f"Dataset: bounds and a domain for {both[0]!r}", remedy="bounds for numbers, a domain for categories"
            )
        for column in told:
            _refuse_no_number(column, schema[column])
        if listed is not None:
            for column in categories:
                _refuse_unlike(column, schema[column], listed.labels((column,))[0])
        return Declared(schema, told, listed)

    def range(self, column: str, why: str) -> Bounds:
        """The declared bounds of a column.

        Raises
        ------
        SpecificationError
            Where there are none; ``why`` they are needed.
        """
        refuse_unknown(column, self.schema)
        if column in self.bounds:
            return self.bounds[column]
        if self.schema[column] == nw.Boolean:
            return 0.0, 1.0
        listed = self.listed(column)
        raise SpecificationError(
            f"Dataset: {column!r} {'is a column of categories' if listed else 'has no bounds'}",
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
        refuse_unknown(column, self.schema)
        if self.domain is None or not self.listed(column):
            if self.schema[column] == nw.Boolean:
                return False, True
            raise SpecificationError(
                f"Dataset: {column!r} has no domain",
                why="groups come from a public list: read off the data, they would tell who is in it",
                remedy=f"Dataset(..., domain={{{column!r}: [...]}}), or histogram(column, edges) for a number",
            )
        return self.domain.labels((column,))[0]

    def inside(self, column: str) -> nw.Expr:
        """Whether a row's value of this column is in its domain, or a finite number: a rule for each row by itself."""
        given = nw.col(column)
        if column in self.bounds or (self.schema[column] == nw.Boolean and not self.listed(column)):
            return (given.is_finite() if self.schema[column].is_float() else ~given.is_null()).fill_null(False)
        listed = self.categories(column)
        inside = given.is_in([value for _, value in held(listed, self.schema[column])]).fill_null(False)
        if key(None) not in map(key, listed):
            return inside
        return inside | given.is_null() | (given.is_nan().fill_null(True) if self.schema[column].is_float() else False)

    def listed(self, column: str) -> bool:
        """Whether it is a column of categories."""
        return self.domain is not None and column in self.domain.columns


def refuse_unknown(column: Any, schema: Mapping[str, Any]) -> None:
    """SpecificationError for a column that the table does not have."""
    if not isinstance(column, str):
        raise SpecificationError(f"Dataset: a column called by a {type(column).__name__}", remedy="names as text")
    if column not in schema:
        have = ", ".join(list(schema)[:8]) + (", ..." if len(schema) > 8 else "")
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


def _refuse_no_number(column: str, dtype: Any) -> None:
    if dtype.is_numeric() or dtype == nw.Boolean:
        return
    if dtype.is_temporal():
        zone = getattr(dtype, "time_zone", None)
        raise SpecificationError(
            f"Dataset: bounds of {column!r}, a column of times{' with a zone' if zone else ''}",
            why="their numbers depend on a unit and an origin" + (" and a zone" if zone else ""),
            remedy="a column of numbers (days since a public date, say), or a domain of times",
        )
    raise SpecificationError(
        f"Dataset: bounds of {column!r}, a column of type {_shown(dtype)}",
        why="bounds clip numbers",
        remedy="numbers in a column of a numeric type, or a domain for categories",
    )


def _refuse_unlike(column: str, dtype: Any, listed: tuple[Any, ...]) -> None:
    """Categories that no column of this type can hold would never be met."""
    kind, what = _held(dtype), f"Dataset: column {column!r}"
    if kind == "U" and listed == tuple(range(len(listed))):
        raise SpecificationError(
            f"{what} holds text, and its domain is the codes 0 to {len(listed) - 1}",
            why="a value is in the domain if it equals a category",
            remedy=f"domain={{{column!r}: [...]}}, the words that may stand in it",
        )
    if kind in "if" and not all(isinstance(c, numbers.Real) or key(c) == key(None) for c in listed):
        raise SpecificationError(
            f"{what} is of type {_shown(dtype)}, and its domain lists what is no number",
            why="a value is in the domain if it equals a category",
            remedy="categories as they stand in the column",
        )
    refuse_types(kind, listed, what, _shown(dtype))


def _shown(dtype: Any) -> str:
    """The name of a type alone: an Enum lists categories, which may be values of records."""
    return str(dtype).split("(")[0]


def _held(dtype: Any) -> str:
    """NumPy's kind of what a column of this type can hold; "O" for anything."""
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return "U"
    if dtype == nw.Boolean or dtype.is_integer():
        return "i"
    if dtype.is_float():
        return "f"
    if dtype in (nw.Date, nw.Datetime):
        return "M"
    return "m" if dtype == nw.Duration else "O"


def names_in(by: str | Sequence[str] | None) -> tuple[str, ...]:
    """Columns to group by, none twice."""
    names = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    if len(set(names)) != len(names):
        raise SpecificationError(f"Dataset: by={list(names)} names a column twice", remedy="every column once")
    return names
