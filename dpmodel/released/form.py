"""A likelihood of published numbers under public linear constraints, in arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Mask


@dataclass(frozen=True, eq=False)
class LikelihoodForm:
    """Minimise over x in R^n

        sum_i absolute_i |(M x - value)_i| + square_i (M x - value)_i^2  +  linear'x + constant
        subject to  E x = e,  G x <= g,  lower <= x <= upper,  x_j whole where integer_j.

    ``matrix`` M : (k, n) CSR; ``value, absolute, square`` : (k,), weights >= 0. ``linear`` : (n,).
    ``equality`` E : (p, n) CSR, ``equality_value`` : (p,); ``inequality`` G : (q, n) CSR, ``inequality_value`` : (q,).
    ``lower, upper`` : (n,), infinite where free. ``integer`` : (n,) bool.
    """

    matrix: sp.csr_array
    value: Floats
    absolute: Floats
    square: Floats
    linear: Floats
    constant: float
    equality: sp.csr_array
    equality_value: Floats
    inequality: sp.csr_array
    inequality_value: Floats
    lower: Floats
    upper: Floats
    integer: Mask

    @staticmethod
    def of(
        matrix: Any,
        value: Any,
        *,
        absolute: Any = 0.0,
        square: Any = 0.0,
        linear: Any = 0.0,
        constant: float = 0.0,
        equality: Any = None,
        equality_value: Any = 0.0,
        inequality: Any = None,
        inequality_value: Any = 0.0,
        lower: Any = -np.inf,
        upper: Any = np.inf,
        integer: Any = False,
    ) -> LikelihoodForm:
        """With everything left out filled in, and scalars spread."""
        M = sp.csr_array(matrix, dtype=np.float64)
        k, n = M.shape
        E = sp.csr_array((0, n)) if equality is None else sp.csr_array(equality, dtype=np.float64)
        G = sp.csr_array((0, n)) if inequality is None else sp.csr_array(inequality, dtype=np.float64)

        def full(item: Any, size: int) -> Floats:
            return np.array(np.broadcast_to(np.asarray(item, dtype=np.float64), (size,)))

        return LikelihoodForm(
            M,
            full(value, k),
            full(absolute, k),
            full(square, k),
            full(linear, n),
            float(constant),
            E,
            full(equality_value, E.shape[0]),
            G,
            full(inequality_value, G.shape[0]),
            full(lower, n),
            full(upper, n),
            np.array(np.broadcast_to(np.asarray(integer, dtype=bool), (n,))),
        )

    @property
    def size(self) -> int:
        """Number of variables n."""
        return int(self.matrix.shape[1])

    @property
    def coefficients(self) -> int:
        """How many it has."""
        return int(self.matrix.nnz + self.equality.nnz + self.inequality.nnz)

    @property
    def entrywise(self) -> bool:
        """Whether every measurement is of one variable."""
        return bool((np.diff(self.matrix.indptr) <= 1).all())

    def objective(self, x: Floats) -> float:
        """The objective at x."""
        r = self.matrix @ x - self.value
        loss = float(self.absolute @ np.abs(r) + self.square @ np.square(r))
        return loss + float(self.linear @ x) + self.constant

    def violation(self, x: Floats) -> float:
        """Largest violation of any constraint (integrality aside) at x, in the constraint's own unit."""
        return max(
            float(np.abs(self.equality @ x - self.equality_value).max(initial=0.0)),
            float((self.inequality @ x - self.inequality_value).max(initial=0.0)),
            float((self.lower - x).max(initial=0.0)),
            float((x - self.upper).max(initial=0.0)),
        )


def canonical(matrix: sp.csr_array) -> sp.csr_array:
    """Sorted, without duplicates or stored zeros; the matrix itself if it is so already."""
    if matrix.has_canonical_format and matrix.data.all():
        return matrix
    clean = matrix.copy()
    clean.sum_duplicates()
    clean.eliminate_zeros()
    return clean


def picks(columns: Any, size: int) -> sp.csr_array:
    """(k, size) matrix that picks entries."""
    columns = np.asarray(columns, dtype=np.int64)
    k = columns.size
    return sp.csr_array((np.ones(k), columns, np.arange(k + 1)), shape=(k, size))


def running(op: np.ufunc, values: Floats, owner: Integers) -> Floats:
    """``op`` (a sum, a maximum) of the values so far within each stretch of equal ``owner``; by doubling, so no digits
    are lost to other stretches."""
    out, step = values.astype(np.float64), 1
    while step < out.size:
        same = owner[step:] == owner[:-step]
        if not same.any():
            break
        out[step:] = np.where(same, op(out[step:], out[:-step]), out[step:])
        step *= 2
    return out


def bounds_cross(lower: Floats, upper: Floats) -> Any:
    """(k,) where lower bounds exceed upper ones by more than rounding."""
    with np.errstate(invalid="ignore"):
        size = np.minimum(np.abs(lower), np.abs(upper))
        return lower > upper + 1e-9 * np.where(np.isfinite(size), size, 0.0) + 1e-14
