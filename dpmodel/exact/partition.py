"""KMMST24, Algorithm 1: the stable partition of many vectors into independent sets, exactly."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpmodel._types import Array, Floats, Integers, Mask
from dpmodel.exact.fields import ExtensionField, PrimeField, largest
from dpmodel.exact.flats import primitive
from dpmodel.exact.subspaces import Basis, Field

# ------------------------------------------------------------------ doubles that compute exactly modulo small primes
# Integers up to this size, in doubles, survive ``reduce``.
_EXACT = 2**50


def largest_modulus(terms: int) -> int:
    """Largest p for which sums of so many products of residues modulo p are at most 2^50."""
    return math.isqrt(_EXACT // (terms + 2))


def reduce(x: Floats, p: Any, inverse: Any) -> Floats:
    """``x mod p`` in 0 .. p - 1, in place, for integers of size at most 2^50; ``inverse`` is the double 1 / p.

    Exact: (x + 1/2) / p is at least 1 / (2 p) away from every integer, and its two roundings of relative size 2^-53
    move it by about 2^50 / p * 2^-52 = 1 / (4 p) at most; so the floor is the true quotient, and
    x - quotient * p has no rounding.
    """
    quotient = x + 0.5
    quotient *= inverse
    np.floor(quotient, out=quotient)
    quotient *= p
    x -= quotient
    return x


def residues(rows: Array, p: int) -> Floats:
    """Integers (int64 or Python's) modulo p as doubles."""
    return np.asarray((rows % p).astype(np.float64))


@lru_cache(maxsize=8)
def primes_below(limit: int) -> tuple[int, ...]:
    """Primes in [limit / 4, limit], the largest first."""
    sieve = np.ones(limit + 1, dtype=bool)
    sieve[:2] = False
    for i in range(2, math.isqrt(limit) + 1):
        if sieve[i]:
            sieve[i * i :: i] = False
    return tuple(int(p) for p in np.flatnonzero(sieve)[::-1] if p >= limit // 4)


# ------------------------------------------------------------------
# Arithmetic for the stable partition: one finite field, or several prime fields at once as lanes of one array
#
# All arrays have a leading axis of lanes: (lanes, rows, columns); entry 0 is the field's zero in every kernel.


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


# ------------------------------------------------------------------
# The stable partition into independent sets (KMMST24, Algorithm 1), in one pass over the vectors
#
# Algorithm 1 peels off maximal independent sets: each takes, in the order of the records, every vector that is left and
# independent of what it took before. Only the sizes of the sets and their spans matter afterwards. Four steps lead to a
# pass of O(d^2) per vector; d is the rank of all rows, to whose pivot columns the rows are narrowed first (on the span
# of the rows that map is injective, so it changes no dependence).
#
# 1. Online rule. Whether vector j joins a set depends on vectors before j alone. By induction over the sets, vector j
# goes to the first set whose elements before j do not span it, or opens a new one. 2. Flag. Proposition 2, applied to
# the first j vectors, says that the spans of the sets are nested, later sets inside earlier ones. So all sets of
# dimension k have the same span V_k, and the state is the count of sets by dimension and the chain of the V_k of the
# dimensions present. If K is the least present dimension with v in V_K (or d with V_d the whole space, if none) and k
# the largest one below K (or 0), the sets that span v are those of dimension K and more, and v goes to the first set of
# dimension k, or to a new one for k = 0. That set then has dimension k + 1 and the span V_k + v; if dimension k + 1 was
# present, this is V_{k+1}, since spans of equal dimension are equal. 3. Coordinates. A basis b_1 .. b_d of the whole
# space is adapted: V_k = span(b_1 .. b_k) for all k present. If l is the last nonzero coordinate of v (1-based), v is
# in V_k if and only if l <= k; so K is the least present dimension >= l. The order of the b_i strictly between present
# dimensions is free. Where a new V_{k+1} appears, a b_r with r > k and c_r nonzero is exchanged for v, which moves to
# position k + 1; since r <= l <= K, span(b_1 .. b_m) stays for every other dimension m present. If c_r is the only
# nonzero coordinate behind k, then V_k + v = V_k + b_r, and b_r itself is moved. The basis starts as the unit vectors.
# An exchange divides column r of the coordinates by c_r and takes c_i times it from column i; within a block of vectors
# these steps are kept as few rows of a d x d matrix. 4. Over QQ, the same modulo several primes at once ("lanes"),
# exactly: see ``_over_rationals``.


# Exchanges of one block before they are folded into the coordinates, and vectors and numbers of the largest block.
_EXCHANGES = 32
_BLOCK = 512
_MOST_NUMBERS = 2**23


@dataclass(frozen=True, eq=False)
class Partition:
    """The sets of Algorithm 1 as far as anything after it needs them. Private.

    ``counts`` (d + 1,) int64: how many sets have k vectors (counts[0] = 0). ``flag`` (D, d) exact rows: every set of
    k vectors spans what ``flag[:k]`` spans; D is the size of the largest set, the rank of all rows.

    One record more or less (Proposition 2): the number of sets of dimension >= k changes for exactly one k, by one, so
    the counts change by at most 1 in each entry and 2 in all; spans of dimensions that both partitions have
    agree.
    """

    field: Field
    counts: npt.NDArray[np.int64]
    flag: Array

    def basis(self, k: int) -> Basis:
        """Canonical basis of the span of every set of k vectors."""
        return self.field.echelon(self.flag[:k])


def stable_partition(field: Field, rows: Array) -> Partition:
    """Partition the rows into linearly independent sets as KMMST24, Algorithm 1 does, exactly.

    ``rows`` : (n, d) exact rows of the field, in the order of the records; zero rows are skipped.

    Time: O(n d^2) field operations, over QQ times one lane per 21 bits of the largest minor that matters.
    """
    rows = np.asarray(rows)
    n, d = rows.shape
    rows = rows[(rows != 0).any(axis=1)] if n else rows
    counts = np.zeros(d + 1, dtype=np.int64)
    if len(rows) == 0:
        return Partition(field, counts, rows)
    span = field.echelon(rows)
    r = span.dimension
    narrow = np.ascontiguousarray(rows[:, list(span.pivots)])
    if field.order is None:
        run = _over_rationals(primitive(narrow))
    else:
        run = _Run(kernel_of(field, r), r, trusted=r)
        run.feed(narrow)
    if run is None:
        return _by_spans(field, rows)
    counts[: r + 1] = run.counts
    basis = field.integral(span.rows)  # row i is, narrowed, a multiple of unit vector i
    flag = [rows[name] if name >= 0 else basis[index] for index, name in run.flag()]
    return Partition(field, counts, np.array(flag, dtype=np.result_type(rows, basis)))


def _over_rationals(rows: Array) -> _Run | None:
    """The pass over integer rows of full column rank r, with enough primes to be certain; None where they run out.

    Invariant: the basis consists of integer vectors, independent modulo every prime in use (an exchange needs a
    coordinate that is nonzero in all lanes; lanes in which it is zero are dropped). Hence the rational
    coordinates c of an integer vector have denominators prime to every p, and lane p shows c modulo p. So:

    - A coordinate that is nonzero in some lane is nonzero: "v is not in V_k" is certain whatever the primes.
    - "v is in V_k" is concluded from zeros in all lanes. It is certain for k = r, where V_k is everything. For k < r
      let A be a set of k rows that spans V_k. If v were not in V_k, some minor of size k + 1 of (A, v) would not be 0,
      and by Hadamard's inequality at most H(k + 1), the product of the k + 1 largest norms of rows. If the primes have
      a larger product, this minor is nonzero modulo one of them, p. Then A and v are independent modulo p; A lies in
      span(b_1 .. b_k) modulo p too (its coordinates have denominators prime to p), and fills it; so v is outside, and
      lane p shows a nonzero coordinate behind k. Contradiction.
    - "v is in V_k + b_r", the shortcut of step 3, is certain in the same way for k + 1 <= ``trusted``: b_r is a row
      or a unit vector, and the minors of (A, b_r, v) are at most H(k + 2).

    By induction over the vectors, a pass whose conclusions "in V_k" all have k <= ``trusted`` or k = r, with
    primes of product above H(trusted + 1), makes the decisions of exact arithmetic. A first pass with one prime finds
    out how deep the conclusions go (on data in general position: nowhere), a second one is certain. Squares
    are compared, so that all bounds are integers. Which primes are taken changes the time, never the answer.
    """
    r = rows.shape[1]
    bounds = [1]
    for square in np.sort(_squares(rows))[::-1][:r].tolist():
        bounds.append(bounds[-1] * int(square))
    pool = iter(primes_below(largest_modulus(r)))
    trusted = 0
    while True:
        needed = bounds[trusted + 1] if trusted else 0
        primes: list[int] = []
        while not primes or math.prod(primes) ** 2 <= needed:
            prime = next(pool, None)
            if prime is None or len(primes) == 1024:  # lanes that fit into memory; numbers of thousands of digits
                return None
            primes.append(prime)
        run = _Run(PrimeLanes(np.array(primes, dtype=np.int64)), r, trusted, needed)
        if not run.feed(rows):
            continue  # primes that divide a denominator: take others
        if run.deepest <= trusted:
            return run
        trusted = run.deepest


def _squares(rows: Array) -> Array:
    """(n,) squared norms, exactly."""
    if largest(rows) ** 2 * max(rows.shape[1], 1) < 2**63:
        rows = rows.astype(np.int64)
        return np.asarray(np.einsum("ij,ij->i", rows, rows))
    return np.asarray((rows.astype(object) ** 2).sum(axis=1))


class _Run:
    """One pass over rows (n, d) of full column rank.

    ``counts``, ``deepest`` (the largest k < d for which a row was concluded to be in V_k) and ``flag()`` are results.
    ``inverse`` (lanes, d, d) maps rows to coordinates; ``order[i]`` is the column of the basis vector at position i,
    ``place`` its inverse, ``names[j]`` the row that is the basis vector of column j, or -1 for unit vector j.
    """

    def __init__(self, kernel: Kernel, d: int, trusted: int, needed: int = 0) -> None:
        self.kernel = kernel
        self.d = d
        self.trusted = trusted
        self.needed = needed
        self.counts = [0] * (d + 1)
        self.deepest = 0
        self.dims: list[int] = []  # present, ascending
        self.order = np.arange(d)
        self.place = np.arange(d)
        self.names = [-1] * d
        self.inverse = kernel.identity(d)

    def flag(self) -> list[tuple[int, int]]:
        """(column, name) of the basis vectors of the largest span, in order."""
        top = self.dims[-1] if self.dims else 0
        return [(int(j), self.names[j]) for j in self.order[:top]]

    def feed(self, rows: Array) -> bool:
        """Assign all rows; False if too few lanes are left to go on."""
        start, size = 0, _EXCHANGES
        largest_block = max(_EXCHANGES, min(_BLOCK, _MOST_NUMBERS // (self.kernel.lanes * self.d)))
        while start < len(rows):
            batch = self.kernel.load(rows[start : start + size])
            done = self._block(self.kernel.matmul(batch, self.inverse), start)
            if done == 0:
                return False
            start += done
            size = min(2 * size, largest_block) if done == size else max(_EXCHANGES, done)
        return True

    def _block(self, coordinates: Array, start: int) -> int:
        """Assign rows until the exchanges of a block are used up: how many rows, 0 where too few lanes are left.

        ``coordinates`` (lanes, m, d) are those at the start. Exchanges so far: y -> y T, where T is the identity but
        for the rows ``used``, which are held in ``table``.
        """
        place, order = self.place, self.order
        used: list[int] = []
        row_of = [-1] * self.d
        table = np.zeros((self.kernel.lanes, _EXCHANGES, self.d), dtype=coordinates.dtype)
        done = 0
        while done < coordinates.shape[1] and len(used) < _EXCHANGES:
            c = coordinates[:, done]
            if used:
                c = self._changed(c[:, None], used, table)[:, 0]
            nonzero = np.flatnonzero(c[0] if len(c) == 1 else c.any(axis=0))
            if len(nonzero) == 0:
                return 0  # a row that vanishes modulo all primes
            places = place[nonzero]
            k, top, known = self._assign(int(places.max()) + 1)
            done += 1
            if known:
                continue
            free = nonzero[places >= k]
            if len(free) == 1 and (k < self.trusted or k + 1 == top):
                r = int(free[0])
            else:
                r = self._pivot(c, free, row_of)
                if len(c) > 1 and not c[:, r].all():
                    kept = c[:, r] != 0
                    self.kernel = self.kernel.keep(kept)
                    if self.kernel.modulus() ** 2 <= self.needed:
                        return 0
                    c, table, coordinates, self.inverse = c[kept], table[kept], coordinates[kept], self.inverse[kept]
                if row_of[r] < 0:
                    row_of[r] = len(used)
                    table[:, len(used), r] = 1
                    used.append(r)
                self.kernel.exchange(table[:, : len(used)], c, r)
                self.names[r] = start + done - 1
            other, at = int(order[k]), int(place[r])
            order[k], order[at] = r, other
            place[r], place[other] = k, at
        if used:
            self.inverse = self._changed(self.inverse, used, table)
        return done

    def _assign(self, last: int) -> tuple[int, int, bool]:
        """Put a row with this last nonzero coordinate into a set of dimension k: (k, K, whether V_{k+1} was known)."""
        dims, counts = self.dims, self.counts
        at = bisect_left(dims, last)
        known = at < len(dims)
        top = dims[at] if known else self.d
        k = dims[at - 1] if at else 0
        if self.deepest < top < self.d:
            self.deepest = top
        if k:
            counts[k] -= 1
            if not counts[k]:
                at -= 1
                del dims[at]
        counts[k + 1] += 1
        if counts[k + 1] == 1:
            dims.insert(at, k + 1)
        return k, top, known and top == k + 1

    def _pivot(self, c: Array, free: Array, row_of: list[int]) -> int:
        """A column to exchange, nonzero in as many lanes as possible, rather one that the table already has."""
        if len(c) > 1:
            lanes = (c[:, free] != 0).sum(axis=0)
            free = free[lanes == lanes.max()]
        return next((j for j in free.tolist() if row_of[j] >= 0), int(free[0]))

    def _changed(self, x: Array, used: list[int], table: Array) -> Array:
        """Rows (lanes, m, d) times T."""
        rest = x.copy()
        rest[:, :, used] = 0
        return self.kernel.add(rest, self.kernel.matmul(x[:, :, used], table[:, : len(used)]))


def _by_spans(field: Field, rows: Array) -> Partition:
    """The same partition by exact membership in the canonical bases of the V_k: simple, slow, for any numbers."""
    d = rows.shape[1]
    counts = np.zeros(d + 1, dtype=np.int64)
    present: dict[int, Basis] = {}
    for row in rows:
        one = row[None, :]
        dims = sorted(present)
        at = bisect_left(dims, True, key=lambda m: bool(present[m].contains(one)[0]))
        k = dims[at - 1] if at else 0
        if k + 1 not in present:
            present[k + 1] = field.echelon(np.vstack([field.integral(present[k].rows), one]) if k else one)
        counts[k + 1] += 1
        if k:
            counts[k] -= 1
            if not counts[k]:
                del present[k]
    flag = np.zeros((0, d), dtype=np.int64)
    for k in sorted(present):
        for row in field.integral(present[k].rows):
            longer = np.vstack([flag, row[None, :]])
            if len(field.rref(longer)[1]) == len(longer):
                flag = longer
    return Partition(field, counts, flag)
