"""Fields with exact arithmetic: the rationals QQ, and the finite fields GF(q) with q = p or p^k elements."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpmodel._types import Array, Integers, Mask
from dpmodel.errors import SpecificationError
from dpmodel.exact.arguments import grid_step, integers, matrix, no_floats, on_grid, rational, refused
from dpmodel.exact.subspaces import Basis, Field, spanning_basis
from dpmodel.marks.domain import EXACT_INTEGERS

# Rows whose products are formed at once, as Python's integers.
_ROWS = 2**16


def largest(rows: Array) -> int:
    """The largest absolute value, 0 where there are no entries."""
    return max(abs(int(rows.max())), abs(int(rows.min()))) if rows.size else 0


def orthogonal(rows: Array, normals: Array) -> npt.NDArray[np.bool_]:
    """(n,) rows with ``normals @ row == 0``, exactly, for integer rows (n, d) and normals (k, d)."""
    if largest(rows) * largest(normals) * rows.shape[1] < 2**53:  # doubles are exact
        return np.asarray(~(rows.astype(np.float64) @ normals.astype(np.float64).T).any(axis=1))
    import flint

    right, out = flint.fmpz_mat(normals.T.tolist()), np.zeros(len(rows), dtype=bool)
    for start in range(0, len(rows), _ROWS):
        products = flint.fmpz_mat(rows[start : start + _ROWS].tolist()) * right
        out[start : start + _ROWS] = [not any(row) for row in products.tolist()]
    return out


# ------------------------------------------------------------------
# Finite fields: integers modulo a prime, and polynomials modulo a Conway polynomial in tables of logarithms


# Products that a matrix product over GF(p^k) looks up at once: they should stay in the cache.
_TERMS = 2**15


@dataclass(frozen=True, repr=False)
class _Finite(Field):
    """What both kinds share; elements are int64 in 0 .. q - 1."""

    characteristic: int
    degree: int

    @property
    def order(self) -> int:
        """q, the number of elements."""
        return int(self.characteristic**self.degree)

    @property
    def name(self) -> str:
        return f"GF({self.order})"

    def __repr__(self) -> str:
        return self.name

    def exact_rows(self, data: Any, *, grid: Any = None, what: str = "vectors", ones: bool = False) -> Integers:
        """(n, d) int64 elements of ``data``, a matrix of integers or of elements of this field in python-flint.

        ``ones`` appends a column of ones.
        Errors: SpecificationError, for floats, fractions, text, elements of other fields, integers out of range. No
        value is shown.
        """
        if grid is not None:
            raise SpecificationError(
                f"grid has no meaning over {self.name}",
                why="a finite field has no small numbers, so rounding means nothing in it",
                remedy="integers without a grid, or field=QQ",
            )
        array = matrix(data, what, self)
        if array.dtype.kind == "f":
            raise self._floats(what)
        if array.dtype.kind in "OUS":
            flat = [self._plain(x, what) for x in array.ravel().tolist()]
            array = np.array(flat, dtype=object).reshape(array.shape)
        rows = self._reduced(array, what)
        return np.hstack([rows, np.ones((len(rows), 1), dtype=np.int64)]) if ones else rows

    def elements(self, rows: Any) -> Integers:
        return np.asarray(rows, dtype=np.int64).copy()

    def integral(self, elements: Array) -> Integers:
        return np.asarray(elements, dtype=np.int64)

    def _floats(self, what: str) -> SpecificationError:
        return refused(what, f"{self.name} has no floating-point numbers", "convert them to integers yourself")

    def _plain(self, value: Any, what: str) -> int:
        if isinstance(value, numbers.Integral | np.bool_):
            return int(value)
        if isinstance(value, float | np.floating):
            raise self._floats(what)
        kind = type(value).__name__
        if kind == "fmpz":
            return int(value)
        own = self._from_flint(kind, value)
        if own is None:
            why = f"entries of type {kind} are no elements of {self.name}"
            raise refused(what, why, "integers 0 .. q - 1")
        return own

    def _from_flint(self, kind: str, value: Any) -> int | None:
        raise NotImplementedError

    def _reduced(self, array: Array, what: str) -> Integers:
        raise NotImplementedError

    def echelon(self, rows: Array) -> Basis:
        """Reduced row echelon form of the span of the rows."""
        return spanning_basis(self, rows)

    def vanish(self, rows: Array, normals: Array) -> Mask:
        """(n,) rows orthogonal to all the normals, exactly."""
        if len(normals) == 0 or len(rows) == 0:
            return np.ones(len(rows), dtype=bool)
        return np.asarray((self.matmul(rows, normals.T) == 0).all(axis=1), dtype=bool)


@dataclass(frozen=True, repr=False)
class PrimeField(_Finite):
    """GF(p): integers modulo a prime p < 2^31; any integers are read modulo p."""

    degree: int = 1

    def _reduced(self, array: Array, what: str) -> Integers:
        return np.asarray(integers(array) % self.order, dtype=np.int64)

    def _from_flint(self, kind: str, value: Any) -> int | None:
        if kind == "nmod" and int(value.modulus()) == self.order:
            return int(value)
        return None

    def add(self, a: Any, b: Any) -> Integers:
        return np.asarray((a + b) % self.order)

    def subtract(self, a: Any, b: Any) -> Integers:
        return np.asarray((a - b) % self.order)

    def multiply(self, a: Any, b: Any) -> Integers:
        return np.asarray((a * b) % self.order)  # below 2^62

    def invert(self, a: Any) -> Integers:
        values = np.asarray(a, dtype=np.int64)
        return np.array([pow(int(x), -1, self.order) for x in values.ravel()], dtype=np.int64).reshape(values.shape)

    def matmul(self, a: Any, b: Any) -> Integers:
        """Exact product through doubles: parts of the left factor are so short that no sum reaches 2^53."""
        left, right = np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.float64)
        bits = max((self.order - 1).bit_length(), 1)
        room = 53 - bits - max(left.shape[-1], 1).bit_length()
        if room >= bits:
            return np.asarray((left.astype(np.float64) @ right).astype(np.int64) % self.order)
        total = np.zeros((*left.shape[:-1], right.shape[-1]), dtype=np.int64)
        for shift in reversed(range(0, bits, room)):
            part = ((left >> shift) & ((1 << room) - 1)).astype(np.float64)
            total = ((total << room) + (part @ right).astype(np.int64)) % self.order
        return total

    def rref(self, rows: Array) -> tuple[Integers, tuple[int, ...]]:
        import flint

        if rows.shape[0] == 0:
            return np.empty(rows.shape, dtype=np.int64), ()
        reduced, rank = flint.nmod_mat(rows.tolist(), self.order).rref()
        out = np.array([[int(x) for x in row] for row in reduced.tolist()[: int(rank)]], dtype=np.int64)
        out = out.reshape(int(rank), rows.shape[1])
        return out, tuple((out != 0).argmax(axis=1).tolist())


@dataclass(frozen=True, repr=False)
class ExtensionField(_Finite):
    """GF(p^k), k > 1: polynomials over GF(p) modulo a Conway polynomial, of which z is a generator.

    The integer ``c_0 + c_1 p + c_2 p^2 + ...`` stands for ``c_0 + c_1 z + c_2 z^2 + ...``. Integers must lie in
    0 .. q - 1: they are names of elements, not multiples of one.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return ExtensionField, (self.characteristic, self.degree)

    @cached_property
    def _context(self) -> Any:
        import flint

        return flint.fq_default_ctx(self.characteristic, self.degree)

    @cached_property
    def modulus(self) -> tuple[int, ...]:
        """Coefficients of the modulus, constant term first, k + 1 of them, the last 1."""
        return tuple(int(c) for c in self._context.modulus().coeffs())

    @cached_property
    def tables(self) -> tuple[Integers, Integers]:
        """(exp, log): exp[i] = z^i for i < 2 (q - 1), then zeros; log[0] is such that sums with it point at those."""
        p, k, q = self.characteristic, self.degree, self.order
        times_z = np.eye(k, k, 1, dtype=np.int64)  # on rows of digits
        times_z[-1] = -np.array(self.modulus[:k]) % p
        digits = np.zeros((q - 1, k), dtype=np.int64)
        digits[0, 0] = 1
        have, power = 1, times_z
        while have < q - 1:  # z^have times all that there is
            more = digits[have : 2 * have]
            more[:] = digits[: len(more)] @ power % p
            have, power = 2 * have, power @ power % p
        exp = np.zeros(4 * q, dtype=np.int64)
        exp[: q - 1] = digits @ self._powers
        if len(np.unique(exp[: q - 1])) != q - 1:
            raise ArithmeticError("the modulus is not primitive")
        exp[q - 1 : 2 * (q - 1)] = exp[: q - 1]
        log = np.full(q, 2 * q - 1, dtype=np.int64)
        log[exp[: q - 1]] = np.arange(q - 1)
        return exp, log

    def _reduced(self, array: Array, what: str) -> Integers:
        if array.size and (int(array.min()) < 0 or int(array.max()) >= self.order):
            raise refused(what, f"elements of {self.name} are the integers 0 .. {self.order - 1}")
        return array.astype(np.int64)

    def _from_flint(self, kind: str, value: Any) -> int | None:
        if kind != "fq_default":
            return None
        try:
            value = self._context.zero() + value
        except (TypeError, ValueError):  # of another field
            return None
        return int(sum(int(c) * self.characteristic**i for i, c in enumerate(value.to_list())))

    @cached_property
    def _powers(self) -> Integers:
        return self.characteristic ** np.arange(self.degree, dtype=np.int64)

    def _digits(self, a: Integers) -> Integers:
        return (a[..., None] // self._powers) % self.characteristic

    def _joined(self, digits: Integers) -> Integers:
        """Elements of sums of digits."""
        return np.asarray(digits % self.characteristic @ self._powers)

    def add(self, a: Any, b: Any) -> Integers:
        left, right = np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64)
        return left ^ right if self.characteristic == 2 else self._joined(self._digits(left) + self._digits(right))

    def subtract(self, a: Any, b: Any) -> Integers:
        left, right = np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64)
        return left ^ right if self.characteristic == 2 else self._joined(self._digits(left) - self._digits(right))

    def multiply(self, a: Any, b: Any) -> Integers:
        exp, log = self.tables
        return np.asarray(exp[log[a] + log[b]])

    def invert(self, a: Any) -> Integers:
        exp, log = self.tables
        return np.asarray(exp[self.order - 1 - log[a]])

    def matmul(self, a: Any, b: Any) -> Integers:
        """Exact product, a few terms at a time: sums of logarithms, looked up, and added digit by digit."""
        exp, log = self.tables
        left, right = log[np.asarray(a, dtype=np.int64)], log[np.asarray(b, dtype=np.int64)]
        total = np.zeros((left.shape[0], right.shape[1]), dtype=np.int64)
        step = max(1, _TERMS // max(total.size, 1))
        for j in range(0, left.shape[1], step):
            terms = exp[left[:, j : j + step, None] + right[None, j : j + step]]
            if self.characteristic == 2:
                total ^= np.bitwise_xor.reduce(terms, axis=1)
            else:
                total = self.add(total, self._joined(self._digits(terms).sum(axis=1)))
        return total

    def rref(self, rows: Array) -> tuple[Integers, tuple[int, ...]]:
        table = np.asarray(rows, dtype=np.int64).copy()
        pivots: list[int] = []
        for column in range(table.shape[1]):
            r = len(pivots)
            if r == len(table):
                break
            candidates = np.flatnonzero(table[r:, column])
            if not len(candidates):
                continue
            i = r + int(candidates[0])
            table[[r, i]] = table[[i, r]]
            table[r] = self.multiply(table[r], self.invert(table[r, column]))
            others = np.flatnonzero(table[:, column])
            others = others[others != r]
            table[others] = self.subtract(table[others], self.multiply(table[others, column][:, None], table[r]))
            pivots.append(column)
        return table[: len(pivots)], tuple(pivots)


# ------------------------------------------------------------------
# The field of rational numbers: exact rows, row echelon form and solutions


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
        Errors: SpecificationError, for floats without a grid, NaN, complex numbers, text that is no number, ragged
        rows. No value is shown.
        """
        step = None if grid is None else grid_step(grid)
        array = matrix(data, what, self)
        if array.dtype.kind in "US" and step is not None:
            raise SpecificationError(
                f"{what}: an array of text with a grid",
                why="the array may have turned floats into text, which would not be rounded",
                remedy="lists, or an array of objects, in which every entry keeps its own type",
            )
        if array.dtype.kind in "biu" and (step is None or step.numerator == 1):  # integers are on such a grid
            whole = integers(array)
            return _with(whole, 1, 1) if ones else whole
        if array.dtype.kind == "f":
            if step is None:
                raise no_floats(what)
            whole = on_grid(array, step, what)
            return _with(whole, step.numerator, step.denominator) if ones else whole
        return _cleared(_fractions(array, step, what), ones)

    def fractions(self, data: Any, grid: Any = None, what: str = "vectors") -> Array:
        """(n, d) Fractions of ``data``, as ``exact_rows`` reads it, not scaled; the errors are the same."""
        step = None if grid is None else grid_step(grid)
        return _fractions(matrix(data, what, self).astype(object), step, what)

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
                raise no_floats(what)
            flat[i] = step * int(on_grid(np.array([value]), step, what)[0])
            continue
        if isinstance(value, str | bytes | int):
            if value not in known:
                known[value] = rational(value, what)
            flat[i] = known[value]
        else:
            flat[i] = rational(value, what)
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


# ------------------------------------------------------------------
# Fields with exact arithmetic: the rationals QQ, and the finite fields GF(q) with q = p or p^k elements


__all__ = ["GF", "QQ", "Field"]
QQ = Rationals()


@lru_cache(maxsize=64)
def _finite(q: int) -> PrimeField | ExtensionField:
    import flint

    factors = flint.fmpz(q).factor() if q > 1 else []
    if len(factors) != 1:
        raise SpecificationError(
            f"there is no field with {q} elements",
            why="the number of elements of a finite field is a prime or a power of a prime",
            remedy="take a prime power: GF(2), GF(7), GF(256)",
        )
    p, k = int(factors[0][0]), int(factors[0][1])
    if k == 1:
        return PrimeField(p)
    return ExtensionField(p, k)


def GF(q: int) -> PrimeField | ExtensionField:
    """The finite field with q elements.

    Parameters
    ----------
    q : a prime below 2^31, or a power p^k with k > 1 up to 2^16.

    Elements are integers: modulo p for q = p; for q = p^k the integer ``c_0 + c_1 p + ...`` stands for the polynomial
    ``c_0 + c_1 z + ...`` modulo ``GF(q).modulus``, a Conway polynomial (what Sage, GAP and Magma use).

    Raises
    ------
    SpecificationError
        If q is no prime power, or too large.
    """
    if isinstance(q, bool) or not isinstance(q, numbers.Integral):
        raise SpecificationError("GF(q): q must be an integer", remedy="GF(2), GF(7), GF(256)")
    field = _finite(int(q)) if q <= 2**31 else None
    if field is None or (isinstance(field, ExtensionField) and q > 2**16):
        raise SpecificationError(
            "GF(q): q is too large",
            why="elements are machine integers, and prime powers use tables: primes below 2^31, powers up to 2^16",
            remedy="a smaller field, or QQ",
        )
    return field
