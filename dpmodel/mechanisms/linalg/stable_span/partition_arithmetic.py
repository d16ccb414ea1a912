"""Arithmetic for the stable partition: one finite field, or several prime fields at once as lanes of one array.

All arrays have a leading axis of lanes: (lanes, rows, columns); entry 0 is the field's zero in every kernel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpmodel._types import Array, Floats, Integers, Mask
from dpmodel.numerics.fields.finite import ExtensionField, PrimeField
from dpmodel.numerics.fields.residues import largest, largest_modulus, reduce, residues


class PrimeLanes:
    """GF(p) for one or several small primes, in doubles: ``d p^2 <= 2^50``, so that sums of d products are exact."""

    def __init__(self, primes: Integers) -> None:
        self.primes = primes
        self._p: Floats = primes.astype(np.float64)[:, None, None]
        self._inverse = 1.0 / self._p

    @property
    def lanes(self) -> int:
        return len(self.primes)

    def load(self, rows: Array) -> Array:
        """(lanes or 1, n, d) of exact rows (n, d)."""
        if rows.dtype != object and largest(rows) < int(self.primes.min()):
            return rows.astype(np.float64)[None]  # products with residues stay below p^2 in size
        return np.stack([residues(rows, p) for p in self.primes.tolist()])

    def _reduce(self, x: Floats) -> Floats:
        return reduce(x, self._p, self._inverse)

    def identity(self, d: int) -> Array:
        return np.tile(np.eye(d), (self.lanes, 1, 1))

    def matmul(self, a: Array, b: Array) -> Array:
        return self._reduce(np.matmul(a, b))

    def add(self, a: Array, b: Array) -> Array:
        return self._reduce(a + b)

    def exchange(self, table: Array, c: Array, r: int) -> None:
        """In place for rows y of (lanes, m, d): y_r / c_r in column r, y_i - c_i y_r / c_r in others; c (lanes, d)."""
        inverse = [pow(int(x), -1, int(p)) for x, p in zip(c[:, r], self.primes, strict=True)]
        column = table[:, :, r, None] * np.array(inverse, dtype=np.float64)[:, None, None]
        self._reduce(column)
        table -= column * c[:, None, :]
        self._reduce(table)
        table[:, :, r] = column[:, :, 0]

    def keep(self, alive: Mask) -> Kernel:
        """The kernel of some of the lanes."""
        return PrimeLanes(self.primes[alive])

    def modulus(self) -> int:
        """Product of the primes of the lanes."""
        return math.prod(self.primes.tolist())


class OneField:
    """The same for one finite field of any kind, in int64: a single lane."""

    lanes = 1

    def __init__(self, field: PrimeField | ExtensionField) -> None:
        self._field = field

    def load(self, rows: Array) -> Array:
        return np.asarray(rows, dtype=np.int64)[None]

    def identity(self, d: int) -> Array:
        return np.eye(d, dtype=np.int64)[None]

    def matmul(self, a: Array, b: Array) -> Array:
        return self._field.matmul(a[0], b[0])[None]

    def add(self, a: Array, b: Array) -> Array:
        return self._field.add(a, b)

    def exchange(self, table: Array, c: Array, r: int) -> None:
        column = self._field.multiply(table[:, :, r, None], self._field.invert(c[0, r]))
        if isinstance(self._field, PrimeField):  # in one reduction: below 2^62 + 2^31
            table += column * (self._field.order - c[:, None, :])
            table %= self._field.order
        else:
            table[:] = self._field.subtract(table, self._field.multiply(column, c[:, None, :]))
        table[:, :, r] = column[:, :, 0]

    def keep(self, alive: Mask) -> Kernel:
        raise AssertionError("a finite field has one lane")

    def modulus(self) -> int:
        return self._field.order


Kernel = PrimeLanes | OneField


def kernel_of(field: Any, d: int) -> Kernel:
    """The fastest kernel of a finite field (``PrimeField`` or ``ExtensionField``) for d columns."""
    if isinstance(field, PrimeField) and field.order <= largest_modulus(d):
        return PrimeLanes(np.array([field.order], dtype=np.int64))
    return OneField(field)
