"""Finite fields: integers modulo a prime, and polynomials modulo a Conway polynomial in tables of logarithms."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpmodel._types import Array, Integers, Mask
from dpmodel.errors import SpecificationError
from dpmodel.numerics.fields import entries
from dpmodel.numerics.fields.echelon import Basis, Field, spanning_basis

LARGEST_PRIME = 2**31
LARGEST_EXTENSION = 2**16

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

        Raises
        ------
        SpecificationError
            For floats, fractions, text, elements of other fields, integers out of range. No value is shown.
        """
        if grid is not None:
            raise SpecificationError(
                f"grid has no meaning over {self.name}",
                why="a finite field has no small numbers, so rounding means nothing in it",
                remedy="integers without a grid, or field=QQ",
            )
        array = entries.matrix(data, what, self)
        if array.dtype.kind == "f":
            raise self._floats(what)
        if array.dtype.kind in "OUS":
            flat = [self._plain(x, what) for x in array.ravel().tolist()]
            array = np.array(flat, dtype=object).reshape(array.shape)
        rows = self._reduced(array, what)
        return np.hstack([rows, np.ones((len(rows), 1), dtype=np.int64)]) if ones else rows

    def show(self, value: Any) -> str:
        return str(int(value))

    def elements(self, rows: Any) -> Integers:
        return np.asarray(rows, dtype=np.int64).copy()

    def integral(self, elements: Array) -> Integers:
        return np.asarray(elements, dtype=np.int64)

    def _floats(self, what: str) -> SpecificationError:
        return entries.refused(what, f"{self.name} has no floating-point numbers", "convert them to integers yourself")

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
            raise entries.refused(what, why, "integers 0 .. q - 1")
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
        return np.asarray(entries.integers(array) % self.order, dtype=np.int64)

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
            raise entries.refused(what, f"elements of {self.name} are the integers 0 .. {self.order - 1}")
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
