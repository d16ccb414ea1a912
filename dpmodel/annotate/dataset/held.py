"""Categories as a column of a type holds them: engines compare values of two types each in their own way, or not."""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpmodel.annotate.elements import key


def held(categories: Sequence[Any], dtype: Any) -> list[tuple[int, Any]]:
    """(place, value) of every category that a column of this type may hold, in the column's own type.

    Missing values are none of them, nor is what no value of the type equals: 1.5 or 300 in 8 bits, noon among days.
    """
    out = []
    for place, category in enumerate(categories):
        value = _in_type(category, dtype)
        if value is not None and key(value) == key(category):
            out.append((place, value))
    return out


def _in_type(value: Any, dtype: Any) -> Any:
    """The value of this type that is nearest; None for missing values and where there is none."""
    if key(value) == key(None):
        return None
    name = str(dtype)
    if isinstance(value, numbers.Real) and not isinstance(value, np.timedelta64):
        number: Any = value
        if name == "Boolean":
            return bool(number)
        if dtype.is_integer():
            bits = int(name.lstrip("UInt"))
            low = 0 if name.startswith("U") else -(2 ** (bits - 1))
            return int(number) if low <= number < low + 2**bits else None
        return float(number) if dtype.is_float() else value
    if isinstance(value, np.datetime64) and name.startswith("Date"):
        value = value.astype("datetime64[us]").item()
    if name == "Date" and isinstance(value, datetime.datetime):
        return value.date()
    if name.startswith("Datetime") and isinstance(value, datetime.date):
        at = value if isinstance(value, datetime.datetime) else datetime.datetime(value.year, value.month, value.day)
        return at if (at.tzinfo is None) == (dtype.time_zone is None) else None
    return value
