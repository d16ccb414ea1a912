"""The public domain of a table, and a table's records as codes in it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpmodel._types import Integers
from dpmodel.annotate.elements import elements, key, refuse_united
from dpmodel.errors import SpecificationError

Outside = Literal["error", "drop"]


@dataclass(frozen=True)
class Domain:
    """Columns of a table and the values that each may take, declared beforehand: never read off the data.

    ``columns`` : names. ``sizes`` : number of values of each. ``categories`` : the values themselves, or None where
    they are the codes 0 to size - 1.
    """

    columns: tuple[str, ...]
    sizes: tuple[int, ...]
    categories: tuple[tuple[Any, ...] | None, ...]

    @staticmethod
    def of(given: Any) -> Domain:
        """A domain from {column: size or list of categories}.

        Raises
        ------
        SpecificationError
            For a missing or empty domain, sizes below one, and repeated or unhashable categories.
        """
        if isinstance(given, Domain):
            return given
        if not isinstance(given, Mapping) or not given:
            raise SpecificationError(
                "query_release: no domain" if given is None else f"domain={type(given).__name__}",
                why="the values that a column may take must be public; reading them off the data would reveal them",
                remedy="domain={'age': 100, 'sex': ['female', 'male']}: sizes, or lists of categories",
            )
        sizes, categories = [], []
        for column, values in given.items():
            if not isinstance(column, str):
                raise SpecificationError(
                    f"domain: a column called by a {type(column).__name__}", remedy="names as text"
                )
            size, listed = _values(column, values)
            sizes.append(size)
            categories.append(listed)
        return Domain(tuple(given), tuple(sizes), tuple(categories))

    @property
    def cells(self) -> int:
        """Number of cells of the whole table (a Python integer: it may be astronomically large)."""
        return math.prod(self.sizes)

    def size(self, columns: Iterable[str]) -> int:
        """Number of cells of the marginal of ``columns``."""
        return math.prod(self.shape(columns))

    def shape(self, columns: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.sizes[self.columns.index(c)] for c in columns)

    def labels(self, columns: Iterable[str]) -> tuple[tuple[Any, ...], ...]:
        """The values of each column, in the order of their codes."""
        at = [self.columns.index(c) for c in columns]
        return tuple(self.categories[i] or tuple(range(self.sizes[i])) for i in at)

    def ordered(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The same columns in the order of the domain."""
        return tuple(sorted(columns, key=self.columns.index))

    def encode(self, table: Any, columns: Sequence[str], outside: Outside) -> Integers:
        """(n, len(columns)) codes of the records of a table without an engine: private, as the table is.

        ``table`` : {column: elements}, or an (n, all columns of the domain) NumPy array of codes 0, 1, ... in the order
        of the domain. With ``outside="drop"`` records with a value outside the domain are left out (a rule for each
        record on its own, so it is private under add-remove); with "error" they are an error, which says the column and
        no value. Every element is looked up by itself: what one record holds never decides how another is read.

        Raises
        ------
        SpecificationError
            For what is no such table, columns that are missing, of different lengths or of a type that cannot hold
            what was declared, and values outside where they are an error.
        """
        codes = [self._codes(column, *found) for column, found in self._columns(table, columns)]
        if len({code.size for code in codes}) > 1:
            raise SpecificationError("columns of different lengths", remedy="one entry per record in every column")
        out = np.stack(codes, axis=1) if codes else np.zeros((0, 0), dtype=np.int64)
        inside = (out >= 0).all(axis=1)
        if not inside.all():
            if outside == "error":
                wrong = next(column for column, code in zip(columns, codes, strict=True) if (code < 0).any())
                raise SpecificationError(
                    f"column {wrong!r} has a value outside the declared domain",
                    why="cells are counted over the domain, which was declared without looking at the data",
                    remedy="a wider domain (declare an 'other' category), or outside='drop' to leave such records out",
                )
            out = out[inside]
        return out

    def _columns(self, table: Any, wanted: Sequence[str]) -> Iterator[tuple[str, tuple[Any, tuple[Any, ...]]]]:
        """The wanted columns: their elements, and the values that have the codes 0, 1, ..."""
        if isinstance(table, Mapping):
            missing = [column for column in wanted if column not in table]
            if missing:
                raise SpecificationError(f"the table has no column {missing[0]!r}", remedy="the columns of the domain")
            yield from ((column, (table[column], self.labels((column,))[0])) for column in wanted)
            return
        shape: tuple[int, ...] = table.shape if isinstance(table, np.ndarray) else ()
        if len(shape) != 2 or shape[1] != len(self.columns) or table.dtype.kind not in "biuf":
            raise SpecificationError(
                f"a table that is a {type(table).__name__}{f' of shape {shape}' * bool(shape)}, for a domain of "
                f"{len(self.columns)} columns",
                why="columns are called by name, and what has no names can hold codes only",
                remedy="a data frame, {column: elements}, or an (n, columns) array of the codes 0, 1, ... in the order "
                "of the domain",
            )
        for column in wanted:
            at = self.columns.index(column)
            yield column, (table[:, at], tuple(range(self.sizes[at])))

    def _codes(self, column: str, values: Any, listed: tuple[Any, ...]) -> Integers:
        """(n,) the place of every element in the list, -1 for those outside."""
        flat = values.ndim == 1 if hasattr(values, "ndim") else isinstance(values, Iterable)
        if not flat or isinstance(values, str):
            raise SpecificationError(f"column {column!r} is not one-dimensional", remedy="one entry per record")
        refuse_united(values, listed, f"column {column!r}")
        number = {key(value): i for i, value in enumerate(listed)}
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
            return np.array([number.get(key(value), -1) for value in elements(values)], dtype=np.int64)
        different, at = np.unique(values, return_inverse=True)
        codes = np.array([number.get(key(value), -1) for value in different.tolist()], dtype=np.int64)
        return codes[at.ravel()]

    def numbers(self, column: str) -> dict[Hashable, int]:
        """The code of every category of a column, by its key."""
        return {key(value): i for i, value in enumerate(self.labels((column,))[0])}


def _values(column: str, values: Any) -> tuple[int, tuple[Any, ...] | None]:
    if isinstance(values, numbers.Integral) and not isinstance(values, bool):
        if int(values) < 1:
            raise SpecificationError(f"domain[{column!r}]={int(values)}", remedy="at least one value")
        return int(values), None
    if isinstance(values, (str, bytes, set, frozenset)) or not isinstance(values, Iterable):
        raise SpecificationError(
            f"domain[{column!r}] is a {type(values).__name__}", remedy="the number of values, or a list of them"
        )
    listed = tuple(v.item() if isinstance(v, np.generic) and v.dtype.kind not in "mM" else v for v in elements(values))
    if not all(isinstance(v, Hashable) for v in listed):
        raise SpecificationError(f"domain[{column!r}] lists values that cannot be told apart", remedy="text or numbers")
    if not listed or len({key(v) for v in listed}) != len(listed):
        raise SpecificationError(f"domain[{column!r}]: {'no' if not listed else 'repeated'} categories")
    return len(listed), listed
