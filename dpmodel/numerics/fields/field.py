"""Fields with exact arithmetic: the rationals QQ, and the finite fields GF(q) with q = p or p^k elements."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy.typing as npt

from dpmodel.errors import SpecificationError
from dpmodel.numerics.fields.finite import LARGEST_EXTENSION, LARGEST_PRIME, ExtensionField, PrimeField
from dpmodel.numerics.fields.rational import Rationals

if TYPE_CHECKING:
    from dpmodel.numerics.fields.echelon import Basis

# (n, d): int64, or Python integers in an object array where they are too large for that.
ExactRows = npt.NDArray[Any]


@runtime_checkable
class Field(Protocol):
    """A field. Elements: QQ has ``fractions.Fraction``; GF(q) has integers 0 .. q - 1 (see ``GF``).

    Rows over QQ are kept as integer rows: each is the given one times a positive rational, which changes no span.
    """

    @property
    def name(self) -> str: ...
    @property
    def order(self) -> int | None:
        """Number of elements, or None for QQ."""
        ...

    def exact_rows(self, data: Any, *, grid: Any = None, what: str = "vectors", ones: bool = False) -> ExactRows:
        """(n, d) rows of ``data``, exactly, zero rows included; floats only with a ``grid``.

        ``ones`` appends a column of exact ones (before rows are scaled): points u become (u, 1).
        """
        ...

    def element(self, value: Any) -> Any:
        """One element of the field, parsed exactly."""
        ...

    def show(self, value: Any) -> str:
        """An element in words."""
        ...

    def elements(self, rows: Any) -> npt.NDArray[Any]:
        """The rows as elements with arithmetic: Fractions in an object array, or int64."""
        ...

    def add(self, a: Any, b: Any) -> npt.NDArray[Any]: ...
    def subtract(self, a: Any, b: Any) -> npt.NDArray[Any]: ...
    def multiply(self, a: Any, b: Any) -> npt.NDArray[Any]: ...
    def invert(self, a: Any) -> npt.NDArray[Any]:
        """Entrywise 1 / a; no entry may be zero."""
        ...

    def matmul(self, a: Any, b: Any) -> npt.NDArray[Any]:
        """(n, m) times (m, k), exactly, both of elements (QQ: or integers)."""
        ...

    def rref(self, rows: ExactRows) -> tuple[npt.NDArray[Any], tuple[int, ...]]:
        """((r, d) elements, r pivot columns): reduced row echelon form without its zero rows."""
        ...

    def echelon(self, rows: ExactRows) -> Basis:
        """The ``Basis`` (reduced row echelon form) of the span of the rows."""
        ...

    def vanish(self, rows: ExactRows, normals: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(n,) bool: rows with ``normals @ row == 0`` exactly; ``normals`` (k, d) elements."""
        ...

    def solve(self, C: Any, d: Any) -> npt.NDArray[Any] | None:
        """(k,) the particular solution of ``C x = d`` with zero free variables, or None where there is none."""
        ...


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

    Elements are integers: modulo p for q = p; for q = p^k the integer ``c_0 + c_1 p + ... `` stands for the polynomial
    ``c_0 + c_1 z + ...`` modulo ``GF(q).modulus``, a Conway polynomial (what Sage, GAP and Magma use).

    Raises
    ------
    SpecificationError
        If q is no prime power, or too large.
    """
    if isinstance(q, bool):
        raise SpecificationError("GF(q): q must be an integer", remedy="GF(2), GF(7), GF(256)")
    try:
        size = operator.index(q)
    except TypeError:
        raise SpecificationError("GF(q): q must be an integer", remedy="GF(2), GF(7), GF(256)") from None
    if size > LARGEST_PRIME:
        raise SpecificationError(
            "GF(q): q is too large",
            why="elements are machine integers: primes below 2^31, prime powers up to 2^16",
            remedy="a smaller field, or QQ",
        )
    field = _finite(size)
    if isinstance(field, ExtensionField) and size > LARGEST_EXTENSION:
        raise SpecificationError(
            f"GF({size}) is too large",
            why="arithmetic of prime powers uses tables: up to 2^16 elements",
            remedy="a prime field below 2^31, or a smaller power",
        )
    return field
