"""Where the released numbers leave no point: which private rows give way, by how much, and what is known of each.

Row i gives way by v_i (a cone along its interior direction, an equality to either side); its unit w_i is public, the
size of the noise in it. First the largest ``v_i / w_i`` is made as small as possible; then, none being larger, their
sum; then the cost, with these v_i. The first step alone would let one row that nobody can satisfy weaken all others;
the second alone would pile everything on few rows.

What is known of a point. Let every true row contain the row of ``program`` (safe, strict: the event E of
``treatment.py``). If ``gap + v d`` lies in the cone for the gap of the program at x, then so does the true one, since
the cone is closed under addition: the true row is short by at most v. ``shortfall`` is the least such v. E is about the
noise alone, so this holds at once for all rows and for every x, also one that is chosen after seeing the numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.affine_map import AffineMap
from dpmodel.mechanisms.lp.noise_once.margins import shortfalls
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.numerics.cone_program import ConeProgram, solve_cone_program

# Rows that are missed by less hold as far as solvers tell: of linear ones, and of cones, relative to their numbers.
_LINEAR, _CURVED = 1e-6, 2e-5


def least_each(
    program: ConeProgram, direction: Floats, most: float, *, weights: Any = None, **how: Any
) -> Floats | None:
    """(m,) multiples of ``direction`` (m,), of least sum and none above ``most``, by which rows give way, the same in
    all rows of a cone; None where no solver has an answer.

    A variable for each row or cone (two for an equality, up and down). Released numbers only: post-processing.
    """
    m, n = program.b.size, program.c.size
    cone, equal = np.zeros(m, dtype=np.int64), np.zeros(m, dtype=bool)
    count = 0
    for block in program.cones:
        sizes = block.sizes or (1,) * block.size
        cone[block.rows] = count + np.repeat(np.arange(len(sizes)), sizes)
        equal[block.rows] = block.kind == "zero"
        count += len(sizes)
    rows = np.flatnonzero(direction)
    moving, column = np.unique(cone[rows], return_inverse=True)
    # Where there is a ceiling, the row does not give way beyond it.
    room = np.full(moving.size, float(most))
    if program.ceiling is not None:
        with np.errstate(invalid="ignore"):
            left = np.maximum(program.ceiling - program.b, 0.0)[rows] / direction[rows]
        np.minimum.at(room, column, np.where(np.isfinite(left), left, most))
    # Equalities come again, from below.
    again = np.flatnonzero(equal[rows])
    place = np.concatenate([rows, rows[again]])
    which = np.concatenate([column, moving.size + np.arange(again.size)])
    sign = np.concatenate([-direction[rows], direction[rows[again]]])
    size = moving.size + again.size
    slacks = sp.csr_array((sign, (place, which)), shape=(m, size))
    wide = program.with_(
        c=np.concatenate([np.zeros(n), np.ones(size)]),
        d=0.0,
        A=sp.hstack([sp.csr_array(program.A), slacks], format="csr"),
        lower=np.concatenate([program.lower, np.zeros(size)]),
        upper=np.concatenate([program.upper, room, np.full(again.size, float(most))]),
    )
    if weights is not None:
        weights = sp.hstack([sp.csr_array(weights), sp.csr_array((m, size))], format="csr")
    solution = solve_cone_program(wide, weights=weights, **how)
    if solution.x is None:
        return None
    out = np.zeros(m)
    np.add.at(out, place, np.maximum(solution.x[n:], 0.0)[which])
    return out


def shortfall(
    affine: AffineMap, program: ConeProgram, x: Floats, private: npt.NDArray[np.bool_], weights: Any = None
) -> Floats:
    """(m,) by how much x misses each of the ``private`` rows (m,) of ``program``, the same number in all rows of a
    cone; 0 up to a solver's tolerance."""
    left = program.A @ x
    size = np.abs(program.b) + abs(sp.csr_array(program.A)) @ np.abs(x)
    if weights is not None:
        left = left + weights @ np.abs(x)
    short = np.maximum(shortfalls(affine, np.asarray(program.b - left)) - program.band, 0.0)
    tolerance = np.zeros(affine.rows)
    for block in affine.cones:
        rows = slice(block.start, block.start + block.size)
        linear = block.kind in ("zero", "nonneg")
        tolerance[rows] = _LINEAR + 1e-9 * size[rows] if linear else _CURVED * (1 + size[rows].max(initial=0.0))
        if not linear and private[rows].any():
            continue
        short[rows] = np.where(private[rows], short[rows], 0.0)
    return np.where(short > tolerance, short, 0.0)


def short_rows(affine: AffineMap, short: Floats) -> tuple[tuple[str, float], ...]:
    """Names and amounts of the rows with a shortfall, the largest first; a cone is one row."""
    found: list[tuple[str, float]] = []
    for block in affine.cones:
        part = short[block.rows]
        if block.sizes:
            part = part[np.r_[0, np.cumsum(block.sizes)[:-1]].astype(np.int64)]
        found += [(_name(block, int(k), part.size), float(part[k])) for k in np.flatnonzero(part)]
    return tuple(sorted(found, key=lambda pair: -float(f"{pair[1]:.4g}")))


def _name(block: ConeBlock, row: int, rows: int) -> str:
    """The label and the index in the user's constraint, counted as CVXPY does: column by column."""
    if rows == 1:
        return block.label
    shape = block.shape if int(np.prod(block.shape)) == rows else (rows,)
    index = ", ".join(str(int(k)) for k in np.unravel_index(row, shape, order="F"))
    return f"{block.label}[{index}]"
