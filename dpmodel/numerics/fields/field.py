"""Fields with exact arithmetic: the rationals QQ, and the finite fields GF(q) with q = p or p^k elements."""

from __future__ import annotations

import numbers
from functools import lru_cache

from dpmodel.errors import SpecificationError
from dpmodel.numerics.fields.echelon import Field
from dpmodel.numerics.fields.finite import LARGEST_EXTENSION, LARGEST_PRIME, ExtensionField, PrimeField
from dpmodel.numerics.fields.rational import Rationals

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
    field = _finite(int(q)) if q <= LARGEST_PRIME else None
    if field is None or (isinstance(field, ExtensionField) and q > LARGEST_EXTENSION):
        raise SpecificationError(
            "GF(q): q is too large",
            why="elements are machine integers, and prime powers use tables: primes below 2^31, powers up to 2^16",
            remedy="a smaller field, or QQ",
        )
    return field
