"""The field of rational numbers: exact rows, row echelon form and solutions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpmodel._types import Array, Mask
from dpmodel.errors import SpecificationError
from dpmodel.marks.domain import EXACT_INTEGERS
from dpmodel.numerics.fields import entries
from dpmodel.numerics.fields.echelon import Basis, spanning_basis
from dpmodel.numerics.fields.finite import PrimeField
from dpmodel.numerics.fields.residues import largest, orthogonal

# Rows that are independent modulo this prime are independent; it only proposes rows, and every answer is checked.
_HINT = PrimeField(4_194_301)


@dataclass(frozen=True)
class Rationals:
    """QQ. Elements are Fractions; rows are kept as integers, each the given one times a positive rational."""

    @property
    def name(self) -> str:
        return "QQ"

    @property
    def order(self) -> None:
        return None

    def __repr__(self) -> str:
        return "QQ"

    def exact_rows(self, data: Any, *, grid: Any = None, what: str = "vectors", ones: bool = False) -> Array:
        """(n, d) integer rows, each ``data``'s row (with its one) times a positive rational.

        ``data``: a matrix (lists, NumPy, SciPy sparse, pandas) of integers, Fractions, Decimals or strings ("1/3",
        "0.25"). Floats are refused unless ``grid`` is given, a positive exact number: floats and integers (which one
        float beside them may turn into floats) are rounded to its nearest multiples, fractions and text are not.

        Raises
        ------
        SpecificationError
            For floats without a grid, NaN, complex numbers, text that is no number, ragged rows. No value is shown.
        """
        step = None if grid is None else entries.grid_step(grid)
        array = entries.matrix(data, what, self)
        if array.dtype.kind in "US" and step is not None:
            raise SpecificationError(
                f"{what}: an array of text with a grid",
                why="the array may have turned floats into text, which would not be rounded",
                remedy="lists, or an array of objects, in which every entry keeps its own type",
            )
        if array.dtype.kind in "biu" and (step is None or step.numerator == 1):  # integers are on such a grid
            whole = entries.integers(array)
            return _with(whole, 1, 1) if ones else whole
        if array.dtype.kind == "f":
            if step is None:
                raise entries.no_floats(what)
            whole = entries.on_grid(array, step, what)
            return _with(whole, step.numerator, step.denominator) if ones else whole
        return _cleared(_fractions(array, step, what), ones)

    def fractions(self, data: Any, grid: Any = None, what: str = "vectors") -> Array:
        """(n, d) Fractions of ``data``, as ``exact_rows`` reads it, not scaled; the errors are the same."""
        step = None if grid is None else entries.grid_step(grid)
        return _fractions(entries.matrix(data, what, self).astype(object), step, what)

    def show(self, value: Any) -> str:
        """In decimal digits, which Python alone would refuse for more than 4300 of them."""
        import flint

        return str(flint.fmpq(int(value.numerator), int(value.denominator)))

    def elements(self, rows: Any) -> Array:
        array = np.asarray(rows)
        out = np.empty(array.shape, dtype=object)
        out.ravel()[:] = [x if isinstance(x, Fraction) else Fraction(int(x)) for x in array.ravel()]
        return out

    def add(self, a: Any, b: Any) -> Array:
        return np.asarray(a + b)

    def subtract(self, a: Any, b: Any) -> Array:
        return np.asarray(a - b)

    def matmul(self, a: Any, b: Any) -> Array:
        return np.asarray(np.asarray(a, dtype=object) @ np.asarray(b, dtype=object))

    def rref(self, rows: Array) -> tuple[Array, tuple[int, ...]]:
        import flint

        if rows.shape[0] == 0:
            return np.empty(rows.shape, dtype=object), ()
        reduced, denominator, rank = flint.fmpz_mat(rows.tolist()).rref()
        below = int(denominator)
        out = np.empty((int(rank), rows.shape[1]), dtype=object)
        table = reduced.tolist()
        for i in range(int(rank)):
            out[i] = [Fraction(int(x), below) for x in table[i]]
        pivots = tuple(int(np.flatnonzero(out[i] != 0)[0]) for i in range(int(rank)))
        return out, pivots

    def integral(self, elements: Array) -> Array:
        """Integer rows, each times the least positive integer that clears its denominators."""
        return _cleared(self.elements(elements), False)

    def echelon(self, rows: Array) -> Basis:
        """Reduced row echelon form of the span of integer rows."""
        return spanning_basis(self, rows, hint=_HINT)

    def vanish(self, rows: Array, normals: Array) -> Mask:
        """(n,) rows orthogonal to all the normals, exactly."""
        if len(normals) == 0 or len(rows) == 0:
            return np.ones(len(rows), dtype=bool)
        return orthogonal(rows, self.integral(normals))


def _with(whole: Array, factor: int, last: int) -> Array:
    """Rows times ``factor`` with ``last`` appended."""
    big = max(largest(whole) * factor, last) >= 2**63
    rows = whole.astype(object) if big else whole
    column = np.full((len(rows), 1), last, dtype=object if big else np.int64)
    return np.hstack([rows * factor, column])


def _fractions(array: Array, step: Fraction | None, what: str) -> Array:
    """(n, d) Fractions of an object or string array; equal text is parsed once."""
    out = np.empty(array.shape, dtype=object)
    known: dict[Any, Fraction] = {}
    flat = out.ravel()
    for i, value in enumerate(array.ravel().tolist()):
        whole = isinstance(value, int | np.integer) and abs(int(value)) <= EXACT_INTEGERS
        if isinstance(value, float | np.floating) or (whole and step is not None):
            if step is None:
                raise entries.no_floats(what)
            flat[i] = step * int(entries.on_grid(np.array([value]), step, what)[0])
            continue
        if isinstance(value, str | bytes | int):
            if value not in known:
                known[value] = entries.rational(value, what)
            flat[i] = known[value]
        else:
            flat[i] = entries.rational(value, what)
    return out


def _cleared(fractions: Array, ones: bool) -> Array:
    """Integer rows: each row of Fractions times the least common multiple of its denominators."""
    n, d = fractions.shape
    out = np.empty((n, d + ones), dtype=object)
    for i, row in enumerate(fractions):
        below = math.lcm(*(x.denominator for x in row))
        out[i, :d] = [x.numerator * (below // x.denominator) for x in row]
        if ones:
            out[i, d] = below
    return out.astype(np.int64) if largest(out) < 2**63 else out
