"""Columns, lists and frames read element by element: how one is read never depends on the others.

NumPy gives a list one type: one text turns all numbers into text, one fraction all integers into floats, one hour
all days into hours. Where elements are records, one record would decide how all others are read.
"""

from __future__ import annotations

import contextlib
import datetime
import numbers
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from dpmodel._types import Array
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

    Raises
    ------
    ValueError, TypeError
        For rows of different lengths.
    """
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
    whole = isinstance(number, int | np.integer) and not isinstance(number, np.timedelta64)
    return abs(int(number)) <= EXACT_INTEGERS if whole else isinstance(number, float | np.float32 | np.float16)


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

    Raises
    ------
    ValueError, TypeError
        For rows of different lengths.
    """
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

    Raises
    ------
    SpecificationError
        For text where not all categories are text, times where not all are times, numbers where none is a number, and
        floats where some are whole numbers beyond 2^53. No element is looked at.
    """
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
