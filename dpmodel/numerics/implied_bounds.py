"""Bounds on columns that single rows and cones imply, by interval arithmetic: nothing is solved.

Every bound holds for all points of the set, rounding included; how tight it is nobody promises.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.numerics.array_program import ConeBlock, rows_of
from dpmodel.numerics.cone_program import ConeProgram


def implied_bounds(program: ConeProgram) -> tuple[Floats, Floats]:
    """(n,), (n,) bounds on x over the kept rows of ``program``, at most its own. They may cross where the set is
    empty.

    A second-order cone bounds the entries of its tail by the largest value of its head; a semidefinite one bounds
    entry ij by the root of the largest values of entries ii and jj. Of other cones their signs are used.
    """
    lower, upper = program.lower.copy(), program.upper.copy()
    A, keep = sp.csr_array(program.A), np.asarray(program.keep, dtype=bool)
    rows: dict[str, Any] = {"zero": np.zeros(keep.size, bool), "nonneg": np.zeros(keep.size, bool)}
    curved = []
    for block in program.cones:
        if block.kind in rows:
            rows[block.kind][block.rows] = keep[block.rows]
        elif keep[block.rows].all():
            curved.append(block)
            rows["nonneg"][_signed_rows(block)] = True
    straight, equal = np.flatnonzero(rows["nonneg"] | rows["zero"]), np.flatnonzero(rows["zero"])
    parts = [(rows_of(A, straight), program.b[straight] + program.band[straight])]
    parts += [(-A[equal], program.band[equal] - program.b[equal])] if equal.size else []
    # Bounds found by a row serve the next; what these passes leave open is left to a solver.
    for _ in range(3):
        before = lower.copy(), upper.copy()
        for matrix, side in parts:
            tighten(matrix, side, lower, upper)
        for block in curved:
            for matrix, side in _tails(block, A, program.b, lower, upper):
                tighten(matrix, side, lower, upper)
        if np.array_equal(before[0], lower) and np.array_equal(before[1], upper):
            break
    return lower, upper


def _signed_rows(block: ConeBlock) -> Any:
    """Rows of a cone whose values are never negative."""
    starts = block.start + np.cumsum(block.sizes) - np.asarray(block.sizes)
    if block.kind == "soc":
        return starts
    if block.kind == "psd":
        sides = [math.isqrt(size) for size in block.sizes]
        return np.concatenate([s + (n + 1) * np.arange(n) for s, n in zip(starts, sides, strict=True)])
    offsets = (1, 2) if block.kind == "exp" else (0, 1)
    return np.concatenate([starts + offset for offset in offsets])


def _tails(block: ConeBlock, A: Any, b: Floats, lower: Floats, upper: Floats) -> Iterator[tuple[Any, Floats]]:
    """Rows ``|b - A x| <= size`` of the entries beside a head or a diagonal, as two inequalities."""
    if block.kind not in ("soc", "psd"):
        return
    rows = rows_of(A, np.arange(block.start, block.start + block.size))
    right = b[block.rows]
    top = right - _least(rows, lower, upper)
    top += 1e-9 * np.abs(top)
    starts = np.cumsum(block.sizes) - np.asarray(block.sizes)
    if block.kind == "soc":
        size = np.repeat(top[starts], block.sizes)
        beside = np.ones(size.size, dtype=bool)
        beside[starts] = False
    else:
        parts = []
        for start, count in zip(starts, block.sizes, strict=True):
            side = math.isqrt(count)
            root = np.sqrt(np.maximum(top[start : start + count : side + 1], 0.0))
            with np.errstate(invalid="ignore"):
                parts.append(np.nan_to_num(np.outer(root, root), nan=np.inf, posinf=np.inf).ravel())
        size, beside = np.concatenate(parts), np.ones(block.size, dtype=bool)
        swap = _transposed(block)
        # Only the symmetric part of a matrix counts.
        rows, right = sp.csr_array((rows + rows[swap]) / 2), (right + right[swap]) / 2
    use = np.flatnonzero(beside & np.isfinite(size))
    if use.size:
        rows = rows_of(rows, use)
        yield rows, right[use] + size[use]
        yield -rows, size[use] - right[use]


def _transposed(block: ConeBlock) -> Any:
    """(size,) the place of entry ji for that of ij."""
    starts = np.cumsum(block.sizes) - np.asarray(block.sizes)
    sides = [math.isqrt(size) for size in block.sizes]
    return np.concatenate([s + np.arange(n * n).reshape(n, n).T.ravel() for s, n in zip(starts, sides, strict=True)])


def _least(A: Any, lower: Floats, upper: Floats) -> Floats:
    """(m,) least value of every row over the box, rounded down."""
    with np.errstate(invalid="ignore"):
        ends = np.where(A.data > 0, A.data * lower[A.indices], A.data * upper[A.indices])
    ends = np.where(A.data == 0, 0.0, ends)
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    total = np.bincount(row, weights=ends, minlength=A.shape[0])
    error = np.bincount(row, weights=np.abs(ends), minlength=A.shape[0]) * 1e-12
    return np.asarray(np.where(np.isfinite(total), total - error, -np.inf), dtype=np.float64)


def tighten(A: sp.csr_array, b: Floats, lower: Floats, upper: Floats) -> None:
    """Bounds that single rows ``a'x <= b`` imply when the other columns are at their least."""
    count = np.diff(A.indptr)
    rows = np.repeat(np.arange(A.shape[0]), count)
    with np.errstate(invalid="ignore"):
        least = np.where(A.data > 0, A.data * lower[A.indices], A.data * upper[A.indices])
    endless = ~np.isfinite(least)
    least[endless] = 0.0
    total = np.bincount(rows, weights=least, minlength=A.shape[0])
    open_ends = np.bincount(rows, weights=endless, minlength=A.shape[0])
    size = np.bincount(rows, weights=np.abs(least), minlength=A.shape[0]) + np.abs(b)
    # Bounds on the rounding of these sums, so that no point of the set is cut off.
    error = (count + 4) * 2.0**-52 * size
    rest = b[rows] - (total[rows] - least)
    usable = (open_ends[rows] == endless) & (A.data != 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value, slack = rest / A.data, error[rows] / np.abs(A.data)
    slack += 1e-9 * np.abs(value)
    up, down = usable & (A.data > 0), usable & (A.data < 0)
    np.minimum.at(upper, A.indices[up], value[up] + slack[up])
    np.maximum.at(lower, A.indices[down], value[down] - slack[down])
