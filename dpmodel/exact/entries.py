"""Reads the shapes in which people keep exact vectors; no message shows a value."""

from __future__ import annotations

import numbers
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Array
from dpmodel.errors import SpecificationError
from dpmodel.marks.domain import EXACT_INTEGERS, array_of


def matrix(data: Any, what: str, field: Any = None) -> Array:
    """(n, d) array of ``data``: integers or floats as they are, everything else in an object or string array.

    Lists and frames are read entry by entry where NumPy would unite types (``[2**63, -1]``, ``["1/3", 0.5]``).
    ``field``: the only finite field whose arrays (of galois) may be given; None: no array of a finite field.
    """
    refuse_other_fields(data, what, field)
    if isinstance(data, np.ma.MaskedArray):
        raise refused(what, "an array with a mask has entries that are missing")
    try:
        array = np.asarray(data.toarray()) if sp.issparse(data) else np.asarray(array_of(data))  # no subclass
    except (ValueError, TypeError):
        array = np.asarray(None)  # ragged
    if array.ndim == 1 and array.size == 0:
        raise SpecificationError(f"{what}: an empty system", why="there are no rows", remedy="one row per record")
    if array.ndim != 2:
        raise SpecificationError(
            f"{what} must be a matrix, one row per record",
            why="all rows need the same number of entries",
            remedy="give a list of rows of equal length; one row: [[...]]",
        )
    if array.shape[1] == 0:
        raise SpecificationError(
            f"{what} have no entries", why="vectors of no entries span nothing", remedy="give at least one column"
        )
    if array.dtype.kind == "c":
        raise refused(what, "complex numbers are in no field that is served here")
    if array.dtype.kind == "T":
        array = array.astype(object)
    if array.dtype.kind not in "biufOUS":
        raise refused(what, f"entries of type {array.dtype} are no numbers")
    return array


def refuse_other_fields(data: Any, what: str, field: Any) -> None:
    """SpecificationError for a galois array, or rows of one, whose integers name elements of another field.

    The same integer names different elements modulo different irreducible polynomials, so a rank would be another one.
    """
    rows = data if isinstance(data, list | tuple) else ()
    kinds: set[Any] = {type(data), *map(type, rows)}
    kinds |= {type(entry) for row in rows if isinstance(row, list | tuple) for entry in row}
    for kind in kinds:
        polynomial = getattr(kind, "irreducible_poly", None)
        if polynomial is None:
            continue
        if field is None or field.order is None:
            raise refused(what, f"elements of GF({kind.order}) are no rational numbers", f"field=GF({kind.order})")
        modulus = tuple(int(c) for c in polynomial.coeffs)[::-1]
        if kind.order != field.order:
            raise refused(what, f"elements of GF({kind.order}) are none of {field.name}", f"field=GF({kind.order})")
        if len(modulus) > 2 and modulus != field.modulus:
            raise refused(
                what,
                f"they are polynomials modulo one with coefficients {modulus}, and those of {field.name} modulo "
                f"{field.modulus} (constant first): the same integers name other elements",
                "galois.GF(order) as it is, whose default is the Conway polynomial that is used here too",
            )


_NUMBERS = 'integers, fractions, decimals, or text such as "1/2"; drop or fill missing entries by a public rule'


def refused(what: str, why: str, remedy: str = _NUMBERS) -> SpecificationError:
    """The error for entries that are no elements."""
    return SpecificationError(f"{what}: some entry is not an element of the field", why=why, remedy=remedy)


def no_floats(what: str) -> SpecificationError:
    """The error for floats without a grid."""
    return SpecificationError(
        f"{what} hold floating-point numbers",
        why="privacy rests on exact arithmetic: a rank decided by a tolerance breaks the stability of the counts",
        remedy="give integers, fractions, decimals or strings, or grid=: floats are then rounded to its multiples",
    )


def integers(array: Array) -> Array:
    """Integer array in the smallest form: int64, or object where some entry has 63 bits or more."""
    if array.dtype.kind in "bi" or (array.dtype.kind == "u" and array.dtype.itemsize < 8):
        result = array.astype(np.int64)
        low = np.iinfo(np.int64).min
        return result.astype(object) if array.dtype == np.int64 and bool((result == low).any()) else result
    if array.size and max(abs(int(array.max())), abs(int(array.min()))) >= 2**63:
        return array.astype(object)
    return array.astype(np.int64)


def rational(value: Any, what: str) -> Fraction:
    """The exact number: any ``numbers.Rational`` (int, Fraction, those of sympy and gmpy2), Decimal, "1/3", "0.25", or
    an integer or rational of python-flint."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, np.bool_):
        return Fraction(int(value))
    if isinstance(value, numbers.Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, float | np.floating):
        raise no_floats(what)
    try:
        if isinstance(value, str | bytes):
            return Fraction(value.decode() if isinstance(value, bytes) else value.strip())
        if isinstance(value, Decimal):
            return Fraction(value)
        if type(value).__name__ in ("fmpz", "fmpq"):
            return Fraction(str(value))
    except (ValueError, OverflowError, ZeroDivisionError):
        raise refused(what, "text must be an integer, a fraction or a decimal number, and finite") from None
    raise refused(what, f"entries of type {type(value).__name__} are no rational numbers")


def grid_step(grid: Any) -> Fraction:
    """The positive rational step; floats are refused, since 0.1 is not a tenth."""
    if isinstance(grid, float | np.floating):
        raise SpecificationError(
            "grid must be exact",
            why="0.1 as a float is not a tenth",
            remedy='grid="0.1", Fraction(1, 10) or Decimal("0.1")',
        )
    step = rational(grid, "grid")
    if step <= 0:
        raise SpecificationError("grid must be positive", remedy='grid="0.01"')
    return step


def on_grid(values: npt.NDArray[Any], step: Fraction, what: str) -> Array:
    """Integers i with ``i * step`` nearest to the floats (one float rounding may decide a near tie).

    Each is found from its own number alone, and is the same for an integer kept as a float or as an integer.
    """
    wide = values.astype(np.float64)
    if not bool(np.isfinite(wide).all()):
        raise refused(what, "NaN and infinity are on no grid", "fill or drop missing values first")
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            rounded = np.rint(wide * float(step.denominator) / float(step.numerator))
    except OverflowError:
        raise SpecificationError("grid is out of the range of floating-point numbers") from None
    if not bool(np.isfinite(rounded).all()):
        raise refused(what, "numbers are too large for the grid", "a coarser grid")
    if rounded.size == 0 or float(np.abs(rounded).max()) < EXACT_INTEGERS:
        return rounded.astype(np.int64)
    exact = [int(i) if abs(i) < EXACT_INTEGERS else round(Fraction(x) / step)
             for i, x in zip(rounded.ravel().tolist(), wide.ravel().tolist(), strict=True)]  # fmt: skip
    return np.array(exact, dtype=object).reshape(rounded.shape)
