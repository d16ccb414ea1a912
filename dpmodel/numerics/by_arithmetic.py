"""The largest value of a linear function over the set of a cone program, where arithmetic tells it: no solver."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Mask
from dpmodel.numerics.cone_program import ConeProgram

# An interval this narrow is as good as the answer of a solver.
_NARROW = 1e-6
# What sums of ten thousand numbers are rounded by, as a share of their terms.
_ROUNDING = 1e-12


def maximum(program: ConeProgram, objective: Floats, lower: Floats, upper: Floats) -> float | None:
    """Upper bound on ``objective'x`` over the kept rows of ``program`` and ``lower <= x <= upper``, as good as a
    solver's if there is a point at all; None where that takes a solver.

    inf where a column that improves it can move for ever on its own; else what the box leaves to columns that move it
    little, and for the others the right-hand side of an equality that is a multiple of their part.
    """
    if never_ends(program, objective, lower, upper):
        return math.inf
    ends = np.zeros((2, objective.size))
    np.multiply(objective, (lower, upper), out=ends, where=objective != 0)
    still = np.abs(ends[1] - ends[0]) <= _NARROW / objective.size
    most = float(ends[:, still].max(axis=0).sum()) + _ROUNDING * float(np.abs(ends[:, still]).sum())
    rest = 0.0 if still.all() else _by_equality(program, objective, np.flatnonzero(~still))
    return None if rest is None else most + rest


def _by_equality(program: ConeProgram, objective: Floats, live: Integers) -> float | None:
    """The same of the columns ``live`` (k,) alone, if they are those of an equality."""
    A = sp.csr_array(program.A)
    equal = np.zeros(program.b.size, dtype=bool)
    for block in program.cones:
        if block.kind == "zero":
            equal[block.rows] = True
    for row in np.flatnonzero(equal & np.asarray(program.keep, dtype=bool) & (np.diff(A.indptr) == live.size)):
        entries = slice(A.indptr[row], A.indptr[row + 1])
        columns, values = A.indices[entries], A.data[entries]
        if np.array_equal(np.sort(columns), live):
            factor = objective[columns[0]] / values[0]
            if np.array_equal(factor * values, objective[columns]):
                return float(factor * program.b[row] + abs(factor) * program.band[row])
    return None


def never_ends(program: ConeProgram, objective: Floats, lower: Floats, upper: Floats) -> bool:
    """Whether some column alone can move for ever in the direction that ``objective`` rises in, as those of epigraphs
    can. A set that has a point is unbounded then."""
    free = ((objective > 0) & np.isposinf(upper)) | ((objective < 0) & np.isneginf(lower))
    columns = np.flatnonzero(free)
    if not columns.size:
        return False
    moved = sp.csr_array(program.A)[:, columns].tocoo()
    change = -moved.data * np.sign(objective[columns])[moved.col]
    seen = np.asarray(program.keep, dtype=bool)[moved.row] & (change != 0)
    row, column, change = moved.row[seen], moved.col[seen], change[seen]
    rises, falls, cone = _ways(program)
    stuck = np.zeros(columns.size, dtype=bool)
    # Rows of tails may move both ways, by as much as their head rises.
    stuck[column[(change > 0) & ~rises[row] | (change < 0) & ~falls[row]]] = True
    tails = cone[row] >= 0
    weight = np.where(falls[row], 1.0, -1.0)[tails] * change[tails] ** 2
    shape = (program.b.size, columns.size)
    left = sp.csr_array((weight, (cone[row[tails]], column[tails])), shape=shape)
    stuck[left.indices[left.data > 0]] = True
    return not stuck.all()


def _ways(program: ConeProgram) -> tuple[Mask, Mask, Integers]:
    """(m,), (m,) rows of ``b - A x`` that may rise for ever, and fall, on their own; (m,) for rows of second-order
    cones the number of the head, else -1. Of semidefinite cones the diagonal, of exponential and power cones a face."""
    rises, falls = np.zeros(program.b.size, dtype=bool), np.zeros(program.b.size, dtype=bool)
    cone = np.full(program.b.size, -1)
    for block in program.cones:
        start, end = block.start, block.start + block.size
        if block.kind == "nonneg":
            rises[start:end] = True
        elif block.kind == "soc":
            sizes = np.asarray(block.sizes)
            heads = start + np.cumsum(sizes) - sizes
            cone[start:end] = np.repeat(heads, sizes)
            rises[start:end] = falls[start:end] = True
            falls[heads] = False
        elif block.kind == "psd":
            for first, size in zip(start + np.cumsum(block.sizes) - np.asarray(block.sizes), block.sizes, strict=True):
                rises[first : first + size : math.isqrt(size) + 1] = True
        elif block.kind == "exp":
            falls[start:end:3] = rises[start + 2 : end : 3] = True
        elif block.kind == "pow3d":
            rises[start:end:3] = rises[start + 1 : end : 3] = True
    return rises, falls, cone
