"""Rows of integers, exactly: products that never overflow and never round.

A row (b, -a) of ``a'x <= b`` times ``(1, x)`` is its slack. All decisions about rows are taken on such products, so no
tolerance and no rounding can make a row depend on another one.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel.errors import SpecificationError

# (n, D): int64, or Python integers in an object array where they are too large for that.
IntegerRows = npt.NDArray[Any]
Fractions = tuple[Fraction, ...]

_SAFE = 2**62


def slack_rows(A: Any, b: Any, largest: int) -> IntegerRows:
    """(n, d + 1) int64 rows (b, -a).

    Raises
    ------
    SpecificationError
        If some number is not whole or larger than ``largest`` in size.
    """
    dense = A.toarray() if sp.issparse(A) else np.asarray(A)
    rows = np.hstack([np.asarray(b).reshape(-1, 1), -dense])
    whole = np.rint(rows.astype(np.float64)) if rows.dtype.kind == "f" else rows
    if not ((whole == rows).all() and (np.abs(whole) <= largest).all()):
        raise SpecificationError(
            "the private rows hold numbers that are no integers of the declared size",
            why=f"exact satisfaction is decided over integers of size at most {largest}",
            remedy="scale and round the rows first, or declare the largest size there is",
        )
    return whole.astype(np.int64)


def exact_product(rows: IntegerRows, right: IntegerRows, largest: int) -> IntegerRows:
    """``rows @ right``, exactly: int64 where that cannot overflow, else Python integers.

    ``largest`` : public bound on the entries of ``rows``, so that which of the two it is tells nothing.
    """
    size = largest * int(np.abs(right).max(initial=0)) * max(rows.shape[1], 1)
    if size < _SAFE:
        product: IntegerRows = rows.astype(np.int64) @ right.astype(np.int64)
        return product
    wide: IntegerRows = rows.astype(object) @ right.astype(object)
    return wide


def common_denominator(values: npt.NDArray[Any]) -> tuple[IntegerRows, int]:
    """Python integers and one positive integer L with ``integers / L = values`` (Fractions)."""
    flat = [Fraction(v) for v in values.ravel()]
    scale = lcm(*(v.denominator for v in flat)) if flat else 1
    whole = np.empty(len(flat), dtype=object)
    whole[:] = [v.numerator * (scale // v.denominator) for v in flat]
    return whole.reshape(values.shape), scale


def satisfied(rows: IntegerRows, x: Fractions, largest: int) -> npt.NDArray[np.bool_]:
    """(n,) which rows (b, -a) have ``a'x <= b``, exactly."""
    point = np.empty(len(x) + 1, dtype=object)
    point[:] = [Fraction(1), *x]
    whole, _ = common_denominator(point)
    slack = exact_product(rows, whole[:, None], largest)[:, 0]
    holds: npt.NDArray[np.bool_] = np.asarray(slack >= 0, dtype=bool)
    return holds


def primitive(rows: IntegerRows) -> IntegerRows:
    """Each row divided by the greatest common divisor of its entries: the same line, in small integers."""
    divisor = np.gcd.reduce(rows, axis=1) if rows.size else np.ones(rows.shape[0], dtype=np.int64)
    out: IntegerRows = rows // np.where(divisor == 0, 1, divisor)[:, None]
    if out.dtype == object and int(np.abs(out).max(initial=0)) < _SAFE:
        out = out.astype(np.int64)
    return out
