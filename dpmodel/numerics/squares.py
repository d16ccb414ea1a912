"""Sums of squares that a program has as second-order cones, taken back into its objective: solvers are quicker so.

CVXPY writes "minimise ``w |v - M x|^2``" with a column t for the square and a cone ``(a + s t, a - s t, v - M x)``,
which says ``4 a s t >= |v - M x|^2``. Where nothing else holds t, it is equal at every optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Mask
from dpmodel.numerics.array_program import Answer, ArrayProgram

# Entries of a row, on average over entries, from which on a product is not even tried.
_FILLED = 100


@dataclass(frozen=True)
class Squares:
    """``program`` without some cones and their columns, and ``P`` (n x n), the upper triangle of what they add to the
    objective as ``x'P x / 2``. ``columns``, ``rows`` : what of the whole ``of`` it has; ``lost`` : of each cone left
    out its column t, the first and last of its rows, and ``w / (2 a s)``."""

    of: ArrayProgram
    program: ArrayProgram
    P: sp.csc_array
    columns: Mask
    rows: Mask
    lost: tuple[tuple[int, slice, float], ...]

    def answer(self, found: Answer) -> Answer:
        """The answer to the whole program: t from the squares, multipliers from what makes the cone's gap optimal."""
        if found.x is None:
            return found
        x, cones = np.zeros(self.of.size), np.zeros(self.of.h.size)
        x[self.columns] = found.x
        if found.cones is not None:
            cones[self.rows] = found.cones
        for column, rows, weight in self.lost:
            gap = self.of.h[rows] - self.of.G[rows] @ x
            x[column] = float(gap[2:] @ gap[2:]) * weight / (2 * self.of.c[column])
            gap = self.of.h[rows] - self.of.G[rows] @ x
            cones[rows] = weight * np.r_[gap[0], -gap[1:]]
        return replace(found, x=x, cones=None if found.cones is None else cones)


def squares(program: ArrayProgram) -> Squares | None:
    """What can be taken into the objective; None where nothing can."""
    G, sizes = program.G, np.asarray(program.second_order, dtype=np.int64)
    if not sizes.size:
        return None
    held = np.bincount(program.R.indices, minlength=program.size) > 0
    held |= np.isfinite(program.lower) | np.isfinite(program.upper) | (program.c <= 0)
    in_cones = np.bincount(G.indices, minlength=program.size)
    columns, rows = np.ones(program.size, dtype=bool), np.ones(program.h.size, dtype=bool)
    lost, P, c = [], sp.csc_array((program.size, program.size)), program.c.copy()
    heads = np.cumsum(sizes) - sizes
    single = np.diff(G.indptr) == 1
    for head, size in zip(heads[(sizes > 2)], sizes[sizes > 2], strict=True):
        if not (single[head] and single[head + 1]):
            continue
        first, second = G.indptr[head], G.indptr[head + 1]
        t, step, side = int(G.indices[first]), -float(G.data[first]), float(program.h[head])
        alike = G.indices[second] == t and G.data[second] == step and program.h[head + 1] == side
        if held[t] or in_cones[t] != 2 or not alike or not (step > 0 and side > 0):
            continue
        tail = slice(head + 2, head + size)
        M, weight = G[tail], float(program.c[t]) / (2 * side * step)
        product = _triangle(M)
        if product is None:
            continue
        P = P + weight * product
        c -= weight * (M.T @ program.h[tail])
        columns[t], rows[head : head + size] = False, False
        lost.append((t, slice(head, head + size), weight))
    if not lost:
        return None
    gone = {rows_.start for _, rows_, _ in lost}
    smaller = replace(
        program,
        c=c[columns],
        R=program.R[:, columns],
        lower=program.lower[columns],
        upper=program.upper[columns],
        G=program.G[rows][:, columns],
        h=program.h[rows],
        second_order=tuple(int(size) for head, size in zip(heads, sizes, strict=True) if int(head) not in gone),
    )
    return Squares(program, smaller, sp.csc_array(P[columns][:, columns]), columns, rows, tuple(lost))


def _triangle(M: sp.csr_array) -> sp.csc_array | None:
    """The upper triangle of ``M'M``; None where it has more entries than M and its diagonal: factors have more then."""
    used = np.unique(M.indices)
    if used.size * (used.size - 1) / 2 <= M.nnz:  # however it is filled
        narrow = M[:, used].toarray()
        product = sp.coo_array(np.triu(narrow.T @ narrow))
        return sp.csc_array((product.data, (used[product.row], used[product.col])), shape=(M.shape[1], M.shape[1]))
    # A few rows with many entries fill it.
    if (np.diff(M.indptr).astype(np.float64) ** 2).sum() > _FILLED * M.nnz:
        return None
    product = sp.triu(M.T @ M)
    return sp.csc_array(product) if product.nnz <= M.nnz + used.size else None
