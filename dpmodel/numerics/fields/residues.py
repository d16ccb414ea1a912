"""Doubles that compute exactly modulo small primes, the common ground of everything over QQ that is not tiny."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpmodel._types import Array, Floats

# Integers up to this size, in doubles, survive ``reduce``.
_EXACT = 2**50


def largest_modulus(terms: int) -> int:
    """Largest p for which sums of so many products of residues modulo p are at most 2^50."""
    return math.isqrt(_EXACT // (terms + 2))


def reduce(x: Floats, p: Any, inverse: Any) -> Floats:
    """``x mod p`` in 0 .. p - 1, in place, for integers of size at most 2^50; ``inverse`` is the double 1 / p.

    Exact: (x + 1/2) / p is at least 1 / (2 p) away from every integer, and its two roundings of relative size 2^-53
    move it by about 2^50 / p * 2^-52 = 1 / (4 p) at most; so the lower bound is the true quotient, and
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


def largest(rows: Array) -> int:
    """The largest absolute value, 0 where there are no entries."""
    return max(abs(int(rows.max())), abs(int(rows.min()))) if rows.size else 0


def orthogonal(rows: Array, normals: Array) -> npt.NDArray[np.bool_]:
    """(n,) rows with ``normals @ row == 0``, exactly, for integer rows (n, d) and normals (k, d).

    A product below ``bound`` in size that vanishes modulo primes whose product exceeds ``bound`` is zero.
    """
    terms = rows.shape[1]
    bound = largest(rows) * largest(normals) * terms
    if bound < 2**53:
        return np.asarray(~(rows.astype(np.float64) @ normals.astype(np.float64).T).any(axis=1))
    left = np.arange(len(rows))
    product = 1
    for p in primes_below(largest_modulus(terms)):
        products = residues(rows[left], p) @ residues(normals, p).T
        left = left[~reduce(products, float(p), 1.0 / p).any(axis=1)]
        product *= p
        if product > bound or not len(left):
            break
    else:  # numbers of a million digits
        left = left[[not (rows[i].astype(object) @ normals.astype(object).T).any() for i in left]]
    out = np.zeros(len(rows), dtype=bool)
    out[left] = True
    return out


@lru_cache(maxsize=8)
def primes_below(limit: int) -> tuple[int, ...]:
    """Primes in [limit / 4, limit], the largest first."""
    sieve = np.ones(limit + 1, dtype=bool)
    sieve[:2] = False
    for i in range(2, math.isqrt(limit) + 1):
        if sieve[i]:
            sieve[i * i :: i] = False
    return tuple(int(p) for p in np.flatnonzero(sieve)[::-1] if p >= limit // 4)
