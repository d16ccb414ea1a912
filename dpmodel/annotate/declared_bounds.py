"""``bounds=``: one convention wherever ranges of private numbers are declared.

``(lo, hi)``, each a number or an array, or a mapping from column name or index to ``(lo, hi)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel.annotate.elements import is_frame
from dpmodel.errors import SpecificationError

_MAPPING = "one pair per column is written as a mapping: {0: (lo, hi), 1: (lo, hi)}, or with names of columns"


def names_of(value: Any) -> tuple[Any, ...] | None:
    """The column names of a data frame, or None."""
    return tuple(value.columns) if is_frame(value) else None


def read_bounds(bounds: Any, width: int | None, names: Sequence[Any] | None, where: str) -> tuple[Any, Any]:
    """(lo, hi): numbers, arrays or None, as declared for data of ``width`` columns (None: no matrix).

    Raises
    ------
    SpecificationError
        For what is no pair; mappings that miss a column or name an unknown one; pairs of pairs that could be read as
        lows and highs and as one pair per column; and ranges of one value, which leave nothing private.
    """
    if isinstance(bounds, Mapping):
        lo, hi = _by_column(bounds, width, names, where)
    else:
        if not isinstance(bounds, Sequence | np.ndarray) or isinstance(bounds, str) or len(bounds) != 2:
            raise SpecificationError(
                f"{where}: bounds is not a pair (lo, hi)",
                why="a lowest and a highest value, each a number or an array",
                remedy=f"bounds=(lo, hi); {_MAPPING}",
            )
        lo, hi = bounds
        if width == 2 and not any(isinstance(end, np.ndarray) for end in (lo, hi)):
            _refuse_two_readings(lo, hi, where)
    _refuse_constants(lo, hi, where)
    return lo, hi


def _by_column(
    bounds: Mapping[Any, Any], width: int | None, names: Sequence[Any] | None, where: str
) -> tuple[Any, Any]:
    if width is None:
        raise SpecificationError(f"{where}: bounds by column for data without columns", remedy="bounds=(lo, hi)")
    known = list(range(width)) if names is None else list(names)
    if names is not None and not any(key in known for key in bounds):
        known = list(range(width))
    missing, unknown = [key for key in known if key not in bounds], [key for key in bounds if key not in known]
    if missing or unknown:
        said = [f"missing for {_some(missing)}"] * bool(missing) + [
            f"given for unknown columns {_some(unknown)}"
        ] * bool(unknown)
        raise SpecificationError(
            f"{where}: bounds are {' and '.join(said)}",
            why="every column needs its lowest and its highest value"
            + (" (the data has no column names)" if names is None and any(isinstance(k, str) for k in unknown) else ""),
            remedy="one pair (lo, hi) for every column, by name where the data has names, or by index, and no other",
        )
    pairs = [read_bounds(bounds[key], None, None, f"{where}: column {key}") for key in known]
    lows, highs = zip(*pairs, strict=True)
    free = -np.inf, np.inf
    return tuple(
        np.array([free[k] if end is None else end for end in ends], dtype=np.float64)
        for k, ends in enumerate((lows, highs))
    )  # type: ignore[return-value]


def _some(keys: Sequence[Any]) -> str:
    return ", ".join(map(str, keys[:5])) + (" and others" if len(keys) > 5 else "")


def _refuse_two_readings(lo: Any, hi: Any, where: str) -> None:
    """Of ((a, b), (c, d)) for two columns."""
    try:
        (a, b), (c, d) = lo, hi
        if not (a < b and c < d):  # constants as one pair per column
            return
    except (TypeError, ValueError):
        return
    raise SpecificationError(
        f"{where}: bounds of two pairs for two columns can be read both ways",
        why=f"as lows ({a}, {b}) and highs ({c}, {d}), or as column 0 in ({a}, {b}) and column 1 in ({c}, {d})",
        remedy=f"lows and highs: bounds=(np.array([{a}, {b}]), np.array([{c}, {d}])); "
        f"columns: bounds={{0: ({a}, {b}), 1: ({c}, {d})}}",
    )


def _refuse_constants(lo: Any, hi: Any, where: str) -> None:
    if lo is None or hi is None or sp.issparse(lo) or sp.issparse(hi):
        return
    try:
        same = np.equal(np.asarray(lo, dtype=np.float64), np.asarray(hi, dtype=np.float64))
    except (TypeError, ValueError):
        return  # refused where the numbers are read
    if same.any():
        raise SpecificationError(
            f"{where}: bounds with lo == hi",
            why="clipped to one public value, the numbers say nothing about any record; what is private needs a range",
            remedy=f"lo < hi, and what is constant as a plain constant or without that column; {_MAPPING}",
        )
