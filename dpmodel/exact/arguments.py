"""What users give ``linalg``: arguments that its functions share, and the shapes in which people keep exact vectors.

Checked in one place, in the same words; no message shows a value.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Array
from dpmodel.errors import SpecificationError
from dpmodel.exact.subspaces import Field
from dpmodel.marks.domain import EXACT_INTEGERS, array_of
from dpmodel.marks.records import NEIGHBORS

# A public guess of the number of records where one is needed, that number is private and nothing was said.
EXPECTED = 10_000
# Positions are kept in 64 bits.
_MOST_LEVELS = 2**40


def not_finite(what: str) -> SpecificationError:
    """The error for private numbers that are none."""
    return SpecificationError(
        f"{what} hold NaN or infinite entries",
        why="every entry must be a number (the entries are not shown)",
        remedy="drop or fill these rows by a public rule",
    )


def require_neighbors(neighbors: Any, where: str) -> None:
    """SpecificationError for anything but the two relations."""
    if neighbors not in NEIGHBORS:
        raise SpecificationError(
            f"{where}: neighbors is neither 'add-remove' nor 'replace-one'",
            why="it decides what one record may change",
            remedy="neighbors='add-remove' or neighbors='replace-one'",
        )


def field_of(field: Any, where: str) -> Field:
    """``field``, if it is one."""
    if isinstance(field, Field) and not isinstance(field, type):
        return field
    counts = isinstance(field, numbers.Integral) and not isinstance(field, bool)
    raise SpecificationError(
        f"{where}: field is of type {type(field).__name__}, which is no field",
        why="arithmetic is exact, in a field that is public",
        remedy=f"field=GF({field})" if counts else "field=QQ for rational numbers, or field=GF(q)",
    )


def expected_of(expected: Any, records: int | None, where: str, default: int = EXPECTED) -> int:
    """``records`` where that is public, else the public guess of it; ``default`` where there is none."""
    if expected is not None and (not is_integer(expected, 1) or expected > 2**53):
        raise SpecificationError(
            f"{where}: expected is not an integer of at least 1 and at most 2^53",
            why="it is a public guess of the number of records, by which mechanisms are compared",
            remedy=f"expected={EXPECTED}",
        )
    if records is not None:
        return records
    return default if expected is None else int(expected)


def each_of(value: Any, d: int, what: str) -> list[Any]:
    """``value`` for each of d coordinates: one for all of them, or one each."""
    one = isinstance(value, str) or not isinstance(value, Sequence | np.ndarray)
    entries = [value] * d if one else list(value)
    if len(entries) != d:
        raise SpecificationError(
            f"{what} has {len(entries)} entries",
            why=f"there are {d} coordinates",
            remedy="one number for all of them, or one each",
        )
    return entries


def rank_of(rank: Any, d: int, added: int, where: str) -> int:
    """The bound on the dimension of vectors with d entries, ``added`` of which are not the user's; d without one."""
    if rank is None:
        return d
    if not is_integer(rank, 1 - added) or int(rank) + added > d:
        raise SpecificationError(
            f"{where}: rank is not an integer between {1 - added} and {d - added}",
            why="it is a public bound on the dimension of what the records span",
            remedy=f"rank={d - added}, or leave it out",
        )
    return int(rank) + added


def share_of(corrupted: Any, where: str) -> float | None:
    """A share in [0, 1), or None."""
    if corrupted is None:
        return None
    if not is_real(corrupted) or not 0 <= float(corrupted) < 1:
        raise SpecificationError(
            f"{where}: corrupted is not a number in [0, 1)",
            why="it is a public guess of the share of records outside the subspace that is wanted",
            remedy="corrupted=0.02, or leave it out",
        )
    return float(corrupted)


def blocks_of(blocks: Any, d: int, where: str) -> tuple[tuple[int, ...], ...]:
    """Disjoint sets of column numbers in 0 .. d - 1, or none."""
    if blocks is None:
        return ()

    def listed(given: Any) -> list[Any]:
        return list(given) if isinstance(given, Sequence | np.ndarray) and not isinstance(given, str) else []

    columns = [listed(range(d)[each] if isinstance(each, slice) else each) for each in listed(blocks)]
    every = [column for block in columns for column in block]
    whole = all(is_integer(column, 0) and column < d for column in every)
    if not columns or not all(columns) or not whole or len(set(every)) != len(every):
        raise SpecificationError(
            f"{where}: blocks is not a list of disjoint sets of columns",
            why="each is the one-hot encoding of one category, in public columns",
            remedy=f"numbers of columns from 0 to {d - 1}, such as blocks=[range(0, 9), [9, 10]]",
        )
    return tuple(tuple(int(column) for column in block) for block in columns)


def is_integer(value: Any, least: int) -> bool:
    """Whether it is an integer, and at least that."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def is_real(value: Any) -> bool:
    """Whether it is a number that a float can hold, and finite."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def require_levels(levels: Sequence[int], where: str) -> None:
    """SpecificationError for a grid that positions in 64 bits cannot number."""
    if max(levels) > _MOST_LEVELS:
        raise SpecificationError(
            f"{where}: more than {_MOST_LEVELS:,} grid points along a coordinate",
            why="positions are machine integers",
            remedy="a larger step",
        )


# ------------------------------------------------------------------ exact numbers


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
        raise SpecificationError(
            "grid is out of the range of floating-point numbers", remedy="numbers and a grid in other units"
        ) from None
    if not bool(np.isfinite(rounded).all()):
        raise refused(what, "numbers are too large for the grid", "a coarser grid")
    if rounded.size == 0 or float(np.abs(rounded).max()) < EXACT_INTEGERS:
        return rounded.astype(np.int64)
    exact = [int(i) if abs(i) < EXACT_INTEGERS else round(Fraction(x) / step)
             for i, x in zip(rounded.ravel().tolist(), wide.ravel().tolist(), strict=True)]  # fmt: skip
    return np.array(exact, dtype=object).reshape(rounded.shape)
