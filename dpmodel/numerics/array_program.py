"""A program in arrays, as solvers take it, the cones its rows lie in, and what solvers answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats, Integers

ConeKind = Literal["zero", "nonneg", "soc", "psd", "exp", "pow3d"]


@dataclass(frozen=True)
class ConeBlock:
    """Rows ``start`` to ``start + size`` of the standard form, lying in cones of one kind.

    ``sizes`` : rows of each cone in the block (one per row for zero and nonneg, omitted there).
    ``alphas`` : exponents of 3-d power cones. ``constraint`` : number of the user's constraint or -1
    for rows that lowering added (epigraphs, variable attributes). ``shape`` : of the user's constraint.
    """

    kind: ConeKind
    start: int
    size: int
    sizes: tuple[int, ...]
    alphas: tuple[float, ...]
    constraint: int
    constraint_id: int
    label: str
    shape: tuple[int, ...] = ()

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.size)


# ------------------------------------------------------------------
# A program in arrays, as solvers take it, and what they answer


@dataclass(frozen=True)
class ArrayProgram:
    """Minimise ``c'x`` subject to ``low <= R x <= high``, ``h - G x`` in cones, ``lower <= x <= upper``.

    ``R`` (p x n), ``G`` (q x n) sparse. The rows of G: second-order cones of sizes ``second_order``, semidefinite ones
    of sides ``semidefinite`` (whole matrices, column by column; their symmetric part counts), ``exponential`` triples,
    and triples of 3-d power cones with exponents ``power``. ``boolean``, ``integer`` : numbers of columns.
    """

    c: Floats
    R: sp.csr_array
    low: Floats
    high: Floats
    lower: Floats
    upper: Floats
    boolean: Integers
    integer: Integers
    G: sp.csr_array
    h: Floats
    second_order: tuple[int, ...] = ()
    semidefinite: tuple[int, ...] = ()
    exponential: int = 0
    power: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        return int(self.c.size)

    @property
    def linear(self) -> bool:
        return not self.h.size

    @property
    def continuous(self) -> bool:
        return not (self.boolean.size or self.integer.size)

    @cached_property
    def equal(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.low == self.high)


def rows_of(A: sp.csr_array, index: Integers) -> sp.csr_array:
    """``A[index]``; rows that follow one another are not copied (all of them are A itself): none may be changed."""
    if not index.size:
        return sp.csr_array((0, A.shape[1]))
    if (np.diff(index) != 1).any():
        return A[index]
    if index.size == A.shape[0]:
        return A
    starts = A.indptr[index[0] : index[-1] + 2]
    entries = slice(starts[0], starts[-1])
    return sp.csr_array((A.data[entries], A.indices[entries], starts - starts[0]), shape=(index.size, A.shape[1]))


@dataclass(frozen=True)
class Answer:
    """``x`` (n,) or None. ``rows`` (p,), ``cones`` (q,) : multipliers, positive where an upper side binds; None where
    the solver gives none. ``vertex`` : where HiGHS ended, to begin from with another objective."""

    status: str
    x: Floats | None = None
    rows: Floats | None = None
    cones: Floats | None = None
    vertex: Any = None
