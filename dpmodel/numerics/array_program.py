"""A program in arrays, as solvers take it, the cones its rows lie in, and what solvers answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Mask

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
    the solver gives none."""

    status: str
    x: Floats | None = None
    rows: Floats | None = None
    cones: Floats | None = None


# ------------------------------------------------------------------ sums of squares, back into the objective
#
# CVXPY writes "minimise ``|v - M x|^2``" with a column t for the square and a cone ``(a + s t, a - s t, v - M x)``, the
# second with either sign, which says ``4 a s t >= |v - M x|^2``. Where nothing else holds t, every optimum has
# equality. As cones, solvers end within some 1e-4 of the optimum, as squares within their tolerance.


@dataclass(frozen=True)
class Squares:
    """``program`` without some cones and their columns, and ``P`` (n x n), the upper triangle of what they add to the
    objective as ``x'P x / 2``. ``columns``, ``rows`` : what of the whole ``of`` it has. ``heads`` (k,) : the first rows
    of the cones left out, ``t`` (k,) their columns, ``number`` : which of these cones each row left out is of, and
    ``weight`` (k,) : the cost of t over ``2 a s``."""

    of: ArrayProgram
    program: ArrayProgram
    P: sp.csc_array
    columns: Mask
    rows: Mask
    heads: Integers
    t: Integers
    number: Integers
    weight: Floats

    def answer(self, found: Answer) -> Answer:
        """The answer to the whole program: t is the square, and multipliers are those that its cost asks for."""
        if found.x is None or found.cones is None:
            return found
        x, cones = np.zeros(self.of.size), np.zeros(self.of.h.size)
        x[self.columns], cones[self.rows] = found.x, found.cones
        G, h = self.of.G[~self.rows], self.of.h[~self.rows]
        gap = h - G @ x
        first = np.searchsorted(self.number, np.arange(self.heads.size))
        gap[first] = gap[first + 1] = 0.0  # t is not known yet
        x[self.t] = np.bincount(self.number, gap**2) * self.weight / (2 * self.of.c[self.t])
        gap = G @ x - h
        gap[first] *= -1.0
        cones[~self.rows] = self.weight[self.number] * gap
        return replace(found, x=x, cones=cones)


def squares(program: ArrayProgram) -> Squares | None:
    """What can be taken into the objective; None where nothing can."""
    if not program.second_order:
        return None
    sizes = np.asarray(program.second_order, dtype=np.int64)
    heads = np.cumsum(sizes) - sizes
    taken = sizes > 2
    taken[taken] = _let_go(program, heads[taken])
    if not taken.any():
        return None
    G, number = program.G, np.repeat(np.arange(sizes.size), sizes)
    tail = np.arange(number.size) >= heads[number] + 2
    entries = np.where(tail, np.diff(G.indptr)[: number.size], 0)
    # Cones of short rows each for themselves, others together: while the triangle of ``M'M`` has at most 1.5 times the
    # entries of M; with more, the cone is quicker.
    short = np.bincount(number, entries * (entries + 1) / 2) <= 1.5 * np.bincount(number, entries)
    long, used = tail & (taken & ~short)[number], np.zeros(0, dtype=np.int64)
    if long.any():
        used = np.unique(rows_of(G, np.flatnonzero(long)).indices)
        if used.size * (used.size + 1) / 2 > 1.5 * int(entries[long].sum()):
            taken, long = taken & short, np.zeros_like(long)
    if not taken.any():
        return None
    t = G.indices[G.indptr[heads[taken]]]
    weight = np.zeros(sizes.size)
    weight[taken] = program.c[t] / (-2 * G.data[G.indptr[heads[taken]]] * program.h[heads[taken]])
    gone, columns, rows = taken[number], np.ones(program.size, dtype=bool), np.ones(program.h.size, dtype=bool)
    columns[t], rows[: number.size] = False, ~gone
    lines = np.flatnonzero(tail & gone)
    sums, long, c = rows_of(G, lines), long[lines], program.c.copy()
    c -= sums.T @ (weight[number] * program.h[: number.size])[lines]
    scale, rest = np.repeat(np.sqrt(weight[number[lines]]), np.diff(sums.indptr)), rows_of(G, np.flatnonzero(rows))
    # No row that stays, and none of the sums, has an entry in a column that goes.
    place, width = np.cumsum(columns, dtype=G.indices.dtype) - 1, int(np.count_nonzero(columns))
    sums, R, G = (
        sp.csr_array((data, place[A.indices], A.indptr), shape=(A.shape[0], width))
        for A, data in ((sums, sums.data * scale), (program.R, program.R.data), (rest, rest.data))
    )
    alone = sums[~long] if long.any() else sums
    P = _upper(sp.csc_array(alone.T @ alone))
    if long.any():
        narrow = sums[long][:, place[used]].toarray()
        dense = sp.coo_array(np.triu(narrow.T @ narrow))
        P = P + sp.csc_array((dense.data, (place[used][dense.row], place[used][dense.col])), shape=P.shape)
    smaller = replace(
        program,
        c=c[columns],
        R=R,
        lower=program.lower[columns],
        upper=program.upper[columns],
        G=G,
        h=program.h[rows],
        second_order=tuple(sizes[~taken].tolist()),
    )
    cone = (np.cumsum(taken) - 1)[number[gone]]
    return Squares(program, smaller, P, columns, rows, heads[taken], t, cone, weight[taken])


def _upper(square: sp.csc_array) -> sp.csc_array:
    """Its upper triangle."""
    square.sort_indices()
    keep = square.indices <= np.repeat(np.arange(square.shape[0]), np.diff(square.indptr))
    starts = np.append(0, np.cumsum(keep))[square.indptr].astype(square.indptr.dtype)
    return sp.csc_array((square.data[keep], square.indices[keep], starts), shape=square.shape)


def _let_go(program: ArrayProgram, heads: Integers) -> Mask:
    """Which cones with these first rows are those of squares whose column nothing else holds."""
    G, h = program.G, program.h
    counts = np.diff(G.indptr)
    held = (np.bincount(program.R.indices, minlength=program.size) > 0) | (program.c <= 0)
    held |= np.isfinite(program.lower) | np.isfinite(program.upper)
    held |= np.bincount(G.indices, minlength=program.size) != 2
    found: Mask = (counts[heads] == 1) & (counts[heads + 1] == 1)
    head = heads[found]
    first, second = G.indptr[head], G.indptr[head + 1]
    step, side = G.data[first], h[head]
    same = (G.data[second] == step) & (h[head + 1] == -side)
    other = (G.data[second] == -step) & (h[head + 1] == side)
    t = G.indices[first]
    found[found] = (same | other) & (G.indices[second] == t) & ~held[t] & (step < 0) & (side > 0)
    return found
