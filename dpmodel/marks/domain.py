"""Columns, lists and frames read element by element: how one is read never depends on the others.

NumPy gives a list one type: one text turns all numbers into text, one fraction all integers into floats, one hour
all days into hours. Where elements are records, one record would decide how all others are read.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import numbers
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpmodel._types import Array, Integers
from dpmodel.errors import SpecificationError

EXACT_INTEGERS = 2.0**53  # floats beyond have no fractions, and not every integer

_MISSING, _INSTANT, _ZONED, _SPAN, _MONTHS = object(), object(), object(), object(), object()
_PLAIN = (int, str, bool, bytes)
_DAY = 86_400 * 10**18
_ATTOSECONDS = {"W": 7 * _DAY, "D": _DAY, "h": 3600 * 10**18, "m": 60 * 10**18}
_ATTOSECONDS |= {unit: 10 ** (18 - 3 * i) for i, unit in enumerate(("s", "ms", "us", "ns", "ps", "fs", "as"))}
_EPOCH = datetime.datetime(1970, 1, 1)


def elements(column: Any) -> list[Any]:
    """The elements of a column, list, array, series or index, each with its own type."""
    if isinstance(column, np.ndarray):
        return list(column) if column.dtype.kind in "mM" else list(column.tolist())  # tolist makes integers of times
    for name in ("to_list", "to_pylist", "tolist"):
        if hasattr(column, name):
            return list(getattr(column, name)())
    return list(column)


def key(value: Any) -> Hashable:
    """What an element is looked up by: equal for equal values however they are kept, and a function of it alone.

    None, NaN, NaT and NA are one value. A day is its midnight, in any unit of time. What has no hash equals nothing.
    """
    if type(value) in _PLAIN:
        return value  # type: ignore[no-any-return]
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        value = value.item()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return _MISSING
    if isinstance(value, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64):
        return _time(value)
    if isinstance(value, numbers.Real):
        return value if value == value else _MISSING
    try:
        hash(value)
    except TypeError:
        return object()
    return value  # type: ignore[no-any-return]


def _time(value: Any) -> Hashable:
    zoned = getattr(value, "tzinfo", None) is not None
    if hasattr(value, "to_numpy"):  # pandas, with its nanoseconds
        value = value.to_numpy()
    if isinstance(value, np.datetime64 | np.timedelta64):
        if np.isnat(value):
            return _MISSING
        unit, step = np.datetime_data(value.dtype)
        if unit in ("Y", "M"):
            if isinstance(value, np.timedelta64):
                return _MONTHS, int(value.astype("timedelta64[M]").astype(np.int64))
            value, unit, step = value.astype("datetime64[D]"), "D", 1
        kind = _SPAN if isinstance(value, np.timedelta64) else _ZONED if zoned else _INSTANT
        return kind, int(value.astype(np.int64)) * step * _ATTOSECONDS[unit]
    kind = _SPAN
    if isinstance(value, datetime.datetime):
        kind = _ZONED if zoned else _INSTANT
        value = (value.astimezone(datetime.UTC).replace(tzinfo=None) if zoned else value) - _EPOCH
    elif isinstance(value, datetime.date):
        kind, value = _INSTANT, datetime.timedelta(days=value.toordinal() - _EPOCH.toordinal())
    return kind, value.days * _DAY + value.seconds * 10**18 + value.microseconds * 10**12


def of_own_types(data: Any) -> Array:
    """An array of nested lists: of numbers, where that changes none of them, otherwise of objects.
    Errors: ValueError, TypeError, for rows of different lengths."""
    array = None
    with contextlib.suppress(ValueError, TypeError, OverflowError):  # ragged, or mixed
        array = np.asarray(data)
    if array is not None and array.dtype.kind in "biu":
        return array
    each = np.array(data, dtype=object)
    kept = array is not None and array.dtype == np.float64 and all(map(_is_double, each.flat))
    return array if kept and array is not None else each


def _is_double(number: Any) -> bool:
    """Whether a float of 64 bits is the same number."""
    integer = isinstance(number, int | np.integer) and not isinstance(number, np.timedelta64)
    return abs(int(number)) <= EXACT_INTEGERS if integer else isinstance(number, float | np.float32 | np.float16)


def is_frame(data: Any) -> bool:
    """Whether this is a data frame (pandas, polars and the like)."""
    return hasattr(data, "columns") and hasattr(data, "dtypes")


def frame_columns(frame: Any) -> list[Array]:
    """The columns of a data frame as arrays, each with its own type."""
    if hasattr(frame, "iloc"):  # names may repeat
        return [np.asarray(frame.iloc[:, j]) for j in range(frame.shape[1])]
    return [np.asarray(frame[name]) for name in frame.columns]


def array_of(data: Any) -> Array:
    """Lists, frames and arrays as an array whose elements are as they were given, of objects where types differ.
    Errors: ValueError, TypeError, for rows of different lengths."""
    if isinstance(data, np.ndarray):
        return data
    if is_frame(data):
        columns = frame_columns(data)
        if len({column.dtype for column in columns}) > 1:
            columns = [column.astype(object) for column in columns]
        return np.column_stack(columns) if columns else np.zeros((data.shape[0], 0))
    return np.asarray(data) if hasattr(data, "__array__") else of_own_types(data)


def refuse_united(column: Any, categories: Any, what: str) -> None:
    """Refuse an array whose one type cannot hold all ``categories``: it may have changed elements on their way in.
    Errors: SpecificationError, for text where not all categories are text, times where not all are times, numbers where
    none is a number, and floats where some are integers beyond 2^53. No element is looked at."""
    dtype = np.asarray(column[:0]).dtype if hasattr(column, "dtype") else np.dtype(object)
    refuse_types(dtype.kind, categories, what, dtype)


def refuse_types(kind: str, categories: Any, what: str, shown: Any) -> None:
    """``refuse_united`` for a column of NumPy's ``kind``; ``shown`` : its type in words."""
    times = (datetime.date, np.datetime64) if kind == "M" else (datetime.timedelta, np.timedelta64)
    holds: Callable[[Any], bool] | None = {
        "U": lambda c: isinstance(c, str),
        "S": lambda c: isinstance(c, bytes),
        "f": lambda c: not isinstance(c, numbers.Integral) or abs(int(c)) <= EXACT_INTEGERS,
        "M": lambda c: isinstance(c, times),
        "m": lambda c: isinstance(c, times),
    }.get("f" if kind == "c" else kind)
    nothing = kind in "biufc" and not any(key(c) is _MISSING or isinstance(c, numbers.Real) for c in categories)
    if nothing or (holds is not None and not all(key(c) is _MISSING or holds(c) for c in categories)):
        raise SpecificationError(
            f"{what} is an array of type {shown}, which cannot hold all categories of the domain",
            why="an array has one type, and one record of another kind may have changed how all others are written",
            remedy="categories as they stand in the column, or a list, in which every element keeps its own type",
        )


# ---- The public domain of a table, and a table's records as codes in it


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
                "query_release: no domain"
                if given is None
                else f"domain={given if given == {} else type(given).__name__}",
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
            raise SpecificationError(
                f"domain[{column!r}]={int(values)}",
                why="a number in a domain is how many values the column can take, 0, 1, ...",
                remedy="at least 1, or a list of the values",
            )
        return int(values), None
    if isinstance(values, (str, bytes, set, frozenset)) or not isinstance(values, Iterable):
        raise SpecificationError(
            f"domain[{column!r}] is a {type(values).__name__}", remedy="the number of values, or a list of them"
        )
    listed = tuple(v.item() if isinstance(v, np.generic) and v.dtype.kind not in "mM" else v for v in elements(values))
    if not all(isinstance(v, Hashable) for v in listed):
        raise SpecificationError(f"domain[{column!r}] lists values that cannot be told apart", remedy="text or numbers")
    if not listed or len({key(v) for v in listed}) != len(listed):
        raise SpecificationError(
            f"domain[{column!r}]: {'no' if not listed else 'repeated'} categories",
            why="every value of the column has one place in the list (3, 3.0 and '3' are the same)",
            remedy="each category once",
        )
    return len(listed), listed
