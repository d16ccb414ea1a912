"""The public domain of a table, and a table's records as codes in it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpmodel._types import Integers
from dpmodel.annotate.elements import array_of, elements, key, refuse_united
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
        """(n, len(columns)) codes of a table's records: private, as the table is.

        ``table`` : a mapping or data frame of columns, or an (n, all columns of the domain) array of codes in the
        order of the domain. With ``outside="drop"`` records with a value outside the domain are left out (a rule for
        each record on its own, so it is private under add-remove); with "error" they are an error, which says the
        column and no value.
        """
        named, parts = _columns(table, columns, self.columns)
        codes = [self._codes(column, part, named) for column, part in zip(columns, parts, strict=True)]
        lengths = {code.size for code in codes}
        if len(lengths) > 1:
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

    def _codes(self, column: str, values: Any, named: bool) -> Integers:
        """(n,) codes, -1 for values outside; arrays hold codes already, named columns the categories.

        Every element is looked up by itself: what one record holds never decides how another is read.
        """
        at = self.columns.index(column)
        listed, size = self.categories[at], self.sizes[at]
        flat = (
            values.ndim == 1
            if hasattr(values, "ndim")
            else isinstance(values, Iterable) and not isinstance(values, str)
        )
        if not flat:
            raise SpecificationError(f"column {column!r} is not one-dimensional", remedy="one entry per record")
        if listed is not None and named:
            refuse_united(values, listed, f"column {column!r}")
            number = self.numbers(column)
            return np.array([number.get(key(value), -1) for value in elements(values)], dtype=np.int64)
        array = np.asarray(values) if hasattr(values, "dtype") else np.asarray(None)
        if array.dtype.kind not in "biufO":
            raise SpecificationError(
                f"column {column!r} is not numeric, but codes are expected",
                why="a domain given as a size, and a table given as an array, speak of the codes 0 to size - 1",
                remedy="integers, or a domain that lists the categories",
            )
        if array.dtype.kind == "O":
            return np.array([_code(value, size) for value in elements(values)], dtype=np.int64)
        with np.errstate(invalid="ignore"):
            good = (array >= 0) & (array < size) & (array == np.floor(array))
        return np.where(good, np.where(good, array, 0), -1).astype(np.int64)

    def numbers(self, column: str) -> dict[Hashable, int]:
        """The code of every category of a column, by its key."""
        return {key(value): i for i, value in enumerate(self.labels((column,))[0])}


def _code(value: Any, size: int) -> int:
    """An integer below ``size`` as a code; -1 for everything else."""
    number: Any = value if isinstance(value, numbers.Real) and not isinstance(value, np.timedelta64) else -1
    return int(number) if 0 <= number < size and number == int(number) else -1


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


def _columns(table: Any, wanted: Sequence[str], order: Sequence[str]) -> tuple[bool, list[Any]]:
    """Whether the table has named columns, and the wanted ones."""
    named = hasattr(table, "keys") and hasattr(table, "__getitem__") and not isinstance(table, np.ndarray)
    if named:
        present = {str(key) for key in table.keys()}  # noqa: SIM118  (a data frame iterates over its columns)
        missing = [column for column in wanted if column not in present]
        if missing:
            raise SpecificationError(f"the table has no column {missing[0]!r}", remedy="the columns of the domain")
        return True, [table[column] for column in wanted]
    try:
        array = array_of(table)
    except (ValueError, TypeError):  # their message may hold entries
        array = np.asarray(None)
    if array.ndim != 2 or array.shape[1] != len(order):
        raise SpecificationError(
            f"table of shape {array.shape} for a domain of {len(order)} columns",
            remedy="an (n, columns) array of codes in the order of the domain, or a mapping or data frame of columns",
        )
    return False, [array[:, order.index(column)] for column in wanted]
